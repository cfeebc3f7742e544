"""The published comparison of pseudoinverse methods, repeated, with the default of servoctl next to it.

Source: de Falco, Pennestri, Vita, tables 2-7.
"""

import platform
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from typing import Any

from servoctl.bench.eight_starts import eight_starts, tables
from servoctl.bench.parallelogram import (
    ANGLE_LIMIT,
    DURATION,
    ENERGY_LIMIT,
    START,
    TURNING,
    Experiment,
    RunError,
    simulate,
)
from servoctl.bench.pseudoinverse_methods import METHODS, REDUCTIONS, RankRule
from servoctl.bench.published import WITH_STABILISATION, WITHOUT_STABILISATION, Published
from servoctl.bench.report import BenchReport, Effort, Progress, TextTable

TOLERANCES = (1e-10, 1e-8, 1e-6)
PUBLISHED_GAINS = (1000.0, 100.0)  # [1/s] alpha, beta: poles at -1995 and -5.01, which make the equations stiff
OUR_GAINS = (10.0, 10.0)  # [1/s] the default where rows are independent
STARTS_SHARE = 0.1  # of the progress, for the eight starts
OUR_RULE = RankRule(1e-6)  # that of passive constraints

PUBLISHED_TABLES = tuple((tol, gains) for gains in ((0.0, 0.0), PUBLISHED_GAINS) for tol in TOLERANCES)
"""(TOL, gains) of tables 2 to 7."""
PUBLISHED_COLUMNS = (("violation", ".1e"), ("evaluations", ","), ("steps", ","), ("cpu_time", ".2f"))

HEADER = (
    "method", "result", "angle [rad]", "energy [J]", "sum psi^2 [m^2]", "evaluations", "steps", "CPU [s]", "rank",
)  # fmt: skip


def pseudoinverse_study(effort: Effort, progress: Progress) -> BenchReport:
    """Five published pseudoinverse methods, three reductions and our own on an overconstrained parallelogram, 20 s.

    Args:
        effort: Quick takes only SVD and our rank rule at TOL 1e-8, from rest.
        progress: Called with the share of runs that are done.
    """
    sections = list(_sections(effort.quick))
    experiments = [experiment for section in sections for experiment in section]
    ours = eight_starts(effort.quick, lambda share: progress(STARTS_SHARE * share))
    rest = _simulated(experiments, effort, lambda share: progress(STARTS_SHARE + (1.0 - STARTS_SHARE) * share))
    outcomes = dict(zip(experiments, rest, strict=True))
    studied = [TextTable(_title(section[0]), HEADER, _texts(section, outcomes), left=2) for section in sections]
    values = {
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "quick": effort.quick,
        "cap": effort.cap,
        "duration": DURATION,
        "rows": [_values(experiment, outcome) for experiment, outcome in outcomes.items()],
        "eight_starts": [asdict(outcome) for outcome in ours],
    }
    return BenchReport(
        f"Pseudoinverse methods: overconstrained parallelogram from rest at -45 deg, {DURATION:g} s, VODE Adams",
        [*studied, *tables(ours)],
        values,
        _notes(effort, list(outcomes.values())),
    )


def _sections(quick: bool) -> Iterator[list[Experiment]]:
    """The published experiments by table, then ours."""
    tolerances, methods = ((1e-8,), ("svd",)) if quick else (TOLERANCES, tuple(METHODS))
    for tol, gains in PUBLISHED_TABLES:
        if tol in tolerances:
            yield [Experiment(method, tol, RankRule(tol, relative=False), *gains) for method in methods]
    for gains in ((0.0, 0.0), PUBLISHED_GAINS) if not quick else ():
        yield [Experiment(method, 1e-8, RankRule(1e-8, relative=False), *gains) for method in REDUCTIONS]
    yield [Experiment("cod", tol, OUR_RULE, *OUR_GAINS) for tol in tolerances]
    for gains in ((0.0, 0.0), PUBLISHED_GAINS) if not quick else ():
        yield [Experiment(method, 1e-8, RankRule(1e-8, relative=False), *gains, TURNING) for method in METHODS]
    if not quick:
        yield [Experiment("cod", tol, OUR_RULE, *OUR_GAINS, TURNING) for tol in tolerances]


def _simulated(experiments: list[Experiment], effort: Effort, progress: Progress) -> list[RunError]:
    """Results in order."""
    done = []
    if effort.jobs == 1:
        for experiment in experiments:
            done.append(simulate(experiment, effort.cap))
            progress(len(done) / len(experiments))
        return done
    # spawned, not forked: CasADi and BLAS may hold threads; and an interrupt ends the workers without a traceback
    silent = (signal.SIGINT, signal.SIG_DFL)
    with ProcessPoolExecutor(effort.jobs, get_context("spawn"), signal.signal, silent) as pool:
        futures = [pool.submit(simulate, experiment, effort.cap) for experiment in experiments]
        try:
            for count, _ in enumerate(as_completed(futures), start=1):
                progress(count / len(experiments))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        return [future.result() for future in futures]


