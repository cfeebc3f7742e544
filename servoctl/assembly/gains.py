"""Are the gains of a run stable at its period or step, and how far are they from the limit?

Design: this is the one place that compares gains with a period; the limit itself is computed in `laws.hold`. An
unstable violation is an error, because such a run shows its period and not its law. From half of the limit on there is
a warning.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from servoctl.assembly.context import drives_timing, run_timing
from servoctl.config.hil import Hil
from servoctl.errors import Finding, Severity
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.laws.hold import RowFeedback, growth, longest_spacing, overshoot
from servoctl.laws.secondary import SecondaryTerm
from servoctl.laws.user_code import AttachedOwnTerm
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.timing import Timing
from servoctl.simulation.internal_dynamics import poles_text
from servoctl.simulation.settings import Settings
from servoctl.simulation.system import System

STATES = 6  # number of states at which actuators are tried on rows: the start, and states near it
REACHED = 1e-9  # an actuator moves a row if it exceeds this times the scale of `A Phi B`


@dataclass(frozen=True)
class Spacing:
    """How often a correction acts, and how late."""

    field: str  # field of the config that sets h
    timing: Timing  # of the loop; without a period the correction acts at every step of the method
    step: float | None = None  # [s] of a method with a fixed step, for a correction without a period
    method: str = "rk4"  # integrator, where the command is not held

    @property
    def held(self) -> bool:
        """Whether the command is held over h (zero-order hold)."""
        return self.timing.period is not None

    @property
    def h(self) -> float | None:
        """Period, or step if the law acts continuously [s]; None if an adaptive method chooses its steps."""
        return self.step if self.timing.period is None else self.timing.period

    @property
    def cycles(self) -> dict[str, float]:
        """Longest delay, largest lag and velocity filter [periods]."""
        at = self.timing.at(1.0)
        return {"delay": at.longest_delay, "lag": at.slowest, "velocity_filter": at.velocity_filter or 0.0}

    def longest(self, feedback: RowFeedback) -> float:
        """Longest h at which a violation with this feedback still decays [s]; infinite for an adaptive method."""
        return math.inf if self.h is None else longest_spacing(feedback, self.timing)

    def __str__(self) -> str:
        if self.h is None:
            return f"{self.method}, which chooses its steps"
        parts = [f"{name.replace('_', ' ')} {_cycles(number)}" for name, number in self.cycles.items() if number]
        if self.timing.jitter:
            parts[0] = parts[0].replace("delay", f"delay {self.timing.extremes[0].at(1.0).delay:.3g} to")
        return f"{self.word} of {self.h:g} s" + (f" ({', '.join(parts)})" if parts else "")

    @property
    def word(self) -> str:
        """`period` or `step`."""
        return "period" if self.held else "step"


@dataclass(frozen=True)
class RowGains:
    """The correction of one row at a spacing."""

    group: str  # `task`, `passive`, or `law` for a damping of speeds
    row: Row
    feedback: RowFeedback
    spacing: Spacing  # how often it acts, and how late
    part: str = ""  # of a correction whose gain varies, the part that these gains belong to; empty: the only one
    seldom: bool = False  # whether it acts only where the task cannot be met: no reason to refuse a run

    @property
    def name(self) -> str:
        """Name of the row, and of the part of its correction."""
        return f"{self.row.name}{self.part}"

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
        return overshoot(self.feedback, self.spacing.timing)

    @property
    def growth(self) -> float | None:
        """Spectral radius of the violation's map over h: 1 at the limit; None without feedback, or without an h."""
        return None if self.spacing.h is None or not self.feedback.corrects else self._growth(self.spacing.h)

    def _growth(self, h: float) -> float:
        return growth(self.feedback, self.spacing.timing, h)

    def _grows(self, h: float) -> bool:
        # `growth` is 1 at the limit up to rounding, so a marginal h needs both figures to say that it is too long
        return self.feedback.corrects and self._growth(h) >= 1.0 and h >= self.longest

    @property
    def problem(self) -> Finding | None:
        """Why the run must be refused; None if it may run."""
        return None if self.seldom else self._unstable("error")

    def _unstable(self, severity: Severity) -> Finding | None:
        by = self.spacing
        if by.h is None or not self._grows(by.h):
            return None
        limit = f"these gains are stable up to a {by.word} of {_time(self.longest)} (shorten it, or lower the gains)"
        if not self.longest:
            limit = f"these gains are unstable at every {by.word} (add damping)"
        return Finding(f"{self.group}.{self.name}", f"unstable at a {by}: {limit}", severity)

    @property
    def warning(self) -> Finding | None:
        """A warning if h is more than half of the limit; None if it is less, or if there is a problem."""
        by = self.spacing
        if by.h is None or not self._grows(2 * by.h) or self.problem is not None:
            return None
        if self.seldom and (found := self._unstable("warning")):
            return found
        limit = f"more than half of the longest stable {by.word}, {_time(self.longest)}"
        return Finding(f"{self.group}.{self.name}", f"the {by} is {limit}")

    @property
    def _error(self) -> str:
        return {"task": "task error", "passive": "constraint error", "law": "damped speed"}[self.group]

    @property
    def line(self) -> str:
        """Poles of the violation, and the longest stable period or step."""
        if not self.feedback.corrects:
            return f"{self.name}: no correction: the {self._error} does not decay"
        line = f"{self.name}: poles of the {self._error} [1/s]: {poles_text(self.feedback.poles)}"
        if self.margin is None or not math.isfinite(self.longest):
            return line
        return f"{line}; stable up to a {self.spacing.word} of {_time(self.longest)} ({self.margin:.3g} times yours)"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "damping": self.feedback.damping, "stiffness": self.feedback.stiffness,
            "higher": list(self.feedback.higher),
            "h": self.spacing.h, **self.spacing.cycles,
            "longest": self.longest, "margin": self.margin,
        }  # fmt: skip


