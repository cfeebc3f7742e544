"""How the registers of a Damiao motor are read and compared with the config, before it may make torque.

Design: registers are only read. They live in flash memory with about 10,000 writes, and a range that is changed behind
the back of another program would scale its torques.

Request with id 0x7FF: id of the motor 16 (low byte first), command 8, register 8, value 32 (low byte first). The motor
answers with the same layout and the id of its other replies. The lowest four bits of the first byte are its id, as in a
reply to a command; the upper four, a status there, are 0.

Sources: DAMIAO_Control_Arduino; damiao-motor 1.0.6 (core/motor.py) for the table of registers and their units.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from math import isclose
from typing import NamedTuple

from hil.codecs.mit import Ranges
from hil.drives.base import DriveError, HandshakeStep, Steps
from hil.drives.settings import DriveSettings
from hil.frame import Frame

REQUEST = 0x7FF  # id of requests to all motors

READ, WRITE, SAVE, REFRESH = 0x33, 0x55, 0xAA, 0xCC

MASTER_ID, TIMEOUT, CONTROL_MODE, PMAX, VMAX, TMAX = 7, 9, 10, 21, 22, 23
"""Registers: id of replies, watchdog [50 us], mode, ranges of position [rad], velocity [rad/s] and torque [N m]."""

COUNTS = frozenset({MASTER_ID, 8, TIMEOUT, CONTROL_MODE, 13, 14, 15, 16, 35, 36})
"""Registers that are whole numbers; the others are single-precision numbers."""

LAST = 81  # last register
TICK = 50e-6  # [s] unit of `TIMEOUT`

MIT_MODE = 1
MODES = {MIT_MODE: "MIT", 2: "position and velocity", 3: "velocity", 4: "position with force limit"}

_REQUEST = struct.Struct("<HBB4x")


class RegisterValue(NamedTuple):
    """The value of a register in an answer."""

    register: int  # its number
    value: float  # its value; whole numbers are exact


def read(node: int, register: int) -> bytes:
    """Payload of a request for the value of a register."""
    return _REQUEST.pack(node, READ, register)


def refresh(node: int) -> bytes:
    """Payload of a request for a reply as to a command; it commands nothing."""
    return _REQUEST.pack(node, REFRESH, 0)


def register_value(data: bytes, node: int) -> RegisterValue | None:
    """Decodes an answer about a register of this motor; None for a reply to a command.

    A reply to a command looks the same only if the motor is disabled, at one of two positions near the end of its range
    and at more than 0.36 of its largest speed.
    """
    if len(data) != 8 or data[0] != node or data[1] or data[2] not in (READ, WRITE) or data[3] > LAST:
        return None
    register = data[3]
    form = "<I" if register in COUNTS else "<f"
    return RegisterValue(register, float(struct.unpack_from(form, data, 4)[0]))


RANGE_TOLERANCE = 1e-3  # largest relative difference of a range: the register may hold 12.566 for 4 pi

NAMES = {
    CONTROL_MODE: "CTRL_MODE",
    TIMEOUT: "TIMEOUT",
    PMAX: "PMAX",
    VMAX: "VMAX",
    TMAX: "TMAX",
}
"""Register -> its name in the maker's tool."""


class DamiaoRegisters:
    """The registers of one motor.

    Args:
        ranges: Ranges of its frames in the config.
        watchdog: Whether the config says that it stops by itself; None: it does not say.
        frame: Makes a frame of an id and a payload.
    """

    def __init__(
        self,
        settings: DriveSettings,
        ranges: Ranges,
        watchdog: bool | None,
        period: float,
        frame: Callable[[int, bytes], Frame],
    ) -> None:
        self._settings, self._ranges, self._watchdog, self._period = settings, ranges, watchdog, period
        self._frame = frame
        self._values: dict[int, float] = {}

    def take(self, frame: Frame) -> bool:
        """Whether a frame is about a register of this motor; its value is kept."""
        answer = register_value(frame.data, self._settings.node)
        if answer is None:
            return False
        self._values[answer.register] = answer.value
        return True

    def compare(self) -> Steps:
        """Reads the registers and compares them with the config.

        Raises:
            DriveError: They differ; the error names every register, its value and that of the config.
        """
        self._values.clear()
        for register, name in NAMES.items():
            request = self._frame(REQUEST, read(self._settings.node, register))
            expected = f"an answer to the request for {name} (register {register})"
            yield HandshakeStep([request], lambda register=register: register in self._values, 0.5, expected)  # type: ignore[misc]
        problems = list(self._problems(self._values))
        if problems:
            raise DriveError("; ".join(problems))

    def _problems(self, values: Mapping[int, float]) -> Iterator[str]:
        mode = round(values[CONTROL_MODE])
        if mode != MIT_MODE:
            what = f"{mode} ({MODES.get(mode, 'unknown')})"
            yield f"CTRL_MODE (register 10) is {what}, torque commands need 1 (MIT): set it with the maker's tool"
        for register, field, unit in (
            (PMAX, "position", "rad"),
            (VMAX, "velocity", "rad/s"),
            (TMAX, "torque", "N m"),
        ):
            actual, ours = values[register], float(getattr(self._ranges, field))
            if not isclose(actual, ours, rel_tol=RANGE_TOLERANCE):
                yield (
                    f"{NAMES[register]} (register {register}) is {actual:g} {unit}, the range of {field} in the config "
                    f"is {ours:g} {unit} (write `ranges` with the drive's value, or correct `motor`)"
                )
        yield from self._timeout(values[TIMEOUT] * TICK)

    def _timeout(self, timeout: float) -> Iterator[str]:
        """Problems of the watchdog's time [s]; 0 means that there is none."""
        allowed = self._settings.watchdog
        wanted = f"{round(allowed / TICK)}, {allowed:g} s"
        if not timeout:
            if self._watchdog:
                yield f"TIMEOUT (register 9) is 0: no watchdog (set it to {wanted}; or drive_watchdog: false)"
        elif timeout < 3 * self._period:
            yield f"TIMEOUT (register 9) is {timeout:g} s, less than 3 periods of the loop (set it to {wanted})"
        elif self._watchdog and timeout > allowed * (1 + RANGE_TOLERANCE):
            what = f"TIMEOUT (register 9) is {timeout:g} s, hil.safety.drive_watchdog is {allowed:g} s"
            yield f"{what} (set it to {wanted}; or raise drive_watchdog)"
