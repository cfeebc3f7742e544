"""The trials of a search, as values, as rows on disk, and as Optuna reads them; and its result: the best of them.

Design: the file is that of a sweep (`store`), a line per trial. Only the same config can continue a study.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from servoctl.config.tune import Range, Tune
from servoctl.run_folder.metrics import plain
from servoctl.study.metrics import Row, metric_unit, path_unit
from servoctl.study.points import Point
from servoctl.study.problem import DONE, FAILED, INFEASIBLE, PRUNED, Evaluation, SearchProblem
from servoctl.study.store import RowStore, identity_of
from servoctl.types import Array
from servoctl.version import VERSION

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


SCHEMA = 1  # version of the shape of `summary.json`
FEWEST = 20  # least number of trials for a meaningful importance


@dataclass(frozen=True)
class Refinement:
    """The result of a refinement."""

    start: int | None  # number of the trial that it started from; None: there was none
    steps: int = 0  # trials that were made
    held: tuple[str, ...] = ()  # paths that were not changed: words, or numbers on a grid
    why: str | None = None  # why it did not find a better trial; None: it did


@dataclass(frozen=True)
class Tuning:
    """The result of a search, complete or as far as it got."""

    problem: SearchProblem  # the search
    trials: tuple[Trial, ...]  # all trials, in order
    baseline: Evaluation  # evaluation of the config without changes
    wall_time: float  # [s] time of the search in this session, without the refinement
    here: int  # number of trials in this session
    runs: int  # number of runs of the search in this session
    engine: str | None = None  # engine of the runs
    broken: str | None = None  # why the search failed; None: it ended, or a person interrupted it
    refinement: Refinement | None = None  # result of the refinement; None: there was none
    # time of the whole process to the end of the search, including loading, tracing and compiling [s]; None: not
    # measured
    total_time: float | None = None

    @property
    def status(self) -> str:
        """`done`, `interrupted` or `failed`."""
        searched = sum(trial.refined is None for trial in self.trials)
        end = "done" if searched >= self.problem.tune.trials else "interrupted"
        return end if self.broken is None else "failed"

    @cached_property
    def front(self) -> list[Trial]:
        """The Pareto front: the feasible trials that no other trial dominates; duplicates appear once."""
        done = [trial for trial in self.trials if trial.evaluation.status == DONE]
        values = np.array([trial.evaluation.values for trial in done])
        front: list[Trial] = []
        for i, trial in enumerate(done):
            no_worse, better = (values <= values[i]).all(axis=1), (values < values[i]).any(axis=1)
            if not (no_worse & better).any() and not any(
                other.evaluation.values == trial.evaluation.values for other in front
            ):
                front.append(trial)
        return front

    @cached_property
    def best(self) -> Trial | None:
        """The feasible trial with the least objective; of a front, the trial nearest to the ideal point.

        The ideal point has the best value of every objective; distances are in units of the span of the front.
        """
        if not self.front:
            return None
        values = np.array([trial.evaluation.values for trial in self.front])
        span = np.ptp(values, axis=0)
        distance = np.linalg.norm((values - values.min(axis=0)) / np.where(span > 0.0, span, 1.0), axis=1)
        return self.front[int(np.argmin(distance))]

    @cached_property
    def nearest_miss(self) -> Trial | None:
        """The trial that violates its constraints least, if no trial is feasible."""
        known = [trial for trial in self.trials if trial.evaluation.excess]
        if self.front or not known:
            return None
        complete = [trial for trial in known if trial.evaluation.status == INFEASIBLE] or known
        return min(complete, key=lambda trial: sum(max(0.0, x) for x in trial.evaluation.excess.values()))

    def unit(self, name: str) -> str:
        """The unit of a path or a metric; empty if it has none."""
        return (path_unit if name in self.problem.tune.search else metric_unit)(self.problem.run, name)

    def counts(self) -> dict[str, int]:
        """Status -> number of trials."""
        statuses = [trial.evaluation.status for trial in self.trials]
        return {status: statuses.count(status) for status in (DONE, INFEASIBLE, PRUNED, FAILED)}

    def convergence(self, objective: int = 0) -> Array:
        """The best value of an objective after each trial, NaN before the first feasible one."""
        values = [t.evaluation.values[objective] if t.evaluation.status == DONE else np.nan for t in self.trials]
        return np.asarray(np.fmin.accumulate(values) if values else np.empty(0))

    def importance(self) -> dict[str, float]:
        """Path -> its importance for the best trials, all together 1, the greatest first; empty with too few trials.

        Source: PED-ANOVA, Watanabe et al. 2023, in Optuna's implementation: it compares the distribution of the values
        of the best tenth of all trials with the distribution of all values.
        """
        from optuna import create_study
        from optuna.exceptions import ExperimentalWarning
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
        from optuna.trial import create_trial

        searched = [trial for trial in self.trials if trial.evaluation.values and trial.refined is None]
        if len(searched) < FEWEST or len({trial.evaluation.values[0] for trial in searched}) < 2:
            return {}
        space = distributions(self.problem.tune)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            study = create_study()
            for trial in searched:
                value, at = trial.evaluation.values[0], dict(trial.at)
                study.add_trial(create_trial(value=value, params=at, distributions=space))
            return dict(get_param_importances(study, evaluator=PedAnovaImportanceEvaluator()))

    def summary(self) -> dict[str, Any]:
        """The content of `summary.json`."""
        tune, best, miss, refined = self.problem.tune, self.best, self.nearest_miss, self.refinement
        elapsed = self.total_time or self.wall_time
        rate = self.here / elapsed if elapsed > 0.0 and self.here else None
        runs = self.runs / elapsed if elapsed > 0.0 and self.runs else None
        return {
            "schema": SCHEMA,
            "config": self.problem.run.name,
            "servoctl": VERSION,
            "status": self.status,
            "error": self.broken,
            "objectives": list(self.problem.objectives),
            "over": tune.objective.over,
            "constraints": dict(self.problem.bounds),
            "sampler": self.problem.sampler,
            "seed": tune.seed,
            "generation": tune.generation,
            "planned": tune.trials,
            "trials": len(self.trials),
            "trial_counts": self.counts(),
            "runs_per_trial": len(self.problem.scenarios) + len(tune.sensitivity),
            "engine": self.engine,
            "best": None if best is None else _trial_summary(best),
            "front": [_trial_summary(trial) for trial in self.front] if self.problem.several else None,
            "nearest_miss": None if miss is None else _trial_summary(miss),
            "as_it_stands": plain({"at": self.problem.baseline} | self.baseline.to_dict()),
            "refined": refined
            and {
                "from": refined.start,
                "steps": refined.steps,
                "held": list(refined.held),
                "why_not": refined.why,
            },
            "importance": self.importance(),
            "wall_time": self.wall_time,
            "total_time": self.total_time,
            "trials_per_second": rate,
            "runs_per_second": runs,
        }


def _trial_summary(trial: Trial) -> dict[str, Any]:
    """The entry of a trial in `summary.json`; an infinite gain margin becomes null."""
    return dict(plain({"trial": trial.number, "refined": trial.refined, "at": trial.at} | trial.evaluation.to_dict()))
