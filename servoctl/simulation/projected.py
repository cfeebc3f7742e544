"""Projection of adaptive runs onto the passive constraints after each step.

Design: a step is accepted first and projected then, so the error control of the method is unchanged; the change by
projection is below the error that the method allows. One-step methods continue from the new state. LSODA and CVODES
keep a history that does not fit the new state: near poses where the rank drops, where projection is ill-conditioned,
their steps become shorter without end (measured on the parallelogram at its flat pose, with LSODA's history shifted as
CVODE would shift it). So they restart: LSODA after every `RESTART` steps, CVODES at each row.

Source: Hairer, Lubich, Wanner 2006, IV.4, for the projection of one-step methods. The restarts are ours.
"""

from typing import Any

from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array

RESTART = 20
"""Steps of LSODA between two restarts: it reaches an order of about 8 in half of them."""


class Projection:
    """Projects the states of SciPy's solvers onto the passive constraints.

    Args:
        loop: The closed loop.
        restart: (t, x) -> a solver that starts there.
    """

    def __init__(self, loop: Loop, restart: Any) -> None:
        self._loop, self._plant, self._restart, self._steps = loop, loop.simulated(), restart, 0

    def project(self, t: float, x: Array) -> Array:
        """The projected state, if the loop projects, else the same state."""
        return self._plant.projected(t, x) if self._loop.projects else x

    def after_step(self, solver: Any) -> Any:
        """The solver for the next step, at a projected state if the loop projects."""
        if not self._loop.projects or solver.status != "running":
            return solver
        self._steps += 1
        if hasattr(solver, "_lsoda_solver"):
            if self._steps % RESTART:
                return solver
            return self._restart(solver.t, self.project(solver.t, solver.y))
        solver.y = self.project(solver.t, solver.y)
        solver.f = solver.fun(solver.t, solver.y)
        return solver
