"""Are the gains of a run stable at its period or step, and how far are they from the limit?

Design: this is the one place that compares gains with a period; the limit itself is computed in `laws.gain_limits`. An
unstable violation is an error, because such a run shows its period and not its law. From half of the limit on there is
a warning.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from servoctl.config.hil import Hil
from servoctl.config.load import LoadedConfig
from servoctl.laws.bound_following import BoundConstraintFollowing
from servoctl.laws.gain_limits import CommandPath, RowFeedback, growth, longest_spacing, overshoot
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.terms import assemble
from servoctl.simulation.internal_dynamics import poles_text
from servoctl.simulation.realism import Realism
from servoctl.simulation.settings import Settings
from servoctl.simulation.system import System

FILTERED = 2.0  # [periods] default time constant of the velocity filter on drives

STATES, REACHED = 6, 1e-9
"""States at which actuators are tried on the rows; share of the scale of `A Phi B` above which one moves a row."""

DRIVES_DELAY = 1  # [cycles] delay on drives from a measurement to the torque that uses it


@dataclass(frozen=True)
class Spacing:
    """How often a correction acts, and how late."""

    field: str  # field of the config that sets h
    h: float | None  # period, or step if the law acts continuously [s]; None if an adaptive method chooses its steps
    held: bool  # whether the command is held over h (zero-order hold)
    delay: float = 0  # [cycles] delay from a measurement to the command that uses it
    method: str = "rk4"  # integrator, where the command is not held
    lag: float = 0.0  # [cycles] time constant of the actuators
    # time constant of the filter that differentiates positions [cycles]; 0 if velocities are measured
    velocity: float = 0.0

    @classmethod
    def on_drives(cls, hil: Hil) -> "Spacing":
        """Spacing of the loop on drives, with the lag of emulated ones.

        The delay of one cycle counts under `hil.prediction` too: a prediction is only as good as its model.
        """
        h, tau, lag = hil.period, velocity_filter(hil) or 0.0, hil.emulation.current_lag
        return cls("hil.period", h, held=True, delay=DRIVES_DELAY, lag=lag / h, velocity=tau / h)

    @classmethod
    def simulated(cls, realism: Realism | None, period: float, predicted: bool) -> "Spacing":
        """Spacing of a law that is simulated with a period; the slowest actuator counts, and the longest delay.

        Args:
            realism: The actuators; None: ideal ones.
            period: Of the law [s].
            predicted: Whether an estimator gives the law the state at which its command begins to act.
        """
        if realism is None:
            return cls("run.period", period, held=True)
        delay = 0.0 if predicted else realism.longest_delay / period
        return cls("run.period", period, held=True, delay=delay, lag=max(realism.lag, default=0.0) / period)

    @property
    def path(self) -> CommandPath:
        """How the feedback of a row acts."""
        return CommandPath(self.held, self.delay, self.lag, self.velocity, self.method)

    def longest(self, feedback: RowFeedback) -> float:
        """Longest h at which a violation with this feedback still decays [s]."""
        return longest_spacing(feedback, self.path)

    def __str__(self) -> str:
        if self.h is None:
            return f"{self.method}, which chooses its steps"
        parts = [f"delay {_cycles(self.delay)}"] if self.delay else []
        parts += [f"lag {_cycles(self.lag)}"] if self.lag else []
        parts += [f"velocity filter {_cycles(self.velocity)}"] if self.velocity else []
        return f"{self.word} of {self.h:g} s" + (f" ({', '.join(parts)})" if parts else "")

    @property
    def word(self) -> str:
        """`period` or `step`."""
        return "period" if self.held else "step"


@dataclass(frozen=True)
class RowGains:
    """The correction of one row at a spacing."""

    group: str  # `task` or `passive`
    row: Row
    damping: float  # [1/s]
    stiffness: float  # [1/s^2], or [1/s] for a row without a violation rate
    higher: tuple[float, ...]  # gains of the second and higher derivatives
    spacing: Spacing  # how often it acts, and how late
    part: str = ""  # of a correction whose gain varies, the part that these gains belong to; empty: the only one

    @property
    def name(self) -> str:
        """Name of the row, and of the part of its correction."""
        return f"{self.row.name}{self.part}"

    @property
    def feedback(self) -> RowFeedback:
        """The gains with what the row has."""
        return RowFeedback(self.damping, self.stiffness, self.row.has_rate, self.higher)

    @property
    def longest(self) -> float:
        """Longest h at which the violation still decays [s]."""
        return self.spacing.longest(self.feedback)

    @property
    def margin(self) -> float | None:
        """`longest / h`; below 1 the violation grows. None without an h."""
        return None if self.spacing.h is None else self.longest / self.spacing.h

    @property
    def overshoot(self) -> float:
        """How far the violation swings past zero after a step, relative to the step."""
        return overshoot(self.feedback, self.spacing.path, self.spacing.h)

    @property
    def growth(self) -> float | None:
        """Spectral radius of the violation's map over h: 1 at the limit; None without feedback, or without an h."""
        return None if self.spacing.h is None or not self.corrects else self._growth(self.spacing.h)

    @property
    def corrects(self) -> bool:
        """Whether there is any feedback."""
        return bool(self.damping or self.stiffness)

    def _growth(self, h: float) -> float:
        return growth(self.feedback, self.spacing.path, h)

    def _grows(self, h: float) -> bool:
        # `growth` is 1 at the limit up to rounding, so a marginal h needs both figures to say that it is too long
        return self.corrects and self._growth(h) >= 1.0 and h >= self.longest

    @property
    def problem(self) -> str | None:
        """Why the run must be refused; None if it may run."""
        by = self.spacing
        if by.h is None or not self._grows(by.h):
            return None
        limit = f"these gains are stable up to a {by.word} of {_time(self.longest)} (shorten it, or lower the gains)"
        if not self.longest:
            limit = f"these gains are unstable at every {by.word} (add damping)"
        return f"{self.group}.{self.name}: unstable at a {by}: {limit}"

    @property
    def warning(self) -> str | None:
        """A warning if h is more than half of the limit; None if it is less, or if there is a problem."""
        by = self.spacing
        if by.h is None or not self._grows(2 * by.h) or self.problem is not None:
            return None
        limit = f"more than half of the longest stable {by.word}, {_time(self.longest)}"
        return f"{self.group}.{self.name}: the {by} is {limit}"

    @property
    def line(self) -> str:
        """Poles of the violation, and the longest stable period or step."""
        if not self.corrects:
            return f"{self.name}: no correction: task errors do not decay"
        line = f"{self.name}: poles of the task error [1/s]: {poles_text(self.feedback.poles)}"
        if not math.isfinite(self.longest):
            return line
        if self.margin is None:
            return f"{line}; stable for {self.spacing.method} up to steps of {_time(self.longest)}"
        return f"{line}; stable up to a {self.spacing.word} of {_time(self.longest)} ({self.margin:.3g} times yours)"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "damping": self.damping, "stiffness": self.stiffness, "higher": list(self.higher),
            "h": self.spacing.h, "delay": self.spacing.delay, "lag": self.spacing.lag,
            "velocity_filter": self.spacing.velocity,
            "longest": self.longest, "margin": self.margin,
        }  # fmt: skip


