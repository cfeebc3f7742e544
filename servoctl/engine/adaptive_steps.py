"""Steps that the method chooses, taken in C: Dormand and Prince's method of order 8 with SciPy's coefficients."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from servoctl.types import Array

if TYPE_CHECKING:
    from servoctl.engine.ccode import Library

DOP853 = """long long servoctl_dop853(long long, double, double, double, const double*, const double*, long long,
    long long, const double*, double*, double*, double*, double*, long long, const double*, double*, double*);"""


class AdaptiveSteps:
    """A run of adaptive steps, taken in stretches.

    Attributes:
        t: Where it stands [s].
        x: State there.
        position: Outputs that are done.
        evaluations: Of the rates, so far.
    """

    def __init__(
        self, library: "Library", solver: Any, parameters: Array, status: int, stops: Array, outputs: Array | None
    ) -> None:
        """Takes over from SciPy before its first step.

        Args:
            library: Of `Program`, with a step of a law that acts continuously.
            solver: SciPy's DOP853 at the start.
            parameters: Of the loop.
            status: Where the status stands in a row.
            stops: Statuses to stop at.
            outputs: Times at which rows are asked for [s]; None: at every step.
        """
        self._library, self._end = library, float(solver.t_bound)
        self._tolerances = float(solver.rtol), float(solver.atol)
        self.t, self.x, self._every_step = float(solver.t), np.array(solver.y, dtype=float), outputs is None
        self._walk = np.array([solver.h_abs, 0.0, 0.0])
        tableau = (solver.A, solver.B, solver.C, solver.E5, solver.E3, solver.A_EXTRA, solver.C_EXTRA, solver.D)
        self._coefficients = np.concatenate([np.ravel(part) for part in tableau])
        self._parameters, self._status, self._stops = parameters, status, stops
        self._outputs = np.zeros(0) if outputs is None else np.ascontiguousarray(outputs, dtype=float)
        self._taken = library.room(len(self._outputs))

    @property
    def position(self) -> int:
        return int(self._walk[2])

    @property
    def evaluations(self) -> int:
        return int(self._walk[1])

    @property
    def done(self) -> bool:
        """Whether it stands at the end."""
        return self.t >= self._end

    def go(self, most: int) -> tuple[int, Sequence[Array]]:
        """Takes at most so many steps.

        Returns:
            Steps taken, fewer where one must be looked at; times, states and rows that are asked for.
        """
        times, (states, rows), before = np.empty(most + 1), self._library.room(most + 1), self.position
        times[0], states[0] = self.t, self.x
        good = self._library.dop853(
            most, self._end, *self._tolerances, self._coefficients, self._parameters, self._status, len(self._stops),
            self._stops, self._walk, times, states, rows, len(self._outputs), self._outputs, *self._taken,
        )  # fmt: skip
        self.t, self.x = float(times[good]), states[good].copy()
        if self._every_step:
            return good, [part[1 : good + 1] for part in (times, states, rows)]
        return good, [part[before : self.position] for part in (self._outputs, *self._taken)]
