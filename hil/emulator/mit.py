"""An emulated drive that speaks MIT frames: position, velocity, gains and torque in eight bytes.

Each command gets one reply. All drives reply with the host's id; the first byte is the drive's own id. A Damiao also
answers requests about its registers, and uses the ranges, the time-out and the mode that they hold.

Source: mini-cheetah motor driver and its descendants; CubeMars AK manual V1.0.8; ranges from the config.
"""

import struct

from hil.codecs import mit as codec
from hil.drives.settings import SensorSettings
from hil.emulator.impedance import ImpedanceCommand, ImpedanceDrive
from hil.emulator.readers import ranges_of
from hil.frame import Frame
from hil.loop.clock import nanoseconds

ESC_ID, GEAR, P_MOTOR, X_OUT = 8, 20, 80, codec.LAST_REGISTER

_WRITABLE = frozenset({*range(11), *range(21, 36)})
_KNOWN = frozenset({*range(37), *range(50, 57), *range(59, 66), P_MOTOR, X_OUT})

_USUAL = {0: 15.0, 1: 0.9, 2: 100.0, 3: 0.9, 6: 30.0, 14: 5013, 16: 14, GEAR: 10.0, 29: 32.0, 30: 1.0, 60: 24.0,
          61: 25.0, 62: 25.0}  # fmt: skip
"""Values of registers that have no effect here: voltages, temperatures, versions."""

TICK = nanoseconds(codec.TICK)


class Mit(ImpedanceDrive):
    """An MIT drive.

    Options: those of `ImpedanceDrive`; `host` (0): id of replies; `status`: `none`, `cubemars` or `damiao`;
    `drive_watchdog`: whether it has a watchdog, with the timeout of the settings. For tests: `watchdog`: the same;
    `registers`: register of a Damiao -> its value at power-on.
    """

    fields = codec.FIELDS
    usual_code = 2

    def set_up(self) -> None:
        super().set_up()
        self._host, self._status = int(self.number("host", 0)), str(self.option("status", "none"))
        self.overheat_code = 0xC if self._status == "damiao" else 1
        self.overvoltage_code = 8 if self._status == "damiao" else 3
        self._starving = False
        self._registers: dict[int, float] = {}  # registers of a Damiao -> their values; empty: it has none

    @staticmethod
    def error_codes(settings: SensorSettings) -> tuple[int, int]:
        # of a Damiao's status, 0 is disabled and 1 is enabled
        return (0x2, 0xF) if settings.options.get("status") == "damiao" else (1, 0xFF)

    def listens(self) -> frozenset[int]:
        return frozenset({self.settings.node, codec.REGISTERS} if self._status == "damiao" else {self.settings.node})

    def boot(self) -> None:
        super().boot()
        self._starving = False
        if self._status == "damiao":
            self._boot_registers()

    def _boot_registers(self) -> None:
        position, velocity, torque, _, _ = ranges_of(self.settings.options).values()
        watched = self.option("watchdog", self.option("drive_watchdog", False))
        values: dict[int, float] = {
            codec.MASTER_ID: self._host, codec.CONTROL_MODE: codec.MIT_MODE,
            codec.PMAX: position, codec.VMAX: velocity, codec.TMAX: torque,
            codec.TIMEOUT: nanoseconds(self.settings.watchdog) // TICK if watched else 0,
        }  # fmt: skip
        values |= self.option("registers", {})
        self._registers = {**dict.fromkeys(_KNOWN, 0.0), **_USUAL, ESC_ID: self.settings.node, **values}
        for register in (codec.PMAX, codec.VMAX, codec.TMAX):
            self._written(register)

    def _written(self, register: int) -> None:
        value = self._registers[register]
        if register == codec.PMAX:
            self._position = value
        elif register == codec.VMAX:
            self._velocity = value
        elif register == codec.TMAX:
            self._torque, self.torque_table = value, 1.0

    def _about_registers(self, data: bytes) -> bytes | None:
        """The answer to a request; None: it is for another drive, or has no answer of its own."""
        if len(data) < 4 or data[0] | data[1] << 8 != self.settings.node:
            return None
        values, command, register = self._registers, data[2], data[3]
        if command == codec.REFRESH:
            self._reply()
        elif command == codec.SAVE:
            return data[:4].ljust(8, b"\0")
        elif register in _KNOWN and command == codec.READ:
            if register in (P_MOTOR, X_OUT):
                values[register] = self.encoder.read(self.world.now)[0]
            return data[:4] + _packed(register, values[register])
        elif register in _WRITABLE and command == codec.WRITE and len(data) == 8:
            values[register] = struct.unpack_from("<I" if register in codec.COUNTS else "<f", data, 4)[0]
            self._written(register)
            return data[:4] + _packed(register, values[register])
        return None

    def trip(self, code: int) -> None:
        self.fault = code
        self._off()

    def receive(self, frame: Frame) -> None:
        if not self.station.powered or frame.remote or len(frame.data) != 8:
            return
        if self._registers:
            if frame.id == codec.REGISTERS:
                self._registers[codec.TMAX] = self._torque * self.torque_table
                if (answer := self._about_registers(frame.data)) is not None:
                    self.send(self._host, answer)
                return
            if self._registers[codec.CONTROL_MODE] != codec.MIT_MODE and frame.data[:6] != codec.SPECIAL[:6]:
                self._reply()  # a setpoint of another mode has another id
                return
        code = frame.data[7]
        known = codec.ENABLE, codec.DISABLE, codec.SET_ZERO, codec.CLEAR_FAULT
        if frame.data.startswith(codec.SPECIAL[: 6 if code == codec.CLEAR_FAULT else 7]) and code in known:
            self._special(code)
        else:
            self._watchdog.feed()
            self._follow(frame)
            if self.motor.enabled:
                self._regulate()
        self._reply()

    def _special(self, code: int) -> None:
        if code == codec.ENABLE and not self.fault and not self.refuses:
            self._starving = False
            self._wanted = ImpedanceCommand()
            self.motor.enable(0.0)
            if timeout := self._timeout():
                self._watchdog.start(timeout)
        elif code == codec.DISABLE:
            self._off()
        elif code == codec.SET_ZERO:
            self._set_zero()
        elif code == codec.CLEAR_FAULT:
            self.fault, self._starving = 0, False

    def _timeout(self) -> int:
        if self._registers:
            return int(self._registers[codec.TIMEOUT]) * TICK
        watched = self.option("watchdog", self.option("drive_watchdog", False))
        return nanoseconds(self.settings.watchdog) if watched else 0

    def _reply(self) -> None:
        node, hot = self.settings.node, round(min(127.0, self.temperature()))
        data = bytes([node & 0xFF, *bytes(5)])
        if self._status == "cubemars":
            data += bytes([hot & 0xFF, self.fault])
        elif self._status == "damiao":
            data = bytes([node & 0xF | self._damiao() << 4, *bytes(5), *[max(0, hot)] * 2])
        self.send(self._host, self._with_motion(data))

    def _damiao(self) -> int:
        if self.fault:
            return self.fault & 0xF
        if self._starving:
            return codec.DAMIAO_LOST
        return codec.DAMIAO_ENABLED if self.motor.enabled else codec.DAMIAO_DISABLED

    def _starved(self) -> None:
        self._starving = True
        self._off()


def _packed(register: int, value: float) -> bytes:
    return struct.pack("<I", int(value)) if register in codec.COUNTS else struct.pack("<f", value)
