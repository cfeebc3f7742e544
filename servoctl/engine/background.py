"""A compilation beside a run, which starts on the virtual machine and goes over to C when the library is ready.

Design: a thread writes the source and waits for the compiler, a process of its own. The run asks between two steps
whether the library is there. If the run ends earlier, the process finishes alone (`engine.detached`), so that the next
run finds the library; where it cannot, or after Ctrl-C, it is ended.
"""

import atexit
import threading

from servoctl.engine import compiler, detached
from servoctl.engine.ccode import Library, Program
from servoctl.errors import CompileError

LONGEST_END = 2.0
"""Longest wait for the end of the work, or for the source: that of a large law takes half a second to write [s]."""


class Compilation:
    """A library in the making.

    Attributes:
        problem: Why there will be no library; empty while nothing is wrong.
    """

    def __init__(self, program: Program) -> None:
        """Starts the work."""
        self._program, self.problem = program, ""
        self._detached, self._left = detached.refusal() is None, False
        self._stop = detached.DetachedStop() if self._detached else compiler.Stop()
        self._handed_over = threading.Event()
        self._library: Library | None = None
        self._thread = threading.Thread(target=self._work, name="servoctl-compiler", daemon=True)
        self._thread.start()
        atexit.register(self.end)  # a command may end before its run

    def ready(self) -> Library | None:
        """The library, if it is there."""
        return self._library

    def end(self) -> None:
        """Ends the compiler, if it still works and was not left alone, and waits until its files are removed."""
        atexit.unregister(self.end)
        if not self._left:
            self._stop.ask()
            self._thread.join(LONGEST_END)

    def leave(self) -> bool:
        """Lets the compiler finish alone; returns whether it can."""
        self._left = self._detached and self._handed_over.wait(LONGEST_END) and not self.problem
        return self._left

    def _work(self) -> None:
        program = self._program
        try:
            if isinstance(self._stop, detached.DetachedStop):
                detached.build(program.key, program.source, program.optimised, self._stop, self._handed_over)
            if not self._left:
                self._library = program.load(self._stop)
        except CompileError as error:
            self.problem = str(error)
        finally:
            self._handed_over.set()
