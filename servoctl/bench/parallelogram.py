"""One run of the overconstrained parallelogram, and whether its motion is correct.

    q'' = a_f + L^-T D^+ (b - 2 alpha phi' - beta^2 phi - A a_f),   D = A L^-T,   a_f = M^-1 Q,   M = L L^T

12 absolute coordinates, 12 rows of rank 11, one degree of freedom. Three parallel links and a coupler swing under
gravity, from rest at -45 deg. The angle theta follows the equation of a pendulum, which has a closed solution.

Design: angles and energy decide whether a motion is correct, by comparison with that solution. The violation does not:
once the rank becomes 12, the simulated mechanism is a different one, though its violation stays small.

Source: de Falco, Pennestri, Vita, 6 and (29)-(30). The published start is unknown; ours is -45 deg at rest.
"""

import time
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from scipy.integrate import ode
from scipy.special import ellipj, ellipk

from servoctl.assembly.classes import load_class
from servoctl.bench.pseudoinverse_methods import METHODS, REDUCTIONS, RankRule
from servoctl.engine.kernel import Kernel
from servoctl.engine.linalg import cholesky, solve_lower, solve_upper
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State

PLANT = "plants.parallelogram:Parallelogram"
START = -np.pi / 4  # [rad]
DURATION = 20.0  # [s]
FIRST_STEP = 0.0066  # [s] published
SPACING = 0.01  # [s] least time between two instants at which the motion is checked

INERTIA = 3.05  # [kg m^2] 3 (I + m L^2 / 4) + m2 L^2
MOMENT = 3.5 * 9.81  # [N m] (3 m / 2 + m2) g L: theta'' = -MOMENT / INERTIA cos(theta)

ANGLE_LIMIT = 0.01  # [rad]
ENERGY_LIMIT = 0.01 * MOMENT * (1.0 + np.sin(START))  # [J] 1 % of the energy of the swing
TURNING = (np.pi / 2, 1.0)  # [rad], [rad/s] a start from which the linkage turns over, through its flat pose

EIGHT_STARTS = (
    *((float(np.deg2rad(angle)), 0.0) for angle in (10, 30, 45, 60, 80)),
    *((np.pi / 2, rate) for rate in (0.2, 1.0, 3.0)),
)
"""theta [rad] and its rate [rad/s] at eight starts, from each of which the linkage passes its flat pose."""

FAILURES = {-4: "repeated error-test failures", -5: "repeated convergence failures"}


@dataclass(frozen=True)
class Experiment:
    """Settings of one run.

    Attributes:
        method: A name of `METHODS` or `REDUCTIONS`.
        tolerance: Relative and absolute tolerance of the integrator.
        rule: How the method decides the rank.
        alpha: Baumgarte's alpha [1/s]; alpha = beta = 0: no stabilisation.
        beta: Baumgarte's beta [1/s].
        start: theta [rad] and its rate [rad/s].
    """

    method: str
    tolerance: float
    rule: RankRule
    alpha: float = 0.0
    beta: float = 0.0
    start: tuple[float, float] = (START, 0.0)


@dataclass(frozen=True)
class RunError:
    """Result of a run.

    Attributes:
        correct_until: Last checked instant up to which all angles and the energy were correct [s].
        reached: Where the run ended [s].
        end: `done`, `cap`, or why the integrator failed.
        angle_error: Largest error of an angle at the end [rad].
        energy_drift: Energy at the end minus energy at the start [J].
        violation: Sum of the squared violations at the end [m^2].
        evaluations: Number of evaluations of q''.
        steps: Number of integration steps.
        rank_min: Smallest rank that the method computed.
        rank_max: Largest rank.
        cpu_time: Processor time of the run [s].
        wall_time: Wall time of the run [s].
    """

    correct_until: float
    reached: float
    end: str
    angle_error: float
    energy_drift: float
    violation: float
    evaluations: int
    steps: int
    rank_min: int
    rank_max: int
    cpu_time: float
    wall_time: float

    @property
    def lost(self) -> bool:
        """Whether the motion became wrong before the run ended."""
        return self.correct_until < self.reached


