"""The published comparison of five pseudoinverse methods, repeated, with servoctl's own next to them.

    q'' = a_f + L^-T D^+ (b - 2 alpha phi' - beta^2 phi - A a_f),   D = A L^-T,   a_f = M^-1 Q,   M = L L^T

Design: angles and energy decide whether a motion is correct, by comparison with the closed solution. The violation does
not: once the rank becomes 12, the simulated mechanism is a different one, though its violation stays small.

Source: de Falco, Pennestri, Vita, 6, (29)-(30) and tables 2-7. The published start is unknown; ours is -45 deg at rest.
"""

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from scipy.integrate import ode

from servoctl.assembly import load
from servoctl.assembly.classes import load_class
from servoctl.engine.kernel import Kernel
from servoctl.engine.linalg import cholesky, solve_lower, solve_upper
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State
from tests.benchmarks.contest import Results, Table
from tests.benchmarks.parallelogram import (
    DURATION,
    EIGHT_STARTS,
    MOMENT,
    START,
    exact_angle,
    pose,
    start_overrides,
    true_angle,
)
from tests.benchmarks.pseudoinverse_methods import METHODS, RankRule
from tests.benchmarks.published import WITH_STABILISATION, WITHOUT_STABILISATION, Published

FIRST_STEP = 0.0066  # [s] published
SPACING = 0.01  # [s] least time between two instants at which the motion is checked
ANGLE_LIMIT = 0.01  # [rad]
ENERGY_LIMIT = 0.01 * MOMENT * (1.0 + np.sin(START))  # [J] 1 % of the energy of the swing
CAP = 20.0  # [s] wall time after which a run is cut

TOLERANCES = (1e-10, 1e-8, 1e-6)
PUBLISHED_GAINS = (1000.0, 100.0)  # [1/s] alpha, beta: poles at -1995 and -5.01, which make the equations stiff
OUR_GAINS = (10.0, 10.0)  # [1/s] the default where rows are independent
OUR_RULE = RankRule(1e-6)  # that of passive constraints

FAILURES = {-4: "repeated error-test failures", -5: "repeated convergence failures"}
HEADER = ("method", "TOL", "alpha, beta", "result", "angle [rad]", "sum psi^2 [m^2]", "evaluations", "steps", "CPU [s]",
          "rank")  # fmt: skip


@dataclass(frozen=True)
class Experiment:
    """Settings of one run."""

    method: str  # a name of `METHODS`
    tolerance: float  # relative and absolute tolerance of the integrator
    rule: RankRule
    alpha: float = 0.0  # [1/s] Baumgarte's; alpha = beta = 0: no stabilisation
    beta: float = 0.0  # [1/s]


@dataclass(frozen=True)
class Outcome:
    """Result of a run; the figures are those at its end."""

    correct_until: float  # [s] last checked instant up to which all angles and the energy were correct
    reached: float  # [s]
    end: str  # `done`, `cap`, or why the integrator failed
    angle_error: float  # largest error of an angle [rad]
    energy_drift: float  # [J]
    violation: float  # sum of the squared violations [m^2]
    evaluations: int
    steps: int
    ranks: tuple[int, int]  # smallest and largest rank that the method computed
    cpu_time: float  # [s]

    @property
    def result(self) -> str:
        """How long the motion was correct, and why the run ended early if it did."""
        why = {"done": "", "cap": f"cut at {self.reached:.2f} s"}.get(self.end, f"failed at {self.reached:.2f} s")
        lost = self.correct_until < self.reached
        correct = f"correct up to {self.correct_until:.2f} s" if lost else "correct"
        return ", ".join(filter(None, [correct, why]))


