"""Whether the start pose is allowed, what holds the machine there, and how its drives brake by themselves."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hil.assembly.settings import HilSettings
from hil.drives.base import Drive
from hil.safety.pose_hold import Guiding
from hil.sensing.gravity import GravityCompensation, Hold, StaticBalance, falls_without_torque
from servoctl.config.hil import Safety
from servoctl.config.load import LoadedConfig
from servoctl.errors import ConfigError
from servoctl.mechanics.model import Model
from servoctl.types import Array, State


def check_limits(loaded: LoadedConfig, settings: HilSettings, displacements: Array, units: Sequence[str]) -> None:
    """Refuses a start pose beyond the position limits of a drive.

    Args:
        loaded: The config.
        settings: Its rig.
        displacements: Displacements at the start pose: of the drives in the plant's order, then of encoders [joint
            unit].
        units: Their units.

    Raises:
        ConfigError: A drive would start beyond its limits.
    """
    order, problems = [drive.actuator for drive in settings.values.drives], []
    for drive, position, unit in zip(settings.drives, displacements, units, strict=False):
        lower, upper = drive.position_limits
        if not lower <= position <= upper:
            where = loaded.where("hil", "drives", order.index(drive.name), "position_limits")
            problems.append(
                f"{where}: {drive.name} is at {position:.4g} {unit} in the start pose, outside {lower:.4g} to "
                f"{upper:.4g} {unit} (correct the pose or the limits; 'offset' is the motor's zero)"
            )
    if problems:
        raise ConfigError(problems)


def check_fall(
    loaded: LoadedConfig,
    settings: HilSettings,
    model: Model,
    compensation: GravityCompensation,
    start: State,
    tolerance: float,
    balance: StaticBalance,
) -> str:
    """A note on what holds a machine that falls without torque.

    Args:
        loaded: The config.
        settings: Its rig.
        model: The plant.
        compensation: Torques that hold a pose.
        start: Start pose.
        tolerance: Rank tolerance of the passive constraints.
        balance: How the machine falls.

    Raises:
        ConfigError: Neither brakes nor motors hold it.
    """
    where = loaded.where("hil", "drives")
    falls = (
        "without torque the machine falls from its start pose "
        f"({balance.coordinate}: {balance.acceleration:.3g} {model.plant.coordinates[balance.coordinate] or '1'}/s^2)"
    )
    braked = [i for i, drive in enumerate(settings.drives) if drive.brake]
    with_brakes = falls_without_torque(model, start.t, start.q, tolerance, braked)
    if with_brakes.falls:
        free = ", ".join(drive.name for drive in settings.drives if not drive.brake)
        still = f"; with its brakes closed {with_brakes.coordinate} still falls" if braked else ""
        raise ConfigError(
            f"{where}: {falls}{still}; without a brake: {free} (set brake: true where the motor has one)"
            if free
            else f"{where}: {falls}{still} (no brake can hold it: choose a start pose that holds by itself)"
        )
    hold = compensation(start.t, start.q)
    if not hold.holds:
        raise ConfigError(f"{where}: {falls}, and its motors cannot hold it there (choose another start pose)")
    strongest = int(np.abs(hold.u).argmax())
    unit = list(model.plant.actuators.values())[strongest]
    return f"{falls}: its brakes hold it, then its motors with at most {abs(hold.u[strongest]):.3g} {unit}"


HEADROOM = 1.5  # while a hand guides, each drive may make at least this times the torque that holds the start pose

GRIP = 0.005
"""Torque at which the machine gives way to a hand [share of torque_limit]; two steps of the torque if that is more."""


def guiding_of(safety: Safety, drives: Sequence[Drive], held: Array) -> Guiding:
    """How a machine feels in the hand.

    Args:
        safety: Section `hil.safety` of the config.
        drives: In the order of the plant's actuators.
        held: Torques that hold the start pose [actuator units].
    """
    limits, grip = [], []
    for drive, torque in zip(drives, held.tolist(), strict=True):
        largest = drive.settings.torque_limit
        limits.append(min(largest, max(safety.float_torque * largest, HEADROOM * abs(torque))))
        grip.append(max(GRIP * largest, 2.0 * drive.quantum()[2]))
    return Guiding(safety.float_damping, limits, grip)


SHARE = 0.5  # part of what gravity leaves of each torque limit that a ramp uses: the inertia differs from pose to pose
FASTEST_STOP = 0.02  # shortest time from all speed limits to standstill [s]: a ramp of fewer samples is a blow
SLOWEST_STOP = 1.0  # longest such time [s]: a drive that needs longer brakes with all its torque


@np.errstate(over="ignore")  # a torque limit may be tiny
def with_decelerations(settings: HilSettings, start: Hold) -> HilSettings:
    """The rig with the deceleration of each drive; all drives take the same time from their speed limits to rest.

    With that time T each motor i needs the torque sum_j |W_ij| v_j / T at the start pose while all brake at once.

    Args:
        settings: The rig.
        start: What holds the start pose, and the inertia W that the motors see there.
    """
    speeds = np.array([drive.speed_limit for drive in settings.drives])
    limits = np.array([drive.torque_limit for drive in settings.drives])
    left = SHARE * (limits - np.abs(start.u))
    if not (left > 0.0).all():
        return settings
    time = float(np.max(np.abs(start.inertia) @ speeds / left))
    if not np.isfinite(time):
        return settings
    time = min(SLOWEST_STOP, max(FASTEST_STOP, time))
    drives = tuple(replace(drive, deceleration=drive.speed_limit / time) for drive in settings.drives)
    return replace(settings, drives=drives)
