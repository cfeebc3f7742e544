"""A recorder that keeps what it is given: for runs in lock-step that leave no folder."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hil.frame import Frame
from hil.recorder.process import INTEGERS
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array


class InMemory:
    """Rows, frames and events of a run.

    Attributes:
        frames: (number of the bus, whether it was sent, frame, time [ns]), in order.
        events: (kind, text, time [ns]), in order.
    """

    problem: str | None = None

    def __init__(self, columns: Mapping[str, str], metadata: Mapping[str, Any]) -> None:
        """Takes column -> unit, in the order of a row, and what is known of the run beforehand."""
        self.frames: list[tuple[int, bool, Frame, int]] = []
        self.events: list[tuple[str, str, int]] = []
        self._columns, self._metadata = dict(columns), dict(metadata)
        self._rows: list[Array] = []

    def row(self, values: Array) -> None:
        """Keeps a row, shape (columns,)."""
        self._rows.append(values.copy())

    def frame(self, bus: int, sent: bool, frame: Frame, time: int) -> None:
        """Keeps a frame."""
        self.frames.append((bus, sent, frame, time))

    def event(self, kind: str, text: str, time: int, **fields: Any) -> None:
        """Keeps an event."""
        self.events.append((kind, text, time))

    def close(self, metadata: Mapping[str, Any] | None = None) -> Trajectory:
        """The run."""
        table = np.array(self._rows).reshape(len(self._rows), len(self._columns))
        columns = {name: table[:, i] for i, name in enumerate(self._columns)}
        for name in INTEGERS:
            if name in columns:
                columns[name] = np.nan_to_num(columns[name], nan=-1.0).astype(np.int64)
        return Trajectory(columns, self._columns, {**self._metadata, **(metadata or {})})
