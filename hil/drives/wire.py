"""The numbers in the frames of a node, as data: where they are, how they are scaled, and what they prove.

Design: a protocol states here where each number is and how it is scaled; drivers in Python (`hil.drives.table`) and the
tick in C read and write frames by it, with the same operations in the same order, so that both get the same bits. Only
frames that a healthy node sends while it works are described. C passes every other frame,
and every unexpected value, on to the driver in Python, which knows what it means. So a description may leave things
out, but must not promise what the driver would see otherwise.
"""

from collections.abc import Iterable
from enum import IntEnum
from math import ceil, copysign, floor, isfinite, pi, trunc, ulp
from typing import NamedTuple

from hil.codecs.field import ID_BYTES, Field, after_id, bytes_of, single_towards_zero
from hil.drives.settings import DriveSettings, Quantity, SensorSettings
from hil.frame import Frame


class Operation(IntEnum):
    """A step of a chain: what is done with the number so far and a constant.

    `UNWRAP` follows a number over the ends of a range, whose length is the constant, as `Unwrapping` does it.
    """

    TIMES = 0
    OVER = 1
    PLUS = 2
    UNWRAP = 3


class Unwrapping:
    """Follows a position over the ends of its range, from `-most` to `most` [rad]."""

    def __init__(self, most: float) -> None:
        self.span = 2 * most  # [rad] length of the range
        self.last: float | None = None  # last position in the range [rad]; None before the first
        self.added = 0.0  # [rad] what is added to it

    def __call__(self, position: float) -> float:
        """Motor angle without the jumps from one end of its range to the other [rad]."""
        if self.last is not None and abs(position - self.last) > self.span / 2:
            self.added += self.span if position < self.last else -self.span
        self.last = position
        return position + self.added


LARGEST_SINGLE = (2.0 - 2.0**-23) * 2.0**127  # largest finite number of single precision
TURN = 2 * pi
SINGLE = 23  # bits of a number in single precision, near one turn
COARSE = 12  # bits per turn to assume of an encoder whose bits the config does not give
Chain = tuple[tuple[Operation, float], ...]  # operations on a number, in order


def chained(chain: Chain, number: float, unwrapping: Unwrapping | None = None) -> float:
    """The result of a chain; `unwrapping` follows the number where the chain says so."""
    for operation, constant in chain:
        if operation is Operation.TIMES:
            number = number * constant
        elif operation is Operation.OVER:
            number = number / constant
        elif operation is Operation.PLUS:
            number = number + constant
        elif unwrapping is not None:
            number = unwrapping(number)
    return number


def step_of(chain: Chain) -> float:
    """What a step of one at the beginning of a chain is at its end, without its sign."""
    scales = tuple(each for each in chain if each[0] in (Operation.TIMES, Operation.OVER))
    return abs(chained(scales, 1.0))


def single_step(value: float) -> float:
    """Distance between neighbouring single-precision numbers near a value: 29 bits of a double less."""
    return ulp(value) * 2.0**29


HAIR = 1e-9  # [steps]


