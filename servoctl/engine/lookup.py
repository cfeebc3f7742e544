"""A table of rows over time as one compiled function: piecewise polynomials keep their coefficients in it.

Design: the row depends on t by a search alone, so its derivative is zero, and polynomials of it have exact derivatives.
CasADi 3.8 returns uninitialised memory for the derivative of a called function that it knows to be zero. Therefore the
function contains a sine of t that is never added; its derivatives are evaluated as zeros.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.ops import CFunction, Cost, Op, constants, instance, register
from servoctl.engine.symbol import Symbol, from_sx, is_symbolic
from servoctl.types import Array


@dataclass(frozen=True, eq=False)
class LookupTable(Op):
    """Rows over t: row k counts from the k-th break on, row 0 before the first break. Equal by content."""

    breaks: Array  # strictly increasing, shape (k,)
    rows: Array  # shape (k + 1, width)

    def __post_init__(self) -> None:
        for field in ("breaks", "rows"):  # floats also where numpy's constructors make objects, while tracing
            kept = np.array(getattr(self, field), dtype=float, order="C")
            kept.flags.writeable = False
            object.__setattr__(self, field, kept)

    @cached_property
    def name(self) -> str:
        """Name of the compiled function, by content."""
        content = repr(self.rows.shape).encode() + self.breaks.tobytes() + self.rows.tobytes()
        return f"lookup_{hashlib.sha256(content).hexdigest()[:24]}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LookupTable) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def at(self, t: Any) -> Array:
        """The rows at times, which are numbers, shape (*t.shape, width)."""
        found: Array = self.rows[np.searchsorted(self.breaks, t, side="right")]
        return found

    def columns(self, t: Any) -> Array:
        """The row at a time, which is a number, an array or a symbol, shape (width, *t.shape)."""
        if is_symbolic(t):
            return from_sx(self.function(t.sx if isinstance(t, Symbol) else t))
        return np.moveaxis(self.at(t), -1, 0)

    @property
    def function(self) -> Any:
        """The CasADi function t -> row."""
        if self.name not in _FUNCTIONS:
            register(self.name, self)
            _FUNCTIONS[self.name] = self._function()
        return _FUNCTIONS[self.name]

    def in_c(self, function: Any) -> CFunction:
        breaks, rows = f"breaks_{self.name}", f"rows_{self.name}"
        count, width = len(self.breaks), self.rows.shape[1]
        text = constants(breaks, self.breaks) + constants(rows, self.rows.ravel())
        names = {"OPERATION": f"f_{self.name}", "BREAKS": breaks, "ROWS": rows, "COUNT": count, "WIDTH": width}
        search = Cost(3 * count.bit_length())  # comparisons of a search by halves, with their choices and sums
        return CFunction(text + instance("lookup.h", names), search, 4)

    def _function(self) -> Any:
        t, infinite = ca.MX.sym("t"), np.inf
        index = ca.low(ca.MX(ca.DM([-infinite, *self.breaks, infinite])), t, {"lookup_mode": "binary"})
        # Every row stands twice, so that the interpolation between 2 k and 2 k + 1 gives row k to the bit.
        twice, places = np.repeat(self.rows, 2, axis=0), np.arange(2.0 * len(self.rows))
        row = ca.interpolant(f"{self.name}_rows", "linear", [places], twice.ravel(), {"lookup_mode": ["exact"]})
        never = ca.if_else(t > infinite, ca.sin(t), 0)
        return ca.Function(self.name, [t], [row(2 * index) + never], {"never_inline": True})


_FUNCTIONS: dict[str, Any] = {}
_DERIVATIVE = re.compile(r"(?:(?:fwd|adj)\d+_|jac_)+(lookup_[0-9a-f]{24})")


def is_lookup_derivative(name: str) -> bool:
    """Whether a function is a derivative, of any order, of a lookup; it is zero."""
    return _DERIVATIVE.fullmatch(name) is not None
