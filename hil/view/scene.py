"""What a page shows, from what the recorder's memory holds."""

import json
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hil.bus.frame_bits import worst_bits
from hil.loop.clock import SECOND
from hil.recorder.events import split
from hil.recorder.memory import ERROR, EXTENDED, SENT, SharedRings
from hil.view.ring_reader import RingReader
from servoctl.types import Array

HISTORY = 10.0
"""Time over which punctuality is counted [s]."""

LOAD_TIME = 1.0
"""Time over which the load of a bus is counted [s]."""

KEPT_EVENTS = 2000
"""Events that a page which comes late is told at most."""

FRAMES = np.dtype(
    {
        "names": ["time", "id", "bus", "flags", "length"],
        "formats": ["<i8", "<u4", "u1", "u1", "u1"],
        "offsets": [0, 8, 12, 13, 14],
        "itemsize": 24,
    }
)
"""As `recorder.memory.FRAME`, without the data."""

BITS = np.array([[worst_bits(min(size, 8), extended) for size in range(256)] for extended in (False, True)])
"""Most bits of a frame, by whether it is extended, and bytes."""

Links = Callable[[Array], Mapping[str, Array]]


class Scene:
    """Follows a run.

    Attributes:
        events: What happened, as the run folder has it; the oldest go where there are too many.
        dropped: How many have gone.
        rows: How many rows were seen.
        missed: How many rows came too fast to be seen.
    """

    def __init__(
        self, memory: SharedRings, columns: Sequence[str], bitrates: Mapping[str, float], links: Links | None
    ) -> None:
        """Takes the recorder's memory.

        Args:
            memory: Mapped.
            columns: Of a row, in order.
            bitrates: Name of a bus -> its bit rate [bit/s], in the order of the buses' numbers.
            links: q -> the plant's polylines; None: there is nothing to draw.
        """
        self._rows, self._frames, self._events = map(RingReader, (memory.rows, memory.frames, memory.events))
        self._columns, self._links = list(columns), links
        places = {name: i for i, name in enumerate(columns)}
        self._t, self._late, self._skipped = places["t"], places.get("lateness"), places.get("skipped")
        self._peaks = [i for name, i in places.items() if name.startswith(("violation.", "law.", "u."))]
        self._q = [i for name, i in places.items() if name.startswith("q.")]
        self._last: Array | None = None
        self._top: dict[str, float] = {}
        self._lateness: deque[tuple[float, Array]] = deque()
        self._skips = 0
        self._buses = [BusTraffic(name, rate) for name, rate in bitrates.items()]
        self.events: list[dict[str, Any]] = []
        self.dropped = self.rows = self.missed = 0

    def look(self) -> bool:
        """Takes in what is new; returns whether a row was."""
        data, missed = self._events.look()
        if not missed:  # of events that were overwritten nobody knows where the next begins
            self.events += [json.loads(line) for line in split(data)]
        over = max(0, len(self.events) - KEPT_EVENTS)
        self.events, self.dropped = self.events[over:], self.dropped + over
        frames, _ = self._frames.look()
        self._count(np.frombuffer(frames, FRAMES))
        rows, missed = self._rows.look()
        self.missed += missed
        table = np.frombuffer(rows).reshape(-1, len(self._columns))
        self.rows += len(table)
        if not len(table):
            return False
        self._top = {name: max(value, self._top.get(name, 0.0)) for name, value in self._worst(table).items()}
        self._last = table[-1]
        now = float(self._last[self._t])
        if self._late is not None:
            self._lateness.append((now, table[:, self._late]))
            while self._lateness[0][0] < now - HISTORY:
                self._lateness.popleft()
        if self._skipped is not None:
            self._skips += int(table[:, self._skipped].sum())
        return True

    def _worst(self, table: Array) -> dict[str, float]:
        """Column -> largest size in these rows."""
        with np.errstate(all="ignore"):
            largest = np.max(np.abs(table[:, self._peaks]), axis=0, initial=0.0)
        found = {self._columns[i]: float(value) for i, value in zip(self._peaks, largest, strict=True)}
        if self._late is not None:
            found["lateness"] = float(table[:, self._late].max())
        return found

    def _count(self, frames: Any) -> None:
        for number, bus in enumerate(self._buses):
            bus.add(frames[frames["bus"] == number])

    def picture(self) -> dict[str, Any]:
        """A frame for the page: plain values, numbers that are not finite as None."""
        now, top = self._last, self._top
        self._top = {}
        found: dict[str, Any] = {
            "rows": self.rows,
            "row": None if now is None else {name: _plain(x) for name, x in zip(self._columns, now, strict=True)},
            "peak": {name: _plain(value) for name, value in top.items()},
            "skipped": self._skips,
            "missed": self.missed,
            "bus": {bus.name: bus.as_dict() for bus in self._buses},
        }
        if self._lateness:
            late = np.concatenate([values for _, values in self._lateness])
            p50, p99, most = np.percentile(late, (50, 99, 100)).tolist()
            found["lateness"] = {"p50": p50, "p99": p99, "max": most, "n": len(late)}
        if self._links is not None and now is not None:
            found["links"] = self._drawn(now[self._q])
        return found

    def _drawn(self, q: Array) -> dict[str, list[list[float | None]]]:
        assert self._links is not None
        try:
            shapes = self._links(q)
        except Exception:  # a user's plant may raise anything; its picture is not worth the page
            self._links = None
            return {}
        return {name: [[_plain(x) for x in point] for point in np.atleast_2d(shape)] for name, shape in shapes.items()}


class BusTraffic:
    """Frames of a bus, and its load at worst over the last second.

    Attributes:
        name: Of the bus.
    """

    def __init__(self, name: str, bitrate: float) -> None:
        """Takes the bus's name and bit rate [bit/s]."""
        self.name, self._bitrate = name, bitrate
        self._recent: deque[tuple[int, int]] = deque()
        self._counts = {"sent": 0, "received": 0, "errors": 0}

    def add(self, frames: Any) -> None:
        """Counts frames, an array of `FRAMES`."""
        if not len(frames):
            return
        flags = frames["flags"]
        errors, sent = flags & ERROR != 0, flags & SENT != 0
        self._counts["errors"] += int(errors.sum())
        self._counts["sent"] += int(sent.sum())
        self._counts["received"] += int((~sent & ~errors).sum())
        bits = BITS[(flags & EXTENDED != 0).astype(int), frames["length"]]
        now = int(frames["time"].max())
        self._recent.append((now, int(bits.sum())))
        while self._recent[0][0] < now - LOAD_TIME * SECOND:
            self._recent.popleft()

    def as_dict(self) -> dict[str, float]:
        """Counts, and the share of the bus that was used, at worst stuffing."""
        load = 0.0
        if len(self._recent) > 1:
            span = (self._recent[-1][0] - self._recent[0][0]) / SECOND
            load = sum(bits for _, bits in list(self._recent)[1:]) / (span * self._bitrate) if span > 0 else 0.0
        return {**self._counts, "load": load}


def _plain(value: float) -> float | None:
    """A number as JSON can have it, to six digits."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
