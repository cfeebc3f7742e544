"""What the parts of a run are made for: a plant, the timing of the loop, and how the law gets to know the state.

Design: a run of a config and one from Python have the same context. Each of its facts is computed once, and then its
problems are noted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from servoctl.assembly.values import NO_SIGNALS, Problems
from servoctl.config.hil import Hil
from servoctl.config.load import LoadedConfig
from servoctl.errors import TaskError
from servoctl.estimation.estimator import Estimator
from servoctl.laws.barrier import EstimateErrors
from servoctl.laws.term import TermTimings
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.timing import Timing
from servoctl.reference.curve import Signal
from servoctl.simulation.realism import Channels, Realism
from servoctl.simulation.settings import Settings
from servoctl.simulation.system import System
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


@dataclass(frozen=True, eq=False)
class Context:
    """A plant and the sections that say how its loop runs."""

    plant: Plant
    run: Settings
    realism: Realism | None
    estimation: Estimator | None  # as written
    problems: Problems  # takes what is wrong
    signals: Mapping[str, Signal]  # columns of references, by name
    hil: Hil | None = None
    on_drives: bool = False  # whether the loop is that of `hil`; else of `run` and `realism`

    @classmethod
    def of(
        cls,
        loaded: LoadedConfig,
        plant: Plant,
        problems: Problems,
        signals: Mapping[str, Signal] = NO_SIGNALS,
        on_drives: bool = False,
    ) -> "Context":
        """The context of a config."""
        values = loaded.config
        return cls(plant, values.run, values.realism, values.estimation, problems, signals, values.hil, on_drives)

    @cached_property
    def channels(self) -> Channels | None:
        """Measurement and actuators of a simulated run; None: ideal ones."""
        if self.realism is None or self.run.period is None:
            return None
        return self.realism.ready(self.plant, self.run.period, self.problems)

    @cached_property
    def timing(self) -> Timing:
        """The timing of the loop."""
        if self.on_drives and self.hil is not None:
            return drives_timing(self.hil, self.plant)
        return Timing.of(self.run.period, self.plant.actuators) if self.channels is None else self.channels.timing

    @property
    def estimated(self) -> bool:
        """Whether an estimator gives the law its state."""
        measured = not self.on_drives and self.realism is not None and self.realism.measured == "q"
        return self.estimation is not None or measured

    @property
    def predicted(self) -> bool:
        """Whether the state that the law gets is that of the moment at which its command acts."""
        return self.estimated or (self.on_drives and self.hil is not None and self.hil.prediction)

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
        if self.hil is not None and (self.on_drives or self.run.period is None):
            of_drives = drives_timing(self.hil, self.plant)
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
        return (self.estimation or Estimator("difference")).ready(self.plant, noise, self.problems)

    @property
    def estimate_errors(self) -> EstimateErrors | None:
        """What is known of the errors of an estimator with a model; None without one."""
        estimator = self.estimator
        if self.estimation is None or estimator is None or estimator.kind != "model":
            return None
        names, h = list(self.plant.coordinates), self.timing.h
        try:
            gains = tuple((each.q, each.v, each.d) for each in estimator.gains(names, h))
        except TaskError:
            return None  # noted where the estimator is attached
        values = estimator.values(names, h)
        return EstimateErrors(h, self.timing.late, gains, tuple(values["disturbance"]), tuple(values["noise"]))

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
