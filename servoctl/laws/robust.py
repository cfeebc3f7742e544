"""Robust and adaptive terms: a bounded force against disturbances of which only the size is known, or not even that.

    beta = phi' + lambda phi (holonomic), psi (nonholonomic),   u = T^+ (b - A a_c - lambda phi' - kappa beta - g)
    robust     g = beta rho^2 / max(|beta| rho, eps)
    adaptive   the same with rho = alpha, eps = alpha^2 / G,   alpha' = rate |beta| - leak alpha   while |beta| > width
    sampled    alpha <- e^(-leak h) alpha + (1 - e^(-leak h)) / leak  rate |beta|

Rows are divided by their scale before any norm. The correction of each row gives lambda and kappa: damping = lambda +
kappa, stiffness = lambda kappa, so its poles must be real. lambda is the faster one: that bounds phi best.

Where beta settles: `check.uncertainty`.

Design: inside the boundary layer the term is a linear gain rho^2 / eps, for which a sampled loop has a limit. So `auto`
takes half of that limit, eps = (d + 1) h rho^2 for a command that acts d periods late, and an adaptive rho always has
the gain budget G.

Source: Chen, Zhang 2010 and Zhao et al. 2018 for the three parts of u and the leakage. The gain budget, the sampled
form and the rule for sampled time are ours.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from servoctl.engine.symbol import where
from servoctl.errors import TaskError, remedy
from servoctl.laws.corrections import CorrectionTerm, sliding_error
from servoctl.laws.hold import RowFeedback
from servoctl.laws.term import AttachedTerm
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.terms import Terms
from servoctl.mechanics.timing import Timing
from servoctl.tree.fields import AutoPositive, NotNegative, Positive, ScalarOr, described, wrong_numbers
from servoctl.types import Array, Command

ESTIMATE = "adaptive.bound"  # name of the adaptive estimate in the controller memory
REAL = 1e-9  # a correction counts as critically damped within this relative error of its discriminant

UNITS = dict.fromkeys(("x", "y", "z"), "m") | dict.fromkeys(("rx", "ry", "rz"), "rad")
"""Label of a row of a task of frames -> its unit."""


@dataclass(frozen=True)
class RobustTerm(AttachedTerm):
    """The term of an attached law."""

    members: tuple[int, ...]  # indices of the rows that it acts on
    by_rate: tuple[bool, ...]  # whether beta of such a row is made of the violation rate; else it is the violation
    adaptive: bool  # whether rho is estimated
    sliding: tuple[float, ...]  # [1/s] lambda of each row of the task
    scale: tuple[float, ...]  # size by which the violation of each row of the task is divided
    bound: float = 0.0  # rho [scaled acceleration of the rows]; unused by an adaptive term
    layer: float = 0.0  # eps
    rate: float = 0.0  # [1/s^2] growth of the estimate per |beta|
    leak: float = 0.0  # [1/s] its decay
    width: float = 0.0  # |beta| below which it does not grow
    gain: float = math.inf  # [1/s] G, the largest gain on beta

    label = "robust"

    @property
    def memory(self) -> dict[str, float]:
        """Name -> initial value of the estimate."""
        return {ESTIMATE: 0.0} if self.adaptive else {}

    def beta(self, task: Rows) -> Array:
        """beta of the members, divided by their scale."""
        pairs = zip(self.members, self.by_rate, strict=True)
        return np.array([sliding_error(task, i, by_rate, self.sliding[i]) / self.scale[i] for i, by_rate in pairs])

    def acceleration(self, at: Terms, memory: Array) -> Array:
        """-g of every row [acceleration of the row]."""
        beta, rho = self.beta(at.task), memory[0] if self.adaptive else self.bound
        # inside the layer |beta| <= edge the gain is rho / edge; without an estimate yet, the layer is empty
        gain, edge = (self.gain, rho / self.gain) if self.adaptive else (rho * rho / self.layer, self.layer / rho)
        square = beta @ beta
        inside = square <= edge * edge
        # the root is of 1 inside, so that its derivative stays finite
        factor = where(inside, gain, rho / np.sqrt(where(inside, 1.0, square)))
        g: Array = np.zeros(len(self.scale), dtype=np.asarray(beta * factor).dtype)
        for i, value in zip(self.members, beta * factor, strict=True):
            g[i] = self.scale[i] * value
        return -g

    def memory_rate(self, at: Terms, memory: Array, command: Command) -> Array:
        if not self.adaptive:
            return memory
        beta, estimate = self.beta(at.task), memory[0]
        square = beta @ beta
        outside = square > self.width * self.width
        growth = self.rate * where(outside, np.sqrt(where(outside, square, 1.0)), 0.0)
        period = self.timing.period
        if period is None:
            return np.array([growth - self.leak * estimate])
        leaks = self.leak > 0.0
        leak = where(leaks, self.leak, 1.0)
        share = where(leaks, (1.0 - np.exp(-leak * period)) / leak, period)
        return np.array([share / period * (growth - self.leak * estimate)])


class _Term(ABC):
    """What robust and adaptive terms share."""

    scale: dict[str, float]

    name = "robust"

    def scales(self, rows: Sequence[Row]) -> tuple[float, ...]:
        """The scale of every row."""
        return tuple(_of(row, self.scale, 1.0) for row in rows)

    def problems(self, rows: Sequence[Row], members: Sequence[int]) -> list[str]:
        """One sentence for each field or row that does not fit."""
        field = f"law.{self.name}"
        found = _unknown(f"{field}.scale", self.scale, rows)
        found += [f"{field}.{sentence}" for sentence in wrong_numbers(self)]
        for row in (rows[i] for i in members):
            if row.degree > 2:
                found.append(
                    f"{field}: task.{row.name}: relative degree {row.degree}: its derivatives come from the model, so "
                    f"beta would be wrong (leave law.{self.name} out, or the task)"
                )
            elif row.degree < 1:
                found.append(f"{field}: task.{row.name}: has no task error (leave law.{self.name} out, or give one)")
        return found

    def attach(self, correction: CorrectionTerm, members: Sequence[int], timing: Timing) -> RobustTerm:
        """The term for the rows of a law.

        Args:
            members: Indices of those that it acts on.
            timing: Of the loop.

        Raises:
            TaskError: Something does not fit; the message names every such field and row.
        """
        rows, problems = correction.rows, list[str]()
        if not members:
            problems.append(f"law.{self.name}: acts on tasks of priority 1, and there is none (leave it out)")
        sliding, kappa = [0.0] * len(rows), [0.0] * len(rows)
        for i in members:
            try:
                sliding[i], kappa[i] = decay_rates(rows[i], correction.feedback(i), f"law.{self.name}")
            except TaskError as error:
                problems.append(str(error))
        # half of the largest gain on beta at which the sampled loop is stable [1/s]; None: not sampled
        steepest = None if timing.period is None else 1.0 / (timing.lateness + timing.period)
        if not problems:
            problems = self.problems(rows, members)
            numbers = self.numbers(rows, members, max((kappa[i] for i in members), default=0.0), steepest, problems)
        if problems:
            raise TaskError("\n".join(problems))
        by_rate, adaptive = tuple(rows[i].has_rate for i in members), self.name == "adaptive"
        scales = self.scales(rows)
        return RobustTerm(tuple(members), by_rate, adaptive, tuple(sliding), scales, **numbers, timing=timing)

    @abstractmethod
    def numbers(
        self, rows: Sequence[Row], members: Sequence[int], fastest: float, steepest: float | None, problems: list[str]
    ) -> dict[str, float]:
        """The numbers of the term by field; what does not fit is added to the problems.

        Args:
            fastest: Largest gain of the corrections on beta [1/s].
            steepest: Half of the largest stable gain on beta [1/s]; None: the law is not sampled.
        """


@dataclass(frozen=True)
class Robust(_Term):
    """A force of bounded size against disturbances of the task rows whose size is known."""

    # together, bounds of rows count by the root of the sum of squares, each divided by the row's scale
    bound: Annotated[
        ScalarOr[Positive, dict[str, NotNegative]],
        Field(
            description="rho: largest disturbance [acceleration of the row] that is cancelled, of all rows together, "
            "or row -> its own; it must be at least the disturbance divided by 1 + rho_E (`servoctl check` prints both)"
        ),
    ]
    scale: Annotated[
        dict[str, Positive],
        Field(
            description="row -> size by which its error is divided before norms [unit of the row]; 1 where left out; "
            "needed for rows of different units",
            json_schema_extra={"default": {}},
        ),
    ] = field(default_factory=dict)
    boundary_layer: AutoPositive = described(
        None,
        "eps [rate of the row times its acceleration, scaled]: the force is linear below |beta| = "
        "eps/rho; auto, or left out: (d + 1) h rho^2 for a period h and a delay of d periods",
    )

    def numbers(
        self, rows: Sequence[Row], members: Sequence[int], fastest: float, steepest: float | None, problems: list[str]
    ) -> dict[str, float]:
        if isinstance(self.bound, Mapping):
            problems += _unknown("law.robust.bound", self.bound, rows)
            scale = self.scales(rows)
            rho = math.hypot(*(_of(rows[i], self.bound, 0.0) / scale[i] for i in members)) if not problems else 1.0
        else:
            rho = float(self.bound)
        if not 0.0 < rho * rho < math.inf:
            problems.append(f"law.robust.bound: expected a positive size of the disturbance, got {rho:g}")
        if self.boundary_layer is None and steepest is None:
            problems.append("law.robust.boundary_layer: auto needs a sampled law (give run.period, or a number)")
        layer = rho * rho / (steepest or 1.0) if self.boundary_layer is None else float(self.boundary_layer)
        return {"bound": rho, "layer": layer}


@dataclass(frozen=True)
class Adaptive(_Term):
    """A force against disturbances of unknown size, which it estimates."""

    kind: Annotated[
        Literal["leakage", "dead_zone"],
        Field(description="leakage: the estimate decays; dead_zone: it grows only outside of width"),
    ]
    rate: Annotated[Positive, Field(description="growth of the estimate per |beta| [1/s^2]")]
    leak: Positive | None = described(None, "decay of the estimate [1/s]; for leakage, which needs it")
    width: NotNegative | None = described(
        None, "|beta| below which the estimate does not grow [rate of the row, scaled]; dead_zone needs it"
    )
    gain_budget: AutoPositive = described(
        None,
        "largest gain on beta, that of the correction included [1/s]; auto, or left out: the "
        "correction's plus 1 / ((d + 1) h) for a period h and a delay of d periods",
    )
    scale: Annotated[dict[str, Positive], Field(description="as of law.robust", json_schema_extra={"default": {}})] = (
        field(default_factory=dict)
    )

    name = "adaptive"

    def __post_init__(self) -> None:
        if self.kind == "leakage" and self.leak is None:
            raise TaskError("leak: missing (decay of the estimate [1/s]; leakage needs it)")
        if self.kind == "dead_zone" and self.leak is not None:
            raise TaskError("leak: does not fit kind dead_zone (leave it out, or use kind: leakage)")
        if self.kind == "dead_zone" and not self.width:
            raise TaskError("width: missing (|beta| below which the estimate does not grow; dead_zone needs it)")

    def numbers(
        self, rows: Sequence[Row], members: Sequence[int], fastest: float, steepest: float | None, problems: list[str]
    ) -> dict[str, float]:
        if self.gain_budget is None and steepest is None:
            problems.append("law.adaptive.gain_budget: auto needs a sampled law (give run.period, or a number)")
        gain = (steepest or 1.0) if self.gain_budget is None else self.gain_budget - fastest
        if not gain > 0.0:
            problems.append(
                f"law.adaptive.gain_budget: expected more than the correction's own gain, {fastest:.4g} 1/s, got "
                f"{self.gain_budget:g}"
            )
        return {"rate": self.rate, "leak": self.leak or 0.0, "width": self.width or 0.0, "gain": gain}


def _of(row: Row, values: Mapping[str, float], default: float) -> float:
    return float(values.get(row.name, values.get(row.group, default)))


def _unknown(field: str, values: Mapping[str, float], rows: Sequence[Row]) -> list[str]:
    known = list(dict.fromkeys([name for row in rows for name in (row.name, row.group)]))
    return [f"{field}.{name}: there is no such task ({remedy(name, known)})" for name in values if name not in known]


def unscaled(rows: Sequence[Row], units: Sequence[str | None], members: Sequence[int], term: _Term) -> str | None:
    """Why rows of different units cannot be added; None if their units agree, are not known, or have scales.

    Args:
        units: Of each row; None: not known.
        members: Indices of the rows that the term acts on.
    """
    first: str | None = None
    for i in members:
        if units[i] is None or rows[i].name in term.scale or rows[i].group in term.scale:
            continue
        if first is not None and units[i] != first:
            return (
                f"law.{term.name}.scale: {rows[i].name} is in {units[i]}, other rows in {first} (give a scale to "
                f"all rows of one of the two, such as {{{rows[i].name}: 1}})"
            )
        first = units[i]
    return None


def row_units(rows: Sequence[Row], A: Sequence[Array], units: Sequence[str]) -> list[str | None]:
    """Unit of each row where it is sure: a sum of coordinates of one unit, or a row of a pose; else None.

    Args:
        A: Their matrices at some states.
        units: Of the coordinates.
    """
    found: list[str | None] = []
    for i, row in enumerate(rows):
        label = row.name.removeprefix(f"{row.group}.")
        used = {unit for unit, a in zip(units, A[0][i], strict=True) if a}
        plain = set(np.abs(A[0][i]).tolist()) <= {0.0, 1.0} and all(np.array_equal(a[i], A[0][i]) for a in A)
        found.append(UNITS.get(label, used.pop() if plain and len(used) == 1 else None))
    return found


def decay_rates(row: Row, feedback: RowFeedback, field: str) -> tuple[float, float]:
    """lambda and kappa of a row [1/s]: beta = phi' + lambda phi decays at kappa without disturbances.

    Raises:
        TaskError: The row has no correction, or one with complex poles.
    """
    damping, stiffness = feedback.damping, feedback.stiffness
    if not row.has_rate:
        if not stiffness > 0.0:
            raise TaskError(
                f"{field}: task.{row.name}: needs a correction (law.correction: {{p_feedback: {{P: 0.1}}}})"
            )
        return 0.0, stiffness
    if not damping > 0.0:
        raise TaskError(
            f"{field}: task.{row.name}: needs a correction (law.correction.baumgarte: {{alpha: 10, beta: 10}})"
        )
    if not stiffness:
        return 0.0, damping
    half = damping / 2.0
    discriminant = half * half - stiffness
    if discriminant < -REAL * half * half:
        raise TaskError(
            f"{field}: task.{row.name}: the poles of its correction are complex, damping {damping:g} 1/s and stiffness "
            f"{stiffness:g} 1/s^2 (baumgarte: alpha at least beta; second_order: damping at least "
            f"{2.0 * math.sqrt(stiffness):.4g} 1/s)"
        )
    root = math.sqrt(max(discriminant, 0.0))
    return half + root, half - root
