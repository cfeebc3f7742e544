"""An emulated drive that speaks MIT frames: position, velocity, gains and torque in eight bytes.

Each command gets one reply. All drives reply with the host's id; the first byte is the drive's own id. A Damiao also
answers requests for its registers, and uses the ranges, the time-out and the mode that they hold; it lets none be
written.

Source: mini-cheetah motor driver and its descendants; CubeMars AK manual V1.0.8; ranges from the config.
"""

import struct

from hil.codecs import mit as codec
from hil.drives.settings import SensorSettings
from hil.emulator.impedance import NOTHING, ImpedanceDrive, ranges_of
from hil.frame import Frame
from hil.loop.clock import nanoseconds

ESC_ID, GEAR, P_MOTOR, X_OUT = 8, 20, 80, codec.LAST_REGISTER
KNOWN = frozenset({*range(37), *range(50, 57), *range(59, 66), P_MOTOR, X_OUT})  # its registers

USUAL = {0: 15.0, 1: 0.9, 2: 100.0, 3: 0.9, 6: 30.0, 14: 5013, 16: 14, GEAR: 10.0, 29: 32.0, 30: 1.0, 60: 24.0,
         61: 25.0, 62: 25.0}  # fmt: skip
"""Values of registers that have no effect here: voltages, temperatures, versions."""

TICK = nanoseconds(codec.TICK)


class Mit(ImpedanceDrive):
    """An MIT drive.

    Options: those of `ImpedanceDrive`; `host` (0): id of replies; `status`: `none`, `cubemars` or `damiao`;
    `drive_watchdog`: whether it has a watchdog, with the timeout of the settings. For tests: `registers`: register of
    a Damiao -> its value at power-on.
    """

    fields = codec.FIELDS
    usual_code = 2

    def set_up(self) -> None:
        super().set_up()
        self._host, self._status = int(self.number("host", 0)), str(self.option("status", "none"))
        self.overheat_code = 0xC if self._status == "damiao" else 1
        self.overvoltage_code = 8 if self._status == "damiao" else 3
        self._registers: dict[int, float] = {}  # registers of a Damiao -> their values; empty: it has none

    @classmethod
    def error_codes(cls, settings: SensorSettings) -> tuple[int, int]:
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
        ranges = ranges_of(self.settings.options)
        self._registers = {
            **USUAL, ESC_ID: self.settings.node, codec.MASTER_ID: self._host, codec.CONTROL_MODE: codec.MIT_MODE,
            codec.PMAX: ranges.position, codec.VMAX: ranges.velocity, codec.TMAX: ranges.torque,
            codec.TIMEOUT: self._timeout // TICK,
            **self.option("registers", {}),
        }  # fmt: skip
        position, velocity, torque = (self._registers[each] for each in (codec.PMAX, codec.VMAX, codec.TMAX))
        self._ranges = ranges._replace(position=position, velocity=velocity, torque=torque)
        self.torque_table = 1.0

    def _ask(self, data: bytes) -> None:
        """Answers a request for a register; one to another drive, or for none that it has, gets no answer."""
        if len(data) < 4 or data[0] | data[1] << 8 != self.settings.node:
            return
        register = data[3]
        if data[2] == codec.REFRESH:
            self._reply()
        elif data[2] == codec.READ and register in KNOWN:
            measured = {codec.TMAX: self._ranges.torque * self.torque_table}
            if register in (P_MOTOR, X_OUT):
                measured[register] = self.encoder.read(self.world.now)[0]
            value = (self._registers | measured).get(register, 0.0)
            packed = struct.pack("<I", int(value)) if register in codec.COUNTS else struct.pack("<f", value)
            self.send(self._host, data[:4] + packed)

    def receive(self, frame: Frame) -> None:
        if self.ignores(frame):
            return
        if self._registers:
            if frame.id == codec.REGISTERS:
                self._ask(frame.data)
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
        self._reply()

    def _special(self, code: int) -> None:
        if code == codec.ENABLE and not self.fault and not self.refuses:
            self._starving = False
            self._wanted = NOTHING
            self.motor.enable(0.0)
            self._watchdog.start(self._timeout)
        elif code == codec.DISABLE:
            self._off()
        elif code == codec.SET_ZERO:
            self._set_zero()
        elif code == codec.CLEAR_FAULT:
            self.fault, self._starving = 0, False

    @property
    def _timeout(self) -> int:
        if self._registers:
            return int(self._registers[codec.TIMEOUT]) * TICK
        return nanoseconds(self.settings.watchdog) if self.option("drive_watchdog", False) else 0

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