def _cycles(number: float) -> str:
    return f"{number:.3g} cycle{'s' * (number > 1)}"


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 0.1 else f"{seconds:.3g} s"


def gain_share(gains: Iterable[RowGains]) -> float:
    """Largest `h / longest` of some corrections: 1 at the limit of stability; 0 without feedback or without an h."""
    margins = [gain.margin for gain in gains]
    return max((1.0 / margin if margin else math.inf for margin in margins if margin is not None), default=0.0)


def task_spacing(system: System, settings: Settings) -> Spacing:
    """Spacing of the law in a simulated run."""
    if settings.period is None:
        return _step(settings)
    return Spacing.simulated(system.realism, settings.period, predicted=system.estimator is not None)


def passive_spacing(settings: Settings) -> Spacing:
    """Spacing of the passive corrections in a simulated run; they act at every step, within a hold as well."""
    return _step(settings)


def velocity_filter(hil: Hil) -> float | None:
    """Time constant of the filter that differentiates positions [s]; None if the drives measure velocities."""
    return (hil.velocity_filter or FILTERED * hil.period) if hil.velocity == "filter" else None


def drives_spacing(loaded: LoadedConfig) -> Spacing | None:
    """Spacing of the law on drives; None if the config has no `hil`."""
    hil = loaded.config.hil
    return None if hil is None else Spacing.on_drives(hil)


def _step(settings: Settings) -> Spacing:
    method, h = settings.integrator.method, None
    if method == "rk4":
        h = settings.integrator.step
        h = h if settings.period is None else settings.period / settings.integrator.substeps(settings.period)
    return Spacing("run.integrator.step", h, held=False, method=method)


def task_gains(system: System, spacing: Spacing) -> Iterator[RowGains]:
    """Corrections of the task rows at a spacing; none for laws without gains."""
    law = system.law
    if isinstance(law, BoundConstraintFollowing):
        spacings = _of_rows(system, spacing)
        for i, row in enumerate(law.rows):
            yield RowGains("task", row, *law.gains(i), spacings[i])
        for i, damping, stiffness in law.steepest_gains:
            yield RowGains("task", law.rows[i], damping, stiffness, (), spacings[i], " at the edge of its funnel")


def _of_rows(system: System, spacing: Spacing) -> list[Spacing]:
    """The spacing of each task row: in a simulated run with the largest lag of the actuators that move the row."""
    count, realism = len(system.model.task_rows), system.realism
    if spacing.field != "run.period" or spacing.h is None or realism is None or len(set(realism.lag)) < 2:
        return [spacing] * count
    model, moved = system.model, np.zeros((count, system.model.m), dtype=bool)
    for state in (model.around, *model.samples(model.around, STATES - 1)):
        at = assemble(state, model.matrices(state), system.passive.rank_tolerance)
        if at.finite and at.positive:
            moved |= np.abs(at.task_map) > REACHED * at.scale
    lags = [max((lag for lag, acts in zip(realism.lag, row, strict=True) if acts), default=0.0) for row in moved]
    return [replace(spacing, lag=lag / spacing.h) for lag in lags]


def passive_gains(system: System, spacing: Spacing) -> Iterator[RowGains]:
    """Corrections of the passive rows at a spacing."""
    for i, row in enumerate(system.model.passive_rows):
        yield RowGains("passive", row, *system.passive.gains(i), spacing)


def all_gains(system: System, settings: Settings) -> list[RowGains]:
    """Every correction of a simulated run, passive rows first."""
    passive = passive_gains(system, passive_spacing(settings))
    return [*passive, *task_gains(system, task_spacing(system, settings))]
