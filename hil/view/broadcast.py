"""Passes the newest picture and every event to the viewers of the live page."""

import json
from collections.abc import Callable, Mapping
from threading import Condition
from typing import Any


class Broadcast:
    """Passes pictures and events from one thread to the threads of all viewers."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.about = json.dumps(about).encode()  # constant values for the page, as JSON
        self._changed = Condition()
        self._picture, self._number, self._over = b"{}", 0, False
        self._events: list[Any] = []
        self._dropped = 0
        self._viewers = self._waiting = 0

    @property
    def wanted(self) -> bool:
        """Whether a viewer waits for a picture; one that does not read does not count."""
        return self._waiting > 0

    def change(self, picture: Mapping[str, Any], events: list[Any], dropped: int, over: bool = False) -> None:
        """Sets a new picture.

        Args:
            picture: Plain values.
            events: All events but the first ones that were dropped.
            dropped: Number of dropped events.
            over: Whether this picture is the last.
        """
        data = json.dumps(picture, allow_nan=False).encode()
        with self._changed:
            self._picture, self._number, self._over = data, self._number + 1, over
            self._events, self._dropped = events, dropped
            self._changed.notify_all()

    def watch(self, send: Callable[[str, bytes], None]) -> None:
        """Sends every event once, and always the newest picture, until the last one.

        Args:
            send: Sends a message; takes its kind and its text, may block, and may raise OSError.
        """
        sent = 0
        with self._changed:
            self._viewers += 1
            seen = self._number  # skip the present picture: it is old if no viewer has waited for pictures
        try:
            while True:
                with self._changed:
                    self._waiting += 1
                    while self._number == seen and not self._over:
                        self._changed.wait()
                    self._waiting -= 1
                    picture, seen, over = self._picture, self._number, self._over
                    events, sent = self._events[max(0, sent - self._dropped) :], self._dropped + len(self._events)
                if events:
                    send("events", json.dumps(events).encode())
                send("over" if over else "picture", picture)
                if over:
                    return
        finally:
            with self._changed:
                self._viewers -= 1
                self._changed.notify_all()

    def wait_for_viewers(self, seconds: float) -> None:
        """Waits until every viewer has got the last picture, at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._viewers, timeout=seconds)
