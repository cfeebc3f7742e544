"""An emulated RobStride motor: classic frames with ids of 29 bits that hold torque, faults and mode.

Each command to the motor gets one feedback frame.

Source: as of `hil.codecs.robstride`; canTimeout as in the manual of RobStride: after its time without a frame the motor
goes to mode reset.
"""

import struct

from hil.codecs import robstride as codec
from hil.codecs.robstride import CAN_TIMEOUT, RESET, RUN, RUN_MODE, TORQUE_LIMIT
from hil.emulator.impedance import ImpedanceDrive
from hil.frame import Frame, IdFamily
from hil.loop.clock import SECOND

POSITION, CURRENT, VELOCITY = 0x7019, 0x701A, 0x701B  # further parameters
EXTENDED, TARGET = 1 << 29, 0xFF
MCU = 0x5256_7354_0000_0000  # upper half of the 64-bit number of the processor
COMMANDS = codec.MOTION, codec.ENABLE, codec.STOP, codec.SET_ZERO, codec.WRITE  # kinds that get feedback


class RobStride(ImpedanceDrive):
    """A RobStride motor; options as of `ImpedanceDrive`."""

    fields = codec.FIELDS
    codes = 1, 0x3F
    usual_code, overheat_code = 2, 4

    def set_up(self) -> None:
        super().set_up()
        self._host = int(self.number("host", 0xFD))

    def listens(self) -> IdFamily:
        return IdFamily(EXTENDED | TARGET, EXTENDED | self.settings.node)

    def boot(self) -> None:
        super().boot()
        self._values: dict[int, int] = {RUN_MODE: 0, CAN_TIMEOUT: 0, TORQUE_LIMIT: _bits(self._ranges.torque)}

    @property
    def mode(self) -> int:
        return RUN if self.motor.enabled else RESET

    @property
    def largest(self) -> float:
        return min(super().largest, codec.VALUE.number(codec.VALUE.written(bytes(8), self._values[TORQUE_LIMIT])))

    def trip(self, code: int) -> None:
        super().trip(self.fault | code & 0x3F)

    def receive(self, frame: Frame) -> None:
        if self.ignores(frame):
            return
        kind, data = frame.id >> 24 & 0x1F, frame.id >> 8 & 0xFFFF
        if kind != codec.MOTION:  # it has its torque there
            self._host = data & 0xFF
        self._watchdog.feed()
        if kind == codec.GET_ID:
            identity = codec.identifier(codec.GET_ID, self.settings.node, 0xFE)
            self.send(identity, struct.pack("<Q", MCU | self.settings.node))
        elif kind == codec.READ:
            self._answer(frame)
        elif kind in COMMANDS:
            self._obey(kind, frame)
            self._report()

    def _obey(self, kind: int, frame: Frame) -> None:
        if kind == codec.MOTION:
            if self._values[RUN_MODE] == 0:
                self._follow(frame)
        elif kind == codec.ENABLE:
            if not self.fault and not self.refuses:
                self.motor.enable(0.0)
                self._start_watchdog()
        elif kind == codec.STOP:
            self._off()
            if frame.data[0] == 1:
                self.fault = 0
        elif kind == codec.SET_ZERO:
            self._set_zero()
        elif (number := codec.PARAMETER.read(frame.data) & 0xFFFF) in self._values:
            self._values[number] = codec.VALUE.read(frame.data) & (0xFF if number == RUN_MODE else 0xFFFF_FFFF)
            self._start_watchdog()

    def _start_watchdog(self) -> None:
        steps = self._values[CAN_TIMEOUT] if self.mode == RUN else 0
        self._watchdog.start(steps * SECOND // codec.TIMEOUT_STEPS)

    def _report(self) -> None:
        hot = min(codec.TEMPERATURE.mask, max(0, round(codec.TEMPERATURE_STEP * self.temperature())))
        data = self._with_motion(codec.TEMPERATURE.written(bytes(codec.SIZE), hot))
        faults = self.fault << 16
        self.send(codec.feedback_identifier(self.settings.node, self._host, self.mode) | faults, data)

    def _answer(self, frame: Frame) -> None:
        """Answers a read; bit 16 of the id says that there is no such parameter."""
        index = codec.PARAMETER.read(frame.data) & 0xFFFF
        position, velocity = self._motion()
        measured = {POSITION: position, VELOCITY: velocity, CURRENT: 0.0, codec.BUS_VOLTAGE: self.voltage}
        value = _bits(measured[index]) if index in measured else self._values.get(index)
        identity = codec.identifier(codec.READ, (value is None) << 8 | self.settings.node, self._host)
        self.send(identity, codec.VALUE.written(codec.read_parameter(index), value or 0))


def _bits(value: float) -> int:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return int(bits)
