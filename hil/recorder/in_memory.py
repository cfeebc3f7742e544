"""How a run in lock-step without a run folder is recorded: in memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hil.frame import Frame
from hil.recorder.memory import FRAME, named_columns, unpacked
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array


class InMemory:
    """Rows, frames and events of a run.

    Args:
        columns: Column -> unit, in the order of a row.
        metadata: What is known about the run at its start: see `Trajectory.metadata`.
    """

    problem: str | None = None

    def __init__(self, columns: Mapping[str, str], metadata: Mapping[str, Any]) -> None:
        # (index of the bus, whether it was sent, frame, time [ns]), in order
        self.frames: list[tuple[int, bool, Frame, int]] = []
        self.events: list[tuple[str, str, int]] = []  # (kind, text, time [ns]), in order
        self._columns, self._metadata = dict(columns), dict(metadata)
        self._rows: list[Array] = []

    def row(self, values: Array) -> None:
        """Records a row, shape (columns,)."""
        self._rows.append(values.copy())

    def frame(self, bus: int, sent: bool, frame: Frame, time: int) -> None:
        """Records a frame; arguments as for `Recorder.frame`."""
        self.frames.append((bus, sent, frame, time))

    def frame_records(self, records: memoryview) -> None:
        """Records frames; argument as for `Recorder.frame_records`."""
        self.frames.extend(unpacked(*each) for each in FRAME.iter_unpack(records))

    def event(self, kind: str, text: str, time: int, **fields: Any) -> None:
        """Records an event; arguments as for `Recorder.event`."""
        self.events.append((kind, text, time))

    def close(self, metadata: Mapping[str, Any] | None = None) -> Trajectory:
        """The recorded run; `metadata` is added to that of its start."""
        table = np.array(self._rows).reshape(len(self._rows), len(self._columns))
        columns = named_columns(table, self._columns)
        return Trajectory(columns, self._columns, {**self._metadata, **(metadata or {})})