class Linkage:
    """The compiled equations of the linkage."""

    def __init__(self) -> None:
        plant = load_class("plants.parallelogram:Parallelogram", Path(), Plant)()
        self.start = State(0.0, pose(START), np.zeros(12))
        model = Model(plant, {}, self.start)
        symbols = model.symbols()
        m = model.symbolic_matrices(symbols)
        L, _ = cholesky(m.M)
        free = solve_upper(L, solve_lower(L, m.Q))
        outputs = {
            "D": solve_lower(L, m.passive.A.T).T, "back": solve_upper(L, np.eye(12)), "free": free,
            "missing": m.passive.b - m.passive.A @ free, "violation": m.passive.violation,
            "violation_rate": m.passive.violation_rate,
        }  # fmt: skip
        self.kernel = Kernel.compile("parallelogram", symbols, outputs)
        self.parameters = model.parameters
        at_start = model.matrices(self.start)
        self.M, self.Q = at_start.M, at_start.Q  # both constant: coordinates are absolute, and gravity is uniform

    def energies(self, q: Array, v: Array) -> Array:
        """Mechanical energy [J] of states in rows, shape (k,): the constant force Q has the potential -Q q."""
        return 0.5 * np.einsum("ki,ij,kj->k", v, self.M, v) - q @ self.Q


linkage = cache(Linkage)
"""The linkage, compiled once per process."""


class _Acceleration:
    """d/dt (q, v) for VODE; counts evaluations and collects the ranks."""

    def __init__(self, experiment: Experiment) -> None:
        self.linkage, self.method, self.rule = linkage(), METHODS[experiment.method], experiment.rule
        self.damping, self.stiffness = 2.0 * experiment.alpha, experiment.beta**2
        self.evaluations, self.ranks = 0, set[int]()

    def __call__(self, t: float, y: Array) -> Array:
        self.evaluations += 1
        if not np.isfinite(y).all():
            return np.full(24, np.nan)
        D, back, free, missing, violation, rate = self.linkage.kernel(t, y[:12], y[12:], self.linkage.parameters)
        inverse, rank = self.method(D, self.rule)
        self.ranks.add(rank)
        added = back @ (inverse @ (missing - self.damping * rate - self.stiffness * violation))
        return np.concatenate([y[12:], free + added])


def simulate(experiment: Experiment, cap: float = CAP) -> Outcome:
    """Runs an experiment, for at most `cap` seconds of wall time, by VODE's Adams method with functional iteration.

    Source: de Falco, Pennestri, Vita, 4 and 6, where IMSL's DIVPAG did the same.
    """
    motion = _Acceleration(experiment)
    tolerance = experiment.tolerance
    solver = ode(motion).set_integrator("vode", method="adams", rtol=tolerance, atol=tolerance, first_step=FIRST_STEP)
    start = np.concatenate([pose(START), np.zeros(12)])
    solver.set_initial_value(start, 0.0)
    times, states, steps, end = [0.0], [start], 0, "done"
    began, cpu = time.monotonic(), time.process_time()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="vode", category=UserWarning)  # the result reports a failure
        while solver.t < DURATION and end == "done":
            solver.integrate(DURATION, step=True)
            if not solver.successful():
                end = FAILURES.get(solver.get_return_code(), f"code {solver.get_return_code()}")
                break
            steps += 1
            if times[-1] + SPACING <= solver.t < DURATION:
                times.append(solver.t)
                states.append(solver.y.copy())
            if time.monotonic() - began > cap and solver.t < DURATION:
                end = "cap"
        if end == "done":
            solver.integrate(DURATION)  # interpolates back to the end within the last step
    cpu = time.process_time() - cpu
    if solver.t > times[-1] and np.isfinite(solver.y).all():
        times.append(solver.t)
        states.append(solver.y.copy())
    judged = _judged(motion.linkage, np.array(times), np.array(states))
    ranks = (min(motion.ranks), max(motion.ranks))
    return Outcome(judged[0], times[-1], end, *judged[1:], motion.evaluations, steps, ranks, cpu)


def _judged(machine: Linkage, times: Array, states: Array) -> tuple[float, float, float, float]:
    """correct_until, then angle error, energy drift and sum of squared violations at the last instant."""
    q, v = states[:, :12], states[:, 12:]
    theta = exact_angle(times)
    errors = np.abs(q[:, 2::3] - np.column_stack([theta, theta, theta, np.zeros(len(times))])).max(axis=1)
    energies = machine.energies(q, v)
    drifts = energies - energies[0]
    wrong = (errors > ANGLE_LIMIT) | (np.abs(drifts) > ENERGY_LIMIT)
    until = times[max(int(np.argmax(wrong)) - 1, 0)] if wrong.any() else times[-1]
    violation = machine.kernel(times[-1], q[-1], v[-1], machine.parameters)[4]
    return float(until), float(errors[-1]), float(drifts[-1]), float(violation @ violation)


