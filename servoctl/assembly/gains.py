"""The gains of a run against its period or step: what they bear, and what would be wise.

Design: refused where the violation would grow, for then the run shows the period and not the law; warned about from
half of that on. A run made in Python, which may study just that, is warned only.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from servoctl.config.hil import Hil
from servoctl.config.load import LoadedConfig
from servoctl.laws.constraint_following import BoundConstraintFollowing
from servoctl.laws.gain_limits import growth, longest_spacing, poles
from servoctl.mechanics.model import Row
from servoctl.simulation.simulate import Settings
from servoctl.simulation.system import System

FILTERED = 2.0
"""Periods: the time constant of the drives' velocity filter, unless it is given."""

DRIVES_DELAY = 1
"""Cycles between a measurement on drives and the torque that answers it."""


@dataclass(frozen=True)
class Spacing:
    """How finely a correction acts.

    Attributes:
        field: Of the config.
        h: Period, or step of a law that acts continuously [s]; None: an adaptive method chooses.
        held: Whether the command is held over h.
        delay: Cycles between a measurement and the command that answers it.
        method: Integrator where the command is not held.
        lag: Time constant of the actuators, in cycles.
        velocity: Time constant of the filter that makes velocities of positions, in cycles; 0: they are measured.
    """

    field: str
    h: float | None
    held: bool
    delay: float = 0
    method: str = "rk4"
    lag: float = 0.0
    velocity: float = 0.0

    @classmethod
    def on_drives(cls, hil: Hil) -> "Spacing":
        """Of a loop on drives; a cycle late under `hil.prediction` too, which is as good as the model only."""
        tau = velocity_filter(hil) or 0.0
        return cls("hil.period", hil.period, held=True, delay=DRIVES_DELAY, velocity=tau / hil.period)

    def __str__(self) -> str:
        late = f", {self.delay:.3g} cycle{'s' * (self.delay > 1)} late" if self.delay else ""
        late += f", a lag of {self.lag:.3g}" if self.lag else ""
        late += f", velocities filtered by {self.velocity:.3g}" if self.velocity else ""
        return f"{self.word} of {self.h:g} s{late}" if self.h is not None else f"{self.method}, at its own steps"

    @property
    def word(self) -> str:
        """What h is."""
        return "period" if self.held else "step"


