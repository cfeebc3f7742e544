"""A search that has ended, or as far as it came: the best trial, the front, and what is nearest."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from servoctl.config.problems import unit_of
from servoctl.run_folder.trajectory import plain
from servoctl.sweep.metrics import metric_unit
from servoctl.tune.evaluator import DONE, FAILED, INFEASIBLE, PRUNED, Evaluation
from servoctl.tune.problem import Point, SearchProblem
from servoctl.tune.refine import Refinement
from servoctl.tune.store import point_of, refined_from, verdict_of
from servoctl.types import Array
from servoctl.version import VERSION

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

SCHEMA = 1


@dataclass(frozen=True)
class Trial:
    """A trial.

    Attributes:
        number: From 0.
        at: Path -> value.
        verdict: What became of it.
        refined: Number of the trial from which a descent came there; None: it is one of the search.
    """

    number: int
    at: Point
    verdict: Evaluation
    refined: int | None = None


@dataclass(frozen=True)
class Tuning:
    """What came of a search.

    Attributes:
        problem: What was searched.
        trials: In order.
        standing: What becomes of the config as it stands.
        wall_time: Of the search, this time, without a descent [s].
        here: Trials of this time.
        runs: Runs of the search of this time.
        engine: That ran them.
        broken: What ended the search, where neither its end nor a person did.
        single: One process of `servoctl run` [s]; None where it was not measured.
        refinement: What came of the descent; None: there was none.
    """

    problem: SearchProblem
    trials: tuple[Trial, ...]
    standing: Evaluation
    wall_time: float
    here: int
    runs: int
    engine: str | None = None
    broken: str | None = None
    single: float | None = None
    refinement: Refinement | None = None
    total_time: float | None = None
    """Of the whole process up to the end of the search, with loading, tracing and compiling [s]; None: not measured."""

    @property
    def status(self) -> str:
        """`done`, `interrupted` or `failed`."""
        sought = sum(trial.refined is None for trial in self.trials)
        end = "done" if sought >= self.problem.tune.trials else "interrupted"
        return end if self.broken is None else "failed"

    @cached_property
    def front(self) -> list[Trial]:
        """The feasible trials that no other is better than, or as good in everything and better in something."""
        done = [trial for trial in self.trials if trial.verdict.status == DONE]
        values = np.array([trial.verdict.values for trial in done])
        found: list[Trial] = []
        for i, trial in enumerate(done):
            no_worse, better = (values <= values[i]).all(axis=1), (values < values[i]).any(axis=1)
            if not (no_worse & better).any() and not any(
                other.verdict.values == trial.verdict.values for other in found
            ):
                found.append(trial)
        return found

    @cached_property
    def best(self) -> Trial | None:
        """The feasible trial of the least objective; of a front, the one nearest to the best of every objective.

        Each objective is measured there by its span over the front.
        """
        if not self.front:
            return None
        values = np.array([trial.verdict.values for trial in self.front])
        span = np.ptp(values, axis=0)
        away = np.linalg.norm((values - values.min(axis=0)) / np.where(span > 0.0, span, 1.0), axis=1)
        return self.front[int(np.argmin(away))]

    @cached_property
    def nearest_miss(self) -> Trial | None:
        """The trial that is least beyond its constraints, where none is feasible."""
        known = [trial for trial in self.trials if trial.verdict.excess]
        if self.front or not known:
            return None
        whole = [trial for trial in known if trial.verdict.status == INFEASIBLE] or known
        return min(whole, key=lambda trial: sum(max(0.0, x) for x in trial.verdict.excess.values()))

    def unit(self, name: str) -> str:
        """Of a path or a metric; nothing where it has none."""
        return unit_of(name) if name in self.problem.tune.search else metric_unit(self.problem.run, name)

    def counts(self) -> dict[str, int]:
        """Status -> number of trials."""
        statuses = [trial.verdict.status for trial in self.trials]
        return {status: statuses.count(status) for status in (DONE, INFEASIBLE, PRUNED, FAILED)}

    def convergence(self, objective: int = 0) -> Array:
        """The best value of an objective after each trial, NaN before the first feasible one."""
        values = [t.verdict.values[objective] if t.verdict.status == DONE else np.nan for t in self.trials]
        return np.asarray(np.fmin.accumulate(values) if values else np.empty(0))

    def importance(self) -> dict[str, float]:
        """Path -> share of it in what sets the best trials apart, by PED-ANOVA; empty where there is too little.

        Source: Watanabe et al. 2023, as Optuna has it.
        """
        from servoctl.tune.importance import importance

        return importance(self.problem, self.trials)

    def summary(self) -> dict[str, Any]:
        """The content of `summary.json`."""
        tune, best, miss = self.problem.tune, self.best, self.nearest_miss
        lasted = self.total_time or self.wall_time
        rate = self.here / lasted if lasted > 0.0 and self.here else None
        runs = self.runs / lasted if lasted > 0.0 and self.runs else None
        return {
            "schema": SCHEMA,
            "config": self.problem.run.name,
            "servoctl": VERSION,
            "status": self.status,
            "error": self.broken,
            "objectives": list(self.problem.objectives),
            "over": tune.objective.over,
            "constraints": dict(self.problem.bounds),
            "sampler": tune.sampler or ("nsga2" if self.problem.several else "tpe"),
            "seed": tune.seed,
            "generation": tune.generation,
            "planned": tune.trials,
            "trials": len(self.trials),
            "trial_counts": self.counts(),
            "runs_per_trial": len(self.problem.members) + len(tune.sensitivity),
            "engine": self.engine,
            "best": None if best is None else _said(best),
            "front": [_said(trial) for trial in self.front] if self.problem.several else None,
            "nearest_miss": None if miss is None else _said(miss),
            "as_it_stands": plain({"at": self.problem.standing} | self.standing.to_dict()),
            "refined": None if self.refinement is None else _descent(self.refinement),
            "importance": self.importance(),
            "wall_time": self.wall_time,
            "total_time": self.total_time,
            "trials_per_second": rate,
            "runs_per_second": runs,
            "single_run_process": self.single,
            "times_as_fast": None if self.single is None or runs is None else self.single * runs,
        }


def trials_of(stored: Sequence["FrozenTrial"]) -> tuple[Trial, ...]:
    """Stored trials as they are here."""
    return tuple(Trial(trial.number, point_of(trial), verdict_of(trial), refined_from(trial)) for trial in stored)


def _descent(found: Refinement) -> dict[str, Any]:
    return {"from": found.start, "steps": found.steps, "held": list(found.held), "why_not": found.why}


def _said(trial: Trial) -> dict[str, Any]:
    """For JSON, which knows no infinite gain margin: null."""
    return dict(plain({"trial": trial.number, "refined": trial.refined, "at": trial.at} | trial.verdict.to_dict()))
