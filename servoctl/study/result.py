"""The result of a search: the best trial, the Pareto front, the nearest miss, the summary."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from servoctl.config.tune import Tune
from servoctl.run_folder.values import plain
from servoctl.study.evaluator import DONE, FAILED, INFEASIBLE, PRUNED, Evaluation
from servoctl.study.metrics import metric_unit, path_unit
from servoctl.study.points import Point
from servoctl.study.problem import SearchProblem
from servoctl.study.trials import Trial, distributions
from servoctl.types import Array
from servoctl.version import VERSION

SCHEMA = 1  # version of the shape of `summary.json`


@dataclass(frozen=True)
class Refinement:
    """The result of a refinement."""

    start: int | None  # number of the trial that it started from; None: there was none
    steps: int = 0  # trials that were made
    held: tuple[str, ...] = ()  # paths that were not changed: words, or numbers on a grid
    point: Point | None = None  # path -> value, if it is better than the start; else None
    evaluation: Evaluation | None = None  # of that point
    why: str | None = None  # why there is no such point; None: there is one


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
        """Path -> its importance for reaching the best trials, all together 1; empty if there are too few trials."""
        searched = [trial for trial in self.trials if trial.evaluation.values and trial.refined is None]
        return importance(self.problem.tune, [(trial.at, trial.evaluation.values[0]) for trial in searched])

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


FEWEST = 20  # least number of trials for a meaningful result


def importance(tune: Tune, trials: Sequence[tuple[Point, float]]) -> dict[str, float]:
    """Path -> its importance, all together 1, the greatest first; empty if there are too few trials.

    Source: PED-ANOVA, Watanabe et al. 2023, in Optuna's implementation: it compares the distribution of the values of
    the best tenth of all trials with the distribution of all values.

    Args:
        tune: The search.
        trials: Values of the searched paths, and the first objective, of each trial.
    """
    from optuna import create_study
    from optuna.exceptions import ExperimentalWarning
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import create_trial

    if len(trials) < FEWEST or len({value for _, value in trials}) < 2:
        return {}
    space = distributions(tune)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        study = create_study()
        for point, value in trials:
            study.add_trial(create_trial(value=value, params=dict(point), distributions=space))
        return dict(get_param_importances(study, evaluator=PedAnovaImportanceEvaluator()))
