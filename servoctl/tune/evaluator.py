"""Trials -> runs -> what became of each trial.

Design: the first run of every trial of a generation is made before the others, and a trial that has failed there, or is
beyond a constraint by far, is given up: what is left of it could not make it feasible. Constraints hold for the worst
run, whatever the objective takes. Who makes the runs, `servoctl.sweep.batch.run_all` or another, changes no verdict.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from servoctl.assembly.make import make_run
from servoctl.assembly.run import Run
from servoctl.config.overrides import is_number, setting
from servoctl.config.tune import RESERVES
from servoctl.linear.reserve import Reserve, reserve
from servoctl.simulation.traced import CompiledLoop
from servoctl.sweep.batch import run_all
from servoctl.sweep.metrics import GREATEST
from servoctl.tune.problem import Point, SearchProblem

HOPELESS = 1.0
"""Excess of a constraint, relative to its bound, from which a trial is given up after its first run."""

KEPT = 64
"""Plants whose reserve is kept from a trial's first run to its last."""

Row = dict[str, Any]
Runner = Callable[[Run, Sequence[Point]], Iterable[Row]]
"""Runs a config at points; gives the metrics of each, in order."""

DONE, INFEASIBLE, PRUNED, FAILED = "done", "infeasible", "pruned", "failed"


@dataclass(frozen=True)
class Evaluation:
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
    def of_dict(cls, said: Mapping[str, Any]) -> "Evaluation":
        """From `to_dict`."""
        return cls(**{**said, "values": tuple(said["values"])})


class Evaluator:
    """Runs trials.

    Attributes:
        engines: That made the runs.
        runs: How many there were.
    """

    def __init__(self, problem: SearchProblem, runner: Runner = run_all) -> None:
        """Takes a problem, and what makes the runs."""
        self._problem, self._runner = problem, runner
        if isinstance(problem.run.loop, CompiledLoop):
            _ = problem.run.loop.control_kernel, problem.run.loop.closing_kernel  # traced once for all retuned loops
        self._first = _with(problem.run, problem.members[0], strict=False)  # what trials have in common is compiled
        self._known: dict[Any, Reserve] = {}
        self.engines: set[str] = set()
        self.runs = 0

    def judge(self, trials: Sequence[Point], progress: Callable[[float], None] | None = None) -> list[Evaluation]:
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

    def _at_first(self, trial: Point, row: Row) -> Evaluation | None:
        """The end of a trial that one run decides."""
        if row["status"] != "done":
            return Evaluation(FAILED, _reason(row), runs=1)
        bounds = self._problem.bounds
        known = {name: row[name] for name in bounds if row.get(name) is not None}
        known |= {name: x for name, x in self._reserves(trial, first=True).items() if name in bounds}
        excess = {name: excess_of(name, known[name], bounds[name]) for name in known}
        beyond = {name: x for name, x in excess.items() if x > HOPELESS}
        if not beyond:
            return None
        name = max(beyond, key=beyond.__getitem__)
        return Evaluation(PRUNED, _beyond(name, known[name], bounds[name]), excess=excess, runs=1)

    def _in_full(self, trial: Point, rows: Sequence[Row]) -> Evaluation:
        problem, count = self._problem, len(rows)
        for place, row in enumerate(rows):
            if row["status"] != "done":
                return Evaluation(FAILED, f"{_reason(row)}{self._where(place)}", runs=count)
        own = self._own(rows) | self._reserves(trial)
        worst, counted = (self._over(rows, over) | own for over in ("worst", problem.tune.objective.over))
        missing = [name for name in (*problem.minimised, *problem.tune.constraints) if name not in counted]
        bounds = {name: bound for name, bound in problem.bounds.items() if name in counted}
        if missing:
            return Evaluation(FAILED, f"{missing[0]} has no value", runs=count)
        values = problem.objective(counted)
        excess = {name: excess_of(name, worst[name], bound) for name, bound in bounds.items()}
        broken = [name for name, x in excess.items() if x > 0.0]
        if not broken:
            return Evaluation(DONE, None, values, counted, excess, count)
        name = max(broken, key=excess.__getitem__)
        return Evaluation(INFEASIBLE, _beyond(name, worst[name], bounds[name]), values, counted, excess, count)

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

    def _own(self, rows: Sequence[Row]) -> dict[str, float]:
        """The metrics that no single run has."""
        found = {}
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

    def _reserves(self, trial: Point, first: bool = False) -> dict[str, float]:
        """The figures of `linear.reserve`, the worst over the plants; of the first plant alone where that is enough.

        A figure that one of the plants lacks is left out.
        """
        if not set(RESERVES.values()) & {*self._problem.bounds, *self._problem.minimised}:
            return {}
        members = self._problem.members[:1] if first else self._problem.members
        found = [self._reserve(trial | member).to_dict() for member in members]
        shared = [name for name in found[0] if all(name in one for one in found)]
        return {name: (min if name in GREATEST else max)(one[name] for one in found) for name in shared}

    def _reserve(self, point: Point) -> Reserve:
        key = tuple(point.items())
        if key not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[key] = reserve(_with(self._first, point, strict=False))
        return self._known[key]


def _with(run: Run, point: Point, strict: bool = True) -> Run:
    """A run with other values."""
    assert run.loaded is not None
    words = [setting(path, value) for path, value in point.items() if not is_number(value)]
    loaded = run.loaded.overridden(words) if words else run.loaded
    loaded = loaded.with_numbers({path: value for path, value in point.items() if is_number(value)})
    return make_run(loaded, run.engine, strict, like=run)


def excess_of(name: str, value: float, bound: float) -> float:
    """By how much a metric is beyond its bound, relative to it."""
    beyond = (value - bound) / (abs(bound) or 1.0)
    return max(-1.0, -beyond) if name in GREATEST else beyond


def _beyond(name: str, value: float, bound: float) -> str:
    return f"{name} {value:.4g} is {'below' if name in GREATEST else 'above'} {bound:g}"


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


def improvement(trial: Evaluation, standing: Evaluation) -> float | None:
    """Share of the objective that a trial saves; None where there is nothing to compare."""
    if not trial.values or not standing.values or not standing.values[0]:
        return None
    return 1.0 - trial.values[0] / standing.values[0]
