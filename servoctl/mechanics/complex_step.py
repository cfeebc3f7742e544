"""Rows of a nonholonomic task that is too large to trace, by one complex evaluation of the user's own psi.

    psi(q + i h v, v, t + i h) = psi + i h (psi_q v + psi_t) + O(h^2),   h = 1e-30

The real part is psi and the imaginary part over h its rate, both to rounding: nothing is subtracted. psi_v must be
known: this serves tasks `psi = c v + f(q, t)` with a constant c.

Design: complex numbers differentiate analytic code alone. The rows therefore count only after three comparisons: with
automatic differentiation of the same psi on its first coordinates, where psi_v must also be c I as an expression; with
complex steps along v at full size; and with differences at full size. A task that fails one of them is traced instead.

Source: Squire, Trapp 1998, for the complex step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.analytic import analytic, complex_steps
from servoctl.engine.kernel import Kernel, directional, inputs, jacobian
from servoctl.engine.pairwise import has_pairs
from servoctl.engine.structured import Diagonal
from servoctl.engine.trace import trace
from servoctl.mechanics.constraint import Constraint, Nonholonomic
from servoctl.mechanics.rows import Rows
from servoctl.types import Array, State

STEP = 1e-30
"""h: its square vanishes beside any number that psi contains."""

SMALL = 12
"""Number of coordinates of the comparison with automatic differentiation: a multiple of 2, 3, 4 and 6."""

EXACT, DIFFERENCES = 1e-10, 1e-5
"""Largest relative difference from exact derivatives, and from central differences."""


@dataclass(frozen=True)
class ComplexStep:
    """Rows `c a = -(psi_q v + psi_t)`.

    Attributes:
        slope: c.
        count: Number of rows.
    """

    slope: float
    count: int

    def at(self, constraint: Constraint, state: State) -> Rows:
        """The rows at a state.

        Args:
            constraint: The task; its parameters may have changed since `by_complex_step`.
            state: The state.
        """
        assert isinstance(constraint, Nonholonomic)
        value = _stepped(constraint, state, state.v, np.zeros(self.count), 1.0)
        return self._rows(-value.imag / STEP, value.real)

    def form(self, n: int) -> Rows:
        """Rows with the same A, for its structure."""
        return self._rows(np.zeros(n), np.zeros(n))

    def named(self, name: str) -> list[tuple[str, str, str, bool, bool, int]]:
        """The fields of `Row` for each row."""
        return [(f"{name}.{i}", name, "nonholonomic", True, False, 1) for i in range(self.count)]

    def _rows(self, b: Array, psi: Array) -> Rows:
        A = Diagonal(np.full(self.count, self.slope))
        A.constant = True
        return Rows(A, b, psi, np.full(self.count, np.nan))


def by_complex_step(task: Mapping[str, Constraint], around: State) -> dict[str, ComplexStep]:
    """Name -> rows by complex steps, if that is exact for every constraint of a task; else {}."""
    found = {name: _accepted(constraint, around) for name, constraint in task.items()}
    return {} if None in found.values() else {name: rows for name, rows in found.items() if rows is not None}


def _accepted(constraint: Constraint, around: State) -> ComplexStep | None:
    n = len(around.q)
    if type(constraint).rows is not Nonholonomic.rows or constraint.signals:
        return None
    assert isinstance(constraint, Nonholonomic)
    if constraint.equation is not None:
        return None
    try:
        with np.errstate(all="ignore"):
            slope = _slope_by_symbols(constraint, around)
            if slope is None or not _right_at_full_size(constraint, around, slope):
                return None
    except Exception:  # the user's code may raise anything on a part of the state, or on complex numbers
        return None
    return ComplexStep(slope, n)


def _slope_by_symbols(constraint: Nonholonomic, around: State) -> float | None:
    """c, if psi of the first coordinates has psi_v = c I as an expression, and complex steps give its exact rate."""
    given = inputs({"t": (1,), "q": (SMALL,), "v": (SMALL,)})
    t, q, v = given["t"], given["q"], given["v"]
    psi = np.atleast_1d(np.asarray(trace(constraint.psi, q, v, constraint._time(t[0])), dtype=object))
    if has_pairs(psi):
        return None  # it is traced as one function at any size
    A = jacobian(psi, v)
    if A.shape != (SMALL, SMALL) or any(entry.sx.is_symbolic() or not entry.sx.is_constant() for entry in A.flat):
        return None
    numbers = np.array([float(entry.sx) for entry in A.flat]).reshape(A.shape)
    slope = float(numbers[0, 0])
    if slope == 0.0 or not np.array_equal(numbers, slope * np.eye(SMALL)):
        return None
    rate = directional(psi, q, v) + jacobian(psi, t)[:, 0]
    exact = Kernel.compile("rate", given, {"psi": psi, "rate": rate})
    random = np.random.default_rng(0)
    for _ in range(5):
        state = State(*_moved(around, random, SMALL))
        value = _stepped(constraint, state, state.v, np.zeros(SMALL), 1.0)
        expected = exact(state.t, state.q, state.v)
        if not all(map(_close, (value.real, value.imag / STEP), expected, (EXACT, EXACT))):
            return None
    return slope


def _right_at_full_size(constraint: Nonholonomic, around: State, slope: float) -> bool:
    random, n = np.random.default_rng(1), len(around.q)
    for _ in range(2):
        state, w = State(*_moved(around, random, n)), random.standard_normal(n)
        along_v = _stepped(constraint, state, np.zeros(n), w, 0.0)
        if not _close(along_v.imag / STEP, slope * w, EXACT):
            return False
    h = 1e-6 / max(1.0, float(np.abs(state.v).max()))
    ahead, behind = (constraint.psi(state.q + s * h * state.v, state.v, state.t + s * h) for s in (1.0, -1.0))
    rate = _stepped(constraint, state, state.v, np.zeros(n), 1.0).imag / STEP
    return _close((np.asarray(ahead) - np.asarray(behind)) / (2 * h), rate, DIFFERENCES)


def _moved(around: State, random: Any, n: int) -> tuple[float, Array, Array]:
    q = around.q[:n] + 0.1 * random.standard_normal(n)
    return float(around.t) + 0.5 + random.random(), q, around.v[:n] + random.standard_normal(n)


def _close(one: Array, other: Array, tolerance: float) -> bool:
    scale = float(np.abs(other).max(initial=0.0))
    return bool(np.isfinite(one).all() and np.abs(one - other).max(initial=0.0) <= tolerance * (scale or 1.0))


def _stepped(constraint: Nonholonomic, state: State, dq: Array, dv: Array, dt: float) -> Array:
    """psi at a state moved by i h along (dq, dv, dt)."""
    waits = getattr(constraint, "_stands", False) and not state.t > 0.0
    t: Any = 0.0 if waits else complex(state.t, STEP * dt)
    q, v = analytic(state.q + 1j * STEP * dq), analytic(state.v + 1j * STEP * dv)
    with complex_steps():
        value = constraint.psi(q, v, t)
    return np.array(value, dtype=complex, subok=False)
