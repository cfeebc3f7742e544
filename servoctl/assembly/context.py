"""What the parts of a run are made for: a plant, the timing of the loop, and how the law gets to know the state.

Design: a run of a config and one from Python have the same context. Each of its facts is computed once, and then its
problems are noted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from servoctl.assembly.classes import changed_parameters
from servoctl.assembly.values import Problems
from servoctl.config.hil import Hil
from servoctl.config.plant import FlagOrAuto
from servoctl.config.schema import Config
from servoctl.errors import TaskError
from servoctl.estimation.estimator import Estimator
from servoctl.laws.barrier import EstimateErrors
from servoctl.laws.term import TermTimings
from servoctl.mechanics.friction import FIELDS, Friction, friction_of
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.timing import Timing
from servoctl.reference.curve import Signal
from servoctl.simulation.realism import Channels, Realism
from servoctl.simulation.settings import Settings
from servoctl.simulation.system import System
from servoctl.tree.fields import Real, Share
from servoctl.tree.rules import Section
from servoctl.types import State

FILTERED = 2.0  # [periods] default time constant of the velocity filter on drives

DRIVES_DELAY = 1  # [periods] from a measurement to the torque that uses it, on drives


def run_timing(system: System, settings: Settings) -> Timing:
    """The timing of a run in simulation."""
    if settings.period is None or system.realism is None:
        return Timing.of(settings.period, system.model.plant.actuators)
    return system.realism.timing


def drives_timing(hil: Hil, plant: Plant) -> Timing:
    """The timing on drives, with the lag of emulated ones."""
    filtered = (hil.velocity_filter or FILTERED * hil.period) if hil.velocity == "filter" else None
    late, lag = DRIVES_DELAY * hil.period, hil.emulation.current_lag
    return Timing.of(hil.period, plant.actuators, late, lag=lag, velocity_filter=filtered, on_drives=True)


class Call(Section):
    """The sections of a config in a call from Python."""

    run: Settings
    t: Real = 0.0
    projection: FlagOrAuto = "auto"
    realism: Realism | None = None
    estimation: Estimator | None = None
    passive_rank_tolerance: Share | None = None
    law: Any = None
    hil: None = None


@dataclass(frozen=True, eq=False)
class Context:
    """A plant and the sections that say how its loop runs."""

    plant: Plant
    values: Config | Call  # the sections, as written
    problems: Problems  # takes what is wrong
    signals: Mapping[str, Signal] = field(default_factory=dict)  # columns of references, by name
    on_drives: bool = False  # whether the loop is that of `hil`; else of `run` and `realism`

    @cached_property
    def channels(self) -> Channels | None:
        """Measurement and actuators of a simulated run; None: ideal ones."""
        realism, period = self.values.realism, self.values.run.period
        return None if realism is None or period is None else realism.ready(self.plant, period, self.problems)

    @cached_property
    def friction(self) -> Friction | None:
        """Friction at the actuators of a simulated run, unknown to the law; None: there is none."""
        realism = self.values.realism
        if realism is None or realism.friction is None or self.channels is None:
            return None
        return realism.friction.ready(self.plant, self.problems, "realism")

    @cached_property
    def simulated_parameters(self) -> dict[str, Any]:
        """Parameters of the simulated plant that the law takes for others."""
        if self.values.realism is None or self.channels is None:
            return {}
        errors, where = self.values.realism.parameter_error, ("realism", "parameter_error")
        changed = changed_parameters(self.plant, errors, self.problems, *where)
        if self.friction is not None and friction_of(self.plant) is not None:
            # realism.friction is all the friction that the simulated plant has
            changed |= {FIELDS[part]: (0.0,) * len(self.plant.actuators) for part in ("coulomb", "viscous")}
        return changed

    @cached_property
    def timing(self) -> Timing:
        """The timing of the loop."""
        if self.on_drives and self.values.hil is not None:
            return drives_timing(self.values.hil, self.plant)
        return self.channels.timing if self.channels else Timing.of(self.values.run.period, self.plant.actuators)

    @property
    def estimated(self) -> bool:
        """Whether an estimator gives the law its state."""
        realism = None if self.on_drives else self.values.realism
        return self.values.estimation is not None or (realism is not None and realism.measured == "q")

    @property
    def predicted(self) -> bool:
        """Whether the state that the law gets is that of the moment at which its command acts."""
        return self.estimated or (self.on_drives and self.values.hil is not None and self.values.hil.prediction)

    @property
    def seen(self) -> Timing:
        """The timing from the state that the law gets, as far as its model goes."""
        return self.timing.at_action if self.predicted else self.timing

    @property
    def terms(self) -> TermTimings:
        """The timing as each kind of term counts on it.

        A predicted state takes the delay back where the model is right, so corrections count on it in simulation alone.
        Corrections of a continuous law for drives know the timing of the drives.
        """
        observed = self.timing.at_action if self.estimated else self.timing
        if self.values.hil is not None and (self.on_drives or self.values.run.period is None):
            of_drives = drives_timing(self.values.hil, self.plant)
            return TermTimings(of_drives, of_drives, observed)
        return TermTimings(self.seen, self.timing, observed)

    @cached_property
    def estimator(self) -> Estimator | None:
        """The estimator of the loop, with a number per coordinate; None without one, or without a period."""
        if not self.estimated:
            return None
        if self.timing.period is None:
            self.problems.add("needs a sampled law (give run.period)", "estimation")
            return None
        noise = None if self.on_drives or self.channels is None else self.channels.deviation
        given = self.values.estimation or Estimator("difference")
        return given.ready(self.plant, noise, self.timing.h, self.problems)

    @property
    def estimate_errors(self) -> EstimateErrors | None:
        """What is known of the errors of an estimator with a model; None without one."""
        estimator = self.estimator
        if self.values.estimation is None or estimator is None or estimator.kind != "model":
            return None
        h, (noise, change, _) = self.timing.h, estimator.numbers
        try:
            gains = tuple((each.q, each.v, each.d) for each in estimator.gains(self.plant.coordinates, h))
        except TaskError:
            return None  # noted where the estimator is attached
        return EstimateErrors(h, self.timing.late, gains, change, noise)

    def estimating(self, system: System, start: State) -> System:
        """The system with the estimator; unchanged without one, or if there are problems, which are noted."""
        if self.estimator is None or system.law is None:
            return system
        passive = system.passive
        try:
            made = self.estimator.attach(system.model, start, self.timing, passive.rank_tolerance, passive.clearance)
        except TaskError as error:
            self.problems.add(str(error).removeprefix("estimation: "), "estimation")
            return system
        # on drives the resolution of each encoder replaces the noise after the loop is traced: weights stay parameters
        return replace(system, estimator=replace(made, even=made.even and not self.on_drives))
