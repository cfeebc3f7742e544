"""Corrections: terms added to b so that a violated constraint returns to zero.

    Baumgarte(alpha, beta)                  phi'' + 2 alpha phi' + beta^2 phi = 0
    SecondOrderCorrection(damping, stiffness)   phi'' + damping phi' + stiffness phi = 0
    PFeedback(P)         nonholonomic       psi' = -psi / P
    PFeedback(P, rate)   holonomic          beta = phi' + rate phi,  beta' = -beta / P
    Poles(poles)         input_output       (d/dt - p_1) ... (d/dt - p_r) y = 0

Each of them gives gains per row: `b - damping violation_rate - stiffness violation - ...`.

Source: Baumgarte 1972; Liu et al. 2015, III.B, where phi is the position-level violation, not A q'' - b as printed; Xu,
Liu 2017, (52), whose alpha and beta are the damping and stiffness here; Zhao et al. 2018, (72).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, cast

import numpy as np
from pydantic import Field

from servoctl.engine.parameters import EACH, Part
from servoctl.errors import TaskError
from servoctl.laws.hold import RowFeedback
from servoctl.laws.term import AttachedTerm
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.terms import Terms
from servoctl.tree.fields import NumberField, PerRow, described, gain_fields, wrong_numbers
from servoctl.types import Array

Gain = float | Sequence[float] | Mapping[str, Any]
"""One number for all rows, a list with one per row in task order, or a mapping by task name."""


def per_row(gain: Gain, rows: Sequence[Row], name: str) -> list[float]:
    """The gain of each row.

    Raises:
        TaskError: A list has the wrong length, or a mapping lacks a task or names an unknown one.
    """
    return [float(value) for value in _spread(gain, rows, name)]


def _spread(values: Any, rows: Sequence[Row], name: str, several: bool = False) -> list[Any]:
    """One value for each row; `several`: a value may itself be a list, so a flat list is that of a single row."""
    if isinstance(values, Mapping):
        groups = list(dict.fromkeys(row.group for row in rows))
        for wrong in [key for key in values if key not in groups]:
            raise TaskError(f"{name}: there is no task '{wrong}' (tasks: {', '.join(groups) or 'none'})")
        for missing in [group for group in groups if group not in values]:
            raise TaskError(f"{name}: no value for task '{missing}' (give one, or one number for all)")
        members = {group: [row for row in rows if row.group == group] for group in groups}
        return [v for group in groups for v in _spread(values[group], members[group], f"{name}.{group}", several)]
    if not isinstance(values, Sequence | np.ndarray) or (several and isinstance(values, np.ndarray)):
        return [values] * len(rows)
    if several and len(rows) == 1 and not isinstance(values[0], Sequence):
        return [values]
    if len(values) != len(rows):
        raise TaskError(f"{name}: expected one value per row, {len(rows)} in all, got {len(values)}")
    return list(values)


RATE = NumberField("a number >= 0 [1/s]", least=0)
TIME = NumberField("a positive time [s]", above=0)
PER_ROW = "; a number, a list (one per row, in order) or a mapping by task name"


class Correction(Part, ABC):
    """The feedback on the violation of a row. Made ready for some rows, its gains have one number for each of them."""

    def __post_init__(self) -> None:
        for sentence in wrong_numbers(self):
            raise TaskError(f"{type(self).__name__}: {sentence}")

    @abstractmethod
    def gains(self, rows: Sequence[Row]) -> Sequence[tuple[Any, ...]]:
        """(damping [1/s], stiffness [1/s^2]) of each row; stiffness [1/s] for a row without an error rate.

        For a row with higher derivatives their gains follow, starting with the second derivative.

        Raises:
            TaskError: The correction does not fit the kind of a row; the message names the row and one that does.
        """

    def ready(self, rows: Sequence[Row]) -> "Correction":
        """The correction with one number for each of these rows; errors as of `gains`."""
        each = zip(gain_fields(type(self)), self._each(rows), strict=True)
        ready: Correction = replace(cast(Any, self), **{name: tuple(map(float, values)) for name, values in each})
        return ready

    def _each(self, rows: Sequence[Row]) -> list[list[Any]]:
        """The numbers of each row, of every field with gains."""
        return [_spread(getattr(self, name), rows, name) for name in gain_fields(type(self))]

    def _needs_violation(self, rows: Sequence[Row]) -> None:
        """Refuses rows without a violation, and given ones without its rate: nothing would damp them."""
        for row in rows:
            if not row.has_violation:
                raise TaskError(f"{row.name}: {self.label} needs a violation, a {row.kind} row has none (leave it out)")
            if row.kind == "second_order" and not row.has_rate:
                raise TaskError(
                    f"{row.name}: {self.label} needs the rate of the task error too, or it swings undamped (give "
                    "violation_rate, or write the row as nonholonomic)"
                )

    def _needs_rate(self, rows: Sequence[Row]) -> None:
        self._needs_violation(rows)
        for row in rows:
            if not row.has_rate:
                raise TaskError(f"{row.name}: {self.label} does not fit a {row.kind} row (use p_feedback {{P}})")


@dataclass(frozen=True)
class Baumgarte(Correction):
    """`phi'' + 2 alpha phi' + beta^2 phi = 0`."""

    alpha: Annotated[Gain, PerRow(RATE), EACH, Field(description=f"damping of the error [1/s]{PER_ROW}")]
    beta: Annotated[Gain, PerRow(RATE), EACH, Field(description=f"natural frequency of the error [rad/s]{PER_ROW}")]
    label = "baumgarte"

    def gains(self, rows: Sequence[Row]) -> list[tuple[Any, ...]]:
        self._needs_rate(rows)
        return [(2.0 * alpha, beta * beta) for alpha, beta in zip(*self._each(rows), strict=True)]


@dataclass(frozen=True)
class SecondOrderCorrection(Correction):
    """`phi'' + damping phi' + stiffness phi = 0`."""

    damping: Annotated[Gain, PerRow(RATE), EACH, Field(description=f"gain on the error's rate [1/s]{PER_ROW}")]
    stiffness: Annotated[
        Gain,
        PerRow(NumberField("a number >= 0 [1/s^2]", least=0)),
        EACH,
        Field(description=f"gain on the error [1/s^2]{PER_ROW}"),
    ]
    label = "second_order"

    def gains(self, rows: Sequence[Row]) -> list[tuple[Any, ...]]:
        self._needs_rate(rows)
        return list(zip(*self._each(rows), strict=True))


@dataclass(frozen=True)
class PFeedback(Correction):
    """`P beta' + beta = 0`; beta is the error of a nonholonomic row, `phi' + rate phi` of a holonomic one."""

    P: Annotated[Gain, PerRow(TIME), EACH, Field(description=f"time constant [s]{PER_ROW}")]
    rate: Annotated[Gain, PerRow(RATE), EACH] = described(
        0.0, f"decay of a holonomic error [1/s]; 0 corrects its rate alone{PER_ROW}"
    )
    label = "p_feedback"

    def gains(self, rows: Sequence[Row]) -> list[tuple[Any, ...]]:
        self._needs_violation(rows)
        # phi'' + rate phi' = -(phi' + rate phi) / P
        each = zip(rows, *self._each(rows), strict=True)
        return [(rate + 1.0 / P, rate / P) if row.has_rate else (0.0, 1.0 / P) for row, P, rate in each]

    def ready(self, rows: Sequence[Row]) -> "Correction":
        common = isinstance(self.rate, (int, float)) and any(row.has_rate for row in rows)
        for row, rate in zip(rows, per_row(self.rate, rows, "rate"), strict=True):
            if rate and not row.has_rate and not common:
                raise TaskError(f"{row.name}: p_feedback.rate does not fit a {row.kind} row (leave it out)")
        return super().ready(rows)


@dataclass(frozen=True)
class Poles(Correction):
    """`(d/dt - p_1) ... (d/dt - p_r) y = 0`, where r is the relative degree of the row.

    Attributes:
        poles: [1/s], all with negative real parts. One number for all poles of all rows; or a list with one entry per
            row in task order, or a mapping by task name, whose entries are a number or a list of r poles.
    """

    poles: Any
    label = "poles"

    def gains(self, rows: Sequence[Row]) -> list[tuple[float, ...]]:
        result: list[tuple[float, ...]] = []
        for row, poles in zip(rows, _spread(self.poles, rows, "poles", several=True), strict=True):
            if not row.degree:
                raise TaskError(f"{row.name}: poles need a violation, a {row.kind} row has none (leave them out)")
            chosen = np.atleast_1d(np.asarray(poles, dtype=complex))
            chosen = np.full(row.degree, chosen[0]) if len(chosen) == 1 else chosen
            if len(chosen) != row.degree:
                raise TaskError(
                    f"{row.name}: poles: expected 1 or {row.degree}, its relative degree, got {len(chosen)}"
                )
            if not (chosen.real < 0.0).all():
                raise TaskError(f"{row.name}: poles: expected negative real parts [1/s], got {poles}")
            polynomial = np.poly(chosen)
            if np.abs(np.imag(polynomial)).max() > 0.0:
                raise TaskError(f"{row.name}: poles: complex ones come in conjugate pairs, got {poles}")
            # coefficients from the lowest power on, without the leading 1: stiffness, damping, higher derivatives
            stiffness, *rest = [float(c) for c in np.real(polynomial[:0:-1])]
            result.append((rest[0] if rest else 0.0, stiffness, *rest[1:]))
        return result

    def ready(self, rows: Sequence[Row]) -> Correction:
        return KnownGains.of(rows, self.gains(rows), self.label)


@dataclass(frozen=True)
class KnownGains(Correction):
    """The gains of some rows, where nothing else is known of them."""

    label: str  # type: ignore[misc]  # kind of the correction that has these gains
    damping: tuple[float, ...]  # [1/s] on the rate of the error
    stiffness: tuple[float, ...]  # [1/s^2], of a nonholonomic row [1/s], on the error
    higher: tuple[float, ...]  # on the second and higher derivatives of the error, as many for each row

    @classmethod
    def of(cls, rows: Sequence[Row], gains: Sequence[tuple[float, ...]], label: str) -> "KnownGains":
        """The gains of these rows, padded to the same number of higher derivatives for each."""
        width = max([0, *(row.degree - 2 for row in rows)])
        damping, stiffness = (tuple(gain[i] for gain in gains) for i in (0, 1))
        higher = tuple(c for gain in gains for c in (*gain[2:], *(0.0,) * width)[:width])
        return cls(label, damping, stiffness, higher)

    def gains(self, rows: Sequence[Row]) -> list[tuple[Any, ...]]:
        width = len(self.higher) // max(1, len(self.damping))
        higher = [self.higher[i * width : (i + 1) * width] for i in range(len(self.damping))]
        return [(d, s, *rest) for d, s, rest in zip(self.damping, self.stiffness, higher, strict=True)]


@dataclass(frozen=True)
class PassiveBaumgarte(Baumgarte):
    """Baumgarte's terms on a plant's own rows; nonholonomic rows decay equally fast by `psi' = -2 alpha psi`."""

    def gains(self, rows: Sequence[Row]) -> list[tuple[Any, ...]]:
        self._needs_violation([row for row in rows if row.has_violation])
        each = zip(rows, *self._each(rows), strict=True)
        return [(2.0 * alpha, beta * beta) if row.has_rate else (0.0, 2.0 * alpha) for row, alpha, beta in each]


@dataclass(frozen=True)
class OfRows(Part):
    """A correction of some rows, ready for them; its numbers have the paths that a config gives them."""

    label: str  # type: ignore[misc]  # key of the correction in a config
    members: tuple[int, ...]  # indices of its rows among those of the task
    correction: Correction


def for_passive(correction: Correction | None) -> Correction | None:
    """The correction for a plant's own constraints, which may be holonomic and nonholonomic."""
    return PassiveBaumgarte(correction.alpha, correction.beta) if isinstance(correction, Baumgarte) else correction


