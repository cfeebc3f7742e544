"""Trials -> runs -> what became of each trial.

Design: the first run of every trial of a generation is made before the others, and a trial that has failed there, or is
beyond a constraint by far, is given up: what is left of it could not make it feasible. Constraints hold for the worst
run, whatever the objective takes. Who makes the runs, `servoctl.runs.batch.run_all` or another, changes no verdict.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from servoctl.config.overrides import setting
from servoctl.runs.batch import run_all
from servoctl.runs.gains import task_gains, task_spacing
from servoctl.runs.make import make_run
from servoctl.runs.metrics import GREATEST
from servoctl.runs.run import Run
from servoctl.tune.problem import GAIN_SHARE, Point, Problem

HOPELESS = 1.0
"""Excess of a constraint, relative to its bound, from which a trial is given up after its first run."""

Row = dict[str, Any]
Runner = Callable[[Run, Sequence[Point]], Iterable[Row]]
"""Runs a config at points; gives the metrics of each, in order."""

DONE, INFEASIBLE, PRUNED, FAILED = "done", "infeasible", "pruned", "failed"


@dataclass(frozen=True)
class Verdict:
    """What became of a trial.

    Attributes:
        status: `done`; `infeasible`: all runs done, a constraint is not met; `pruned`: given up; `failed`.
        reason: Why it is not done.
        values: What is minimised, one per objective; empty where there is none.
        metrics: Of the runs, the worst or the mean; empty where not all were made.
        excess: Constraint -> by how much the worst run is beyond it, relative to the bound; met where <= 0.
        runs: Number of runs that were made.
    """

    status: str
    reason: str | None = None
    values: tuple[float, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    excess: dict[str, float] = field(default_factory=dict)
    runs: int = 0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def of_dict(cls, said: Mapping[str, Any]) -> "Verdict":
        """From `to_dict`."""
        return cls(**{**said, "values": tuple(said["values"])})


class Judge:
    """Runs trials.

    Attributes:
        engines: That made the runs.
        runs: How many there were.
    """

    def __init__(self, problem: Problem, runner: Runner = run_all) -> None:
        """Takes a problem, and what makes the runs."""
        self._problem, self._runner = problem, runner
        self._first = _with(problem.run, problem.members[0], strict=False)  # what trials have in common is compiled
        self.engines: set[str] = set()
        self.runs = 0

    def judge(self, trials: Sequence[Point], progress: Callable[[float], None] | None = None) -> list[Verdict]:
        """What becomes of trials.

        Args:
            trials: Path -> value of each.
            progress: Called with the fraction that is done, 0 to 1.
        """
        later = self._later()
        total = len(trials) * (1 + len(later))
        tell = _counter(total, progress)
        first = list(tell(self._runs([{**trial, **self._problem.members[0]} for trial in trials])))
        verdicts = [self._at_first(trial, row) for trial, row in zip(trials, first, strict=True)]
        going = [i for i, verdict in enumerate(verdicts) if verdict is None]
        rows = iter(tell(self._runs([{**trials[i], **extra} for i in going for extra in later])))
        for i in going:
            verdicts[i] = self._in_full(trials[i], [first[i], *(next(rows) for _ in later)])
        return [verdict for verdict in verdicts if verdict is not None]

    def _later(self) -> list[Point]:
        """What the runs after the first change: plants, and the comparisons of sensitivity."""
        problem = self._problem
        compared = [{**problem.members[0], **at} for at in problem.tune.sensitivity.values()]
        return [*problem.members[1:], *compared]

    def _runs(self, points: list[Point]) -> Iterator[Row]:
        for row in self._runner(self._first, points) if points else ():
            self.runs += 1
            self.engines |= {row["engine"]} if row.get("engine") else set()
            yield row

    def _at_first(self, trial: Point, row: Row) -> Verdict | None:
        """The end of a trial that one run decides."""
        if row["status"] != "done":
            return Verdict(FAILED, _reason(row), runs=1)
        bounds = self._problem.tune.constraints
        known = {name: row[name] for name in bounds if row.get(name) is not None}
        if GAIN_SHARE in bounds:
            known[GAIN_SHARE] = self._gain_share(trial)
        excess = {name: excess_of(known[name], bounds[name]) for name in known}
        beyond = {name: x for name, x in excess.items() if x > HOPELESS}
        if not beyond:
            return None
        name = max(beyond, key=beyond.__getitem__)
        return Verdict(PRUNED, _above(name, known[name], bounds[name]), excess=excess, runs=1)

    def _in_full(self, trial: Point, rows: Sequence[Row]) -> Verdict:
        problem, count = self._problem, len(rows)
        for place, row in enumerate(rows):
            if row["status"] != "done":
                return Verdict(FAILED, f"{_reason(row)}{self._where(place)}", runs=count)
        own = self._own(trial, rows)
        worst, counted = (self._over(rows, over) | own for over in ("worst", problem.tune.objective.over))
        missing = [name for name in (*problem.minimised, *problem.tune.constraints) if name not in counted]
        if missing:
            return Verdict(FAILED, f"{missing[0]} has no value", runs=count)
        bounds, values = problem.tune.constraints, problem.objective(counted)
        excess = {name: excess_of(worst[name], bound) for name, bound in bounds.items()}
        broken = [name for name, x in excess.items() if x > 0.0]
        if not broken:
            return Verdict(DONE, None, values, counted, excess, count)
        name = max(broken, key=excess.__getitem__)
        return Verdict(INFEASIBLE, _above(name, worst[name], bounds[name]), values, counted, excess, count)

    def _over(self, rows: Sequence[Row], over: str) -> dict[str, float]:
        """The metrics that every run has, over those of the plants."""
        found = {}
        for name in self._problem.metrics:
            values = [row.get(name) for row in rows[: len(self._problem.members)]]
            numbers = [float(value) for value in values if value is not None]
            if len(numbers) == len(values):
                worst = min(numbers) if name in GREATEST else max(numbers)
                found[name] = worst if over == "worst" else math.fsum(numbers) / len(numbers)
        return found

    def _own(self, trial: Point, rows: Sequence[Row]) -> dict[str, float]:
        """The metrics that no single run has."""
        found = {GAIN_SHARE: self._gain_share(trial)} if GAIN_SHARE in self._problem.metrics else {}
        names, first = self._problem.tune.sensitivity, rows[0].get("rms_violation")
        for name, row in zip(names, rows[len(self._problem.members) :], strict=True):
            other = row.get("rms_violation")
            if first is not None and other is not None:
                found[f"sensitivity.{name}"] = abs(float(first) - float(other))
        return found

    def _where(self, place: int) -> str:
        """Which of a trial's runs."""
        changed = {} if place == 0 else self._later()[place - 1]
        return " with " + ", ".join(setting(path, value) for path, value in changed.items()) if changed else ""

    def _gain_share(self, trial: Point) -> float:
        run = _with(self._first, trial)
        margins = [gain.margin for gain in task_gains(run.system, task_spacing(run.system, run.settings))]
        return max((1.0 / margin for margin in margins if margin), default=0.0)