def exact_angle(t: Array, start: float = START) -> Array:
    """theta(t) [rad] of `INERTIA theta'' = -MOMENT cos(theta)`, from rest at `start`.

        sin(psi/2) = k cn(w t) / dn(w t),   psi = theta + pi/2,   k = sin(psi(0)/2),   w^2 = MOMENT / INERTIA

    Args:
        t: Times [s].
        start: theta(0) [rad], between -3/2 pi and pi/2.
    """
    k = np.sin((start + np.pi / 2) / 2)
    _, cn, dn, _ = ellipj(np.sqrt(MOMENT / INERTIA) * np.asarray(t), k**2)
    angle: Array = 2.0 * np.arcsin(k * cn / dn) - np.pi / 2
    return angle


def rotating_angle(t: Array, rate: float) -> Array:
    """theta(t) [rad] of a linkage that passes the top, theta = pi/2, at t = 0 and turns on.

        psi = 2 am(K(m) + w_0 t / 2, m),   psi = theta + pi/2,   w_0^2 = rate^2 + 4 w^2,   m = 4 w^2 / w_0^2

    Args:
        t: Times [s].
        rate: theta'(0), positive [rad/s].
    """
    lowest = rate**2 + 4.0 * MOMENT / INERTIA
    m = 4.0 * MOMENT / INERTIA / lowest
    *_, amplitude = ellipj(ellipk(m) + np.sqrt(lowest) / 2 * np.asarray(t), m)
    angle: Array = 2.0 * amplitude - np.pi / 2
    return angle


def true_angle(t: Array, theta: float, rate: float) -> Array:
    """theta(t) [rad] from rest at `theta`, or from the top, theta = pi/2, at `rate` [rad/s]."""
    return rotating_angle(t, rate) if rate else exact_angle(t, theta)


def pose(theta: float) -> Array:
    """q, shape (12,), of the closed linkage: (x, y, phi) of three links and of the coupler."""
    x, y = np.cos(theta), np.sin(theta)
    links = [(pivot + x / 2, y / 2, theta) for pivot in (0.0, 1.0, 2.0)]
    return np.array([*np.ravel(links), 1.0 + x, y, 0.0])


def pose_rate(theta: float, rate: float) -> Array:
    """v, shape (12,), of the closed linkage whose links turn at `rate` [rad/s]."""
    x, y = -np.sin(theta) * rate, np.cos(theta) * rate
    return np.array([*(x / 2, y / 2, rate) * 3, x, y, 0.0])


def start_overrides(theta: float, rate: float) -> list[str]:
    """Settings that put the shipped parallelogram at a start, as after `--set`."""
    names = [f"{body}_{axis}" for body in ("link1", "link2", "link3", "coupler") for axis in ("x", "y", "phi")]
    values = {"q": pose(theta), "v": pose_rate(theta, rate)}
    return [
        f"initial.{key}={{{', '.join(f'{name}: {float(x)!r}' for name, x in zip(names, state, strict=True))}}}"
        for key, state in values.items()
    ]


class CompiledLinkage:
    """The compiled equations of the linkage."""

    def __init__(self) -> None:
        plant = load_class(PLANT, Path(), Plant)()
        self.start = State(0.0, pose(START), np.zeros(12))
        model = Model(plant, {}, self.start)
        symbols = model.symbols()
        m = model.symbolic_matrices(symbols)
        L, _ = cholesky(m.M)
        free = solve_upper(L, solve_lower(L, m.Q))
        outputs = {
            "D": solve_lower(L, m.passive.A.T).T,
            "back": solve_upper(L, np.eye(12)),  # L^-T
            "free": free,
            "missing": m.passive.b - m.passive.A @ free,
            "violation": m.passive.violation,
            "violation_rate": m.passive.violation_rate,
            "A": m.passive.A,
        }
        self.kernel = Kernel.compile("parallelogram", symbols, outputs)
        self.parameters = model.parameters
        at_start = model.matrices(self.start)
        self.M, self.Q = at_start.M, at_start.Q  # both constant: coordinates are absolute, and gravity is uniform

    def energies(self, q: Array, v: Array) -> Array:
        """Mechanical energy [J] of states in rows, shape (k,): the constant force Q has the potential -Q q."""
        total: Array = 0.5 * np.einsum("ki,ij,kj->k", v, self.M, v) - q @ self.Q
        return total


