"""Computes the picture that the live page shows from the recorder's memory, and draws the machine and its bounds."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hil.recorder.memory import Ring, SharedRings
from servoctl.mechanics.plant import Plant
from servoctl.report.drawing import PlacedShape, poses, shape_picture, surfaces
from servoctl.report.mechanism import fixed_shapes
from servoctl.types import Array

MARGIN = 2  # number of records after the one being written that are not trusted: a store may become visible late


class RingReader:
    """Reads every record of a ring, from its oldest on; if it looks too rarely it misses some, and reports how many.

    Design: like `Ring`, it reads the records that were complete at its previous look. Then it drops those that may have
    been overwritten meanwhile. So no record is ever torn, and the writer needs no lock.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring, self._seen = ring, ring.head
        self._next = max(0, self._seen - ring.capacity + MARGIN)

    def look(self) -> tuple[bytes, int]:
        """Records that were complete at the previous look, and the number of missed records before them."""
        ring, end = self._ring, self._seen
        first = max(self._next, min(end, ring.head - ring.capacity + MARGIN))
        data = ring.copy(first, end)
        self._seen = ring.head
        whole = max(first, min(end, self._seen - ring.capacity + MARGIN))
        missed, self._next = whole - self._next, end
        return data[(whole - first) * ring.size :], missed


class MachineDrawing:
    """Draws a plant.

    `frames`: names of frames of a robot whose axes are drawn; `shapes`: spheres and capsules of bounds.
    """

    def __init__(self, plant: Plant, frames: Sequence[str] = (), shapes: Sequence[PlacedShape] = ()) -> None:
        self._plant = plant
        self._shapes = [shape for shape in shapes if shape.link is not None]
        still = shape_picture(plant, [shape for shape in shapes if shape.link is None], np.empty((0, 0)))
        drawn = surfaces(plant)
        names = [name.removeprefix("solid.") for name in drawn if name.startswith("solid.")]
        # what the page gets once
        self.still: dict[str, Any] = {
            # frame -> corners of its surface [m] and faces, each as one list; see `Trajectory.drawing`
            "solids": {
                name: {
                    "points": [plain(x) for x in drawn[f"solid.{name}"].flat],
                    "faces": drawn[f"faces.{name}"].ravel().tolist(),
                }
                for name in names
            },
            "fixed": [each._asdict() for each in fixed_shapes(still)],  # what does not move
        }
        self._frames = list(dict.fromkeys([*names, *frames]))

    def at(self, q: Array) -> dict[str, Any]:
        """What moves, at coordinates of shape (n,).

        `links`: polylines; `poses`: 12 numbers per frame of a robot; `shapes`: 7 numbers per sphere or capsule.
        """
        lines = self._plant.links(q)
        moved = poses(self._plant, self._frames, np.asarray(q)[None])
        shapes = shape_picture(self._plant, self._shapes, np.asarray(q)[None])
        return {
            "links": {
                name: [[plain(x) for x in point] for point in np.atleast_2d(line)] for name, line in lines.items()
            },
            "poses": {name: [plain(x) for x in pose[0]] for name, pose in moved.items()},
            "shapes": {name.removeprefix("shape."): [plain(x) for x in shape[0]] for name, shape in shapes.items()},
        }


def plain(value: float) -> float | None:
    """The number with six digits; None if it is not finite, because JSON has no such numbers."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


KEPT_EVENTS = 2000  # largest number of past events that a new viewer gets


class Scene:
    """Follows a run."""

    def __init__(
        self,
        memory: SharedRings,  # the recorder's memory, mapped
        columns: Sequence[str],  # columns of a row, in order
        machine: MachineDrawing | None,  # draws the plant; None: no drawing
    ) -> None:
        self._rows, self._events = RingReader(memory.rows), RingReader(memory.events)
        self._columns, self._machine = list(columns), machine
        index = {name: i for i, name in enumerate(columns)}
        self._late, self._skipped = index["lateness"], index["skipped"]
        self._peaks = [i for name, i in index.items() if name.startswith(("violation.", "law.", "u."))]
        self._q = [i for name, i in index.items() if name.startswith("q.")]
        self._last: Array | None = None
        self._top: dict[str, float] = {}
        self._skips = 0
        # events as in the run folder; the oldest are dropped if there are too many
        self.events: list[dict[str, Any]] = []
        self.dropped = 0  # number of dropped events
        self._row_count = self._missed = 0  # rows that were read, and that were overwritten before

    def look(self) -> bool:
        """Reads what is new; returns whether there was a new row."""
        data, missed = self._events.look()
        if not missed:  # after overwritten events the start of the next one is not known
            self.events += [json.loads(line) for line in data.splitlines()]
        over = max(0, len(self.events) - KEPT_EVENTS)
        self.events, self.dropped = self.events[over:], self.dropped + over
        rows, missed = self._rows.look()
        self._missed += missed
        table = np.frombuffer(rows).reshape(-1, len(self._columns))
        self._row_count += len(table)
        if not len(table):
            return False
        self._top = {name: max(value, self._top.get(name, 0.0)) for name, value in self._worst(table).items()}
        self._last = table[-1]
        self._skips += int(table[:, self._skipped].sum())
        return True

    def _worst(self, table: Array) -> dict[str, float]:
        """Column -> largest absolute value in these rows."""
        with np.errstate(all="ignore"):
            largest = np.max(np.abs(table[:, self._peaks]), axis=0, initial=0.0)
        peaks = {self._columns[i]: float(value) for i, value in zip(self._peaks, largest, strict=True)}
        return peaks | {"lateness": float(table[:, self._late].max())}

    def picture(self) -> dict[str, Any]:
        """Contents of the page as plain values; non-finite numbers are None."""
        now, top = self._last, self._top
        self._top = {}
        picture: dict[str, Any] = {
            "rows": self._row_count,
            "row": None if now is None else {name: plain(x) for name, x in zip(self._columns, now, strict=True)},
            "peak": {name: plain(value) for name, value in top.items()},
            "skipped": self._skips,
            "missed": self._missed,
        }
        if self._machine is not None and now is not None:
            try:
                picture |= self._machine.at(now[self._q])
            except Exception:  # a user's plant may raise anything; the page goes on without the drawing
                self._machine = None
        return picture
