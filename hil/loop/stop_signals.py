"""Signals that ask for the controlled stop, from before there is a run folder until it is finished.

Design: a signal only sets a word that the run looks at. It never raises, so it interrupts neither the frames that
stop the drives nor the recorder: a run says "interrupted", and ends with 130, where a signal came before its end; one
that comes later changes nothing.
"""

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

SUSPEND = signal.SIGTSTP
"""Ctrl-Z: on the wall clock a loop that stands still would leave the drives to their watchdogs."""


class StopSignals:
    """Takes note of these signals; use it as a context manager, in the main thread.

    Attributes:
        first: Name of the first that came; empty before.
        heard: Called with the name of each that comes; None: nobody asks yet.
    """

    def __init__(self, suspend: bool) -> None:
        """Takes whether Ctrl-Z is one of them."""
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