class Rounding(IntEnum):
    """How a torque becomes the number in a command: always towards zero, so that no limit is exceeded.

    A number that arithmetic has left less than `HAIR` of a step short of an integer is that integer: a torque that a
    frame carries is sent as it is.

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

    def holds(self, data: bytes) -> bool:
        return self.field.read(data) & self.mask == self.value


class Message(NamedTuple):
    """A frame that a healthy node sends in a run."""

    id: int  # its id; above 0x7FF it has 29 bits
    length: int  # its bytes
    reads: tuple[Reads, ...] = ()  # the numbers that it brings
    expects: tuple[Expects, ...] = ()  # what the driver expects in it
    selects: tuple[Expects, ...] = ()  # what tells it from frames of other nodes with the same id
    sample: bool = False  # whether it is a sample: the last position, velocity and torque become one
    alive: bool = False  # whether it proves that the drive is alive
    every: float = 0.0  # [s] time from one to the next; 0: one in each tick

    @property
    def meaning(self) -> tuple[int, frozenset[Quantity]]:
        """What messages have in common of which only one comes at a time: its id, and what it brings."""
        return self.id, frozenset(reads.quantity for reads in self.reads)

    def values(self, data: bytes, unwrapping: Unwrapping | None = None) -> dict[Quantity, float]:
        """What a payload says of the joint and of gauges; `unwrapping` follows the position over its ends."""
        return self.scaled([reads.field.number(data) for reads in self.reads], unwrapping)

    def scaled(self, numbers: Iterable[float], unwrapping: Unwrapping | None = None) -> dict[Quantity, float]:
        """What these numbers say, in the order of `reads`."""
        return {
            reads.quantity: chained(reads.chain, float(number), unwrapping)
            for reads, number in zip(self.reads, numbers, strict=True)
        }


class Encoding(NamedTuple):
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

    def frame_of(self, torque: float) -> Frame:
        """The frame that sends a torque at the joint; ValueError if it is not finite, or does not fit in the frame."""
        zero, number = self.frame, self._number(torque)
        bits = single_towards_zero(number) if self.rounding is Rounding.SINGLE else int(number)
        data = after_id(self.field).written(bytes_of(zero), bits)
        return zero._replace(id=int.from_bytes(data[:ID_BYTES], "big"), data=data[ID_BYTES:])

    def carried(self, torque: float) -> float:
        """The torque in the frame that sends this one; raises as `frame_of`."""
        if self.back is None:
            return torque
        return chained(self.back, self._number(torque))

    def torque_bits(self, frame: Frame) -> bytes | None:
        """The bits of the torque in a frame; None if anything else in it differs from the frame of zero torque."""
        data, zero, place = bytes_of(frame), bytes_of(self.frame), after_id(self.field)
        if len(data) != len(zero) or place.written(data, 0) != place.written(zero, 0):
            return None
        return place.read(data).to_bytes(place.size, "little")

    @property
    def hair(self) -> float:
        """How far a number may lie below an integer that it means [steps]."""
        return 0.0 if self.rounding is Rounding.SINGLE else HAIR

    def _number(self, torque: float) -> float:
        """The number that goes into the frame; a float is not in single precision yet."""
        motor = chained(self.chain, torque)
        number = chained(self.steps, motor)
        number += copysign(self.hair, motor)
        if isfinite(number) and self.rounding is Rounding.INTEGER:
            number = float(trunc(number))
        elif isfinite(number) and self.rounding is Rounding.MIDDLE:
            middle = floor((self.lowest + self.highest) / 2.0)
            number = float(max(floor(number), middle + 1) if motor > 0.0 else min(ceil(number), middle))
        if not self.lowest <= number <= self.highest:  # NaN fails both comparisons
            raise ValueError(f"torque {torque} is not finite, or too large for a frame of the drive")
        return number


class Feeds(NamedTuple):
    """A frame other than a command that goes to an enabled drive: it feeds its watchdog, or asks it."""

    frame: Frame
    every: int  # it is sent every so many ticks
    at: int = 0  # the first of them


def motor_torque(settings: DriveSettings) -> Chain:
    """As `DriveSettings.motor_torque`."""
    return (Operation.TIMES, settings.sign), (Operation.OVER, settings.gear)


def joint_torque(settings: DriveSettings) -> Chain:
    """Torque or force at the joint [actuator unit] for a torque of the motor [N m]."""
    return (Operation.TIMES, settings.sign), (Operation.TIMES, settings.gear)


def joint_rate(settings: SensorSettings) -> Chain:
    """As `SensorSettings.joint_rate`."""
    return (Operation.TIMES, settings.sign), (Operation.OVER, settings.gear)


def joint(settings: SensorSettings) -> Chain:
    """As `SensorSettings.joint`."""
    return (*joint_rate(settings), (Operation.PLUS, settings.offset))
