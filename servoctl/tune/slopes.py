"""Metrics of a run with their exact derivatives by numbers of the config.

Design: the run's own steps are taken with their derivatives beside them (`closed_loop.tangent`). What a number of the
config changes of the law's and the plant's parameters is algebra, `alpha` -> `2 alpha`, of which a difference of eighth
order over a few per cent leaves nothing but round-off. A greatest value has the derivative of the row where it stands.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from servoctl.assembly.run import Run
from servoctl.simulation.integrate import integrate
from servoctl.simulation.tangent import TangentLoop
from servoctl.simulation.traced import CompiledLoop
from servoctl.types import Array, Status

FRACTION = 1e-2
"""Spacing of the points of a difference, relative to the number."""

EIGHTH_ORDER = (4 / 5, -1 / 5, 4 / 105, -1 / 280)
"""Weights of central differences over 1, 2, 3, 4 spacings. Source: Fornberg 1988, table 1."""

Slope = tuple[float, Array]
"""A value, and its derivatives, shape (count,)."""


class KinkError(Exception):
    """There are no derivatives here; the text says why."""


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
    place = int(np.argmax(size))
    return float(size[place]), change[place]


def _growth(t: Array, size: Array, change: Array) -> Slope:
    return float(size[-1] - size[0]), change[-1] - change[0]


FOLLOWED: dict[str, Callable[[Array, Array, Array], Slope]] = {
    "rms_violation": _rms, "final_violation": _last, "drift": _growth, "max_violation": _greatest,
    "input_rms": _rms, "input_max": _greatest,
}  # fmt: skip
"""Kind of metric -> how it comes of rows."""

SMOOTH = ("rms_violation", "final_violation", "drift", "input_rms")
"""Those that bend nowhere but at zero."""


@dataclass(frozen=True)
class Motion:
    """Rows of a run, and their derivatives.

    Attributes:
        t: [s], shape (rows,).
        sizes: `violation.<task>` or `u.<actuator>` -> its size, shape (rows,).
        changes: The same -> derivatives, shape (rows, count).
        tasks: Names of the tasks.
    """

    t: Array
    sizes: dict[str, Array]
    changes: dict[str, Array]
    tasks: tuple[str, ...]

    def slopes(self, metric: str) -> dict[str, Slope]:
        """Column -> value and derivatives of a metric; of each task where that of the worst is asked for."""
        kind, _, name = metric.partition(".")
        column = "u" if kind.startswith("input") else "violation"
        places = [f"{column}.{own}" for own in ((name,) if name else self.tasks)]
        with np.errstate(divide="ignore", invalid="ignore"):
            found = {place: FOLLOWED[kind](self.t, self.sizes[place], self.changes[place]) for place in places}
        for value, change in found.values():
            if not (np.isfinite(value) and np.isfinite(change).all()):
                raise KinkError(f"{metric} has no derivatives where it is {value:g}")
        return found


class Slopes:
    """Runs with derivatives; what is traced is traced once."""

    def __init__(self) -> None:
        """Has traced nothing yet."""
        self._traced: list[tuple[CompiledLoop, TangentLoop]] = []

    def motion(self, run: Run, nearby: Callable[[int, float], Run], scales: Sequence[float]) -> Motion:
        """The rows of a run, and their derivatives.

        Args:
            run: The run.
            nearby: The run with one number changed by so much: (place, change).
            scales: Size of each number.

        Raises:
            KinkError: There are none.
        """
        own = self._given(run)
        law, plant, start = (np.zeros((len(part), len(scales))) for part in own)
        for j, scale in enumerate(scales):
            for place, part in enumerate(self._difference(run, nearby, j, FRACTION * scale)):
                (law, plant, start)[place][:, j] = part
        loop = run.loop
        assert isinstance(loop, CompiledLoop)
        tangent = self._tangent(loop, len(scales)).along(loop, (own[0], law), (own[1], plant))
        s = run.settings
        x = tangent.start(own[2], start)
        chunks = list(integrate(tangent, x, run.start.t, s.duration, s.integrator, s.period, s.output_step, s.seed))
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

    def _given(self, run: Run) -> tuple[Array, Array, Array]:
        """The law's parameters, the simulated plant's, and q, v and memory at the start."""
        loop = run.loop
        assert isinstance(loop, CompiledLoop)
        return loop.parameters, loop.simulated().parameters, loop.vector(run.start)[: loop.size]

    def _difference(self, run: Run, nearby: Callable[[int, float], Run], j: int, h: float) -> list[Array]:
        """The derivatives of what is given, by one number."""
        parts: list[Array] = [np.zeros(len(part)) for part in self._given(run)]
        for k, weight in enumerate(EIGHTH_ORDER, 1):
            above, below = (self._given(nearby(j, sign * k * h)) for sign in (1, -1))
            for part, a, b in zip(parts, above, below, strict=True):
                moved = a != b  # limits may be infinite
                part[moved] += weight * (a[moved] - b[moved]) / h
        return parts


def _motion(run: Run, tangent: TangentLoop, t: Array, rows: Array) -> Motion:
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
    for name, own in tasks.items():
        size = np.sqrt(np.nansum(phi[:, own] ** 2, axis=1))
        turned = phi[:, own] / np.where(size > 0.0, size, 1.0)[:, None]
        place = f"violation.{name}"
        sizes[place], changes[place] = size, np.nansum(turned[:, :, None] * dphi[:, own], axis=1)
    return Motion(t, sizes, changes, tuple(tasks))


def _check_free(run: Run, u: Array, status: Array) -> None:
    """Raises KinkError where an input is at a limit."""
    law, realism = run.system.law, run.system.realism
    held = law is not None and any(law.at_limit(row) for row in u)
    if realism is not None:
        held = held or bool(((u <= realism.lower) | (u >= realism.upper)).any())
    if held or (status == Status.SATURATED.code).any():
        raise KinkError("an input is at its limit")
