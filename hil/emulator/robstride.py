"""An emulated RobStride motor: classic frames with ids of 29 bits that hold torque, faults and mode.

Id = kind << 24 | data << 8 | target. Each command to the motor gets one feedback frame.

Source: manual of CyberGear; RobStride's SampleProgram; canTimeout as in the manual of RobStride: after its time without
a frame the motor goes to mode reset.
"""

import struct

from hil.drives.settings import SensorSettings
from hil.emulator.impedance import Impedance, ImpedanceCommand, ranges_of
from hil.emulator.node import EmulatedDrive
from hil.emulator.timers import Watchdog
from hil.frame import Frame, IdFamily
from hil.loop.clock import SECOND

GET_ID, MOTION, FEEDBACK, ENABLE, STOP, SET_ZERO, READ, WRITE = 0, 1, 2, 3, 4, 6, 17, 18
RESET, RUN = 0, 2
RUN_MODE, TORQUE_LIMIT, POSITION, CURRENT, VELOCITY, VOLTAGE, TIMEOUT = (
    0x7005, 0x700B, 0x7019, 0x701A, 0x701B, 0x701C, 0x7028,
)  # fmt: skip
PER_SECOND = 20_000  # steps of canTimeout in a second
EXTENDED, TARGET = 1 << 29, 0xFF
MCU = 0x5256_7354_0000_0000  # upper half of the 64-bit number of the processor


class RobStride(EmulatedDrive):
    """A RobStride motor.

    Options: `ranges` or `motor`. Quirks: `watchdog`: false makes it ignore canTimeout; `bus_voltage` [V] (48);
    `parameters`: false hides canTimeout, as old firmware does.
    """

    usual_code, overheat_code = 2, 4

    def set_up(self) -> None:
        self._position, self._velocity, self._torque, self._kp, self._kd = ranges_of(self._options).values()
        self._watchdog = Watchdog(self.world, self._off)
        self._impedance = Impedance(self.world, self.encoder, self.motor)
        self.mode = RESET
        self.fault = 0
        self._host = int(self.number("host", 0xFD))
        self._values: dict[int, int] = {}

    @staticmethod
    def error_codes(settings: SensorSettings) -> tuple[int, int]:
        return 1, 0x3F

    def listens(self) -> IdFamily:
        return IdFamily(EXTENDED | TARGET, EXTENDED | self.settings.node)

    def boot(self) -> None:
        self.mode, self.fault = RESET, 0
        self._impedance.restart()
        self._values = {RUN_MODE: 0, TIMEOUT: 0, TORQUE_LIMIT: _bits(self._torque)}
        if not self.option("parameters", True):
            del self._values[TIMEOUT]

    def halt(self) -> None:
        self._off()

    def trip(self, code: int) -> None:
        self.fault |= code & 0x3F
        self._off()

    def clear_fault(self) -> None:
        self.fault = 0

    def receive(self, frame: Frame) -> None:
        if not self.station.powered or frame.remote or len(frame.data) != 8:
            return
        kind, data = frame.id >> 24 & 0x1F, frame.id >> 8 & 0xFFFF
        if kind != MOTION:  # it has its torque there
            self._host = data & 0xFF
        host = self._host
        self._watchdog.feed()
        if kind == MOTION:
            self._move(data, frame.data)
        if kind == GET_ID:
            self.send(node_id(GET_ID, 0, self.settings.node, 0xFE), struct.pack("<Q", MCU | self.settings.node))
        elif kind == READ:
            self._answer(host, frame.data)
        elif self._does(kind, frame.data):
            self._report(host)

    def _does(self, kind: int, data: bytes) -> bool:
        """Carries out a command; returns whether it gets feedback."""
        if kind == ENABLE:
            if not self.fault and not self.refuses:
                self.mode = RUN
                self.motor.enable(0.0)
                self._start_watchdog()
        elif kind == STOP:
            self._off()
            if data[0] == 1:
                self.fault = 0
        elif kind == SET_ZERO:
            self._impedance.set_zero()
        elif kind == WRITE:
            index, _, value = struct.unpack("<HHI", data)
            if index in self._values:
                self._values[index] = value & 0xFF if index == RUN_MODE else value
                self._start_watchdog()
        return kind in (MOTION, ENABLE, STOP, SET_ZERO, WRITE)

    def _start_watchdog(self) -> None:
        steps = self._values.get(TIMEOUT, 0) if self.mode == RUN and self.option("watchdog", True) else 0
        self._watchdog.stop()
        self._watchdog.start(steps * SECOND // PER_SECOND)

    def _move(self, torque: int, data: bytes) -> None:
        position, velocity, kp, kd = struct.unpack(">4H", data)
        largest = self._torque * self.torque_table
        self._impedance.wanted = ImpedanceCommand(
            both_sides(position, self._position),
            both_sides(velocity, self._velocity),
            self._kp * kp / 0xFFFF,
            self._kd * kd / 0xFFFF,
            both_sides(torque, largest),
        )
        if self.mode == RUN and self._values[RUN_MODE] == 0:
            self._impedance.regulate()

    def _report(self, host: int) -> None:
        position, velocity, torque = self._impedance.motion()
        end = self._position
        values = (
            in_16_bits((position + end) % (2 * end) - end, end),
            in_16_bits(velocity, self._velocity),
            in_16_bits(torque, self._torque * self.torque_table),
            min(0xFFFF, max(0, round(10 * self.temperature()))),
        )
        state = self.mode << 6 | self.fault
        self.send(node_id(FEEDBACK, state, self.settings.node, host), struct.pack(">4H", *values))

    def _answer(self, host: int, data: bytes) -> None:
        """Answers a read; bit 16 of the id says that there is no such parameter."""
        (index,) = struct.unpack_from("<H", data)
        position, velocity, _ = self._impedance.motion()
        measured = {
            POSITION: position, VELOCITY: velocity, CURRENT: 0.0,
            VOLTAGE: self.voltage(48.0),
        }  # fmt: skip
        value = _bits(measured[index]) if index in measured else self._values.get(index)
        identity = node_id(READ, int(value is None), self.settings.node, host)
        self.send(identity, struct.pack("<HHI", index, 0, value or 0))

    def _off(self) -> None:
        self._impedance.stop()
        self._watchdog.stop()
        self.mode = RESET
        self.motor.disable()


def node_id(kind: int, state: int, node: int, target: int) -> int:
    """Id of a frame of a motor: its state is in bits 16 to 23."""
    return kind << 24 | state << 16 | node << 8 | target


def both_sides(number: int, most: float) -> float:
    """Value of 16 bits that span the range from -most to most."""
    return (number / 0xFFFF * 2 - 1) * most


def in_16_bits(value: float, most: float) -> int:
    """Inverse of `both_sides`, cut off at the ends."""
    return min(0xFFFF, max(0, int((value / most + 1) / 2 * 0xFFFF)))


def _bits(value: float) -> int:
    """The bits of a single-precision number."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return int(bits)
