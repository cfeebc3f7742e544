"""Repeats a run at a finer setting while it goes on: how much does the state depend on the step?

Design: where dependent passive rows are corrected instead of projected, the motion is sensitive to every error, and
neither the violation nor the energy shows it: on the shipped parallelogram, a drift of 2e-4 J goes with an angle that
is off by 0.02 rad. The difference from a run at half the step, or at a tenth of the tolerances, estimates the error of
the coarser run (Hairer, Norsett, Wanner 1993, II.4). The repetition takes twice the time of the run or more, so only
such runs are repeated.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.integrate import integrate
from servoctl.simulation.rows import Chunk, Integrator, Settings
from servoctl.simulation.runge_kutta import hermite
from servoctl.types import Array, State

LIMIT = 1e-3  # largest difference of a coordinate: in rad, or relative to the largest coordinate of the same unit
SPACING = 0.01  # [s] longest time between two rows of an adaptive repetition: mechanisms move little in it
Track = tuple[Array, Array]  # times [s], shape (rows,), and states, shape (rows, size)


def finer(integrator: Integrator) -> Integrator:
    """Half the step, and a tenth of the tolerances."""
    return replace(integrator, step=integrator.step / 2, rtol=integrator.rtol / 10, atol=integrator.atol / 10)


def finer_text(integrator: Integrator) -> str:
    """How `finer` changes an integrator, for a message."""
    return (
        f"half the step of {integrator.step:g} s"
        if integrator.method == "rk4"
        else f"a tenth of rtol {integrator.rtol:g}"
    )


class Repetition:
    """Compares the rows of a run without law with those of its repetition at a finer setting.

    Args:
        loop: The loop that runs.
        start: Its initial state.
        settings: How it runs.
    """

    def __init__(self, loop: Loop, start: State, settings: Settings) -> None:
        fine = finer(settings.integrator)
        spacing = None if fine.method == "rk4" else min(SPACING, settings.output_step or SPACING)
        self._loop, self._n = loop, loop.system.model.n
        units = list(loop.system.model.plant.coordinates.values())
        self._angles = np.array([unit == "rad" for unit in units])
        self._alike = np.array([[one == other for other in units] for one in units])
        self._chunks: Iterator[Chunk] | None = integrate(
            loop, loop.vector(start), start.t, settings.duration, fine, None, spacing
        )
        self._track: Track = (np.zeros(0), np.zeros((0, loop.size)))
        self._largest = np.zeros(self._n)

    def look(self, rows: Trajectory) -> tuple[int, str] | None:
        """The first row that differs, and how; None if none does, or the repetition has ended before it."""
        if not len(rows) or not self._reach(float(rows.t[-1])):
            return None
        times, states = self._track
        for i, t in enumerate(rows.t):
            k = int(np.clip(np.searchsorted(times, t) - 1, 0, len(times) - 2))
            share = self._difference(rows.q[i], self._between(k, float(t)))
            worst = int(np.argmax(share))
            if share[worst] > LIMIT:
                return i, self._text(worst, float(share[worst]))
        keep = max(0, int(np.searchsorted(times, rows.t[-1])) - 2)
        self._track = times[keep:], states[keep:]
        return None

    def _reach(self, t: float) -> bool:
        """Continues the repetition up to a time; whether it got there."""
        before = self._loop.evaluations
        while self._chunks is not None and not (len(self._track[0]) > 1 and self._track[0][-1] >= t):
            chunk = next(self._chunks, None)
            if chunk is None or chunk.stopped is not None:
                self._chunks = None
                break
            self._track = np.concatenate([self._track[0], chunk.t]), np.concatenate([self._track[1], chunk.x])
        self._loop.evaluations = before
        return self._chunks is not None

    def _between(self, k: int, t: float) -> Array:
        """q of the repetition at a time between its rows k and k + 1."""
        (times, states), n = self._track, self._n
        (q0, v0), (q1, v1) = ((states[i, :n], states[i, n : 2 * n]) for i in (k, k + 1))
        h = float(times[k + 1] - times[k])
        q: Array = hermite(q0, v0, q1, v1, h, (t - float(times[k])) / h)
        return q

    def _difference(self, q: Array, again: Array) -> Array:
        """Differences of all coordinates, in the unit of `LIMIT`."""
        self._largest = np.maximum(self._largest, np.abs(again))
        scale = np.where(self._angles, 1.0, np.max(self._alike * self._largest, axis=1))
        difference: Array = np.divide(np.abs(q - again), scale, out=np.zeros(self._n), where=scale > 0.0)
        return difference

    def _text(self, i: int, share: float) -> str:
        name, unit = list(self._loop.system.model.plant.coordinates.items())[i]
        return f"q.{name} differs by {share:.1e} {'rad' if unit == 'rad' else 'of the largest ' + unit}".rstrip()
