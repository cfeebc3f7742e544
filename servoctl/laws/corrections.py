"""Corrections: terms added to b that pull a violated constraint back.

    Baumgarte(alpha, beta)                  phi'' + 2 alpha phi' + beta^2 phi = 0
    SecondOrderCorrection(damping, stiffness)   phi'' + damping phi' + stiffness phi = 0
    PFeedback(P)         nonholonomic       psi' = -psi / P
    PFeedback(P, rate)   holonomic          beta = phi' + rate phi,  beta' = -beta / P
    Poles(poles)         raised rows        (d/dt - p_1) ... (d/dt - p_r) y = 0

All of them come down to gains per row: `b - damping violation_rate - stiffness violation - ...`.

Source: Baumgarte 1972; Liu et al. 2015, III.B; Xu, Liu 2017, (52): alpha, beta there are damping and stiffness here;
Zhao et al. 2018, (72).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from servoctl.errors import TaskError
from servoctl.mechanics.model import Row

Gain = float | Sequence[float] | Mapping[str, Any]
"""One number for all rows, a list with one per row in task order, or a mapping by task name."""


def per_row(gain: Gain, rows: Sequence[Row], name: str) -> list[float]:
    """The gain of each row.

    Raises:
        TaskError: A list of the wrong length, or a mapping that misses or invents a task.
    """
    if isinstance(gain, (int, float)):
        return [float(gain)] * len(rows)
    if not isinstance(gain, Mapping):
        if len(gain) != len(rows):
            raise TaskError(f"{name}: expected one value per row, {len(rows)} in all, got {len(gain)}")
        return [float(value) for value in gain]
    groups = list(dict.fromkeys(row.group for row in rows))
    for wrong in [key for key in gain if key not in groups]:
        raise TaskError(f"{name}: there is no task '{wrong}' (tasks: {', '.join(groups) or 'none'})")
    values: list[float] = []
    for group in groups:
        if group not in gain:
            raise TaskError(f"{name}: no value for task '{group}' (give one, or one number for all)")
        values += per_row(gain[group], [row for row in rows if row.group == group], f"{name}.{group}")
    return values


class Correction(ABC):
    """How a violated row is pulled back."""

    label: ClassVar[str]

    @abstractmethod
    def gains(self, rows: Sequence[Row]) -> Sequence[tuple[float, ...]]:
        """(damping [1/s], stiffness [1/s^2]) of each row; stiffness [1/s] where a row has no violation rate.

        Where a row has higher derivatives, their gains follow, the second derivative's first.

        Raises:
            TaskError: The correction does not fit a row's kind; names the row and the correction that does.
        """

    def _needs_rate(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if not row.has_violation:
                raise TaskError(f"{row.name}: {self.label} needs a violation, a {row.kind} row has none (leave it out)")
            if not row.has_rate:
                raise TaskError(f"{row.name}: {self.label} does not fit a {row.kind} row (use p_feedback {{P}})")


@dataclass(frozen=True)
class Baumgarte(Correction):
    """`phi'' + 2 alpha phi' + beta^2 phi = 0`.

    Attributes:
        alpha: [1/s], at least 0.
        beta: [1/s], at least 0.
    """

    alpha: Gain
    beta: Gain
    label = "baumgarte"

    def gains(self, rows: Sequence[Row]) -> list[tuple[float, float]]:
        self._needs_rate(rows)
        pairs = zip(per_row(self.alpha, rows, "alpha"), per_row(self.beta, rows, "beta"), strict=True)
        return [(2.0 * alpha, beta**2) for alpha, beta in pairs]


@dataclass(frozen=True)
class SecondOrderCorrection(Correction):
    """`phi'' + damping phi' + stiffness phi = 0`.

    Attributes:
        damping: [1/s], at least 0.
        stiffness: [1/s^2], at least 0.
    """

    damping: Gain
    stiffness: Gain
    label = "second_order"

    def gains(self, rows: Sequence[Row]) -> list[tuple[float, float]]:
        self._needs_rate(rows)
        return list(
            zip(per_row(self.damping, rows, "damping"), per_row(self.stiffness, rows, "stiffness"), strict=True)
        )


@dataclass(frozen=True)
class PFeedback(Correction):
    """`beta' = -beta / P`, where beta is the velocity-level violation.

    Attributes:
        P: Time constant [s], above 0.
        rate: [1/s], for holonomic rows: beta = phi' + rate phi; 0 corrects the velocity alone.
    """

    P: Gain
    rate: Gain = 0.0
    label = "p_feedback"

    def gains(self, rows: Sequence[Row]) -> list[tuple[float, float]]:
        pairs: list[tuple[float, float]] = []
        common = isinstance(self.rate, (int, float)) and any(row.has_rate for row in rows)
        for row, P, rate in zip(rows, per_row(self.P, rows, "P"), per_row(self.rate, rows, "rate"), strict=True):
            if not P > 0.0:
                raise TaskError(f"{row.name}: p_feedback.P: expected a positive time [s], got {P:g}")
            if not row.has_violation:
                raise TaskError(f"{row.name}: p_feedback needs a violation, a {row.kind} row has none (leave it out)")
            if row.has_rate:
                pairs.append((rate + 1.0 / P, rate / P))
                continue
            if rate and not common:
                raise TaskError(f"{row.name}: p_feedback.rate does not fit a {row.kind} row (leave it out)")
            pairs.append((0.0, 1.0 / P))
        return pairs


@dataclass(frozen=True)
class Poles(Correction):
    """`(d/dt - p_1) ... (d/dt - p_r) y = 0`, r the row's relative degree.

    Attributes:
        poles: [1/s], all with a negative real part: one number for all poles of a row, or r of them; for all rows, a
            list with one entry per row in task order, or a mapping by task name.
    """

    poles: Any
    label = "poles"

    def gains(self, rows: Sequence[Row]) -> list[tuple[float, ...]]:
        result: list[tuple[float, ...]] = []
        for row, poles in zip(rows, self._per_row(rows), strict=True):
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
            stiffness, *rest = [float(c) for c in np.real(polynomial[:0:-1])]
            result.append((rest[0] if rest else 0.0, stiffness, *rest[1:]))
        return result

    def _per_row(self, rows: Sequence[Row]) -> list[Any]:
        """The poles of each row: a number, or a list."""
        groups = list(dict.fromkeys(row.group for row in rows))
        if isinstance(self.poles, Mapping):
            for wrong in [name for name in self.poles if name not in groups]:
                raise TaskError(f"poles: there is no task '{wrong}' (tasks: {', '.join(groups) or 'none'})")
            for name in [name for name in groups if name not in self.poles]:
                raise TaskError(f"poles: no value for task '{name}' (give one, or one number for all)")
            return [
                part
                for name in groups
                for part in Poles(self.poles[name])._per_row([r for r in rows if r.group == name])
            ]
        if not isinstance(self.poles, Sequence):
            return [self.poles] * len(rows)
        if len(rows) == 1 and not isinstance(self.poles[0], Sequence):
            return [self.poles]
        if len(self.poles) != len(rows):
            raise TaskError(f"poles: expected {len(rows)} entries, one per row, got {len(self.poles)}")
        return list(self.poles)


@dataclass(frozen=True)
class PassiveBaumgarte(Baumgarte):
    """Baumgarte's terms on a plant's own rows: on nonholonomic ones `psi' = -2 alpha psi`, the same decay."""

    def gains(self, rows: Sequence[Row]) -> list[tuple[float, float]]:
        pairs = zip(rows, per_row(self.alpha, rows, "alpha"), per_row(self.beta, rows, "beta"), strict=True)
        return [(2.0 * alpha, beta**2) if row.has_rate else (0.0, 2.0 * alpha) for row, alpha, beta in pairs]


def for_passive(correction: Correction | None) -> Correction | None:
    """The correction as it serves a plant's own constraints, which may be of both kinds."""
    return PassiveBaumgarte(correction.alpha, correction.beta) if isinstance(correction, Baumgarte) else correction


