"""An emulated drive that speaks MIT frames: position, velocity, gains and torque in eight bytes.

Each command gets one reply. All drives reply with the host's id; the first byte is the drive's own id. A Damiao also
answers requests about its registers, and uses the ranges, the time-out and the mode that they hold.

Source: mini-cheetah motor driver and its descendants; CubeMars AK manual V1.0.8; ranges from the config.
"""

from hil.drives.settings import SensorSettings
from hil.emulator.damiao import CTRL_MODE, MIT_MODE, MST_ID, PMAX, REQUEST, TICK, TIMEOUT, TMAX, VMAX, EmulatedRegisters
from hil.emulator.impedance import Impedance, ImpedanceCommand, ranges_of
from hil.emulator.node import EmulatedDrive
from hil.emulator.timers import Watchdog
from hil.frame import Frame
from hil.loop.clock import nanoseconds

ENABLE, DISABLE, SET_ZERO, CLEAR_FAULT = 0xFC, 0xFD, 0xFE, 0xFB

DAMIAO_DISABLED, DAMIAO_ENABLED, DAMIAO_LOST = 0x0, 0x1, 0xD


def pack(value: float, low: float, high: float, bits: int) -> int:
    """A number as an unsigned integer of some bits that spans the range from `low` to `high`."""
    most = (1 << bits) - 1
    return min(most, max(0, int((value - low) * most / (high - low))))


def unpack(number: int, low: float, high: float, bits: int) -> float:
    """Inverse of `pack`."""
    return low + number * (high - low) / ((1 << bits) - 1)


