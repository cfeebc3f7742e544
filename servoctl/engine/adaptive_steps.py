"""Adaptive steps in C: Dormand and Prince's method of order 8 (DOP853), with SciPy's coefficients."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from servoctl.engine.ccode import Library
from servoctl.types import Array


class AdaptiveSteps:
    """A run of adaptive steps, some steps at a time.

    Attributes:
        position: Number of outputs done.
        evaluations: Number of evaluations of the rates so far.
    """

    def __init__(
        self,
        library: Library,
        solver: Any,
        parameters: Array,
        status: int,
        stops: Array,
        outputs: Array | None,
        done: int = 0,
    ) -> None:
        """Starts where SciPy's solver would take its next step.

        Args:
            library: Library of a `Program` whose step has a law that acts continuously.
            solver: SciPy's DOP853; gives time, state, the next step, the tolerances and the coefficients.
            outputs: Times of the rows [s]; None: a row at every step.
            done: Number of outputs that the solver has passed.
        """
        self._library, self._end = library, float(solver.t_bound)
        self._tolerances = float(solver.rtol), float(solver.atol)
        # t: time reached [s]
        # x: state at t, shape (size,)
        self.t, self.x, self._every_step = float(solver.t), np.array(solver.y, dtype=float), outputs is None
        self._progress = np.array(
            [solver.h_abs, 0.0, float(done)]
        )  # next step, evaluations, outputs done; C updates it
        tableau = (solver.A, solver.B, solver.C, solver.E5, solver.E3, solver.A_EXTRA, solver.C_EXTRA, solver.D)
        self._coefficients = np.concatenate([np.ravel(part) for part in tableau])
        self._parameters, self._status, self._stops = parameters, status, stops
        self._outputs = np.zeros(0) if outputs is None else np.ascontiguousarray(outputs, dtype=float)
        self._taken = library.room(len(self._outputs))

    @property
    def position(self) -> int:
        return int(self._progress[2])

    @property
    def evaluations(self) -> int:
        return int(self._progress[1])

    @property
    def done(self) -> bool:
        """Whether the end is reached."""
        return self.t >= self._end

    def go(self, most: int) -> tuple[int, Sequence[Array]]:
        """Takes up to `most` steps.

        Returns:
            Number of steps taken, fewer than `most` if the caller must look at the next one; times, states and rows of
            the outputs.
        """
        times, (states, rows), before = np.empty(most + 1), self._library.room(most + 1), self.position
        times[0], states[0] = self.t, self.x
        good = self._library.dop853(
            most, self._end, *self._tolerances, self._coefficients, self._parameters, self._status, len(self._stops),
            self._stops, self._progress, times, states, rows, len(self._outputs), self._outputs, *self._taken,
        )  # fmt: skip
        self.t, self.x = float(times[good]), states[good].copy()
        if self._every_step:
            return good, [part[1 : good + 1] for part in (times, states, rows)]
        return good, [part[before : self.position] for part in (self._outputs, *self._taken)]
