"""The search that the `tune:` section describes, checked against the rest of the config, and how its trials are judged.

Design: the first run of every trial is made before the others. A trial whose first run fails, or exceeds a constraint
by far, is pruned: its other runs could not make it feasible. Constraints hold for the worst run, whether the objective
takes the worst or the mean. Metrics are those of every step: `run.output_step` has no influence.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

from servoctl.assembly.run import Run
from servoctl.assembly.values import Problems
from servoctl.config.overrides import is_number, setting
from servoctl.config.tune import RESERVES, Range, Tune
from servoctl.errors import ConfigError, ExpressionError
from servoctl.expression import constant
from servoctl.linear.reserve import UNSTABLE, Reserve, bounds_of, reserve
from servoctl.run_folder.metrics import greatest_is_best
from servoctl.study.batch import at_every_step, run_all, run_at
from servoctl.study.metrics import Row, excess_of, metric_names, metric_unit, no_such_metric
from servoctl.study.points import Point, check_path, leaves

MOST_SCENARIOS = 64  # largest number of runs per trial for `tune.uncertainty`


@dataclass(frozen=True)
class SearchProblem:
    """A search for the best numbers of a config."""

    run: Run  # the config without changes
    tune: Tune  # its `tune:` section
    # changes of the plant that every trial is run with: path -> value, one mapping per run
    scenarios: tuple[Point, ...]
    weights: Mapping[str, float]  # metric -> weight, if a weighted sum is minimised; else empty
    objectives: tuple[str, ...]  # names of the objectives
    metrics: tuple[str, ...]  # names of all metrics of a trial
    # metric -> greatest value (least value, where the greatest is best): `tune.constraints` and the stability reserves
    # of `RESERVES`
    bounds: Mapping[str, float]
    baseline: Point  # searched path -> value in the config

    @property
    def several(self) -> bool:
        """Whether there are several objectives, and so a Pareto front."""
        return len(self.objectives) > 1

    @property
    def sampler(self) -> str:
        """The method that chooses the next trials."""
        return self.tune.sampler or ("nsga2" if self.several else "tpe")

    def objective(self, metrics: Mapping[str, float]) -> tuple[float, ...]:
        """The values to minimise, from the metrics of a trial."""
        if self.weights:
            return (sum(weight * metrics[name] for name, weight in self.weights.items()),)
        return tuple(metrics[name] for name in self.objectives)

    @property
    def minimised(self) -> tuple[str, ...]:
        """Names of the minimised metrics, single or in a weighted sum."""
        return tuple(self.weights) or self.objectives


def read_problem(run: Run) -> SearchProblem:
    """The search that a config describes.

    Raises:
        ConfigError: The config has no `tune:` section, or the section does not fit it; lists every problem.
    """
    assert run.loaded is not None
    tune, problems = run.loaded.config.tune, Problems(run.loaded)
    if tune is None:
        path = "plant.parameters.NAME" if run.system.law is None else "law.correction.baumgarte.alpha"
        example = f"tune: {{search: {{{path}: {{low: 1, high: 100, scale: log}}}}}}"
        problems.add(f"missing (say what to search, as in {example})", "tune")
        raise ConfigError(problems.found)
    minimise = tune.objective.minimise
    weights = dict(minimise) if isinstance(minimise, Mapping) else {}
    names = (minimise,) if isinstance(minimise, str) else tuple(minimise)
    label = " + ".join(f"{weight:g} {name}" for name, weight in weights.items())
    reserves = tuple(RESERVES.values()) if run.system.law is not None else ()
    metrics = (*metric_names(run), *(f"sensitivity.{name}" for name in tune.sensitivity), *reserves)
    _check_paths(run, tune, problems)
    _check_metrics(tune, names, metrics, problems)
    combined = math.prod(map(len, tune.uncertainty.values()))
    if combined > MOST_SCENARIOS:
        what = f"{combined} combinations (give fewer values: at most {MOST_SCENARIOS})"
        problems.add(what, "tune", "uncertainty")
    problems.check()
    plants = [[_evaluated(value) for value in values] for values in tune.uncertainty.values()]
    scenarios = tuple(dict(zip(tune.uncertainty, values, strict=True)) for values in product(*plants))
    values_now = leaves(run)
    baseline = {path: values_now[path] for path in tune.search if path in values_now}
    bounds = dict(tune.constraints) | (bounds_of(tune) if run.system.law is not None else {})
    return SearchProblem(run, tune, scenarios, weights, (label,) if weights else names, metrics, bounds, baseline)


def _evaluated(value: Any) -> Any:
    """The number of a constant expression; any other value unchanged."""
    try:
        return constant(value)
    except ExpressionError:
        return value


def _check_paths(run: Run, tune: Tune, problems: Problems) -> None:
    groups: list[tuple[tuple[str, ...], Mapping[str, Any]]] = [
        (("search",), tune.search),
        (("uncertainty",), tune.uncertainty),
    ]
    for name, at in tune.sensitivity.items():
        groups.append((("sensitivity", name), {path: [value] for path, value in at.items()}))
    for section, choices in groups:
        for path, values in choices.items():
            samples = [values.low, values.high] if isinstance(values, Range) else list(values)
            others = [setting(other, first[0]) for other, first in tune.uncertainty.items() if other != path]
            try:
                check_path(run, path, samples, others)
            except ConfigError as error:
                problems.add(error, "tune", *section, path)


def _check_metrics(tune: Tune, objectives: tuple[str, ...], known: tuple[str, ...], problems: Problems) -> None:
    for section, names in (("objective", objectives), ("constraints", tuple(tune.constraints))):
        for name in names:
            field = "minimise" if section == "objective" else name
            if name not in known:
                problems.add(no_such_metric(name, known), "tune", section, field)
            elif section == "objective" and greatest_is_best(name):
                what = f"{name}: its greatest value is best (give its least value under tune.constraints)"
                problems.add(what, "tune", section, field)


def in_range(problem: SearchProblem) -> bool:
    """Whether the values in the config lie within the ranges of the search."""
    for path, choice in problem.tune.search.items():
        value = problem.baseline.get(path)
        if isinstance(choice, Range):
            if not is_number(value) or not choice.low <= value <= choice.high:  # type: ignore[operator]
                return False
        elif value not in choice:
            return False
    return True


HOPELESS = 1.0
"""A trial is pruned after its first run if it exceeds a constraint by more than this, relative to the bound."""

CACHED = 64  # largest number of stability reserves that are cached, from a trial's first run to its last

Runner = Callable[[Run, Sequence[Point]], Iterable[Row]]
"""Runs a config at points; yields the metrics of each run, in order."""

DONE, INFEASIBLE, PRUNED, FAILED = "done", "infeasible", "pruned", "failed"


@dataclass(frozen=True)
class Evaluation:
    """The result of a trial."""

    # `done`; `infeasible`: all runs are done, but a constraint is violated; `pruned`: not all runs were made; `failed`:
    # a run failed
    status: str
    reason: str | None = None  # why the status is not `done`
    values: tuple[float, ...] = ()  # values to minimise, one per objective; empty unless all runs are done
    # metrics over the runs, the worst or the mean; empty unless all runs are done
    metrics: dict[str, float] = field(default_factory=dict)
    # constraint -> how far the worst run is beyond it, relative to the bound; <= 0: the constraint holds
    excess: dict[str, float] = field(default_factory=dict)
    runs: int = 0  # number of runs that were made

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as JSON-ready values."""
        return asdict(self)


