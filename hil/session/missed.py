"""Counts, while a run on drives goes on, the ticks that miss a required task: see `servoctl.run_folder.missed`."""

import numpy as np

from servoctl.run_folder.missed import MOST, OUT_OF_REACH
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array


class MissedTicks:
    """Counts the ticks of the last stage in which a required task is infeasible and violated.

    Args:
        loop: The closed loop of the law.
        band: Violations below this count as met [units of the row].
    """

    def __init__(self, loop: Loop, band: float) -> None:
        self._band, self._ticks = band, 0
        self.codes = {status.code for status in OUT_OF_REACH}  # codes of the statuses with which a tick may miss a task
        slices, command = loop.layout.slices, loop.layout.command_size
        self._status, self._residual = slices["status"].start, slices["residual"].start
        self._violation = slice(slices["violation"].start - command, slices["violation"].stop - command)
        law = loop.system.law
        excused = () if law is None else law.excused
        self._rows: dict[str, list[int]] = {}
        for i, row in enumerate(loop.system.model.task_rows):
            if i not in excused:
                self._rows.setdefault(row.group, []).append(i)
        self._counts = dict.fromkeys(self._rows, 0)

    def tick(self, command: Array, log: Array) -> None:
        """Counts one tick; the arguments are the two parts of a row as `Layout` orders them."""
        self._ticks += 1
        if command[self._status] not in self.codes:
            return
        violation = log[self._violation]
        for task, rows in self._rows.items():
            known = violation[rows][~np.isnan(violation[rows])]
            size = np.linalg.norm(known) if len(known) else abs(command[self._residual])
            self._counts[task] += bool(size > self._band)

    def met(self, count: int) -> None:
        """Counts ticks whose command has none of the statuses in `codes`."""
        self._ticks += count

    def missed(self) -> dict[str, float]:
        """Task -> share of the ticks in which it was missed, for the tasks that were missed in most of them."""
        if not self._ticks:
            return {}
        shares = {task: count / self._ticks for task, count in self._counts.items()}
        return {task: share for task, share in shares.items() if share > MOST}
