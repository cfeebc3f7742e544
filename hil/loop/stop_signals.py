"""Which signals ask for the controlled stop, and how a run notices them.

Design: a signal only stores its name, which the run reads. It never raises an exception, so it interrupts neither the
frames that stop the drives nor the recorder. A signal before the end of a run makes its status "interrupted" and its
exit code 130; a later one changes nothing.
"""

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""What an operator or the system sends to end a program."""

_HARMLESS = ("SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH")
_CRASHES = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL")
_SUSPEND = ("SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGSTOP")


def _others() -> list[int]:
    """All further signals that end a process: by default (SIGUSR1, SIGALRM), and no crash of its own code."""
    left_out = {getattr(signal, name, None) for name in (*_HARMLESS, *_CRASHES, *_SUSPEND, "SIGKILL")}
    return [
        number
        for number in signal.valid_signals() - left_out - set(SIGNALS)
        if signal.getsignal(number) is signal.SIG_DFL
    ]


_NAMED = frozenset(map(int, signal.Signals))

SUSPEND = signal.SIGTSTP  # Ctrl-Z: on the wall clock, a suspended loop would leave the drives to their watchdogs


class StopSignals:
    """Notes the signals that ask for a stop; use it as a context manager, in the main thread.

    Args:
        suspend: Whether Ctrl-Z is one of them.
    """

    def __init__(self, suspend: bool) -> None:
        self.first = ""  # name of the first signal that came; empty before
        self.heard: Callable[[str], None] | None = None  # called with the name of each signal; None: no call
        self._suspend = suspend
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        numbers = [*SIGNALS, *_others(), *([SUSPEND] if self._suspend else [])]
        self._before = {number: signal.signal(number, self._note) for number in numbers}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name if number in _NAMED else f"signal {number}"
        self.first = self.first or name
        if self.heard is not None:
            self.heard(name)
