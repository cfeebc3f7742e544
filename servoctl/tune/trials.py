"""The trials of a search, as values, as rows on disk, and as Optuna reads them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from servoctl.config.tune import Range, Tune
from servoctl.sweep.metrics import Row
from servoctl.tune.evaluator import DONE, INFEASIBLE, Evaluation
from servoctl.tune.problem import Point

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial
    from pydantic import TypeAdapter

LOST = 1e3  # excess that the sampler is told for a trial that failed or was pruned
PENALTY = 10.0  # for a sampler without constraints, the objective grows by this many times its size per unit of excess


@dataclass(frozen=True)
class Trial:
    """A trial: values of the searched numbers, and their evaluation."""

    number: int  # from 0
    at: Point  # path -> value
    evaluation: Evaluation
    refined: int | None = None  # number of the trial from which it was refined; None: the search chose it
    system: Mapping[str, Any] = field(default_factory=dict)  # what the sampler noted about it

    @property
    def row(self) -> Row:
        """The trial as JSON-ready values, without its number."""
        return {
            "status": self.evaluation.status, "at": self.at, "evaluation": self.evaluation.to_dict(),
            "refined": self.refined, "system": dict(self.system),
        }  # fmt: skip

    @classmethod
    def of_row(cls, number: int, row: Row) -> "Trial":
        """The inverse of `row`.

        Raises:
            ValueError: The row is not that of a trial.
        """
        return _adapter().validate_python({**row, "number": number})


@cache
def _adapter() -> "TypeAdapter[Trial]":
    from pydantic import TypeAdapter

    return TypeAdapter(Trial)


def frozen(trial: Trial, tune: Tune) -> "FrozenTrial":
    """A trial in the form that the sampler reads.

    A trial that failed or was pruned counts as far beyond its constraints, so that the sampler avoids its region.

    Raises:
        ValueError: The trial is outside the ranges of the search.
    """
    from optuna.trial import TrialState, create_trial

    evaluation = trial.evaluation
    complete = evaluation.status in (DONE, INFEASIBLE)
    excess = evaluation.excess if complete else {**evaluation.excess, "runs": LOST}
    return create_trial(
        state=TrialState.COMPLETE if complete else TrialState.PRUNED,
        values=[_penalised(value, evaluation, tune) for value in evaluation.values] if complete else None,
        params=trial.at,
        distributions=distributions(tune),
        system_attrs=dict(trial.system),
        constraints={name: float(x) for name, x in excess.items()},
    )


def _penalised(value: float, evaluation: Evaluation, tune: Tune) -> float:
    """The objective, with a penalty for violated constraints if the sampler (CMA-ES) knows none."""
    if tune.sampler != "cmaes":
        return value
    beyond = sum(max(0.0, x) for x in evaluation.excess.values())
    return value + PENALTY * beyond * (abs(value) or 1.0)


def distributions(tune: Tune) -> "dict[str, BaseDistribution]":
    """Path -> the distribution that Optuna draws from."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    space: dict[str, BaseDistribution] = {}
    for path, choice in tune.search.items():
        if isinstance(choice, Range):
            space[path] = FloatDistribution(choice.low, choice.high, log=choice.scale == "log", step=choice.step)
        else:
            space[path] = CategoricalDistribution(choice)
    return space