def _cycles(number: float) -> str:
    return f"{number:.3g} cycle{'s' * (number > 1)}"


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 0.1 else f"{seconds:.3g} s"


def gain_share(gains: Iterable[RowGains]) -> float:
    """Largest `h / longest` of some corrections: 1 at the limit of stability; 0 without feedback or without an h."""
    margins = [gain.margin for gain in gains if not gain.seldom]
    return max((1.0 / margin if margin else math.inf for margin in margins if margin is not None), default=0.0)


def task_spacing(system: System, settings: Settings) -> Spacing:
    """Spacing of the law in a simulated run."""
    if settings.period is None:
        return passive_spacing(settings)
    timing = run_timing(system, settings)
    return Spacing("run.period", timing if system.estimator is None else timing.at_action)


def passive_spacing(settings: Settings) -> Spacing:
    """Spacing of the passive corrections in a simulated run; they act at every step, within a hold as well."""
    integrator = settings.integrator
    return Spacing("run.integrator.step", Timing(None), integrator.spacing(settings.period), integrator.method)


def drives_spacing(hil: Hil | None, plant: Plant) -> Spacing | None:
    """Spacing of the law on drives; None without the section `hil`.

    The delay of one cycle counts under `hil.prediction` too: a prediction is only as good as its model.
    """
    return None if hil is None else Spacing("hil.period", drives_timing(hil, plant))


def task_gains(system: System, spacing: Spacing) -> Iterator[RowGains]:
    """Corrections of the task rows at a spacing; none for laws without gains."""
    law = system.following
    if law is not None:
        spacings = _of_rows(system, spacing)
        for i, row in enumerate(law.rows):
            yield RowGains("task", row, law.correction.feedback(i), spacings[i])
        for i, feedback in () if law.funnel is None else law.funnel.steepest.items():
            yield RowGains("task", law.rows[i], feedback, spacings[i], " at the edge of its funnel")
        yield from _damping_of_speeds(system.model, law, spacing) if law.damps else ()


def _damping_of_speeds(model: Model, law: AttachedConstraintFollowing, spacing: Spacing) -> Iterator[RowGains]:
    """What damps speeds and no row, at the start; the speed that it slows most decays like a row without a rate."""
    at = model.terms(model.around, law.passive_rank_tolerance)
    if not at.sound:
        return
    for field, rates in law.damping_rates(at).items():
        row = Row(field, field, "nonholonomic", has_violation=True, has_rate=False, degree=1)
        slowed = RowFeedback(0.0, max(0.0, float(rates.max(initial=0.0))), has_rate=False)
        yield RowGains("law", row, slowed, spacing, seldom=field == "damping")


def _of_rows(system: System, spacing: Spacing) -> list[Spacing]:
    """The spacing of each task row: in a simulated run with the largest lag of the actuators that move the row."""
    count, timing = len(system.model.task_rows), spacing.timing
    if spacing.field != "run.period" or len(set(timing.lag)) < 2:
        return [spacing] * count
    model, moved = system.model, np.zeros((count, system.model.m), dtype=bool)
    for at in model.sound_terms(model.near(model.around, STATES - 1), system.passive.rank_tolerance):
        moved |= np.abs(at.task_map) > REACHED * at.scale
    lags = [tuple((np.array(timing.lag) * acts).tolist()) for acts in moved]
    return [replace(spacing, timing=replace(timing, lag=lag)) for lag in lags]


def drives_gains(system: System, hil: Hil | None) -> list[RowGains]:
    """Corrections of the task rows on drives; none without the section `hil`."""
    spacing = drives_spacing(hil, system.model.plant)
    return [] if spacing is None else list(task_gains(system, spacing))


def passive_gains(system: System, settings: Settings) -> Iterator[RowGains]:
    """Corrections of the passive rows in a simulated run."""
    spacing, correction = passive_spacing(settings), system.passive.correction
    for i, row in enumerate(system.model.passive_rows):
        yield RowGains("passive", row, correction.feedback(i), spacing)


def all_gains(system: System, settings: Settings) -> list[RowGains]:
    """Every correction of a simulated run, passive rows first."""
    return [*passive_gains(system, settings), *task_gains(system, task_spacing(system, settings))]


def has_unknown_gains(system: System) -> bool:
    """Whether the law has a class or a function of the user's that acts on the state: its gains are not among these."""
    law = system.following
    if law is None:
        return system.law is not None
    secondary = law.term(SecondaryTerm)
    return law.term(AttachedOwnTerm) is not None or (secondary is not None and secondary.null_space is not None)
