"""Prints lines and progress from a thread, so that a real-time loop never waits for the terminal."""

import sys
import time
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Self

from servoctl.cli.console import note

SPACING = 1.0  # [s] shortest time between two updates of the progress


class Announcer:
    """Prints lines on stderr from its own thread; a context manager.

    Design: the thread shares the interpreter lock with the loop. So the progress is one short line per second, and only
    on a terminal, instead of a bar that is redrawn all the time.

    Args:
        title: Text before the progress.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._queue: SimpleQueue[str | float | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="announcer", daemon=True)
        self._shown = time.monotonic()
        self._open = False

    def say(self, line: str) -> None:
        """Prints a line; returns at once."""
        self._queue.put(line)

    def progress(self, fraction: float) -> None:
        """Shows the fraction that is done, 0 to 1; returns at once."""
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
        while (item := self._queue.get()) is not None:
            if isinstance(item, str):
                self._clear()
                note(item)
            else:
                self._show(f"\r{self._title} {100 * item:.0f} %")
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
