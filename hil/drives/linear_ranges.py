"""What drives share whose numbers are linear over ranges: MIT frames, and RobStride's own."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from hil.codecs.field import Field
from hil.codecs.mit import gain_bits
from hil.drives.base import Feedback, FrameEnds
from hil.drives.guard import damping_of
from hil.drives.mit_options import EXPECTED, RangeOptions
from hil.drives.options import options_of
from hil.drives.quantities import Quantity
from hil.drives.settings import DriveSettings
from hil.drives.table import TableDrive
from hil.drives.wire import (
    Chain,
    Encoding,
    FrameReads,
    Operation,
    Reads,
    Rounding,
    Unwrapping,
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


def range_problems(settings: DriveSettings, options: RangeOptions, torque: Field) -> Iterator[Problem]:
    """Problems of the ranges with the torque limit; `torque`: where a command holds it."""
    if (options.motor is None) == (options.ranges is None):
        what = "both are given" if options.motor else "is missing, and so is `ranges`"
        yield Problem(("motor",), f"{what} (give either motor, or {EXPECTED})")
        return
    most, half_step = abs(settings.motor_torque(settings.torque_limit)), options.table.torque / torque.mask
    if most < half_step:
        what = f"{settings.torque_limit} at the joint is {most:.4g} N m at the motor"
        yield Problem(("torque_limit",), f"{what}, the smallest on the wire is {half_step:.4g} N m (raise it)")


def linear(largest: float, field: Field) -> Chain:
    """From a field to a number from `-largest` to `largest`."""
    return (Operation.TIMES, 2 * largest), (Operation.OVER, field.mask), (Operation.PLUS, -largest)


class LinearFields(NamedTuple):
    """Where the numbers are in the frames of a protocol; their largest integers are the ends of the ranges."""

    # in a reply
    position: Field
    velocity: Field
    torque: Field
    # in a command
    command_torque: Field
    command_damping: Field


class LinearDrive(TableDrive):
    """A drive of such a protocol: it replies to each command, and brakes by its own damping.

    Args:
        settings: Settings without problems.
        period: Period of the loop [s].
        command: A command without gains, of any torque.
    """

    fields: ClassVar[LinearFields]
    feedback = Feedback.REPLY
    test_enables = True
    unwrapping: Unwrapping
    Options: ClassVar[type[RangeOptions]]
    unverified = UNREADABLE
    ramps = True

    def __init__(self, settings: DriveSettings, period: float, command: Frame) -> None:
        super().__init__(settings, period)
        self._period, self._ranges = period, options_of(self.Options, settings).table
        fields, ranges = self.fields, self._ranges
        self.unwrapping = Unwrapping(ranges.position)
        follow = (Operation.UNWRAP, self.unwrapping.span)
        self.motion = FrameReads(
            Reads(fields.position, Quantity.POSITION, (*linear(ranges[0], fields[0]), follow, *joint(settings))),
            Reads(fields.velocity, Quantity.VELOCITY, (*linear(ranges[1], fields[1]), *joint_rate(settings))),
            Reads(fields.torque, Quantity.TORQUE, (*linear(ranges[2], fields[2]), *joint_torque(settings))),
            unwrapping=self.unwrapping,
        )
        field, largest = fields.command_torque, ranges.torque
        steps = (Operation.PLUS, largest), (Operation.TIMES, field.mask), (Operation.OVER, 2 * largest)
        back = *linear(largest, field), *joint_torque(settings)
        encoding = Encoding(command, field, motor_torque(settings), Rounding.MIDDLE, 0, field.mask, back, steps)
        self.encoding = encoding._replace(frame=encoding.frame_of(0.0))

    @classmethod
    def ends(cls, settings: DriveSettings) -> FrameEnds:
        """A position is followed over the ends of its range."""
        ranges = options_of(cls.Options, settings).table
        return FrameEnds(speed=ranges.velocity * (1.0 - 2.0 / cls.fields.velocity.mask), torque=ranges.torque)

    def quick_stop_frames(self, torque: float) -> Sequence[Frame]:
        """Damping in the motor around the torque that holds the joint; no effect on a motor that is off."""
        self._feed.fed = True
        frame, field = self._torque_frame(torque, self.encoding), self.fields.command_damping
        gain = gain_bits(self._ranges.kd, damping_of(self.settings, torque), field.mask)
        return (Frame(frame.id, field.written(frame.data, gain), frame.extended, fd=frame.fd, brs=frame.brs),)
