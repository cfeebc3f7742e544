"""The options of CiA 402 nodes, and what is wrong with those of a drive."""

from dataclasses import dataclass
from math import pi

from hil.drives.cia402_setup import most_torque
from hil.drives.options import number
from hil.drives.settings import DriveSettings
from servoctl.config.document import Problem

TURN = 2 * pi
MOST_COUNTS = 2**31
SLOWEST_STATUS = 0.1
"""Longest time between statuses [s]: a handshake step waits 0.5 s for a few of them."""
LONGEST_WATCHDOG = 65.0
"""0x1016 has 16 bits of milliseconds [s]."""


@dataclass(frozen=True)
class Cia402EncoderOptions:
    """Options of an encoder node.

    Attributes:
        counts_per_turn: Counts of 0x6064 per turn of the motor.
        velocity_unit: Speed of the motor per count of 0x606C [rad/s]; no default, since vendors differ (EPOS4: rpm).
    """

    counts_per_turn: int = number("the counts of 0x6064 per turn of the motor, above 0", above=0, whole=True)
    velocity_unit: float = number("the unit of 0x606C in rad/s, above 0, such as rpm or 2*pi/65536", above=0.0)


@dataclass(frozen=True)
class Cia402Options(Cia402EncoderOptions):
    """Options of a drive.

    Attributes:
        master: Node id of the heartbeat that the loop sends.
        status_every: Number of SYNCs from one status (TPDO2) to the next.
    """

    master: int = number("a node id from 1 to 127", 127, least=1, below=128, whole=True)
    status_every: int = number("a number of SYNCs from 1 to 240", 10, least=1, below=241, whole=True)


def drive_problems(settings: DriveSettings, options: Cia402Options, period: float) -> list[Problem]:
    """What forbids a drive with these settings."""
    problems = []
    if options.master == settings.node:
        problems.append(Problem(("master",), f"{options.master} is the drive's own node id (give another)"))
    if not settings.rated_torque:
        problems.append(Problem(("rated_torque",), "is missing (give the motor's, as in 0x6076) [N m]"))
    elif not 1 <= (most := most_torque(settings)) <= 0x7FFF:
        what = f"{settings.torque_limit} at the joint is {most} thousandths of the motor's rated torque"
        problems.append(Problem(("torque_limit",), f"{what} (the wire takes 1 to 32767: check gear and rated_torque)"))
    turns = max(abs(settings.motor(limit)) for limit in settings.position_limits) / TURN
    if turns * options.counts_per_turn >= MOST_COUNTS:
        what = f"{settings.position_limits} is {turns:.4g} turns of the motor"
        problems.append(Problem(("position_limits",), f"{what}, more than 32 bits count (check gear and offset)"))
    if (slowest := options.status_every * period) > SLOWEST_STATUS:
        what = f"{options.status_every} SYNCs are {slowest:g} s from status to status"
        problems.append(Problem(("status_every",), f"{what} (at most {SLOWEST_STATUS} s)"))
    if settings.watchdog > LONGEST_WATCHDOG:
        what = f"{settings.watchdog} s is more than 16 bits of milliseconds"
        problems.append(Problem(("watchdog",), f"{what} (set hil.safety.drive_watchdog lower)"))
    return problems
