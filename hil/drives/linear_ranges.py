"""What drives share whose numbers are linear over ranges, MIT frames and RobStride's own; the tables of ranges."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import ceil
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import yaml
from pydantic import BeforeValidator, TypeAdapter
from pydantic import Field as PydanticField

from hil.codecs.field import Field, LinearFields
from hil.drives.base import Condition, DriveError, Feedback, HandshakeStep, Steps
from hil.drives.guard import passed, refuse_fault, silent
from hil.drives.options import Word
from hil.drives.settings import DriveSettings, Quantity
from hil.drives.table import TableDrive
from hil.drives.wire import (
    Chain,
    Encoding,
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
from servoctl.tree.fields import NumberField, only
from servoctl.tree.rules import Section

FILE = Path(__file__).with_name("mit_ranges.yaml")
Positive = Annotated[float, NumberField("a number above 0", above=0.0)]


class Ranges(NamedTuple):
    """Largest values in the frames of a motor: position, velocity and torque are symmetric, gains start at 0."""

    position: Positive  # [rad] position
    velocity: Positive  # [rad/s] velocity
    torque: Positive  # [N m] torque
    kp: Positive  # [N m/rad] stiffness
    kd: Positive  # [N m s/rad] damping


EXPECTED = f"ranges {{{', '.join(f'{name}: ...' for name in Ranges._fields)}}}"


@cache
def tables() -> Mapping[str, Ranges]:
    """Motor and firmware -> ranges."""
    return TypeAdapter(dict[str, Ranges]).validate_python(yaml.safe_load(FILE.read_text()))


# numbers in another order would scale every torque, and nothing reads them back
_by_name = only(lambda value: value is None or isinstance(value, Mapping), EXPECTED)


class RangeOptions(Section):
    """Options of a drive whose numbers are linear over ranges."""

    # name of the motor in the table of ranges; None if `ranges` are given
    motor: Annotated[str | None, Word("a motor of the table", tuple(tables()))] = None
    # ranges of position, velocity, torque and gains in the frames of this motor; None: those of `motor`
    ranges: Annotated[Ranges | None, BeforeValidator(_by_name), PydanticField(description=EXPECTED)] = None

    @property
    def table(self) -> Ranges:
        if self.ranges is not None:
            return self.ranges
        assert self.motor is not None
        return tables()[self.motor]


UNREADABLE = (  # note on a drive whose ranges are only in the config
    "the ranges of its frames cannot be read back: wrong ranges scale every torque, and only the motion shows it "
    "(compare motor or ranges with its data sheet)"
)


def range_problems(settings: DriveSettings, options: RangeOptions, torque: Field) -> Iterator[Problem]:
    """Problems of the ranges with the torque limit; `torque`: where a command holds it."""
    if (options.motor is None) == (options.ranges is None):
        what = "both are given" if options.motor else "is missing, and so is `ranges`"
        yield Problem(("motor",), f"{what} (give either motor, or {EXPECTED})")
        return
    most, half_step = settings.motor_limit, options.table.torque / torque.mask
    if most < half_step:
        what = f"{settings.torque_limit} at the joint is {most:.4g} N m at the motor"
        yield Problem(("torque_limit",), f"{what}, the smallest on the wire is {half_step:.4g} N m (raise it)")


def linear(largest: float, field: Field) -> Chain:
    return (Operation.TIMES, 2 * largest), (Operation.OVER, field.mask), (Operation.PLUS, -largest)


class LinearDrive(TableDrive):
    """A drive of such a protocol: it replies to each command, also with its gauges, and brakes by its own damping."""

    fields: ClassVar[LinearFields]
    enable_frame: Frame  # enables it
    enable_answer: ClassVar[str]  # what the answer to it shows, in words
    watchdog_remedy: ClassVar[str]  # what to set in a drive that goes on without commands
    tested_time: float | None = None  # [s] time of the watchdog while it is tested; None: its own
    feedback = Feedback.REPLY
    test_enables = True
    rounds_down = True  # as float_to_uint of mini-cheetah's firmware, which its descendants have
    unwrapping: Unwrapping
    Options: ClassVar[type[RangeOptions]]
    unverified = UNREADABLE
    ramps = holds_while_ramping = True
    _options: RangeOptions

    def __init__(self, settings: DriveSettings, period: float, command: int, no_motion: bytes) -> None:
        """`command`, `no_motion`: id and payload of a command without gains."""
        super().__init__(settings, period)
        self._ranges = self._options.table
        fields, ranges = self.fields, self._ranges
        self.unwrapping = Unwrapping(ranges.position)
        follow = (Operation.UNWRAP, self.unwrapping.span)
        position, velocity, torque = (
            linear(largest, field) for largest, field in zip(ranges[:3], fields[:3], strict=True)
        )
        self.reads = (  # of a reply
            Reads(fields.position, Quantity.POSITION, (*position, follow, *joint(settings))),
            Reads(fields.velocity, Quantity.VELOCITY, (*velocity, *joint_rate(settings))),
            Reads(fields.torque, Quantity.TORQUE, (*torque, *joint_torque(settings))),
        )
        field, largest = fields.command_torque, ranges.torque
        steps = (Operation.PLUS, largest), (Operation.TIMES, field.mask), (Operation.OVER, 2 * largest)
        back = *linear(largest, field), *joint_torque(settings)
        zero = settings.frame(command, no_motion)
        encoding = Encoding(zero, field, motor_torque(settings), Rounding.MIDDLE, 0, field.mask, back, steps)
        self.encoding = encoding._replace(frame=encoding.frame_of(0.0))

    def set_watchdog(self, seconds: float) -> Steps:
        """Sets the time of its watchdog [s], where its protocol can."""
        yield from ()

    def test_watchdog(self, torque: float = 0.0) -> Steps:
        """Enables the drive with one torque and sends no command until its watchdog has run out.

        A drive without a watchdog is not tested. A brake opens for the time of the watchdog: the torque holds the joint
        meanwhile.
        """
        if not self.watchdog:
            return
        yield from self.reset()
        usual, seconds = self.settings.watchdog, self.tested_time or self.settings.watchdog
        if seconds != usual:
            yield from self.set_watchdog(seconds)
        with silent(self):
            held = self._torque_frame(torque, self.encoding)
            frames = [held, self.enable_frame, held]  # some begin without the torque before it
            self.may_go_on()
            yield HandshakeStep(frames, self._decided, 0.5, self.enable_answer)
            refuse_fault(self)
            over = passed(ceil(1.1 * seconds / self._period) + 1)  # then it must have run out
            yield HandshakeStep([], over, 2 * seconds + 10 * self._period, "its watchdog")
        yield HandshakeStep([self.encoding.frame], self._answered(1), 0.5, "a reply after its watchdog")
        if self.condition is Condition.ENABLED:
            off = lambda: self.condition is not Condition.ENABLED  # noqa: E731
            yield HandshakeStep(self.disable_frames(), off, 0.5, "an answer")
            raise DriveError(f"is still enabled after {seconds:g} s without a command ({self.watchdog_remedy})")
        yield from self.reset()
        if seconds != usual:
            yield from self.set_watchdog(usual)

    def quick_stop_frames(self, torque: float) -> Sequence[Frame]:
        """Damping in the motor around the torque that holds the joint; no effect on a motor that is off."""
        self._feed.fed = True
        frame, field = self._torque_frame(torque, self.encoding), self.fields.command_damping
        settings, most = self.settings, self._ranges.kd
        # [N m s/rad] it uses what the torque leaves of its limit at speed_limit
        damping = max(0.0, settings.torque_limit - abs(torque)) / settings.speed_limit / settings.gear**2
        bits = int(min(damping, most) * field.mask / most)  # rounded down
        return (frame._replace(data=field.written(frame.data, bits)),)