class Evaluator:
    """Evaluates the trials of a search.

    Args:
        runner: Makes the runs; the evaluations do not depend on it.
    """

    def __init__(self, problem: SearchProblem, runner: Runner = run_all) -> None:
        self._problem, self._runner = problem, runner
        # Accessing the kernels traces them here once; all loops of other numbers share them.
        loop = problem.run.loop
        _ = loop.control_kernel, loop.closing_kernel if loop.projects else None
        self._first = at_every_step(run_at(problem.run, problem.scenarios[0]))
        self._known: dict[Any, Reserve] = {}
        self.engines: set[str] = set()  # engines of the runs so far
        self.runs = 0  # number of runs so far

    def evaluate(self, trials: Sequence[Point], progress: Callable[[float], None] | None = None) -> list[Evaluation]:
        """The evaluation of each trial, in order.

        Args:
            trials: Path -> value, one mapping per trial.
        """
        later, before = self._later_scenarios(), self.runs
        total = len(trials) * (1 + len(later))

        def runs(points: list[Point]) -> Iterator[Row]:
            for row in self._runner(self._first, points) if points else ():
                self.runs += 1
                self.engines |= {row["engine"]} if row.get("engine") else set()
                if progress is not None:
                    progress((self.runs - before) / total)
                yield row

        first = list(runs([{**trial, **self._problem.scenarios[0]} for trial in trials]))
        evaluations = [self._after_first(trial, row) for trial, row in zip(trials, first, strict=True)]
        remaining = [i for i, evaluation in enumerate(evaluations) if evaluation is None]
        rows = runs([{**trials[i], **scenario} for i in remaining for scenario in later])
        for i in remaining:
            evaluations[i] = self._in_full(trials[i], [first[i], *(next(rows) for _ in later)])
        return [evaluation for evaluation in evaluations if evaluation is not None]

    def _later_scenarios(self) -> list[Point]:
        """The scenarios after the first: the other plants, then the variations of `tune.sensitivity`."""
        problem = self._problem
        compared = [{**problem.scenarios[0], **at} for at in problem.tune.sensitivity.values()]
        return [*problem.scenarios[1:], *compared]

    def _after_first(self, trial: Point, row: Row) -> Evaluation | None:
        """The evaluation of a trial that its first run decides; None: the other runs are needed."""
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
        return Evaluation(PRUNED, self._beyond(name, known[name], bounds[name]), excess=excess, runs=1)

    def _in_full(self, trial: Point, rows: Sequence[Row]) -> Evaluation:
        problem, count = self._problem, len(rows)
        for i, row in enumerate(rows):
            if row["status"] != "done":
                return Evaluation(FAILED, f"{_reason(row)}{self._where(i)}", runs=count)
        joint = self._sensitivities(rows) | self._reserves(trial)
        worst, counted = (self._combined(rows, over) | joint for over in ("worst", problem.tune.objective.over))
        missing = [name for name in (*problem.minimised, *problem.tune.constraints) if name not in counted]
        bounds = {name: bound for name, bound in problem.bounds.items() if name in counted}
        if missing:
            unsettled = missing[0].partition(".")[0] == "settling_time"
            why = ": the task error does not stay within run.settling_band" if unsettled else ""
            return Evaluation(FAILED, f"{missing[0]} has no value{why}", runs=count)
        values = problem.objective(counted)
        excess = {name: excess_of(name, worst[name], bound) for name, bound in bounds.items()}
        broken = [name for name, x in excess.items() if x > 0.0]
        if not broken:
            return Evaluation(DONE, None, values, counted, excess, count)
        name = max(broken, key=excess.__getitem__)
        return Evaluation(INFEASIBLE, self._beyond(name, worst[name], bounds[name]), values, counted, excess, count)

    def _beyond(self, name: str, value: float, bound: float) -> str:
        """Why a trial is infeasible, with the unit of the metric."""
        unit = f" {known}" if (known := metric_unit(self._problem.run, name)) else ""
        unstable = name == "gain_margin" and value <= UNSTABLE
        why = ": the loop is unstable at the start (tune.gain_margin: none, if it is meant to be)" if unstable else ""
        return f"{name} {value:.4g}{unit} is {'below' if greatest_is_best(name) else 'above'} {bound:g}{unit}{why}"

    def _combined(self, rows: Sequence[Row], over: str) -> dict[str, float]:
        """The metrics that the runs of all plants have: their worst, or their mean."""
        combined = {}
        for name in self._problem.metrics:
            values = [row.get(name) for row in rows[: len(self._problem.scenarios)]]
            numbers = [float(value) for value in values if value is not None]
            if len(numbers) == len(values):
                worst = min(numbers) if greatest_is_best(name) else max(numbers)
                combined[name] = worst if over == "worst" else math.fsum(numbers) / len(numbers)
        return combined

    def _sensitivities(self, rows: Sequence[Row]) -> dict[str, float]:
        """`sensitivity.<name>`: how far each variation changes the RMS violation of the first plant."""
        changes = {}
        names, first = self._problem.tune.sensitivity, rows[0].get("rms_violation")
        for name, row in zip(names, rows[len(self._problem.scenarios) :], strict=True):
            other = row.get("rms_violation")
            if first is not None and other is not None:
                changes[f"sensitivity.{name}"] = abs(float(first) - float(other))
        return changes

    def _where(self, i: int) -> str:
        """The scenario of run i of a trial, as words after an error; empty for the first."""
        changed = {} if i == 0 else self._later_scenarios()[i - 1]
        return " with " + ", ".join(setting(path, value) for path, value in changed.items()) if changed else ""

    def _reserves(self, trial: Point, first: bool = False) -> dict[str, float]:
        """The figures of `linear.reserve`: the worst over all plants, or those of the first plant alone.

        A figure that one of the plants lacks is left out. Empty if the search uses none of them.
        """
        if not set(RESERVES.values()) & {*self._problem.bounds, *self._problem.minimised}:
            return {}
        scenarios = self._problem.scenarios[:1] if first else self._problem.scenarios
        reserves = [self._reserve({**trial, **scenario}).to_dict() for scenario in scenarios]
        shared = [name for name in reserves[0] if all(name in figures for figures in reserves)]
        return {
            name: (min if greatest_is_best(name) else max)(figures[name] for figures in reserves) for name in shared
        }

    def _reserve(self, point: Point) -> Reserve:
        key = tuple(point.items())
        if key not in self._known:
            if len(self._known) >= CACHED:
                self._known.clear()
            self._known[key] = reserve(run_at(self._first, point))
        return self._known[key]


def _reason(row: Row) -> str:
    return f"{row['status']}: {row['error']}" if row.get("error") else str(row["status"])
