"""Metrics of a run with their exact derivatives with respect to numbers of the config.

Design: each integration step is made together with its derivatives (`simulation.tangent`). How the parameters of law
and plant depend on a number of the config is simple algebra, such as `alpha` -> `2 alpha`: a central difference of
eighth order over a few per cent is exact up to round-off. A maximum has the derivative of the row at which it occurs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from servoctl.assembly.run import Run
from servoctl.simulation.compiled import CompiledLoop
from servoctl.simulation.integrate import integrate
from servoctl.simulation.tangent import TangentLoop
from servoctl.types import Array, Status

FRACTION = 1e-2
"""Spacing of the points of a finite difference, relative to the number."""

EIGHTH_ORDER = (4 / 5, -1 / 5, 4 / 105, -1 / 280)
"""Weights of central differences over 1, 2, 3, 4 spacings. Source: Fornberg 1988, table 1."""

Slope = tuple[float, Array]
"""A value and its derivatives, shape (count,)."""


class KinkError(Exception):
    """A metric has no derivatives here; the text says why."""


def _rms(t: Array, size: Array, change: Array) -> Slope:
    """sqrt(mean of size^2 over time), by trapezoids as in a summary."""
    weights, steps = np.zeros(len(t)), np.diff(t)
    weights[:-1] += steps / 2
    weights[1:] += steps / 2
    mean = weights * size / weights.sum()
    value = float(np.sqrt(mean @ size))
    return value, mean @ change / value


def _last(t: Array, size: Array, change: Array) -> Slope:
    return float(size[-1]), change[-1]


def _greatest(t: Array, size: Array, change: Array) -> Slope:
    i = int(np.argmax(size))
    return float(size[i]), change[i]


def _growth(t: Array, size: Array, change: Array) -> Slope:
    return float(size[-1] - size[0]), change[-1] - change[0]


FOLLOWED: dict[str, Callable[[Array, Array, Array], Slope]] = {
    "rms_violation": _rms, "final_violation": _last, "drift": _growth, "max_violation": _greatest,
    "input_rms": _rms, "input_max": _greatest,
}  # fmt: skip
"""Metric -> how it follows from the rows: (times, sizes, their derivatives) -> value and derivatives."""

SMOOTH = ("rms_violation", "final_violation", "drift", "input_rms")
"""Metrics that are differentiable everywhere except at zero."""


@dataclass(frozen=True)
class RowSlopes:
    """Rows of a run and their derivatives.

    Attributes:
        t: Times [s], shape (rows,).
        sizes: `violation.<task>` or `u.<actuator>` -> absolute value or norm, shape (rows,).
        changes: The same names -> derivatives, shape (rows, count).
        tasks: Names of the tasks.
    """

    t: Array
    sizes: dict[str, Array]
    changes: dict[str, Array]
    tasks: tuple[str, ...]

    def slopes(self, metric: str) -> dict[str, Slope]:
        """Column -> value and derivatives of a metric; for a metric of the worst task, one entry per task.

        Raises:
            KinkError: The metric has no derivatives here.
        """
        kind, _, name = metric.partition(".")
        column = "u" if kind.startswith("input") else "violation"
        keys = [f"{column}.{one}" for one in ((name,) if name else self.tasks)]
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = {key: FOLLOWED[kind](self.t, self.sizes[key], self.changes[key]) for key in keys}
        for value, change in slopes.values():
            if not (np.isfinite(value) and np.isfinite(change).all()):
                raise KinkError(f"{metric} has no derivatives where it is {value:g}")
        return slopes


class Slopes:
    """Simulates runs with derivatives; runs that share functions are traced once."""

    def __init__(self) -> None:
        self._traced: list[tuple[CompiledLoop, TangentLoop]] = []

    def motion(self, run: Run, nearby: Callable[[int, float], Run], scales: Sequence[float]) -> RowSlopes:
        """The rows of a run and their derivatives.

        Args:
            run: The run.
            nearby: (index of a number, change) -> the run with that number changed.
            scales: Size of each number.

        Raises:
            KinkError: The run has no derivatives.
        """
        values = self._inputs(run)
        law, plant, start = derivatives = [np.zeros((len(part), len(scales))) for part in values]
        for j, scale in enumerate(scales):
            for matrix, part in zip(derivatives, self._difference(run, nearby, j, FRACTION * scale), strict=True):
                matrix[:, j] = part
        loop = run.loop
        assert isinstance(loop, CompiledLoop)
        tangent = self._tangent(loop, len(scales)).along(loop, (values[0], law), (values[1], plant))
        s = run.settings
        x = tangent.start(values[2], start)
        chunks = list(integrate(tangent, x, run.start.t, s.duration, s.integrator, s.period, None, s.seed))
        if chunks[-1].stopped is not None:
            raise KinkError(chunks[-1].stopped)
        t, rows = (np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in ("t", "rows"))
        return _motion(run, tangent, t, rows)

    def _tangent(self, loop: CompiledLoop, count: int) -> TangentLoop:
        for traced, tangent in self._traced:
            if loop.shares_functions(traced) and tangent.count == count:
                return tangent
        self._traced.append((loop, TangentLoop(loop, count)))
        return self._traced[-1][1]

    def _inputs(self, run: Run) -> tuple[Array, Array, Array]:
        """Parameters of the law, parameters of the simulated plant, and the initial q, v and controller state."""
        loop = run.loop
        assert isinstance(loop, CompiledLoop)
        return loop.parameters, loop.simulated().parameters, loop.vector(run.start)[: loop.size]

    def _difference(self, run: Run, nearby: Callable[[int, float], Run], j: int, h: float) -> list[Array]:
        """The derivatives of `_inputs` with respect to number j, by central differences with spacing h."""
        parts: list[Array] = [np.zeros(len(part)) for part in self._inputs(run)]
        for k, weight in enumerate(EIGHTH_ORDER, 1):
            above, below = (self._inputs(nearby(j, sign * k * h)) for sign in (1, -1))
            for part, a, b in zip(parts, above, below, strict=True):
                moved = a != b  # inf - inf of unbounded limits would be NaN
                part[moved] += weight * (a[moved] - b[moved]) / h
        return parts


def _motion(run: Run, tangent: TangentLoop, t: Array, rows: Array) -> RowSlopes:
    slices, model = tangent.layout.slices, run.system.model
    u, du = tangent.parted(rows[:, slices["u"]])
    _check_free(run, u, rows[:, slices["status"]])
    phi, dphi = tangent.parted(rows[:, slices["violation"]])
    sizes, changes = {}, {}
    for i, name in enumerate(model.plant.actuators):
        sizes[f"u.{name}"], changes[f"u.{name}"] = np.abs(u[:, i]), np.sign(u[:, i, None]) * du[:, i]
    tasks: dict[str, list[int]] = {}
    for i, row in enumerate(model.task_rows):
        tasks.setdefault(row.group, []).append(i)
    for name, indices in tasks.items():
        size = np.sqrt(np.nansum(phi[:, indices] ** 2, axis=1))
        direction = phi[:, indices] / np.where(size > 0.0, size, 1.0)[:, None]  # d|phi| = (phi / |phi|) . dphi
        key = f"violation.{name}"
        sizes[key], changes[key] = size, np.nansum(direction[:, :, None] * dphi[:, indices], axis=1)
    return RowSlopes(t, sizes, changes, tuple(tasks))


def _check_free(run: Run, u: Array, status: Array) -> None:
    """Raises KinkError if an input is at a limit."""
    law, realism = run.system.law, run.system.realism
    held = law is not None and any(law.at_limit(row) for row in u)
    if realism is not None:
        held = held or bool(((u <= realism.lower) | (u >= realism.upper)).any())
    if held or (status == Status.SATURATED.code).any():
        raise KinkError("an input is at its limit")