def assigned(
    rows: Sequence[Row], common: Correction | None, own: Mapping[str, Correction], field: str = "law.correction"
) -> list[tuple[str, Correction, list[int]]]:
    """Config key of each correction, the correction, and the indices of its rows; arguments as of `corrections_of`."""
    parts = [
        (f"task.{group}.correction", correction, [i for i, row in enumerate(rows) if row.group == group])
        for group, correction in own.items()
    ]
    rest = [i for i, row in enumerate(rows) if row.group not in own]
    return [*(part for part in parts if part[2]), *([] if common is None else [(field, common, rest)])]


def corrections_of(
    rows: Sequence[Row],
    common: Correction | None,
    own: Mapping[str, Correction],
    field: str = "law.correction",
) -> list[OfRows]:
    """The corrections with their numbers for each row; a row without one has gains of zero.

    Args:
        common: Correction of every row whose group has none of its own; None: gains of zero.
        own: Group -> its own correction, which replaces the common one.
        field: Config key of the common correction, for errors.

    Raises:
        TaskError: A correction does not fit a row, or belongs to an unknown task; the message names all of them.
    """
    groups = list(dict.fromkeys(row.group for row in rows))
    problems = [
        f"task.{wrong}.correction: there is no task '{wrong}' (tasks: {', '.join(groups) or 'none'})"
        for wrong in own
        if wrong not in groups
    ]
    found: list[OfRows] = []
    for key, correction, members in assigned(rows, common, own, field):
        if not isinstance(correction, Correction):
            problems.append(f"{key}: expected a correction such as Baumgarte(alpha=4, beta=4), got {correction!r}")
            continue
        own_rows = [rows[i] for i in members]
        try:
            ready = correction.ready(own_rows)
            gains = ready.gains(own_rows)
        except TaskError as error:
            problems += [f"{key}: {line}" for line in str(error).splitlines()]
            continue
        found += [OfRows(key.removeprefix("law."), tuple(members), ready)] if members else []
        for row, gain in zip(own_rows, gains, strict=True):
            if not all(0.0 <= value < math.inf for value in gain[:2]):
                problems.append(f"{key}: {row.name}: expected gains of at least 0, got damping and stiffness {gain}")
    if problems:
        raise TaskError("\n".join(problems))
    corrected = {i for part in found for i in part.members}
    bare = tuple(i for i in range(len(rows)) if i not in corrected)
    none = KnownGains.of([rows[i] for i in bare], [(0.0, 0.0)] * len(bare), "")
    return [*found, OfRows("correction", bare, none)] if bare else found


