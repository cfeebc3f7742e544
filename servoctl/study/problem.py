"""The search that the `tune:` section describes, checked against the rest of the config."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from servoctl.assembly.run import Run
from servoctl.assembly.values import Problems
from servoctl.config.overrides import is_number, setting
from servoctl.config.tune import RESERVES, Range, Tune
from servoctl.errors import ConfigError, ExpressionError
from servoctl.expression import constant
from servoctl.linear.reserve import bounds_of
from servoctl.run_folder.metrics import greatest_is_best
from servoctl.study.metrics import metric_names, no_such_metric
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