def published(experiment: Experiment) -> Published | None:
    """The published row of an experiment; None if there is none."""
    gains = (experiment.alpha, experiment.beta)
    tables = {(0.0, 0.0): WITHOUT_STABILISATION, PUBLISHED_GAINS: WITH_STABILISATION}.get(gains, {})
    other = experiment.rule.relative or experiment.start != (START, 0.0)
    return None if other else tables.get(experiment.tolerance, {}).get(experiment.method)


def result(outcome: RunError) -> str:
    """How long the motion was correct, and why the run ended early if it did."""
    why = {"done": "", "cap": f"cut at {outcome.reached:.2f} s"}.get(outcome.end, f"failed at {outcome.reached:.2f} s")
    correct = f"correct up to {outcome.correct_until:.2f} s" if outcome.lost else "correct"
    return ", ".join(filter(None, [correct, why]))


def _values(experiment: Experiment, outcome: RunError) -> dict[str, Any]:
    """One row as plain values."""
    of_paper = published(experiment)
    return {
        **asdict(experiment),
        "result": result(outcome),
        **asdict(outcome),
        "published": None if of_paper is None else asdict(of_paper),
    }


def _title(experiment: Experiment) -> str:
    """Title of a table: the settings common to its rows."""
    tol, rule, gains = experiment.tolerance, experiment.rule, (experiment.alpha, experiment.beta)
    stabilised = f"Baumgarte {gains[0]:g}, {gains[1]:g}" if any(gains) else "not stabilised"
    whence = "" if experiment.start == (START, 0.0) else ", from upright at 1 rad/s through the flat pose"
    if rule.relative:
        return f"servoctl's rank rule: {stabilised}, rank threshold {rule.tolerance:g} |D|_F{whence}"
    if whence:
        return f"TOL {tol:g}, {stabilised}, rank threshold {rule.tolerance:g}{whence} (not published)"
    if experiment.method in REDUCTIONS:
        return f"TOL {tol:g}, {stabilised}, rank threshold {rule.tolerance:g}: reductions (named in table 1)"
    number = 2 + PUBLISHED_TABLES.index((tol, gains))
    return f"TOL {tol:g}, {stabilised}, rank threshold {rule.tolerance:g} (published: table {number})"


def _texts(section: list[Experiment], outcomes: dict[Experiment, RunError]) -> list[list[str]]:
    """The rows of a table, each followed by the published row."""
    rows = []
    for experiment in section:
        tol = f", TOL {experiment.tolerance:g}" if experiment.rule.relative else ""
        rows.append(_ours(experiment.method + tol, outcomes[experiment]))
        paper = published(experiment)
        if paper is not None:
            cells = [_cell(paper, *column) for column in PUBLISHED_COLUMNS]
            rows.append(["  published", paper.result, "", "", *cells, ""])
    return rows


def _ours(label: str, outcome: RunError) -> list[str]:
    low, high = outcome.rank_min, outcome.rank_max
    return [
        label,
        result(outcome),
        f"{outcome.angle_error:.1e}",
        f"{outcome.energy_drift:.1e}",
        f"{outcome.violation:.1e}",
        f"{outcome.evaluations:,}",
        f"{outcome.steps:,}",
        f"{outcome.cpu_time:.2f}",
        f"{low}" if low == high else f"{low}-{high}",
    ]


def _cell(paper: Published, name: str, form: str) -> str:
    """A published figure as text, with a question mark after a copy error."""
    value = getattr(paper, name)
    return "-" if value is None else f"{value:{form}}{'?' if name in paper.doubtful else ''}"


def _notes(effort: Effort, outcomes: list[RunError]) -> list[str]:
    notes = [
        f"correct: every angle within {ANGLE_LIMIT:g} rad and the energy within {ENERGY_LIMIT:.2g} J of the closed "
        "solution; a small violation alone does not prove this",
        "angle, energy, sum psi^2: largest error of an angle, drift of the energy and violation, all at the end",
        "CPU: processor time of this run; the published unit is unknown",
        "published: start and integrator (IMSL DIVPAG) differ, so compare results and orders of magnitude, not digits; "
        "? marks a figure that was copied there from the table of another TOL",
        "not stabilised: rounding grows as exp(1.77 t), and the rank becomes 12 when it reaches the threshold; the "
        "time depends on the build of LAPACK, by a second or two",
        "servoctl: `default` and `correction alone` are complete runs; by default each step ends on the constraints",
        "householder, gram_schmidt: their pivots are near the squares of small singular values, so the same threshold "
        "acts later on the rank",
    ]
    cut = sum(outcome.end == "cap" for outcome in outcomes)
    if cut:
        notes.insert(1, f"{cut} of {len(outcomes)} runs were cut after {effort.cap:g} s of wall time (raise --cap)")
    if effort.quick:
        notes.insert(0, "quick: only SVD and our rank rule at TOL 1e-8, and one of the eight starts")
    return notes
