"""A compilation beside a run, which starts on the virtual machine and goes over to C when the library is ready.

Design: a thread writes the source and waits for the compiler, a process of its own. The run asks between two steps
whether the library is there. A run that ends earlier ends the compiler too.
"""

import atexit
import threading

from servoctl.engine.ccode import Library, Program
from servoctl.engine.compiler import Stop
from servoctl.errors import CompileError

LONGEST_END = 2.0
"""Longest wait for the end of the work; writing the source of a large law takes a second [s]."""


class Compilation:
    """A library in the making.

    Attributes:
        problem: Why there will be no library; empty while nothing is wrong.
    """

    def __init__(self, program: Program) -> None:
        """Starts the work."""
        self._program, self._stop, self.problem = program, Stop(), ""
        self._library: Library | None = None
        self._thread = threading.Thread(target=self._work, name="servoctl-compiler", daemon=True)
        self._thread.start()
        atexit.register(self.end)  # a command may end before its run

    def ready(self) -> Library | None:
        """The library, if it is there."""
        return self._library

    def end(self) -> None:
        """Ends the compiler, if it still works, and waits until its files are removed."""
        atexit.unregister(self.end)
        self._stop.ask()
        self._thread.join(LONGEST_END)

    def _work(self) -> None:
        try:
            self._library = self._program.load(self._stop)
        except CompileError as error:
            self.problem = str(error)