def resolve(
    rows: Sequence[Row],
    common: Correction | None,
    own: Mapping[str, Correction] | None = None,
    field: str = "law.correction",
) -> tuple[list[float], list[float]]:
    """Damping and stiffness of every row: a task's own correction before the common one; zero without any.

    Raises:
        TaskError: Names every row that its correction does not fit.
    """
    gains = resolve_all(rows, common, own, field)
    return [gain[0] for gain in gains], [gain[1] for gain in gains]


def resolve_all(
    rows: Sequence[Row],
    common: Correction | None,
    own: Mapping[str, Correction] | None = None,
    field: str = "law.correction",
) -> list[tuple[float, ...]]:
    """(damping, stiffness, gains of the higher derivatives from the second on) of every row.

    Args:
        rows: The rows.
        common: For every row whose group has none of its own; None: no correction.
        own: Group -> its own correction.
        field: Where the common one was given, for errors.

    Raises:
        TaskError: Names every row that its correction does not fit, and every correction of a task that is not there.
    """
    own = own or {}
    groups = list(dict.fromkeys(row.group for row in rows))
    problems = [
        f"task.{wrong}.correction: there is no task '{wrong}' (tasks: {', '.join(groups) or 'none'})"
        for wrong in own
        if wrong not in groups
    ]
    gains: dict[str, tuple[float, ...]] = dict.fromkeys((row.name for row in rows), (0.0, 0.0))
    parts = [
        (f"task.{group}.correction", own[group], [row for row in rows if row.group == group])
        for group in own
        if group in groups
    ]
    parts += [(field, common, [row for row in rows if row.group not in own])] if common is not None else []
    for place, correction, members in parts:
        if not isinstance(correction, Correction):
            problems.append(f"{place}: expected a correction such as Baumgarte(alpha=4, beta=4), got {correction!r}")
            continue
        try:
            found = correction.gains(members)
        except TaskError as error:
            problems += [f"{place}: {line}" for line in str(error).splitlines()]
            continue
        for row, gain in zip(members, found, strict=True):
            gains[row.name] = gain
            if not all(0.0 <= value < math.inf for value in gain[:2]):
                problems.append(f"{place}: {row.name}: expected gains of at least 0, got damping and stiffness {gain}")
    if problems:
        raise TaskError("\n".join(problems))
    return [gains[row.name] for row in rows]
