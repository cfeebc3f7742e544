"""Whether numbers or symbols are finite.

Design: one test of the sum serves all entries, because a sum with an infinity or a NaN is not finite. The comparison is
one that CasADi cannot simplify away: `x - x == 0` would become true.
"""

import math
from typing import Any

import numpy as np

from servoctl.engine import loops
from servoctl.engine.products import called, total
from servoctl.engine.symbol import Symbol, is_symbolic
from servoctl.types import Array

_LARGEST = 1.7976931348623157e308

MANY, INPUTS = 500, 64
"""Symbols of one array from which a loop sums them, and the same if all are inputs, of which no copy is made."""


def is_finite(*arrays: Array) -> Any:
    """Whether every entry is a finite number: a bool, or a symbol that is 0 or 1."""
    if not is_symbolic(*arrays):
        return all(_numbers_are_finite(np.asarray(array, dtype=float)) for array in arrays)
    # equal expressions count once
    seen: set[int] = set()
    entries: list[Any] = []
    for array in arrays:
        own: list[Symbol] = []
        for entry in np.asarray(array, dtype=object).flat:
            if not isinstance(entry, Symbol):
                entries.append(entry)
            elif entry.sx.element_hash() not in seen:
                seen.add(entry.sx.element_hash())
                own.append(entry)
        if len(own) < (INPUTS if all(entry.sx.is_symbolic() for entry in own) else MANY):
            entries += own
        else:
            entries += called(loops.total_function(len(own)), (np.array(own, dtype=object),), ())
    return abs(total(entries)) <= _LARGEST


def _numbers_are_finite(array: Array) -> bool:
    # the sum of squares is finite only if each entry is; where it overflows, the entries decide
    return math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())
