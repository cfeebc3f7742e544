"""From the best trial down the exact slope: a local descent within the ranges of the search.

    minimise   sum_k w_k z_k     over the numbers of the search and z
    subject to J_ki <= z_k       of every plant i, so that the worst of them needs no kink
               c_j <= bound_j    of every plant, where the metric has derivatives

Design: sequential quadratic programming (SciPy's SLSQP, Kraft 1988) on derivatives from `slopes`. What it ends at is a
trial like any other: judged by the same runs, stored with the number of the trial that it came from, and kept only
where it is better; else the way back is halved until it is. Nothing in it is left to chance.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from servoctl.assembly.make import make_run
from servoctl.assembly.run import Run
from servoctl.config.overrides import is_number, setting
from servoctl.config.tune import Range
from servoctl.errors import ConfigError, ServoctlError
from servoctl.simulation.traced import CompiledLoop
from servoctl.tune.evaluator import DONE, Evaluation, Evaluator
from servoctl.tune.problem import Point, SearchProblem
from servoctl.tune.slopes import FOLLOWED, SMOOTH, KinkError, Slope, Slopes
from servoctl.types import Array

HALVINGS = 8
"""Points that are tried between the end and the start."""

SHY = 1e-6
"""How far the descent stays off a bound, relative to it, so that round-off does not cross it."""

WALL = 10.0
"""Where there are no derivatives, everything counts as so many times what it is at the start."""

PRECISION = 1e-7
"""The descent ends where a step changes the objective by less, relative to its value at the start."""


@dataclass(frozen=True)
class Refinement:
    """What came of a descent.

    Attributes:
        start: Number of the trial that it began at; None where there was none.
        steps: That it took.
        held: Paths that stayed as they were, in no range or without derivatives.
        point: Path -> value, where it ended better than it began; else None.
        verdict: Of that point.
        why: Why there is none; None where there is one.
    """

    start: int | None
    steps: int = 0
    held: tuple[str, ...] = ()
    point: Point | None = None
    verdict: Evaluation | None = None
    why: str | None = None


class Descent:
    """Descends from a trial of a problem."""

    def __init__(self, problem: SearchProblem) -> None:
        """Looks at what is there to be differentiated.

        Raises:
            ConfigError: `tune.refine` does not fit the config; every problem at once.
        """
        self._problem, self._last = problem, problem.run
        assert problem.run.loaded is not None
        where = problem.run.loaded.where("tune", "refine")
        wrong = [f"{where}: {why}" for why in self._unfit()]
        if wrong:
            raise ConfigError(list(dict.fromkeys(wrong)))
        self._slopes = Slopes()
        self._bounds = [name for name in problem.bounds if name.partition(".")[0] in FOLLOWED]

    def __call__(self, number: int, at: Point, standing: Evaluation, judge: Evaluator) -> Refinement:
        """Descends.

        Args:
            number: Of the trial to begin at.
            at: Its values.
            standing: What became of it; it is feasible.
            judge: What makes the runs.
        """
        paths = [path for path, choice in self._problem.tune.search.items() if isinstance(choice, Range)]
        free = [path for path in paths if self._is_free(path, at)]
        held = tuple(path for path in self._problem.tune.search if path not in free)
        if not free:
            return Refinement(number, held=held, why="no path of search has derivatives")
        hill = Hill(self._problem, partial(self._slopes_at, at, free), free)
        first = hill.scaled(at)
        try:
            end, steps = hill.descend(first, self._problem.tune.refine)
        except KinkError as error:
            return Refinement(number, held=held, why=f"{error} at trial {number}, where the objective may bend")
        points = [at | hill.point(first + 0.5**k * (end - first)) for k in range(HALVINGS)]
        verdicts = judge.judge(points)
        better = [i for i, v in enumerate(verdicts) if v.status == DONE and v.values < standing.values]
        if not better:
            return Refinement(number, steps, held, why="nothing near it is better")
        best = min(better, key=lambda i: verdicts[i].values)
        return Refinement(number, steps, held, points[best], verdicts[best])

    def _unfit(self) -> list[str]:
        """Why there are no derivatives."""
        found = []
        for name in self._problem.minimised:
            if name.partition(".")[0] not in SMOOTH:
                found.append(f"{name} has no slope to go down ({', '.join(SMOOTH)} have; leave refine out)")
        for member in self._problem.members:
            run = self._made(member, strict=False)
            passive, realism = run.system.passive, run.system.realism
            if not isinstance(run.loop, CompiledLoop):
                found.append(f"this runs on NumPy, which has no derivatives{_note(run)} (leave refine out)")
            if run.settings.integrator.method != "rk4":
                found.append(f"{run.settings.integrator.method} chooses its own steps (run.integrator.method: rk4)")
            if passive.projection and run.system.model.passive_rows:
                found.append("plant.passive.projection has no derivatives (leave one of them out)")
            if realism is not None and any(realism.resolution):
                found.append("realism.quantisation makes steps of every slope (leave one of them out)")
        return found

    def _made(self, point: Mapping[str, object], strict: bool = True) -> Run:
        """The run at a point; what is compiled is kept."""
        assert self._problem.run.loaded is not None
        words = [setting(path, value) for path, value in point.items() if not is_number(value)]
        loaded = self._problem.run.loaded
        loaded = loaded.overridden(words) if words else loaded
        loaded = loaded.with_numbers({path: value for path, value in point.items() if is_number(value)})  # type: ignore[misc]
        self._last = make_run(loaded, self._problem.run.engine, strict, like=self._last)
        return self._last

    def _is_free(self, path: str, at: Point) -> bool:
        """Whether a path changes parameters or the start alone: nothing of how the run is stepped or measured."""
        choice = self._problem.tune.search[path]
        if isinstance(choice, Range) and (choice.step is not None or choice.low == choice.high):
            return False
        point = at | self._problem.members[0]
        try:
            one, other = self._made(point), self._made(point | {path: _moved(float(at[path]))}, strict=False)
        except ConfigError:
            return False  # a value beside it is none, as of a period that the step must divide
        return one.settings == other.settings and one.system.realism == other.system.realism

    def _slopes_at(self, at: Point, free: list[str], values: Array) -> list[dict[str, dict[str, Slope]]]:
        """Of every plant, metric -> column -> value and derivatives.

        Raises:
            KinkError: There are none there.
        """
        wanted = dict.fromkeys([*self._problem.minimised, *self._bounds])
        found = []
        for member in self._problem.members:
            point = at | dict(zip(free, values.tolist(), strict=True)) | member
            nearby = partial(self._nearby, point, free)
            try:
                motion = self._slopes.motion(self._made(point), nearby, [abs(x) or 1.0 for x in values])
            except ServoctlError as error:
                raise KinkError(str(error)) from error
            found.append({metric: motion.slopes(metric) for metric in wanted})
        return found

    def _nearby(self, point: Point, free: list[str], place: int, change: float) -> Run:
        path = free[place]
        return self._made(point | {path: point[path] + change}, strict=False)


class Hill:
    """The problem of the descent, in numbers from 0 to 1."""

    def __init__(
        self,
        problem: SearchProblem,
        slopes: Callable[[Array], list[dict[str, dict[str, Slope]]]],
        free: list[str],
    ) -> None:
        """Takes what is searched, what gives values and derivatives, and the paths that move."""
        self._problem, self._slopes, self._free = problem, slopes, free
        choices = [choice for choice in (problem.tune.search[path] for path in free) if isinstance(choice, Range)]
        self._log = np.array([choice.scale == "log" for choice in choices])
        self._low, self._high = (np.array([getattr(c, side) for c in choices]) for side in ("low", "high"))
        self._known: dict[bytes, tuple[Array, Array]] = {}
        self._groups = self._weighted()

    def scaled(self, at: Point) -> Array:
        """Where a point is, 0 at the least values and 1 at the greatest."""
        values = np.array([at[path] for path in self._free], dtype=float)
        low, high = self._bent(self._low), self._bent(self._high)
        scaled: Array = (self._bent(values) - low) / (high - low)
        return np.clip(scaled, 0.0, 1.0)

    def point(self, scaled: Array) -> Point:
        """The point there."""
        return dict(zip(self._free, self._values(scaled).tolist(), strict=True))

    def descend(self, first: Array, steps: int) -> tuple[Array, int]:
        """Where the way down ends, and how many steps it had.

        Raises:
            KinkError: There are no derivatives at the first point.
        """
        from scipy import optimize

        n, groups = len(first), len(self._groups)
        values, _ = self._look(first)
        heights = np.array([max(values[place] for place in own) for _, own in self._groups])
        units = np.where(heights != 0.0, np.abs(heights), 1.0)  # heights are near 1 for the solver
        shares = np.array([weight for weight, _ in self._groups]) * units
        slope = np.append(np.zeros(n), shares / shares.sum())
        wall = WALL * np.abs(values) + 1.0

        def gaps(x: Array) -> tuple[Array, Array]:
            """How far every metric is below its height or bound, and the derivatives of that."""
            try:
                at, change = self._look(np.clip(x[:n], 0.0, 1.0))
            except KinkError:
                at, change = wall, np.zeros((len(wall), n))
            rows = [(at[i], change[i], g) for g, (_, own) in enumerate(self._groups) for i in own]
            bounded = range(sum(len(own) for _, own in self._groups), len(at))
            gap = [x[n + g] - value / units[g] for value, _, g in rows] + [-SHY - at[i] for i in bounded]
            turn = [np.concatenate([-d / units[g], np.eye(groups)[g]]) for _, d, g in rows]
            turn += [np.concatenate([-change[i], np.zeros(groups)]) for i in bounded]
            return np.array(gap), np.array(turn)

        low, high = np.append(np.zeros(n), np.full(groups, -np.inf)), np.append(np.ones(n), np.full(groups, np.inf))
        solve: Any = optimize.minimize  # its types know no bound that is left out
        found = solve(
            lambda x: float(slope @ x),
            np.concatenate([first, heights / units]),
            jac=lambda x: slope,
            method="SLSQP",
            bounds=optimize.Bounds(low, high),
            constraints={"type": "ineq", "fun": lambda x: gaps(x)[0], "jac": lambda x: gaps(x)[1]},
            options={"maxiter": steps, "ftol": PRECISION},
        )
        return np.clip(found.x[:n], 0.0, 1.0), int(found.nit)

    def _look(self, scaled: Array) -> tuple[Array, Array]:
        """The metrics of all groups in order, then the excess over bounds; and their derivatives, shape (all, n)."""
        key = scaled.tobytes()
        if key not in self._known:
            values = self._values(scaled)
            stretch = np.where(self._log, values * np.log(self._high / np.where(self._log, self._low, 1.0)),
                               self._high - self._low)  # fmt: skip
            plants = self._slopes(values)
            rows = [slope for metric in self._problem.minimised for plant in plants for slope in plant[metric].values()]
            for name, bound in self._problem.bounds.items():
                size = abs(bound) or 1.0
                for plant in plants:
                    rows += [((value - bound) / size, d / size) for value, d in plant.get(name, {}).values()]
            self._known[key] = np.array([value for value, _ in rows]), np.array([d * stretch for _, d in rows])
        return self._known[key]

    def _weighted(self) -> list[tuple[float, range]]:
        """Weight -> the places of which the greatest counts: all plants' tasks, or for the mean those of each plant."""
        tasks = len(dict.fromkeys(row.group for row in self._problem.run.system.model.task_rows))
        plants, mean = len(self._problem.members), self._problem.tune.objective.over == "mean"
        found, place = [], 0
        for metric in self._problem.minimised:
            weight = self._problem.weights.get(metric, 1.0)
            size = tasks if "." not in metric else 1
            for _ in range(plants if mean else 1):
                count = size if mean else size * plants
                found.append((weight / plants if mean else weight, range(place, place + count)))
                place += count
        return found

    def _bent(self, values: Array) -> Array:
        return np.where(self._log, np.log(np.where(self._log, values, 1.0)), values)

    def _values(self, scaled: Array) -> Array:
        low, high = self._bent(self._low), self._bent(self._high)
        bent = low + scaled * (high - low)
        values: Array = np.where(self._log, np.exp(np.where(self._log, bent, 0.0)), bent)
        return np.clip(values, self._low, self._high)


def _moved(value: float) -> float:
    """Another value, near it."""
    return value * (1.0 + 1e-3) if value else 1e-3


def _note(run: Run) -> str:
    return f": {run.loop.note}" if run.loop.note else ""
