"""What the live page says about bounds: h, which of them hold the inputs, since when, and what is given up for them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from servoctl.types import Array

GAP = 5  # a bound that lets go for fewer rows than this still holds, as in the events of the run


class BoundHistory:
    """Follows the bounds of a run.

    Args:
        columns: Columns of a row, in order.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        index = {name: i for i, name in enumerate(columns)}
        self._t, self._given_up = index["t"], [i for name, i in index.items() if name.startswith("given_up.")]
        self._tasks = [columns[i].removeprefix("given_up.") for i in self._given_up]
        names = [name.removeprefix("bound.") for name in columns if name.startswith("bound.")]
        self._bounds = [
            _Bound(name, index[f"bound.{name}"], index[f"bound_active.{name}"], index[f"bound_lack.{name}"])
            for name in names
            if f"bound_active.{name}" in index and f"bound_lack.{name}" in index
        ]

    def add(self, table: Array) -> None:
        """Reads new rows, shape (rows, columns)."""
        for bound in self._bounds:
            bound.add(table, table[:, self._t], table[:, self._given_up], self._tasks)

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """Name -> facts; see `_Bound`."""
        return {bound.name: bound.facts for bound in self._bounds}


class _Bound:
    """One bound.

    Attributes:
        name: Its name.
        facts: `h`, `least` since the start, `holds`, `since` and `until` of the present or last hold [s], `time` of
            all holds [s], `given_up`: task row -> most in this hold [unit/s^2], and `lack`.
    """

    def __init__(self, name: str, h: int, active: int, lack: int) -> None:
        self.name, self._h, self._active, self._lack = name, h, active, lack
        self.facts: dict[str, Any] = {
            "h": None, "least": None, "holds": False, "since": None, "until": None, "time": 0.0, "given_up": {},
            "lack": 0.0,
        }  # fmt: skip
        self._free, self._before = GAP, 0.0

    def add(self, table: Array, t: Array, given_up: Array, tasks: Sequence[str]) -> None:
        """Reads new rows."""
        facts, h = self.facts, table[:, self._h]
        known = h[np.isfinite(h)]
        if len(known):
            facts["h"], least = float(known[-1]), float(known.min())
            facts["least"] = least if facts["least"] is None else min(least, facts["least"])
        for k in range(len(table)):
            now, holds = float(t[k]), bool(table[k, self._active] > 0.5)
            if holds:
                if self._free >= GAP:
                    facts |= {"since": now, "given_up": {}, "lack": 0.0}
                elif self._before:
                    facts["time"] += now - self._before
                self._gives_up(given_up[k], tasks)
                facts["lack"] = max(facts["lack"], float(np.nan_to_num(table[k, self._lack])))
                self._free, self._before = 0, now
            elif self._free < GAP:
                self._free += 1
                facts["until"] = now if self._free == 1 else facts["until"]
        facts["holds"] = self._free < GAP

    def _gives_up(self, values: Array, tasks: Sequence[str]) -> None:
        most = self.facts["given_up"]
        for task, value in zip(tasks, np.nan_to_num(values).tolist(), strict=True):
            if value > max(1e-9, most.get(task, 0.0)):
                most[task] = value
