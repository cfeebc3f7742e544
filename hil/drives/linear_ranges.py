"""What drives share whose numbers are linear over ranges: MIT frames, and RobStride's own."""

from collections.abc import Iterator

from hil.codecs.field import Field
from hil.codecs.mit import Ranges
from hil.drives.base import FrameEnds
from hil.drives.mit_options import EXPECTED, RangeOptions
from hil.drives.quantities import Quantity
from hil.drives.settings import DriveSettings
from hil.drives.wire import (
    Chain,
    Encoding,
    Operation,
    Reads,
    Rounding,
    joint,
    joint_rate,
    joint_torque,
    motor_torque,
)
from hil.frame import Frame
from servoctl.config.document import Problem

UNREADABLE = (
    "the ranges of its frames cannot be read back: wrong ranges scale every torque, and only the motion shows it "
    "(compare motor or ranges with its data sheet)"
)
"""Note on a drive whose ranges are only in the config."""


def range_problems(settings: DriveSettings, options: RangeOptions, most: int) -> Iterator[Problem]:
    """Problems of the ranges with the torque limit.

    Args:
        settings: Settings of the drive.
        options: Its options.
        most: Largest number that a torque can have in a frame: 4095 for 12 bits.
    """
    if (options.motor is None) == (options.ranges is None):
        what = "both are given" if options.motor else "is missing, and so is `ranges`"
        yield Problem(("motor",), f"{what} (give either motor, or {EXPECTED})")
        return
    torque, half_step = abs(settings.motor_torque(settings.torque_limit)), options.table.torque / most
    if torque < half_step:
        what = f"{settings.torque_limit} at the joint is {torque:.4g} N m at the motor"
        yield Problem(("torque_limit",), f"{what}, the smallest on the wire is {half_step:.4g} N m (raise it)")


def linear_ends(ranges: Ranges, most: int) -> FrameEnds:
    """The ends of ranges whose speeds are integers up to `most`; a position is followed over the ends of its range."""
    return FrameEnds(speed=ranges.velocity * (1.0 - 2.0 / most), torque=ranges.torque)


def linear(largest: float, most: int) -> Chain:
    """From an integer up to `most` to a number from `-largest` to `largest`."""
    return (Operation.TIMES, 2 * largest), (Operation.OVER, most), (Operation.PLUS, -largest)


def linear_sample(
    settings: DriveSettings, ranges: Ranges, most: tuple[int, int, int], fields: tuple[Field, Field, Field]
) -> tuple[Reads, ...]:
    """Position, velocity and torque in a frame; the position is followed over the ends of its range.

    Args:
        settings: Settings of the drive.
        ranges: Ranges of its frames.
        most: Largest integers of position, velocity and torque.
        fields: Where they are.
    """
    position, velocity, torque = map(linear, ranges[:3], most)
    unwrap = (Operation.UNWRAP, 2 * ranges.position)
    chains = (
        (*position, unwrap, *joint(settings)),
        (*velocity, *joint_rate(settings)),
        (*torque, *joint_torque(settings)),
    )
    return tuple(map(Reads, fields, (Quantity.POSITION, Quantity.VELOCITY, Quantity.TORQUE), chains))


def linear_command(frame: Frame, field: Field, settings: DriveSettings, largest: float, most: int) -> Encoding:
    """How a torque is sent as an integer up to `most`, linear from `-largest` to `largest` [N m]."""
    steps = (Operation.PLUS, largest), (Operation.TIMES, most), (Operation.OVER, 2 * largest)
    back = *linear(largest, most), *joint_torque(settings)
    return Encoding(frame, field, motor_torque(settings), Rounding.MIDDLE, 0, most, back, steps)
