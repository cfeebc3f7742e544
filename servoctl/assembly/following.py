"""How late and how far the actuators follow the commands, as far as a config says."""

from typing import NamedTuple

from servoctl.assembly.gains import DRIVES_DELAY
from servoctl.assembly.realism import build_realism
from servoctl.assembly.values import Problems
from servoctl.config.load import LoadedConfig
from servoctl.mechanics.plant import Plant
from servoctl.simulation.realism import Realism


class Following(NamedTuple):
    """What observers and estimators know about the actuators."""

    period: float  # [s] period of the law
    delay: float = 0.0  # [s] from the measurement to the torque
    lag: float | tuple[float, ...] = 0.0  # [s] time constant per actuator
    # lower, upper: limits per actuator
    lower: float | tuple[float, ...] = float("-inf")
    upper: float | tuple[float, ...] = float("inf")
    engaged: bool = False  # whether the actuators give the first command before the first tick


def following(loaded: LoadedConfig, plant: Plant, on_drives: bool) -> Following | None:
    """What is known; None without a period.

    Args:
        loaded: The config.
        plant: The plant.
        on_drives: Whether period, delay and lag are those of `hil`; else `run.period`, and the delay, lag and
            saturation of `realism`.
    """
    run, realism, hil = loaded.config.run, loaded.config.realism, loaded.config.hil
    if on_drives and hil is not None:
        return Following(hil.period, DRIVES_DELAY * hil.period, hil.emulation.current_lag, engaged=True)
    if run.period is None:
        return None
    if realism is None:
        return Following(run.period)
    # its problems are noted where the plant's realism is built
    return known_of(build_realism(realism, plant, run.period, Problems(loaded)))


def known_of(realism: Realism) -> Following:
    """What is known of simulated actuators."""
    late = realism.delay + realism.jitter / 2.0
    return Following(realism.period, late, realism.lag, realism.lower, realism.upper)


def predicted(loaded: LoadedConfig, on_drives: bool) -> bool:
    """Whether the state that the law gets is that of the moment at which its command acts, as far as its model goes."""
    config = loaded.config
    if config.estimation is not None:
        return True
    if on_drives:
        return config.hil is not None and config.hil.prediction
    return config.realism is not None and config.realism.measured == "q"


def of_bounds(acts: Following, predicted: bool) -> Following:
    """What bounds know of the actuators.

    Args:
        acts: How they follow.
        predicted: Whether the state that the law gets is already that of the moment at which its command acts.
    """
    return acts._replace(delay=0.0) if predicted else acts
