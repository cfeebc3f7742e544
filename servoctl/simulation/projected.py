"""Adaptive runs that end every step on the plant's own constraints.

Design: a step is accepted first and put back then, so a method controls its error as before; what projection changes
lies below the error that the method allows. Methods of one step go on from the new state. LSODA and CVODES carry a
history that does not fit the new state: near poses where the rank drops, where projection is ill-conditioned, they
then shorten their steps without end (measured on the parallelogram at its flat pose, with LSODA's history shifted as
CVODE would shift it). So they start anew: LSODA every so many steps, CVODES at each row.

Source: Hairer, Lubich, Wanner 2006, IV.4, for the projection of methods of one step. The restarts are ours.
"""

from typing import Any

from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array

RESTART = 20
"""Steps of LSODA between two starts: it reaches order 8 or so in half of them."""


class Projection:
    """Puts the states of SciPy's solvers back onto the plant's own constraints."""

    def __init__(self, loop: Loop, restart: Any) -> None:
        """Takes the loop that is run and (t, x) -> a solver that starts there."""
        self._loop, self._plant, self._restart, self._steps = loop, loop.simulated(), restart, 0

    def project(self, t: float, x: Array) -> Array:
        """The state put back, where the loop asks for it."""
        return self._plant.projected(t, x) if self._loop.projects else x

    def after_step(self, solver: Any) -> Any:
        """The solver that takes the next step, from a projected state where the loop asks for it."""
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
