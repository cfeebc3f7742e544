"""Refines the best trial: a gradient descent with exact derivatives, within the ranges of the search.

    minimise   sum_k w_k z_k     over the numbers of the search and the slack variables z
    subject to J_ki <= z_k       metric k of every plant i: the worst case is handled by smooth constraints
               c_j <= bound_j    of every plant, for each constraint whose metric has derivatives

Design: sequential quadratic programming (SciPy's SLSQP, Kraft 1988) on derivatives from `slopes`. Its result is a trial
like any other: evaluated by the same runs, stored with the number of the trial that it started from, kept only if it is
better. Otherwise points closer to the start are tried, each at half the distance. No random numbers are used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from servoctl.assembly.run import Run
from servoctl.config.tune import Range
from servoctl.errors import ConfigError, ServoctlError
from servoctl.simulation.compiled import CompiledLoop
from servoctl.tune.evaluator import DONE, Evaluation, Evaluator, run_at
from servoctl.tune.problem import Point, SearchProblem
from servoctl.tune.slopes import FOLLOWED, SMOOTH, KinkError, Slope, Slopes
from servoctl.types import Array

HALVINGS = 8
"""Number of points that are evaluated between the end and the start, each at half the distance of the one before."""

MARGIN = 1e-6
"""Distance from a bound, relative to it, so that round-off does not cross it."""

WALL = 10.0
"""Where there are no derivatives, every metric counts as this many times its value at the start."""

PRECISION = 1e-7
"""The descent ends when a step changes the objective by less than this, relative to its value at the start."""


@dataclass(frozen=True)
class Refinement:
    """The result of a descent.

    Attributes:
        start: Number of the trial that it started from; None: there was none.
        steps: Number of steps.
        held: Paths that were not changed: words, or numbers without derivatives.
        point: Path -> value, if it is better than the start; else None.
        evaluation: Evaluation of that point.
        why: Why there is no such point; None: there is one.
    """

    start: int | None
    steps: int = 0
    held: tuple[str, ...] = ()
    point: Point | None = None
    evaluation: Evaluation | None = None
    why: str | None = None


class Descent:
    """A descent from a trial of a search.

    Args:
        problem: The search.

    Raises:
        ConfigError: `tune.refine` does not fit the config; lists every problem.
    """

    def __init__(self, problem: SearchProblem) -> None:
        self._problem, self._last = problem, problem.run
        assert problem.run.loaded is not None
        where = problem.run.loaded.where("tune", "refine")
        wrong = [f"{where}: {why}" for why in self._unfit()]
        if wrong:
            raise ConfigError(list(dict.fromkeys(wrong)))
        self._slopes = Slopes()
        self._bounds = [name for name in problem.bounds if name.partition(".")[0] in FOLLOWED]

    def __call__(self, number: int, at: Point, first: Evaluation, evaluator: Evaluator) -> Refinement:
        """Descends from a trial.

        Args:
            number: Number of the trial.
            at: Its values: path -> value.
            first: Its evaluation; it is feasible.
            evaluator: Evaluates the points at the end.
        """
        paths = [path for path, choice in self._problem.tune.search.items() if isinstance(choice, Range)]
        free = [path for path in paths if self._is_free(path, at)]
        held = tuple(path for path in self._problem.tune.search if path not in free)
        if not free:
            return Refinement(number, held=held, why="no path of search has derivatives")
        hill = Hill(self._problem, partial(self._slopes_at, at, free), free)
        start = hill.scaled(at)
        try:
            end, steps = hill.descend(start, self._problem.tune.refine)
        except KinkError as error:
            return Refinement(number, held=held, why=f"{error} at trial {number}, where the objective may bend")
        points = [at | hill.point(start + 0.5**k * (end - start)) for k in range(HALVINGS)]
        evaluations = evaluator.evaluate(points)
        better = [i for i, v in enumerate(evaluations) if v.status == DONE and v.values < first.values]
        if not better:
            return Refinement(number, steps, held, why="no point near it is better")
        best = min(better, key=lambda i: evaluations[i].values)
        return Refinement(number, steps, held, points[best], evaluations[best])

    def _unfit(self) -> list[str]:
        """Why the config has no derivatives; empty: it has."""
        problems = []
        for name in self._problem.minimised:
            if name.partition(".")[0] not in SMOOTH:
                problems.append(f"{name} has no gradient ({', '.join(SMOOTH)} have; leave refine out)")
        for scenario in self._problem.scenarios:
            run = self._made(scenario, strict=False)
            passive, realism = run.system.passive, run.system.realism
            if not isinstance(run.loop, CompiledLoop):
                problems.append(f"the run is on NumPy, which has no derivatives{_note(run)} (leave refine out)")
            if run.settings.integrator.method != "rk4":
                problems.append(f"{run.settings.integrator.method} chooses its own steps (run.integrator.method: rk4)")
            if passive.projection and run.system.model.passive_rows:
                problems.append("plant.passive.projection has no derivatives (leave one of them out)")
            if realism is not None and any(realism.resolution):
                problems.append("realism.quantisation makes every gradient zero or infinite (leave one of them out)")
        return problems

    def _made(self, point: Point, strict: bool = True) -> Run:
        """The run at a point; it reuses the compiled functions of the last one."""
        self._last = run_at(self._problem.run, point, strict, like=self._last)
        return self._last

    def _is_free(self, path: str, at: Point) -> bool:
        """Whether the descent can change a path: it must leave time steps and measurement as they are."""
        choice = self._problem.tune.search[path]
        if isinstance(choice, Range) and (choice.step is not None or choice.low == choice.high):
            return False
        point = at | self._problem.scenarios[0]
        try:
            here, nearby = self._made(point), self._made(point | {path: _moved(float(at[path]))}, strict=False)
        except ConfigError:
            return False  # nearby values are invalid, as for a period that the step must divide
        return here.settings == nearby.settings and here.system.realism == nearby.system.realism

    def _slopes_at(self, at: Point, free: list[str], values: Array) -> list[dict[str, dict[str, Slope]]]:
        """Metric -> column -> value and derivatives, one mapping per plant.

        Raises:
            KinkError: A metric has no derivatives here.
        """
        metrics = dict.fromkeys([*self._problem.minimised, *self._bounds])
        slopes = []
        for scenario in self._problem.scenarios:
            point = at | dict(zip(free, values.tolist(), strict=True)) | scenario
            nearby = partial(self._nearby, point, free)
            try:
                motion = self._slopes.motion(self._made(point), nearby, [abs(x) or 1.0 for x in values])
            except ServoctlError as error:
                raise KinkError(str(error)) from error
            slopes.append({metric: motion.slopes(metric) for metric in metrics})
        return slopes

    def _nearby(self, point: Point, free: list[str], i: int, change: float) -> Run:
        path = free[i]
        return self._made(point | {path: point[path] + change}, strict=False)


class Hill:
    """The optimisation problem of the descent, with every free number scaled to 0..1 (on a log scale if it has one).

    Args:
        problem: The search.
        slopes: Values of the free numbers -> metrics and derivatives, one mapping per plant.
        free: Paths that the descent changes.
    """

    def __init__(
        self,
        problem: SearchProblem,
        slopes: Callable[[Array], list[dict[str, dict[str, Slope]]]],
        free: list[str],
    ) -> None:
        self._problem, self._slopes, self._free = problem, slopes, free
        choices = [choice for choice in (problem.tune.search[path] for path in free) if isinstance(choice, Range)]
        self._log = np.array([choice.scale == "log" for choice in choices])
        self._low, self._high = (np.array([getattr(c, side) for c in choices]) for side in ("low", "high"))
        self._cache: dict[bytes, tuple[Array, Array]] = {}
        self._groups = self._weighted()

    def scaled(self, at: Point) -> Array:
        """The scaled numbers of a point: 0 at the least values, 1 at the greatest."""
        values = np.array([at[path] for path in self._free], dtype=float)
        low, high = self._log_scaled(self._low), self._log_scaled(self._high)
        scaled: Array = (self._log_scaled(values) - low) / (high - low)
        return np.clip(scaled, 0.0, 1.0)

    def point(self, scaled: Array) -> Point:
        """The point at these scaled numbers."""
        return dict(zip(self._free, self._values(scaled).tolist(), strict=True))

    def descend(self, first: Array, steps: int) -> tuple[Array, int]:
        """The scaled point at which the descent ends, and the number of its steps.

        Raises:
            KinkError: There are no derivatives at the first point.
        """
        from scipy import optimize

        n, groups = len(first), len(self._groups)
        values, _ = self._evaluate(first)
        heights = np.array([max(values[i] for i in indices) for _, indices in self._groups])
        units = np.where(heights != 0.0, np.abs(heights), 1.0)  # heights are near 1 for the solver
        shares = np.array([weight for weight, _ in self._groups]) * units
        slope = np.append(np.zeros(n), shares / shares.sum())
        wall = WALL * np.abs(values) + 1.0

        def gaps(x: Array) -> tuple[Array, Array]:
            """Distance of every metric below its slack variable z or its bound, and the derivatives of it."""
            try:
                at, change = self._evaluate(np.clip(x[:n], 0.0, 1.0))
            except KinkError:
                at, change = wall, np.zeros((len(wall), n))
            rows = [(at[i], change[i], g) for g, (_, indices) in enumerate(self._groups) for i in indices]
            bounded = range(sum(len(indices) for _, indices in self._groups), len(at))
            gap = [x[n + g] - value / units[g] for value, _, g in rows] + [-MARGIN - at[i] for i in bounded]
            turn = [np.concatenate([-d / units[g], np.eye(groups)[g]]) for _, d, g in rows]
            turn += [np.concatenate([-change[i], np.zeros(groups)]) for i in bounded]
            return np.array(gap), np.array(turn)

        low, high = np.append(np.zeros(n), np.full(groups, -np.inf)), np.append(np.ones(n), np.full(groups, np.inf))
        solve: Any = optimize.minimize  # its type stubs reject these arguments
        result = solve(
            lambda x: float(slope @ x),
            np.concatenate([first, heights / units]),
            jac=lambda x: slope,
            method="SLSQP",
            bounds=optimize.Bounds(low, high),
            constraints={"type": "ineq", "fun": lambda x: gaps(x)[0], "jac": lambda x: gaps(x)[1]},
            options={"maxiter": steps, "ftol": PRECISION},
        )
        return np.clip(result.x[:n], 0.0, 1.0), int(result.nit)

    def _evaluate(self, scaled: Array) -> tuple[Array, Array]:
        """The metrics of all groups in order, then the excess over the bounds; their derivatives, shape (count, n)."""
        key = scaled.tobytes()
        if key not in self._cache:
            values = self._values(scaled)
            stretch = np.where(self._log, values * np.log(self._high / np.where(self._log, self._low, 1.0)),
                               self._high - self._low)  # fmt: skip
            plants = self._slopes(values)
            rows = [slope for metric in self._problem.minimised for plant in plants for slope in plant[metric].values()]
            for name, bound in self._problem.bounds.items():
                size = abs(bound) or 1.0
                for plant in plants:
                    rows += [((value - bound) / size, d / size) for value, d in plant.get(name, {}).values()]
            self._cache[key] = np.array([value for value, _ in rows]), np.array([d * stretch for _, d in rows])
        return self._cache[key]

    def _weighted(self) -> list[tuple[float, range]]:
        """Weights, each with the indices of the metrics of which the worst counts.

        A group holds the tasks of all plants; if the objective takes the mean, there is one group per plant.
        """
        tasks = len(dict.fromkeys(row.group for row in self._problem.run.system.model.task_rows))
        plants, mean = len(self._problem.scenarios), self._problem.tune.objective.over == "mean"
        groups, first = [], 0
        for metric in self._problem.minimised:
            weight = self._problem.weights.get(metric, 1.0)
            size = tasks if "." not in metric else 1
            for _ in range(plants if mean else 1):
                count = size if mean else size * plants
                groups.append((weight / plants if mean else weight, range(first, first + count)))
                first += count
        return groups

    def _log_scaled(self, values: Array) -> Array:
        """The logarithm of the values that have a log scale, the others as they are."""
        return np.where(self._log, np.log(np.where(self._log, values, 1.0)), values)

    def _values(self, scaled: Array) -> Array:
        low, high = self._log_scaled(self._low), self._log_scaled(self._high)
        x = low + scaled * (high - low)
        values: Array = np.where(self._log, np.exp(np.where(self._log, x, 0.0)), x)
        return np.clip(values, self._low, self._high)


def _moved(value: float) -> float:
    """A nearby value."""
    return value * (1.0 + 1e-3) if value else 1e-3


def _note(run: Run) -> str:
    return f": {run.loop.note}" if run.loop.note else ""