class Mit(EmulatedDrive):
    """An MIT drive.

    Options: `ranges` or `motor`; `host` (0): id of replies; `status`: `none`, `cubemars` or `damiao`; `drive_watchdog`:
    whether it has a watchdog, with the timeout of the settings. Quirks: `watchdog`: the same; `position_end`: `wrap` or
    `saturate`, at the end of the position range; `registers`: register of a Damiao -> its value at power-on.
    """

    usual_code = 2

    def set_up(self) -> None:
        self._position, self._velocity, self._torque, self._kp, self._kd = ranges_of(self._options).values()
        self._wraps = self.option("position_end", "wrap") == "wrap"
        self._host, self._status = int(self.number("host", 0)), str(self.option("status", "none"))
        self.overheat_code = 0xC if self._status == "damiao" else 1
        self.overvoltage_code = 8 if self._status == "damiao" else 3
        self._watchdog = Watchdog(self.world, self._starved)
        self._starving = False
        self.fault = 0
        self._impedance = Impedance(self.world, self.encoder, self.motor)
        self._registers: EmulatedRegisters | None = None

    @staticmethod
    def error_codes(settings: SensorSettings) -> tuple[int, int]:
        # of a Damiao's status, 0 is disabled and 1 is enabled
        return (0x2, 0xF) if settings.options.get("status") == "damiao" else (1, 0xFF)

    def listens(self) -> frozenset[int]:
        return frozenset({self.settings.node, REQUEST} if self._status == "damiao" else {self.settings.node})

    def boot(self) -> None:
        self.fault, self._starving = 0, False
        self._impedance.restart()
        if self._status == "damiao":
            self._boot_registers()

    def _boot_registers(self) -> None:
        """Registers as they are saved in the drive."""
        position, velocity, torque, _, _ = ranges_of(self._options).values()
        watched = self.option("watchdog", self.option("drive_watchdog", False))
        values: dict[int, float] = {
            MST_ID: self._host, CTRL_MODE: MIT_MODE, PMAX: position, VMAX: velocity, TMAX: torque,
            TIMEOUT: nanoseconds(self.settings.watchdog) // TICK if watched else 0,
        }  # fmt: skip
        values |= self.option("registers", {})
        self._registers = EmulatedRegisters(
            self.settings.node, values, lambda: self.encoder.read(self.world.now)[0], self._reply, self._written
        )
        for register in (PMAX, VMAX, TMAX):
            self._written(register)

    def _written(self, register: int) -> None:
        """Uses a new value of a register."""
        assert self._registers is not None
        value = self._registers.values[register]
        if register == PMAX:
            self._position = value
        elif register == VMAX:
            self._velocity = value
        elif register == TMAX:
            self._torque, self.torque_table = value, 1.0

    def halt(self) -> None:
        self._off()

    def trip(self, code: int) -> None:
        self.fault = code
        self._off()

    def clear_fault(self) -> None:
        self.fault = 0

    def receive(self, frame: Frame) -> None:
        if not self.station.powered or frame.remote or len(frame.data) != 8:
            return
        if self._registers is not None:
            if frame.id == REQUEST:
                self._registers.values[TMAX] = self._torque * self.torque_table
                if (answer := self._registers.answer(frame.data)) is not None:
                    self.send(self._host, answer)
                return
            if self._registers.values[CTRL_MODE] != MIT_MODE and frame.data[:6] != b"\xff" * 6:
                self._reply()  # a setpoint of another mode has another id
                return
        if frame.data[:7] == b"\xff" * 7 and frame.data[7] in (ENABLE, DISABLE, SET_ZERO, CLEAR_FAULT):
            self._special(frame.data[7])
        elif frame.data[:6] == b"\xff" * 6 and frame.data[7] == CLEAR_FAULT:
            self._special(CLEAR_FAULT)
        else:
            self._command(int.from_bytes(frame.data, "big"))
        self._reply()

    def _special(self, code: int) -> None:
        if code == ENABLE and not self.fault and not self.refuses:
            self._starving = False
            self._impedance.wanted = ImpedanceCommand()
            self.motor.enable(0.0)
            if timeout := self._timeout():
                self._watchdog.start(timeout)
        elif code == DISABLE:
            self._off()
        elif code == SET_ZERO:
            self._impedance.set_zero()
        elif code == CLEAR_FAULT:
            self.fault, self._starving = 0, False

    def _timeout(self) -> int:
        """Time without commands after which it stops [ns]; 0: never."""
        if self._registers is not None:
            return int(self._registers.values[TIMEOUT]) * TICK
        watched = self.option("watchdog", self.option("drive_watchdog", False))
        return nanoseconds(self.settings.watchdog) if watched else 0

    def _command(self, bits: int) -> None:
        self._watchdog.feed()
        torque = self._torque * self.torque_table
        self._impedance.wanted = ImpedanceCommand(
            unpack(bits >> 48 & 0xFFFF, -self._position, self._position, 16),
            unpack(bits >> 36 & 0xFFF, -self._velocity, self._velocity, 12),
            unpack(bits >> 24 & 0xFFF, 0.0, self._kp, 12),
            unpack(bits >> 12 & 0xFFF, 0.0, self._kd, 12),
            unpack(bits & 0xFFF, -torque, torque, 12),
        )
        if self.motor.enabled:
            self._impedance.regulate()

    def _reply(self) -> None:
        position, velocity, torque = self._impedance.motion()
        largest, end = self._torque * self.torque_table, self._position
        if self._wraps:
            position = (position + end) % (2 * end) - end
        bits = pack(position, -end, end, 16) << 24
        bits |= pack(velocity, -self._velocity, self._velocity, 12) << 12
        bits |= pack(torque, -largest, largest, 12)
        first, more, hot = self.settings.node & 0xFF, b"", round(min(127.0, self.temperature()))
        if self._status == "cubemars":
            more = bytes([hot & 0xFF, self.fault])
        elif self._status == "damiao":
            first = self.settings.node & 0xF | self._damiao() << 4
            more = bytes([max(0, hot)] * 2)
        self.send(self._host, bytes([first]) + bits.to_bytes(5, "big") + more)

    def _damiao(self) -> int:
        if self.fault:
            return self.fault & 0xF
        if self._starving:
            return DAMIAO_LOST
        return DAMIAO_ENABLED if self.motor.enabled else DAMIAO_DISABLED

    def _off(self) -> None:
        self._impedance.stop()
        self._watchdog.stop()
        self.stop_braking()
        self.motor.disable()

    def _starved(self) -> None:
        self._starving = True
        self._off()
