"""Steps that lead nowhere: a method that chooses its own may go on for ever with steps of next to nothing.

Design: steps are counted, not seconds, so that a run ends at the same place on every machine.
"""

from typing import Any

import numpy as np

from servoctl.errors import IntegrationError, ServoctlError

WINDOW = 10_000
"""Steps after which the way that they have led is looked at."""

MOST_STEPS = 1e9
"""A run that would take more at the size of its last steps makes no progress."""

MOST_IN_HOLD = 1e6
"""The same for one hold of a sampled law."""

REMEDY = "raise rtol or atol, use rk4, or smooth what jumps there"


class Progress:
    """Watches over the steps of a run, or of a hold."""

    def __init__(self, start: float, end: float, method: str, most: float = MOST_STEPS) -> None:
        """Takes where the steps begin and end [s], whose they are, and how many may be to come."""
        self._since, self._end, self._method, self._most = start, end, method, most
        self._count = 0

    def stalled(self, t: float, steps: int = 1) -> str | None:
        """Why a run should end that has come to t [s] by so many more steps; None where it should not."""
        self._count += steps
        if self._count < WINDOW:
            return None
        step = (t - self._since) / self._count
        self._since, self._count = t, 0
        if self._end - t <= self._most * step:
            return None
        rest = f"the rest would take {(self._end - t) / step:.1e} of them" if step > 0.0 else "time stands still"
        return (
            f"t = {t:.6g} s: {self._method} makes no progress: its steps are {step:.2g} s long on average, {rest} "
            f"({REMEDY})"
        )


def take_step(solver: Any) -> str | None:
    """One step of one of SciPy's solvers; why it failed, if it did."""
    try:
        message: str | None = solver.step()
    except ServoctlError:
        raise
    except ValueError as error:  # linear algebra refuses numbers that are not finite
        solver.status, message = "failed", str(error)
    if solver.status == "failed" and message == solver.TOO_SMALL_STEP:
        least = 10 * abs(float(np.nextafter(solver.t, np.inf)) - solver.t)
        message = f"the step that its tolerances ask for is shorter than {least:.2g} s ({REMEDY})"
    return message


def finish(solver: Any, method: str) -> None:
    """Takes the steps of one hold; the solver's status says whether they led to its end.

    Raises:
        IntegrationError: They do not get there in any time.
    """
    progress = Progress(float(solver.t), float(solver.t_bound), method, MOST_IN_HOLD)
    while solver.status == "running":
        message = take_step(solver)
        wrong = progress.stalled(float(solver.t))
        if wrong is not None:
            raise IntegrationError(wrong)
        if (
            solver.status == "failed"
            and np.isfinite(solver.y).all()
            and np.isfinite(solver.fun(solver.t, solver.y)).all()
        ):
            raise IntegrationError(f"t = {solver.t:.6g} s: {method} cannot go on: {message}")
