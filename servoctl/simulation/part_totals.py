"""What the parts of a machine say about the whole: the results of one part after the other are added to the totals."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from servoctl.engine.mapped import fold
from servoctl.engine.symbol import fmax, fmin, where
from servoctl.types import Array

_FLAGS = ("positive", "finite", "known")
_SUMS, _SIZES = ("rank", "rows", "inputs", "passive"), ("missed", "rhs")


def before_all(names: Sequence[str], finite: Any) -> dict[str, Any]:
    """The totals before the first part.

    Args:
        names: Names of the results of a part.
        finite: Whether the state is finite.
    """
    start = dict.fromkeys((*_SUMS, *_SIZES), 0.0) | {"known": 1.0, "pivot": np.inf}
    return {"positive": 1.0, "finite": finite} | {name: start[name] for name in names if name in start}


def after_all(total: Mapping[str, Any], rows: Array, slices: Mapping[str, slice]) -> dict[str, Any]:
    """The totals after like parts.

    Args:
        total: The totals before them.
        rows: Results of each part, shape (parts, results).
        slices: Name -> place of results in a row.
    """

    def after(before: Array, row: Array) -> Array:
        results = {name: row[place] for name, place in slices.items()}
        added = _added(dict(zip(total, before, strict=True)), results)
        return np.array([added[name] for name in total], dtype=object)

    return dict(zip(total, fold(after, np.array(list(total.values()), dtype=object), rows), strict=True))


def _added(total: Mapping[str, Any], part: Mapping[str, Array]) -> dict[str, Any]:
    """The totals with one part more."""
    new = {name: where(part[name][0] > 0.5, total[name], 0.0) for name in _FLAGS if name in total}
    new |= {name: total[name] + part[name][0] for name in _SUMS if name in total}
    for name in _SIZES:
        if name in total:
            new[name] = total[name]
            for value in part[name]:
                new[name] = fmax(new[name], abs(value))
    if "pivot" in total:
        new["pivot"] = fmin(total["pivot"], where(part["rank"][0] > 0.5, part["pivot"][0], np.inf))
    return new
