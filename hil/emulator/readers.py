"""How the observer reads the loop's commands: one class per protocol, from the tables of the protocols.

Design: no code is shared with the drivers or the emulated drives, so that an error in theirs shows.
"""

import struct
from collections.abc import Collection, Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml

from hil.drives.settings import DriveSettings
from hil.emulator.commands import CommandFindings, CommandReader
from hil.frame import Frame, IdFamily
from servoctl.expression import constant


class ODriveReader(CommandReader):
    """Set_Input_Torque 0x0E, Set_Axis_State 0x07, Estop 0x02; torque of the motor as a float."""

    @property
    def identities(self) -> Collection[int]:
        return [self.drive.node * 32 + command for command in (0x02, 0x07, 0x0C, 0x0D, 0x0E)]

    def read(self, frame: Frame) -> None:
        command = frame.id % 32
        if command == 0x0E and len(frame.data) >= 4:
            self.torque(struct.unpack("<f", frame.data[:4])[0], frame)
        elif command == 0x07 and frame.data[:4] == b"\x08\0\0\0":
            self.enable()
        elif command in (0x07, 0x02):
            self.disable()
        else:
            self.wrong("a setpoint that is no torque", frame)


_RPDO1 = struct.Struct("<Hh")


class CiA402Reader(CommandReader):
    """RPDO1 at 0x200 + node: controlword, target torque in thousandths of the rated torque."""

    def __init__(self, findings: CommandFindings, drive: DriveSettings) -> None:
        super().__init__(findings, drive)
        self._rated = 1.0 if drive.rated_torque is None else round(drive.rated_torque * 1000) / 1000
        self.quantum = self._rated / 1000

    @property
    def identities(self) -> Collection[int]:
        return [0x200 + self.drive.node, 0]

    def read(self, frame: Frame) -> None:
        if frame.id == 0:
            if len(frame.data) == 2 and frame.data[1] in (0, self.drive.node) and frame.data[0] != 1:
                self.disable()
            return
        if len(frame.data) != 4:
            self.wrong(f"an RPDO1 of {len(frame.data)} bytes, expected 4", frame)
            return
        word, thousandths = _RPDO1.unpack(frame.data)
        if word & 0x8F == 0x0F:
            self.enable()
        elif not word & 0x02 and self.enabled:  # quick stop, 0x06 and 0x07 may hold torque until a brake is closed
            self.disable()
        motor_torque = thousandths * self._rated / 1000
        if self.enabled and word & 0x8E == 0x06:  # it is held after a quick stop too, whose frames have none
            self._torque = self._gear * motor_torque
        self.torque(motor_torque, frame)


MINI_CHEETAH = {"position": 12.5, "velocity": 45.0, "torque": 18.0, "kp": 500.0, "kd": 5.0}
"""Default ranges: those of the Mini Cheetah's drive."""


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    table: dict[str, Mapping[str, Any]] = yaml.safe_load(
        (resources.files("hil") / "drives/mit_ranges.yaml").read_text()
    )
    return table


def ranges_of(options: Mapping[str, Any]) -> dict[str, float]:
    """Largest position [rad], velocity [rad/s], torque [N m], kp [N m/rad] and kd [N m s/rad].

    By the options of a drive: `ranges`, a mapping of these, or `motor`, a name in the table.
    """
    given = options.get("ranges") or (_table()[options["motor"]] if options.get("motor") else MINI_CHEETAH)
    return {name: float(constant(given[name])) for name in MINI_CHEETAH}


class MitReader(CommandReader):
    """Eight bytes, most significant bit first: position 16, velocity 12, kp 12, kd 12, torque 12."""

    def __init__(self, findings: CommandFindings, drive: DriveSettings) -> None:
        super().__init__(findings, drive)
        self._largest = ranges_of(drive.options)["torque"]
        self.quantum = 2 * self._largest / 4095

    @property
    def identities(self) -> Collection[int]:
        return [self.drive.node]

    def read(self, frame: Frame) -> None:
        data = frame.data
        if len(data) != 8:
            self.wrong(f"a command of {len(data)} bytes, expected 8", frame)
        elif data[:6] == b"\xff" * 6 and data[7] >= 0xFA:
            if data[7] == 0xFC:
                self.enable()
            elif data[7] == 0xFD:
                self.disable()
        else:
            if (data[3] & 0x0F) << 8 | data[4]:
                self.wrong("a stiffness that is not zero", frame)
            if (data[5] or data[6] >> 4) and data[2:4] not in (b"\x7f\xf0", b"\x80\x00"):
                self.wrong("a damping around a velocity that is not zero", frame)
            number = (data[6] & 0x0F) << 8 | data[7]
            self.torque(-self._largest + number * 2 * self._largest / 4095, frame)


class MoteusReader(CommandReader):
    """Mode (register 0) first; torque as a float in register 0x22, position NaN, gains 0."""

    @property
    def identities(self) -> Collection[int]:
        number = int(constant(self.drive.options.get("source") or 0)) << 8 | self.drive.node
        return [each | (each > 0x7FF) << 29 for each in (0x8000 | number, number)]

    def read(self, frame: Frame) -> None:
        data = frame.data
        if data[:2] != b"\x01\x00":
            if data[:1] < b"\x10":
                self.wrong("registers without a mode before them", frame)
        elif data[2] == 10:
            if data[3:8] != b"\x01\x20\x80\x0d\x22" or data[12:16] != b"\x02\x23\x00\x00":
                self.wrong("a setpoint that is no torque", frame)
            else:
                self.torque(struct.unpack("<f", data[8:12])[0], frame)
            self.enable()
        else:
            self.disable()


class RobStrideReader(CommandReader):
    """Id of 29 bits: kind in bits 24 to 28, torque of kind 1 in bits 8 to 23, the motor below; kp and kd last."""

    def __init__(self, findings: CommandFindings, drive: DriveSettings) -> None:
        super().__init__(findings, drive)
        self._largest = ranges_of(drive.options)["torque"]
        self.quantum = 2 * self._largest / 65535
        self.family = IdFamily(1 << 29 | 0xFF, 1 << 29 | drive.node)

    @property
    def identities(self) -> Collection[int]:
        return []

    def read(self, frame: Frame) -> None:
        kind = frame.id // 0x100_0000
        if kind == 3:
            self.enable()
        elif kind == 4:
            self.disable()
        elif kind == 1:
            if len(frame.data) != 8 or any(frame.data[4:6]):
                self.wrong("a stiffness that is not zero", frame)
            elif any(frame.data[6:]) and frame.data[2:4] not in (b"\x7f\xff", b"\x80\x00"):
                self.wrong("a damping around a velocity that is not zero", frame)
            number = frame.id // 0x100 % 0x10000
            self.torque(-self._largest + number * 2 * self._largest / 65535, frame)