machine = cache(CompiledLinkage)
"""The linkage, compiled once per process."""


class _Acceleration:
    """d/dt (q, v) for VODE; counts evaluations and collects the ranks."""

    def __init__(self, experiment: Experiment) -> None:
        self.machine, self.method, self.rule = machine(), experiment.method, experiment.rule
        self.damping, self.stiffness = 2.0 * experiment.alpha, experiment.beta**2
        self.evaluations, self.ranks = 0, set[int]()

    def __call__(self, t: float, y: Array) -> Array:
        self.evaluations += 1
        if not np.isfinite(y).all():
            return np.full(24, np.nan)
        D, back, free, missing, violation, rate, A = self.machine.kernel(t, y[:12], y[12:], self.machine.parameters)
        corrected = missing - self.damping * rate - self.stiffness * violation
        if self.method in REDUCTIONS:
            reduction = REDUCTIONS[self.method](A, self.rule)
            added, rank = reduction.solve(self.machine.M, corrected), reduction.rank
        else:
            inverse, rank = METHODS[self.method](D, self.rule)
            added = back @ (inverse @ corrected)
        self.ranks.add(rank)
        return np.concatenate([y[12:], free + added])


def simulate(experiment: Experiment, cap: float) -> RunError:
    """Runs an experiment, for at most `cap` seconds of wall time, by VODE's Adams method with functional iteration.

    Source: de Falco, Pennestri, Vita, 4 and 6, where IMSL's DIVPAG did the same.
    """
    motion = _Acceleration(experiment)
    solver = ode(motion).set_integrator(
        "vode", method="adams", rtol=experiment.tolerance, atol=experiment.tolerance, first_step=FIRST_STEP
    )
    start = np.concatenate([pose(experiment.start[0]), pose_rate(*experiment.start)])
    solver.set_initial_value(start, 0.0)
    times, states, steps, end = [0.0], [start], 0, "done"
    began, cpu = time.monotonic(), time.process_time()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="vode", category=UserWarning)  # the result reports a failure
        while solver.t < DURATION:
            solver.integrate(DURATION, step=True)
            if not solver.successful():
                end = FAILURES.get(solver.get_return_code(), f"code {solver.get_return_code()}")
                break
            steps += 1
            if solver.t >= times[-1] + SPACING and solver.t < DURATION:
                times.append(solver.t)
                states.append(solver.y.copy())
            if time.monotonic() - began > cap and solver.t < DURATION:
                end = "cap"
                break
        if end == "done":
            solver.integrate(DURATION)  # interpolates back to the end within the last step
    cpu, wall = time.process_time() - cpu, time.monotonic() - began
    if solver.t > times[-1] and np.isfinite(solver.y).all():
        times.append(solver.t)
        states.append(solver.y.copy())
    judged = _judged(motion.machine, np.array(times), np.array(states), experiment.start)
    ranks = (min(motion.ranks), max(motion.ranks))
    return RunError(*judged[:1], times[-1], end, *judged[1:], motion.evaluations, steps, *ranks, cpu, wall)


def _judged(
    machine: CompiledLinkage, times: Array, states: Array, start: tuple[float, float]
) -> tuple[float, float, float, float]:
    """correct_until, then angle error, energy drift and sum of squared violations at the last instant."""
    q, v = states[:, :12], states[:, 12:]
    theta = true_angle(times, *start)
    errors = np.abs(q[:, 2::3] - np.column_stack([theta, theta, theta, np.zeros(len(times))])).max(axis=1)
    energies = machine.energies(q, v)
    drifts = energies - energies[0]
    wrong = (errors > ANGLE_LIMIT) | (np.abs(drifts) > ENERGY_LIMIT)
    until = times[max(int(np.argmax(wrong)) - 1, 0)] if wrong.any() else times[-1]
    violation = machine.kernel(times[-1], q[-1], v[-1], machine.parameters)[4]
    return float(until), float(errors[-1]), float(drifts[-1]), float(violation @ violation)
