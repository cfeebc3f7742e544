"""The timing of a config's loop, in simulation or on drives."""

from servoctl.assembly.values import Problems
from servoctl.config.hil import Hil
from servoctl.config.load import LoadedConfig
from servoctl.laws.term import TermTimings
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.timing import Timing
from servoctl.simulation.settings import Settings
from servoctl.simulation.system import System

FILTERED = 2.0  # [periods] default time constant of the velocity filter on drives

DRIVES_DELAY = 1  # [periods] from a measurement to the torque that uses it, on drives


def timing_of(loaded: LoadedConfig, plant: Plant, on_drives: bool) -> Timing:
    """The timing of a loop.

    Args:
        on_drives: Whether it is that of `hil`; else of `run` and `realism`.
    """
    run, realism, hil = loaded.config.run, loaded.config.realism, loaded.config.hil
    if on_drives and hil is not None:
        return drives_timing(hil, plant)
    if run.period is None or realism is None:
        return Timing.of(run.period, plant.actuators)
    # its problems are noted where the plant's realism is built
    return realism.ready(plant, run.period, Problems(loaded)).timing


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


def term_timings(loaded: LoadedConfig, plant: Plant, on_drives: bool) -> TermTimings:
    """The timing as each kind of term counts on it.

    A predicted state takes the delay back where the model is right, so corrections count on it in simulation alone.
    Corrections of a continuous law for drives know the timing of the drives.
    """
    timing = timing_of(loaded, plant, on_drives)
    seen = timing.at_action if estimated(loaded, on_drives) else timing
    if on_drives or loaded.config.run.period is None:
        of_drives = timing_of(loaded, plant, on_drives=True)
        return TermTimings(of_drives, of_drives, seen)
    return TermTimings(timing.at_action if predicted(loaded, on_drives) else timing, timing, seen)


def predicted(loaded: LoadedConfig, on_drives: bool) -> bool:
    """Whether the state that the law gets is that of the moment at which its command acts, as far as its model goes."""
    hil = loaded.config.hil
    return estimated(loaded, on_drives) or (on_drives and hil is not None and hil.prediction)


def estimated(loaded: LoadedConfig, on_drives: bool) -> bool:
    """Whether an estimator in the loop gives the law its state."""
    realism = loaded.config.realism
    measured = not on_drives and realism is not None and realism.measured == "q"
    return loaded.config.estimation is not None or measured
