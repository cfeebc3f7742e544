"""Whether a machine may be in its start pose, and what holds it there."""

import numpy as np

from hil.assembly.settings import HilSettings
from hil.sensing import GravityCompensation, StaticBalance, falls_without_torque
from servoctl.config.load import LoadedConfig
from servoctl.errors import ConfigError
from servoctl.mechanics.model import Model
from servoctl.types import Array, State


def check_limits(loaded: LoadedConfig, settings: HilSettings, displacements: Array) -> None:
    """Refuses a start pose that is beyond the position limits of a drive.

    Args:
        loaded: The config.
        settings: What it says of the rig.
        displacements: Of the drives at the start pose, in the plant's order, then of whatever else [joint unit].

    Raises:
        ConfigError: It is.
    """
    order, problems = [drive.actuator for drive in settings.values.drives], []
    for drive, there in zip(settings.drives, displacements, strict=False):
        lower, upper = drive.position_limits
        if not lower <= there <= upper:
            where = loaded.where("hil", "drives", order.index(drive.name), "position_limits")
            what = f"the start pose puts {drive.name} at {there:.4g}, beyond {lower:.4g} to {upper:.4g}"
            problems.append(f"{where}: {what} (correct one of them; a motor's zero goes under 'offset')")
    if problems:
        raise ConfigError(problems)


def check_fall(
    loaded: LoadedConfig,
    settings: HilSettings,
    model: Model,
    holding: GravityCompensation,
    start: State,
    tolerance: float,
    fall: StaticBalance,
) -> str:
    """What holds a machine that falls without torque.

    Raises:
        ConfigError: Nothing does.
    """
    where = loaded.where("hil", "drives")
    falling = (
        f"without torque the machine falls from its start pose ({fall.coordinate}: {fall.acceleration:.3g} per s^2)"
    )
    braked = [i for i, drive in enumerate(settings.drives) if drive.brake]
    left = falls_without_torque(model, start.t, start.q, tolerance, braked)
    if left.falls:
        free = ", ".join(drive.name for drive in settings.drives if not drive.brake)
        still = f"; with its brakes closed {left.coordinate} still does" if braked else ""
        raise ConfigError(
            f"{where}: {falling}{still}; without a brake: {free} (declare brake: true where there is one)"
            if free
            else f"{where}: {falling}{still} (no motor brakes it: take a start pose that holds by itself)"
        )
    hold = holding(start.t, start.q)
    if not hold.holds:
        raise ConfigError(f"{where}: {falling}, and its motors cannot hold it there (take another start pose)")
    return f"{falling}: its brakes hold it, then {np.abs(hold.u).max():.3g} at most from its motors"
