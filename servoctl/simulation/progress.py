"""Ends runs whose adaptive steps become so short that they never reach the end.

Design: steps are counted, not seconds, so that a run ends at the same time on every machine.
"""

from typing import Any

import numpy as np

from servoctl.errors import IntegrationError, ServoctlError

WINDOW = 10_000  # progress is checked after this many steps
MOST_STEPS = 1e9  # a run that needs more steps of the last size to reach its end makes no progress
MOST_IN_HOLD = 1e6  # a hold of a sampled law that needs more steps makes no progress

REMEDY = "raise rtol or atol, use rk4, or smooth what jumps there"


class Progress:
    """Checks the progress of a run, or of a hold.

    Args:
        start: Time at which the steps begin [s].
        end: Time at which they end [s].
        method: Name of the method.
        most: Largest number of steps to come.
    """

    def __init__(self, start: float, end: float, method: str, most: float = MOST_STEPS) -> None:
        self._since, self._end, self._method, self._most = start, end, method, most
        self._count = 0

    def stalled(self, t: float, steps: int = 1) -> str | None:
        """Counts steps up to the time t [s]; returns why the run should end, or None."""
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
    """Takes one step of a SciPy solver; returns why it failed, or None."""
    try:
        message: str | None = solver.step()
    except ServoctlError:
        raise
    except ValueError as error:  # SciPy's linear algebra refuses numbers that are not finite
        solver.status, message = "failed", str(error)
    if solver.status == "failed" and message == solver.TOO_SMALL_STEP:
        least = 10 * abs(float(np.nextafter(solver.t, np.inf)) - solver.t)
        message = f"the step that its tolerances ask for is shorter than {least:.2g} s ({REMEDY})"
    return message


def finish(solver: Any, method: str) -> None:
    """Takes the steps of one hold; afterwards the solver's status is `finished` or `failed`.

    Raises:
        IntegrationError: The steps make no progress, or fail at a finite state.
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
