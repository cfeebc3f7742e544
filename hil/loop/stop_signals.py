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

SUSPEND = signal.SIGTSTP
"""Ctrl-Z: on the wall clock, a suspended loop would leave the drives to their watchdogs."""


class StopSignals:
    """Notes the signals that ask for a stop; use it as a context manager, in the main thread.

    Args:
        suspend: Whether Ctrl-Z is one of them.

    Attributes:
        first: Name of the first signal that came; empty before.
        heard: Called with the name of each signal; None: no call.
    """

    def __init__(self, suspend: bool) -> None:
        self.first = ""
        self.heard: Callable[[str], None] | None = None
        self._numbers = (*SIGNALS, SUSPEND) if suspend else SIGNALS
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in self._numbers}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        self.first = self.first or name
        if self.heard is not None:
            self.heard(name)
