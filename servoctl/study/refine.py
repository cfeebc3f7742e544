"""Refines the best trial: a descent without derivatives on the same runs, within the ranges of the search.

    minimise J(x)   subject to   excess_j(x) <= 0 for every bound j

Design: COBYQA (Ragonneau 2022, in SciPy) fits quadratic models to the trials that it makes. Each is evaluated as any
trial is, the worst of all plants included. The best feasible one becomes a trial of the study if it is better than the
start. No random numbers are used, so a resumed search comes to the same end.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.config.tune import Range
from servoctl.study.evaluator import DONE, INFEASIBLE, Evaluation, Evaluator
from servoctl.study.points import Point
from servoctl.study.problem import SearchProblem
from servoctl.study.trials import Trial
from servoctl.types import Array

FIRST, LAST = 0.1, 1e-5  # radius of the models at the start, and at which the descent ends, in widths of the ranges

WALL, BEYOND = 10.0, 1.0
"""Objective, in units of that of the start, and excess over each bound of a trial that has none."""

MARGIN = 1e-6  # distance that is kept from a bound, relative to it, so that round-off does not cross it


@dataclass(frozen=True)
class Refinement:
    """The result of a refinement."""

    start: int | None  # number of the trial that it started from; None: there was none
    steps: int = 0  # trials that were made
    held: tuple[str, ...] = ()  # paths that were not changed: words, or numbers on a grid
    point: Point | None = None  # path -> value, if it is better than the start; else None
    evaluation: Evaluation | None = None  # of that point
    why: str | None = None  # why there is no such point; None: there is one


def refine(problem: SearchProblem, start: Trial, evaluator: Evaluator) -> Refinement:
    """Makes at most `tune.refine` trials near a feasible one.

    Args:
        problem: The search, of a single objective.
        start: The trial.
    """
    from scipy import optimize

    scale = Scale(problem)
    held = tuple(path for path in problem.tune.search if path not in scale.paths)
    if not scale.paths:
        return Refinement(start.number, held=held, why="no path of search has a range without steps")
    first = scale.scaled(start.at)
    made = {first.tobytes(): (start.at, start.evaluation)}
    unit = abs(start.evaluation.values[0]) or 1.0

    def evaluated(x: Array) -> Evaluation:
        inside = np.clip(x, 0.0, 1.0)
        if inside.tobytes() not in made:
            at = {**start.at, **scale.point(inside)}
            made[inside.tobytes()] = at, evaluator.evaluate([at])[0]
        return made[inside.tobytes()][1]

    def objective(x: Array) -> float:
        values = evaluated(x).values
        return values[0] / unit if values else WALL

    def excess(x: Array) -> list[float]:
        evaluation = evaluated(x)
        missing = -MARGIN if evaluation.status in (DONE, INFEASIBLE) else BEYOND
        return [min(evaluation.excess.get(name, missing), BEYOND) for name in problem.bounds]

    solve: Any = optimize.minimize  # its type stubs reject these arguments
    solve(
        objective, first, method="COBYQA", bounds=optimize.Bounds(np.zeros(len(first)), np.ones(len(first))),
        constraints=[optimize.NonlinearConstraint(excess, -np.inf, -MARGIN)] if problem.bounds else [],
        options={"maxfev": problem.tune.refine, "initial_tr_radius": FIRST, "final_tr_radius": LAST},
    )  # fmt: skip
    steps = len(made) - 1
    best = min((each for each in made.values() if each[1].status == DONE), key=lambda each: each[1].values)
    if best[1].values >= start.evaluation.values:
        return Refinement(start.number, steps, held, why="no trial near it is better")
    return Refinement(start.number, steps, held, *best)


class Scale:
    """The numbers that are refined, scaled to 0..1 over their ranges, on a log scale where the range has one."""

    def __init__(self, problem: SearchProblem) -> None:
        ranges = {
            path: choice
            for path, choice in problem.tune.search.items()
            if isinstance(choice, Range) and choice.step is None and choice.low < choice.high
        }
        self.paths = list(ranges)
        self._log = np.array([choice.scale == "log" for choice in ranges.values()], dtype=bool)
        self._ends = np.array([[choice.low, choice.high] for choice in ranges.values()]).reshape(-1, 2).T
        self._low, self._high = (self._to_scale(end) for end in self._ends)

    def scaled(self, at: Point) -> Array:
        """The scaled numbers of a point."""
        values = np.array([float(at[path]) for path in self.paths])
        scaled: Array = (self._to_scale(values) - self._low) / (self._high - self._low)
        return np.clip(scaled, 0.0, 1.0)

    def point(self, scaled: Array) -> Point:
        """Path -> value at scaled numbers."""
        x = self._low + scaled * (self._high - self._low)
        values = np.where(self._log, np.exp(np.where(self._log, x, 0.0)), x)
        return dict(zip(self.paths, np.clip(values, *self._ends).tolist(), strict=True))

    def _to_scale(self, values: Array) -> Array:
        return np.where(self._log, np.log(np.where(self._log, values, 1.0)), values)
