"""The linearised loop with its timing: continuous, or sampled with hold, delay, actuator lag and velocity filter.

    dy' = A dy + B dw,  dw = K dy                                                continuous law
    s+ = A s + B w,  s = (dy, lagging torques, delayed commands, filter)         from sample to sample

Design: only this module combines a timing with the linearised plant, by `laws.hold`; poles, margins and the factor on
the gains all use it. With a jitter it takes the shortest delay and the longest as two loops.
"""

import cmath
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.context import drives_timing, run_timing
from servoctl.laws.hold import Closed, close, differences, hold
from servoctl.linear.jacobians import Local
from servoctl.mechanics.timing import Timing
from servoctl.simulation.internal_dynamics import neutral
from servoctl.types import Array

ROUNDING = 1e-13  # relative error of derivatives, before any division by small singular values
CIRCLE = 1e-9  # a pole z is neutral, too, if |z| - 1 is below this
SPREAD = 1e-4  # largest shift by rounding of one of several equal poles
DEADBEAT = 1e-6  # a pole z up to this size counts as 0: its motion vanishes after one sample
REPEATED = 2  # multiplicity of poles that rounding may spread: 2, as in a critically damped row


@dataclass(frozen=True)
class Linear:
    """dx' = A dx + B dw, dy = C dx; or the same from period to period."""

    A: Array  # shape (states, states)
    B: Array  # shape (states, m); w is added to the commands
    C: Array  # shape (outputs, states); outputs are q, v, u and the violations of the task, in this order
    fed: Array  # feedback from the state to the command, shape (m, states)
    period: float | None  # period [s]; None: continuous time


def timings(run: Run) -> list[Timing]:
    """Timings to analyse, in simulation and on drives; none without a law. A sampled run comes last.

    With a jitter the shortest delay and the longest are two timings. With an estimator the run is not analysed on
    drives: its gains, its period and its delay are those of the simulation.
    """
    system, hil = run.system, run.hil
    if system.law is None or not system.model.m:
        return []
    simulated = run_timing(system, run.settings)
    if hil is None or system.estimator is not None:
        return [*simulated.extremes]
    drives = drives_timing(hil, system.model.plant)
    return [simulated, drives] if simulated.period is None else [drives, *simulated.extremes]


@dataclass(frozen=True)
class LocalLoop:
    """A linearised loop with its timing."""

    at: Local  # plant and law at a state
    timing: Timing  # period, delay and lag
    later: Array | float = 0.0  # [s] additional delay per actuator, or of all

    @property
    def closed(self) -> Closed:
        """The loop from sample to sample; only with a period."""
        at, tau, estimate = self.at, self.timing.velocity_filter, None
        if tau is not None:  # velocities are not measured
            estimate = differences(at.W[: at.n], at.W[at.n : 2 * at.n].T, self.timing.h, tau)
        return close(hold(at.A, at.B, self.timing, self.later), at.K, estimate)

    @property
    def linear(self) -> Linear:
        """The loop as a linear system, with an input added to each command."""
        at, m = self.at, self.at.m
        if self.timing.period is None:
            return Linear(at.A + at.B @ at.K, at.B[:, :m], at.C, at.K[:m], None)
        closed = self.closed
        C = np.hstack([at.C, np.zeros((len(at.C), len(closed.A) - len(at.A)))])
        return Linear(closed.A, closed.B[:, :m], C, closed.fed[:m], self.timing.period)

    @property
    def matrix(self) -> Array:
        """Matrix whose eigenvalues are the poles of the loop, without directions that the law can never use."""
        if self.timing.period is None:
            return np.asarray(self.at.A + self.at.B @ self.at.K)
        return self.closed.without_idle_line(self.at.K)

    @cached_property
    def eigenvalues(self) -> Array:
        """Eigenvalues of `matrix`; infinite where it is not finite."""
        matrix = self.matrix
        return np.linalg.eigvals(matrix) if np.isfinite(matrix).all() else np.full(len(matrix), math.inf)

    @property
    def growth(self) -> float:
        """Largest real part of a pole [1/s]; of a sampled loop the largest |z|."""
        sizes = self.eigenvalues.real if self.timing.period is None else np.abs(self.eigenvalues)
        return float(sizes.max(initial=-math.inf))

    @property
    def poles(self) -> list[complex]:
        """Poles [1/s], the least stable first; for a sampled loop ln z / period, without those at z = 0."""
        found = means_of_clusters(self.eigenvalues, REPEATED)
        if self.timing.period is None:
            return found
        rates = [cmath.log(z) / self.timing.period for z in found if abs(z) > DEADBEAT]
        return sorted(rates, key=lambda pole: (-pole.real, pole.imag))

    @property
    def stable(self) -> bool:
        """Whether no pole is unstable; neutral poles are allowed."""
        return not grows(self.eigenvalues, self.timing.period)


def least_stable(at: Local, timing: Timing) -> LocalLoop:
    """The loop with a timing; with a jitter, after the shortest or the longest delay, whichever grows more."""
    return max((LocalLoop(at, each) for each in timing.extremes), key=lambda loop: loop.growth)


def grows(poles: Array, period: float | None) -> bool:
    """Whether one of the poles is unstable: it grows faster than a neutral one, whatever rounding errors do to it."""
    if not np.isfinite(poles).all():
        return True
    largest = float(np.abs(poles).max(initial=0.0))
    if not _grow(poles, period).any() or (period is not None and largest >= 1.0 + SPREAD):
        return bool(_grow(poles, period).any())
    # rounding errors are relative to the matrix, so a fast pole spreads a double pole at 0 further
    means = means_of_clusters(poles, REPEATED, ROUNDING * max(1.0, largest))
    return bool(_grow(np.array(means), period).any())


def _grow(poles: Array, period: float | None) -> Array:
    """Whether each pole grows; for a sampled loop `poles` are its eigenvalues z."""
    if period is None:
        return np.asarray(poles.real > neutral(poles))
    outside = np.abs(poles) > 1.0 + CIRCLE
    rates = np.log(np.where(outside, poles, 1.0).astype(complex)) / period
    return np.asarray(outside & (rates.real > neutral(rates)))


def means_of_clusters(poles: Array, multiplicity: int, rounding: float = ROUNDING) -> list[complex]:
    """The eigenvalues, with clusters that rounding may have spread replaced by their mean.

    Args:
        poles: Eigenvalues of a real matrix.
        multiplicity: Largest expected multiplicity.
        rounding: Relative error of the matrix.
    """
    found: list[complex] = []
    for members in clusters(poles, multiplicity, rounding):
        mean = sum(complex(poles[i]) for i in members) / len(members)
        real = abs(mean.imag) <= 10 * rounding * (1.0 + abs(mean))
        found += [complex(mean.real, 0.0) if real else mean] * len(members)
    return sorted(found, key=lambda pole: (-pole.real, pole.imag))


def clusters(poles: Array, multiplicity: int, rounding: float = ROUNDING) -> list[list[int]]:
    """Indices of the eigenvalues in each cluster that rounding may have spread; for the arguments see above."""
    left, found = list(np.lexsort((poles.imag, poles.real))), []
    while left:
        first = poles[left[0]]
        reach = 2.0 * (1.0 + abs(first)) * math.pow(rounding, 1.0 / max(1, multiplicity))
        found.append([int(i) for i in left if abs(poles[i] - first) <= reach])
        left = [i for i in left if int(i) not in found[-1]]
    return found
