"""What the frames of a node mean in the ordinary course of a run, as data: the tick in C is built from it.

Design: only frames that a healthy node sends while it works are described. Every other frame, and every unexpected
value, gives the tick back to the driver in Python, which knows what it means. So a description may leave things out,
but must not promise what the driver would see otherwise. Arithmetic is a chain of operations in the order in which the
driver does them, so that both get the same bits.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from hil.codecs.field import Field
from hil.drives.quantities import FIRST_GAUGE, Quantity
from hil.drives.settings import DriveSettings, SensorSettings
from hil.frame import Frame


class Operation(IntEnum):
    """A step of a chain: what is done with the number so far and a constant.

    `UNWRAP` follows a number over the ends of a range, whose length is the constant, as `Unwrapping` does it.
    """

    TIMES = 0
    OVER = 1
    PLUS = 2
    UNWRAP = 3


LARGEST_SINGLE = (2.0 - 2.0**-23) * 2.0**127  # largest finite number of single precision
Chain = tuple[tuple[Operation, float], ...]  # operations on a number, in order


class Rounding(IntEnum):
    """How a torque becomes the number in a command: always towards zero, so that no limit is exceeded.

    `MIDDLE`: an integer from `lowest` to `highest`, and zero torque lies in the middle, between two integers. Torques
    above zero are sent by the upper half, all others by the lower.
    """

    INTEGER = 0
    SINGLE = 1
    MIDDLE = 2


class Reads(NamedTuple):
    """A number that a frame brings."""

    field: Field  # where it is
    quantity: Quantity
    chain: Chain  # from the number in the frame to the joint


class Expects(NamedTuple):
    """Bits of a frame that have a known value while the node works."""

    field: Field  # where they are
    mask: int  # the bits
    value: int


class Message(NamedTuple):
    """A frame that a healthy node sends in a run."""

    id: int  # its id; above 0x7FF it has 29 bits
    length: int  # its bytes
    reads: tuple[Reads, ...] = ()  # the numbers that it brings
    expects: tuple[Expects, ...] = ()  # what the driver expects in it
    selects: tuple[Expects, ...] = ()  # what tells it from frames of other nodes with the same id
    sample: bool = False  # whether it is a sample: the last position, velocity and torque become one
    alive: bool = False  # whether it proves that the drive is alive


class Encoding(NamedTuple):
    """How a torque is sent."""

    frame: Frame  # the frame of zero torque, with the present state of the driver
    field: Field  # where the torque is
    # from the torque at the joint to that of the motor, or to the number in the frame before it is rounded
    chain: Chain
    rounding: Rounding  # how it is rounded
    # lowest, highest: range of the number
    lowest: float
    highest: float
    # from the number in the frame to the torque at the joint; None: the driver takes it as sent exactly
    back: Chain | None
    steps: Chain = ()  # from the torque of the motor to the number in the frame, where `chain` ends before it


class Feeds(NamedTuple):
    """A frame other than a command that goes to an enabled drive: it feeds its watchdog, or asks it."""

    frame: Frame
    every: int  # it is sent every so many ticks
    at: int = 0  # the first of them


class Wire(NamedTuple):
    """The frames of a node."""

    messages: tuple[Message, ...]  # frames that it sends
    command: Encoding | None = None  # its command; None for an encoder node
    # what `Drive.routine_frames` gives while the drive is enabled; None: it is not known
    feeds: tuple[Feeds, ...] | None = None


def motor_torque(settings: DriveSettings) -> Chain:
    """As `DriveSettings.motor_torque`."""
    return (Operation.TIMES, settings.sign), (Operation.OVER, settings.gear)


def joint_torque(settings: DriveSettings) -> Chain:
    """As `DriveSettings.joint_torque`."""
    return (Operation.TIMES, settings.sign), (Operation.TIMES, settings.gear)


def joint_rate(settings: SensorSettings) -> Chain:
    """As `SensorSettings.joint_rate`."""
    return (Operation.TIMES, settings.sign), (Operation.OVER, settings.gear)


def joint(settings: SensorSettings) -> Chain:
    """As `SensorSettings.joint`."""
    return (*joint_rate(settings), (Operation.PLUS, settings.offset))


class GaugeReads:
    """The gauges in one kind of frame.

    Args:
        reads: Where they are, and from the number there to the gauge's unit: `TIMES`, `OVER`, `PLUS`.
    """

    def __init__(self, *reads: Reads) -> None:
        self.reads = reads  # the same, for `Drive.wire`
        self._parts = [(each.quantity - FIRST_GAUGE, _reader(each.field), each.chain) for each in reads]

    def take(self, data: bytes, gauges: list[float]) -> None:
        """Writes the gauges of a payload into `Drive.gauges`."""
        for place, number, chain in self._parts:
            value = float(number(data))
            for operation, constant in chain:
                if operation is Operation.TIMES:
                    value = value * constant
                elif operation is Operation.OVER:
                    value = value / constant
                else:
                    value = value + constant
            gauges[place] = value


def _reader(field: Field) -> Callable[[bytes], float]:
    """Reads a field: some bits as an unsigned integer, or whole bytes of any kind."""
    if field.kind == "unsigned":
        return field.reader()
    form, first = Struct((">" if field.big else "<") + field.code), field.first
    return lambda data: form.unpack_from(data, first)[0]
