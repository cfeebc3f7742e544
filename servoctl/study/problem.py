"""The search that the `tune:` section describes, checked against the rest of the config."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from servoctl.assembly.run import Run
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
    tune = run.loaded.config.tune
    if tune is None:
        path = "plant.parameters.NAME" if run.system.law is None else "law.correction.baumgarte.alpha"
        example = f"tune: {{search: {{{path}: {{low: 1, high: 100, scale: log}}}}}}"
        raise ConfigError(f"{run.loaded.where()}: tune: missing (say what to search, as in {example})")
    minimise = tune.objective.minimise
    weights = dict(minimise) if isinstance(minimise, Mapping) else {}
    names = (minimise,) if isinstance(minimise, str) else tuple(minimise)
    label = " + ".join(f"{weight:g} {name}" for name, weight in weights.items())
    reserves = tuple(RESERVES.values()) if run.system.law is not None else ()
    metrics = (*metric_names(run), *(f"sensitivity.{name}" for name in tune.sensitivity), *reserves)
    problems = [*_wrong_paths(run, tune), *_wrong_metrics(run, tune, names, metrics)]
    combined = math.prod(map(len, tune.uncertainty.values()))
    if combined > MOST_SCENARIOS:
        where = run.loaded.where("tune", "uncertainty")
        problems.append(f"{where}: {combined} combinations (give fewer values: at most {MOST_SCENARIOS})")
    if problems:
        raise ConfigError(problems)
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


def _wrong_paths(run: Run, tune: Tune) -> Iterator[str]:
    assert run.loaded is not None
    groups: list[tuple[tuple[str, ...], Mapping[str, Any]]] = [
        (("tune", "search"), tune.search),
        (("tune", "uncertainty"), tune.uncertainty),
    ]
    for name, at in tune.sensitivity.items():
        groups.append((("tune", "sensitivity", name), {path: [value] for path, value in at.items()}))
    for section, choices in groups:
        for path, values in choices.items():
            samples = [values.low, values.high] if isinstance(values, Range) else list(values)
            others = [setting(other, first[0]) for other, first in tune.uncertainty.items() if other != path]
            try:
                check_path(run, path, samples, others)
            except ConfigError as error:
                yield from (f"{run.loaded.where(*section, path)}: {line}" for line in error.problems)


def _wrong_metrics(run: Run, tune: Tune, objectives: tuple[str, ...], known: tuple[str, ...]) -> Iterator[str]:
    assert run.loaded is not None
    for section, names in (("objective", objectives), ("constraints", tuple(tune.constraints))):
        for name in names:
            if name not in known:
                where = run.loaded.where("tune", section, "minimise" if section == "objective" else name)
                yield f"{where}: {no_such_metric(name, known)}"
            elif section == "objective" and greatest_is_best(name):
                where = run.loaded.where("tune", section, "minimise")
                yield f"{where}: {name}: its greatest value is best (give its least value under tune.constraints)"


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