def published(experiment: Experiment) -> Published | None:
    """The published row of an experiment; None if there is none."""
    gains = (experiment.alpha, experiment.beta)
    tables = {(0.0, 0.0): WITHOUT_STABILISATION, PUBLISHED_GAINS: WITH_STABILISATION}.get(gains, {})
    return None if experiment.rule.relative else tables.get(experiment.tolerance, {}).get(experiment.method)


def experiments(quick: bool) -> Iterator[Experiment]:
    """The published experiments in the order of their tables, then ours."""
    tolerances, methods = ((1e-8,), ("svd",)) if quick else (TOLERANCES, tuple(METHODS))
    for gains in ((0.0, 0.0), PUBLISHED_GAINS):
        for tolerance in tolerances:
            for method in methods:
                yield Experiment(method, tolerance, RankRule(tolerance, relative=False), *gains)
    for tolerance in tolerances:
        yield Experiment("cod", tolerance, OUR_RULE, *OUR_GAINS)


def pseudoinverse(quick: bool) -> Results:
    """Five published pseudoinverse methods and our own on an overconstrained parallelogram for 20 s, cut after 20 s."""
    rows = []
    for experiment in experiments(quick):
        rows.append(_texts(experiment, simulate(experiment)))
        paper = published(experiment)
        if paper is not None:
            cells = [_cell(paper, *column) for column in
                     (("violation", ".1e"), ("evaluations", ","), ("steps", ","), ("cpu_time", ".2f"))]  # fmt: skip
            rows.append(["  published", "", "", paper.result, "", *cells, ""])
    yield Table("Parallelogram from rest at -45 deg, VODE Adams; correct: every angle within 0.01 rad of the closed "
                "solution and the energy within 1 %; ? marks a published figure copied from another table", HEADER,
                rows)  # fmt: skip
    yield Table("servoctl from eight starts, 20 s", ("settings", "integrator", "largest angle error [rad]", "ended"),
                list(eight_starts(quick)))  # fmt: skip


def _texts(experiment: Experiment, outcome: Outcome) -> list[str]:
    low, high = outcome.ranks
    return [
        experiment.method, f"{experiment.tolerance:g}", f"{experiment.alpha:g}, {experiment.beta:g}", outcome.result,
        f"{outcome.angle_error:.1e}", f"{outcome.violation:.1e}", f"{outcome.evaluations:,}", f"{outcome.steps:,}",
        f"{outcome.cpu_time:.2f}", f"{low}" if low == high else f"{low}-{high}",
    ]  # fmt: skip


def _cell(paper: Published, name: str, form: str) -> str:
    """A published figure as text, with a question mark after a copy error."""
    value = getattr(paper, name)
    return "-" if value is None else f"{value:{form}}{'?' if name in paper.doubtful else ''}"


SETTINGS = {
    "default: projection": [],
    "correction alone, 10/10": ["plant.passive={correction: {baumgarte: {alpha: 10, beta: 10}}, projection: false}"],
}
INTEGRATORS = {"rk4, 5 ms": "{method: rk4, step: 0.005}", "dop853, rtol 1e-9": "{method: dop853, rtol: 1e-9}"}


def eight_starts(quick: bool) -> Iterator[list[str]]:
    """The largest error of the angle over all starts; quick: from the first start only."""
    starts = EIGHT_STARTS[:1] if quick else EIGHT_STARTS
    for settings, overrides in SETTINGS.items():
        for integrator, method in INTEGRATORS.items():
            errors, ends = [], []
            for start in starts:
                each = [*start_overrides(*start), f"run.integrator={method}", f"run.duration={DURATION}", *overrides]
                run = load("parallelogram", [*each, f"run.output_step={SPACING}"]).simulate()
                errors.append(float(np.abs(run["q.link1_phi"] - true_angle(run.t, *start)).max()))
                ends.append(str(run.metadata["status"]))
            status = ", ".join(f"{ends.count(end)} {end}" for end in sorted(set(ends)))
            yield [settings, integrator, f"{max(errors):.1e}", status]
