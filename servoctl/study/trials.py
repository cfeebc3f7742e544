"""The trials of a search, as values, as rows on disk, and as Optuna reads them.

Design: the file is that of a sweep (`store`), a line per trial. Only the same config can continue a study.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servoctl.config.tune import Range, Tune
from servoctl.study.evaluator import DONE, INFEASIBLE, Evaluation
from servoctl.study.metrics import Row
from servoctl.study.points import Point
from servoctl.study.problem import SearchProblem
from servoctl.study.store import RowStore, identity_of

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
        params=dict(trial.at),
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


class TrialStore(RowStore):
    """The finished trials of a study; a context manager that closes the file.

    Args:
        folder: The folder of the study; created if it is missing.
        resume: Whether to continue an existing study; False: an existing study is an error.

    Raises:
        ConfigError: There is a study without `resume`, or with it none or that of another config.
        RunFolderError: The file is damaged, in use by another search, or cannot be written.
    """

    file, noun, kind = "study.jsonl", "study", "trials"

    def __init__(self, folder: Path, problem: SearchProblem, resume: bool) -> None:
        self._problem = problem
        super().__init__(folder, identity_of(problem.run), None, resume)
        self.trials = [Trial.of_row(number, row) for number, row in enumerate(self.rows)]  # all trials, in order

    @property
    def searched(self) -> list[Trial]:
        """The trials that the search chose; without those of a refinement."""
        return [trial for trial in self.trials if trial.refined is None]

    def add_trial(self, trial: Trial) -> None:
        """Stores a trial.

        Raises:
            RunFolderError: The trial cannot be stored; the trials before it are kept.
        """
        self.add(trial.row)
        self.trials.append(trial)

    def fits(self, row: Row) -> bool:
        try:
            trial = Trial.of_row(0, row)
            frozen(trial, self._problem.tune)
        except (ValueError, TypeError, LookupError):
            return False
        complete = trial.evaluation.status in (DONE, INFEASIBLE)
        return len(trial.evaluation.values) == complete * len(self._problem.objectives)
