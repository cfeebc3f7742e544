"""Lines and progress from what must not wait for a terminal."""

import sys
import time
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Self

from servoctl.cli.console import note

SPACING = 1.0
"""Time between two updates of the progress [s]."""


class Announcer:
    """Says on stderr what it is handed, from a thread of its own that sleeps meanwhile; use it as a context manager.

    Design: the caller shares this process, and so the interpreter's lock, with the thread. So the progress is a short
    line once a second where a person looks at it, and no bar that is drawn anew all the time.
    """

    def __init__(self, title: str) -> None:
        """Takes the title of the progress."""
        self._title = title
        self._queue: SimpleQueue[str | float | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="announcer", daemon=True)
        self._shown = time.monotonic()
        self._open = False

    def say(self, line: str) -> None:
        """Says a line; returns at once."""
        self._queue.put(line)

    def progress(self, fraction: float) -> None:
        """Shows how much is done, from 0 to 1; returns at once."""
        now = time.monotonic()
        if now > self._shown + SPACING:
            self._shown = now
            self._queue.put(fraction)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (said := self._queue.get()) is not None:
            if not isinstance(said, str):
                self._show(f"\r{self._title} {100 * said:.0f} %")
            else:
                self._clear()
                note(said)
        self._clear()

    def _show(self, text: str) -> None:
        if sys.stderr.isatty():
            self._open = True
            sys.stderr.write(text)
            sys.stderr.flush()

    def _clear(self) -> None:
        if self._open:
            self._open = False
            self._show("\r\033[K")
            self._open = False
