"""The `tune:` section, checked against the config that it stands in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from servoctl.assembly.paths import check_path, leaves
from servoctl.assembly.run import Run
from servoctl.config.overrides import is_number, setting
from servoctl.config.tune import RESERVES, Range, Tune
from servoctl.errors import ConfigError, ExpressionError
from servoctl.expression import constant
from servoctl.expression.suggest import remedy
from servoctl.linear.reserve import bounds_of
from servoctl.sweep.metrics import GREATEST, metric_names

EXAMPLE = "tune: {search: {law.correction.baumgarte.alpha: {low: 1, high: 100, scale: log}}}"

MOST_MEMBERS = 64
"""Runs of one trial."""

Point = dict[str, Any]
"""Path -> value."""


@dataclass(frozen=True)
class SearchProblem:
    """What is searched.

    Attributes:
        run: The config, as it stands.
        tune: Its section.
        members: What the runs of a trial change besides, the first of them first.
        weights: Metric -> weight in the sum, where one is minimised.
        objectives: Names of what is minimised.
        metrics: Names of all metrics of a trial.
    """

    run: Run
    tune: Tune
    members: tuple[Point, ...]
    weights: Mapping[str, float]
    objectives: tuple[str, ...]
    metrics: tuple[str, ...]
    bounds: Mapping[str, float] = field(default_factory=dict)
    """Metric -> greatest value, of those in `GREATEST` the least: `tune.constraints` and the keys of `RESERVES`."""
    standing: Point = field(default_factory=dict)
    """Path of search -> what the config says there now."""

    @property
    def several(self) -> bool:
        """Whether there is a Pareto front."""
        return len(self.objectives) > 1

    def objective(self, metrics: Mapping[str, float]) -> tuple[float, ...]:
        """The values to minimise, of a trial's metrics."""
        if self.weights:
            return (sum(weight * metrics[name] for name, weight in self.weights.items()),)
        return tuple(metrics[name] for name in self.objectives)

    @property
    def minimised(self) -> tuple[str, ...]:
        """The metrics that are minimised, alone or in a sum."""
        return tuple(self.weights) or self.objectives


def read_problem(run: Run) -> SearchProblem:
    """What a config asks to be searched.

    Raises:
        ConfigError: There is no such section, or it does not fit the config; every problem at once.
    """
    assert run.loaded is not None
    tune = run.loaded.config.tune
    if tune is None:
        raise ConfigError(f"{run.loaded.where()}: tune: missing (say what to search, as in {EXAMPLE})")
    minimise = tune.objective.minimise
    weights = dict(minimise) if isinstance(minimise, Mapping) else {}
    names = (minimise,) if isinstance(minimise, str) else tuple(minimise)
    label = " + ".join(f"{weight:g} {name}" for name, weight in weights.items())
    reserves = tuple(RESERVES.values()) if run.system.law is not None else ()
    metrics = (*metric_names(run), *(f"sensitivity.{name}" for name in tune.sensitivity), *reserves)
    problems = [*_wrong_paths(run, tune), *_wrong_metrics(run, tune, names, metrics)]
    combined = 1
    for values in tune.uncertainty.values():
        combined *= len(values)
    if combined > MOST_MEMBERS:
        where = run.loaded.where("tune", "uncertainty")
        problems.append(f"{where}: {combined} combinations (at most {MOST_MEMBERS} runs per trial: take fewer values)")
    if problems:
        raise ConfigError(problems)
    plants = [[_evaluated(value) for value in values] for values in tune.uncertainty.values()]
    members = tuple(dict(zip(tune.uncertainty, values, strict=True)) for values in product(*plants))
    said = leaves(run)
    standing = {path: said[path] for path in tune.search if path in said}
    bounds = dict(tune.constraints) | (bounds_of(tune) if run.system.law is not None else {})
    return SearchProblem(run, tune, members, weights, (label,) if weights else names, metrics, bounds, standing)


def _evaluated(value: Any) -> Any:
    """The number that a constant expression makes; another value as it is."""
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
    for place, values_at in groups:
        for path, values in values_at.items():
            given = [values.low, values.high] if isinstance(values, Range) else list(values)
            others = [setting(other, first[0]) for other, first in tune.uncertainty.items() if other != path]
            try:
                check_path(run, path, given, others)
            except ConfigError as error:
                yield from (f"{run.loaded.where(*place, path)}: {line}" for line in error.problems)


def _wrong_metrics(run: Run, tune: Tune, objectives: tuple[str, ...], known: tuple[str, ...]) -> Iterator[str]:
    assert run.loaded is not None
    for place, names in (("objective", objectives), ("constraints", tuple(tune.constraints))):
        for name in names:
            if name not in known:
                hint = remedy(name, known)
                listed = "" if hint.startswith("known") else f"; known: {', '.join(known)}"
                where = run.loaded.where("tune", place, *(("minimise",) if place == "objective" else (name,)))
                yield f"{where}: {name}: there is no such metric ({hint}{listed})"
            elif place == "objective" and name in GREATEST:
                where = run.loaded.where("tune", place, "minimise")
                yield f"{where}: {name}: the greatest is best (give it under tune.constraints, as the least value)"


def in_range(problem: SearchProblem) -> bool:
    """Whether the config as it stands lies within the search."""
    for path, choice in problem.tune.search.items():
        value = problem.standing.get(path)
        if isinstance(choice, Range):
            if not is_number(value) or not choice.low <= value <= choice.high:  # type: ignore[operator]
                return False
        elif value not in choice:
            return False
    return True