@dataclass(frozen=True)
class RowGains:
    """The correction of one row, at a spacing.

    Attributes:
        group: `task` or `passive`.
        row: The row.
        damping: [1/s].
        stiffness: [1/s^2], or [1/s] for a row without a violation rate.
        higher: Gains of the second and higher derivatives.
        spacing: How finely it acts.
    """

    group: str
    row: Row
    damping: float
    stiffness: float
    higher: tuple[float, ...]
    spacing: Spacing

    @property
    def longest(self) -> float:
        """The h from which the violation no longer decays [s]."""
        by = self.spacing
        return longest_spacing(
            self.damping,
            self.stiffness,
            self.row.has_rate,
            by.held,
            self.higher,
            by.delay,
            by.method,
            by.lag,
            by.velocity,
        )

    @property
    def margin(self) -> float | None:
        """`longest / h`: below 1 the violation grows; None without an h."""
        return None if self.spacing.h is None else self.longest / self.spacing.h

    def grows(self, h: float) -> bool:
        """Whether the violation does not decay at this h."""
        if not (self.damping or self.stiffness):
            return False
        by = self.spacing
        how = by.held, self.higher, by.delay, by.method, by.lag, by.velocity
        at = growth(self.damping, self.stiffness, self.row.has_rate, h, *how)
        return at >= 1.0 and h >= self.longest

    @property
    def growth(self) -> float | None:
        """Spectral radius of the violation's map over h: 1 at the limit; None without feedback, or without an h."""
        by = self.spacing
        if by.h is None or not (self.damping or self.stiffness):
            return None
        how = by.held, self.higher, by.delay, by.method, by.lag, by.velocity
        return growth(self.damping, self.stiffness, self.row.has_rate, by.h, *how)

    @property
    def problem(self) -> str | None:
        """Why it must not run; None where it may."""
        if self.spacing.h is None or not self.grows(self.spacing.h):
            return None
        bears = f"these gains bear {self.longest:.3g} s (shorten it, or lower the gains)"
        if not self.longest:
            bears = "these gains bear none (add damping)"
        return f"{self.group}.{self.row.name}: unstable: a {self.spacing}, {bears}"

    @property
    def warning(self) -> str | None:
        """What a person should know; None where there is nothing, or a problem."""
        h = self.spacing.h
        if h is None or not self.grows(2 * h) or self.problem is not None:
            return None
        bears = f"is over half of what the gains bear, {self.longest:.3g} s"
        return f"{self.group}.{self.row.name}: the {self.spacing} {bears}"

    @property
    def line(self) -> str:
        """Poles of the violation, and what they bear."""
        if not (self.damping or self.stiffness):
            return f"{self.row.name}: poles of the violation [1/s]: none: violations are not corrected"
        found = poles(self.damping, self.stiffness, self.row.has_rate, self.higher)
        line = f"{self.row.name}: poles of the violation [1/s]: {', '.join(f'{pole:.4g}' for pole in found)}"
        if not math.isfinite(self.longest):
            return line
        if self.margin is None:
            return f"{line}; {self.spacing.method} takes steps of {self.longest:.3g} s at the most"
        return f"{line}; bears a {self.spacing.word} of {self.longest:.3g} s, {self.margin:.3g} times what it is"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "damping": self.damping, "stiffness": self.stiffness, "higher": list(self.higher),
            "h": self.spacing.h, "delay": self.spacing.delay, "lag": self.spacing.lag,
            "velocity_filter": self.spacing.velocity,
            "longest": self.longest, "margin": self.margin,
        }  # fmt: skip


def task_spacing(system: System, settings: Settings) -> Spacing:
    """How finely the law of a run acts, and how late: a jitter by its mean, actuators by the slowest."""
    realism, period = system.realism, settings.period
    if period is None:
        return _step(settings)
    if realism is None:
        return Spacing("run.period", period, held=True)
    delay = (realism.delay + realism.jitter / 2) / period
    return Spacing("run.period", period, held=True, delay=delay, lag=max(realism.lag, default=0.0) / period)


def passive_spacing(settings: Settings) -> Spacing:
    """How finely a run stabilises the plant's own constraints, which acts within a hold as well."""
    return _step(settings)


def velocity_filter(hil: Hil) -> float | None:
    """Time constant of the filter that makes velocities of positions [s]; None where the drives tell them."""
    return (hil.velocity_filter or FILTERED * hil.period) if hil.velocity == "filter" else None


def drives_spacing(loaded: LoadedConfig) -> Spacing | None:
    """How finely the law acts on drives; None where the config has none."""
    hil = loaded.config.hil
    return None if hil is None else Spacing.on_drives(hil)


def _step(settings: Settings) -> Spacing:
    method, h = settings.integrator.method, None
    if method == "rk4":
        h = settings.integrator.step
        h = h if settings.period is None else settings.period / settings.integrator.substeps(settings.period)
    return Spacing("run.integrator.step", h, held=False, method=method)


def task_gains(system: System, spacing: Spacing) -> Iterator[RowGains]:
    """The law's corrections at a spacing; nothing where it has none."""
    law = system.law
    if isinstance(law, BoundConstraintFollowing):
        for i, row in enumerate(law.rows):
            yield RowGains("task", row, *law.gains(i), spacing)


def passive_gains(system: System, spacing: Spacing) -> Iterator[RowGains]:
    """The corrections of the plant's own constraints at a spacing."""
    for i, row in enumerate(system.model.passive_rows):
        yield RowGains("passive", row, *system.passive.gains(i), spacing)


def all_gains(system: System, settings: Settings) -> list[RowGains]:
    """Every correction of a run as it is simulated."""
    passive = passive_gains(system, passive_spacing(settings))
    return [*passive, *task_gains(system, task_spacing(system, settings))]