def _with(run: Run, point: Point, strict: bool = True) -> Run:
    """A run with other values."""
    assert run.loaded is not None
    loaded = run.loaded.overridden([setting(path, value) for path, value in point.items()])
    return make_run(loaded, run.engine, strict, like=run)


def excess_of(value: float, bound: float) -> float:
    """By how much a value is beyond its bound, relative to it."""
    return (value - bound) / (abs(bound) or 1.0)


def _above(name: str, value: float, bound: float) -> str:
    return f"{name} {value:.4g} is above {bound:g}"


def _reason(row: Row) -> str:
    return f"{row['status']}: {row['error']}" if row.get("error") else str(row["status"])


def _counter(total: int, progress: Callable[[float], None] | None) -> Callable[[Iterable[Row]], Iterator[Row]]:
    """Counts what passes."""
    seen = 0

    def passing(rows: Iterable[Row]) -> Iterator[Row]:
        nonlocal seen
        for row in rows:
            seen += 1
            if progress is not None:
                progress(seen / total)
            yield row

    return passing


def improvement(trial: Verdict, standing: Verdict) -> float | None:
    """Share of the objective that a trial saves; None where there is nothing to compare."""
    if not trial.values or not standing.values or not standing.values[0]:
        return None
    return 1.0 - trial.values[0] / standing.values[0]