def sliding_error(task: Rows, i: int, has_rate: bool, sliding: Any) -> Any:
    """beta of a row: `violation rate + sliding violation`, or its violation where it has no rate."""
    return task.violation_rate[i] + sliding * task.violation[i] if has_rate else task.violation[i]


@dataclass(frozen=True)
class CorrectionTerm(AttachedTerm):
    """The corrections of an attached law."""

    rows: tuple[Row, ...]
    parts: tuple[OfRows, ...]

    label = ""

    @cached_property
    def every(self) -> list[tuple[Any, ...]]:
        """Damping, stiffness and the gains of the higher derivatives of each row."""
        gains: dict[int, tuple[Any, ...]] = {}
        for part in self.parts:
            gains |= zip(part.members, part.correction.gains([self.rows[i] for i in part.members]), strict=True)
        return [gains[i] for i in range(len(self.rows))]

    @property
    def damping(self) -> tuple[Any, ...]:
        """Of each row, on the rate of the error [1/s]."""
        return tuple(gain[0] for gain in self.every)

    @property
    def stiffness(self) -> tuple[Any, ...]:
        """Of each row, on the error [1/s^2], of a nonholonomic row [1/s]."""
        return tuple(gain[1] for gain in self.every)

    def feedback(self, i: int) -> RowFeedback:
        """That of a row."""
        row, (damping, stiffness, *higher) = self.rows[i], self.every[i]
        return RowFeedback(damping, stiffness, row.has_rate, tuple(higher[: max(0, row.degree - 2)]))

    def with_gains(self, gains: Sequence[tuple[float, ...]]) -> "CorrectionTerm":
        """The same rows with these gains."""
        parts = []
        for part in self.parts:
            rows, of = [self.rows[i] for i in part.members], [gains[i] for i in part.members]
            parts.append(replace(part, correction=KnownGains.of(rows, of, part.correction.label)))
        return replace(self, parts=tuple(parts))

    def decay(self, row: int, sliding: float) -> float:
        """kappa of a row [1/s]: without disturbances beta = phi' + sliding phi decays at this rate."""
        feedback = self.feedback(row)
        return feedback.damping - sliding if feedback.has_rate else feedback.stiffness

    def acceleration(self, at: Terms, memory: Array) -> Array:
        return self.of(at.task)

    def of(self, task: Rows) -> Array:
        """What it adds to b of its rows, shape (r,)."""
        added = list[Any]([0.0] * len(self.rows))
        for i, (row, (damping, stiffness, *higher)) in enumerate(zip(self.rows, self.every, strict=True)):
            if row.has_violation:
                added[i] = -stiffness * task.violation[i]
            if row.has_rate:
                added[i] = added[i] - damping * task.violation_rate[i]
            if row.degree > 2 and task.higher is not None:
                added[i] = added[i] - np.dot(higher, task.higher[i][: len(higher)])
        return np.array(added)
