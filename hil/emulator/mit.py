"""An emulated drive that speaks MIT frames: position, velocity, gains and torque in eight bytes.

Each command gets one reply. All drives reply with the host's id; the first byte is the drive's own id. A Damiao also
answers requests about its registers, and uses the ranges, the time-out and the mode that they hold.

Source: mini-cheetah motor driver and its descendants; CubeMars AK manual V1.0.8; ranges from the config.
"""

from hil.codecs import damiao
from hil.codecs import mit as codec
from hil.drives.settings import SensorSettings
from hil.emulator.damiao import EmulatedRegisters
from hil.emulator.impedance import Impedance, ImpedanceCommand, number_in, ranges_of, written
from hil.emulator.node import EmulatedDrive
from hil.emulator.timers import Watchdog
from hil.frame import Frame
from hil.loop.clock import nanoseconds

TICK = nanoseconds(damiao.TICK)


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
        return frozenset({self.settings.node, damiao.REQUEST} if self._status == "damiao" else {self.settings.node})

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
            damiao.MASTER_ID: self._host, damiao.CONTROL_MODE: damiao.MIT_MODE,
            damiao.PMAX: position, damiao.VMAX: velocity, damiao.TMAX: torque,
            damiao.TIMEOUT: nanoseconds(self.settings.watchdog) // TICK if watched else 0,
        }  # fmt: skip
        values |= self.option("registers", {})
        self._registers = EmulatedRegisters(
            self.settings.node, values, lambda: self.encoder.read(self.world.now)[0], self._reply, self._written
        )
        for register in (damiao.PMAX, damiao.VMAX, damiao.TMAX):
            self._written(register)

    def _written(self, register: int) -> None:
        """Uses a new value of a register."""
        assert self._registers is not None
        value = self._registers.values[register]
        if register == damiao.PMAX:
            self._position = value
        elif register == damiao.VMAX:
            self._velocity = value
        elif register == damiao.TMAX:
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
            if frame.id == damiao.REQUEST:
                self._registers.values[damiao.TMAX] = self._torque * self.torque_table
                if (answer := self._registers.answer(frame.data)) is not None:
                    self.send(self._host, answer)
                return
            if self._registers.values[damiao.CONTROL_MODE] != damiao.MIT_MODE and frame.data[:6] != codec.SPECIAL[:6]:
                self._reply()  # a setpoint of another mode has another id
                return
        code = frame.data[7]
        known = codec.ENABLE, codec.DISABLE, codec.SET_ZERO, codec.CLEAR_FAULT
        if frame.data.startswith(codec.SPECIAL[: 6 if code == codec.CLEAR_FAULT else 7]) and code in known:
            self._special(code)
        else:
            self._command(frame.data)
        self._reply()

    def _special(self, code: int) -> None:
        if code == codec.ENABLE and not self.fault and not self.refuses:
            self._starving = False
            self._impedance.wanted = ImpedanceCommand()
            self.motor.enable(0.0)
            if timeout := self._timeout():
                self._watchdog.start(timeout)
        elif code == codec.DISABLE:
            self._off()
        elif code == codec.SET_ZERO:
            self._impedance.set_zero()
        elif code == codec.CLEAR_FAULT:
            self.fault, self._starving = 0, False

    def _timeout(self) -> int:
        """Time without commands after which it stops [ns]; 0: never."""
        if self._registers is not None:
            return int(self._registers.values[damiao.TIMEOUT]) * TICK
        watched = self.option("watchdog", self.option("drive_watchdog", False))
        return nanoseconds(self.settings.watchdog) if watched else 0

    def _command(self, data: bytes) -> None:
        self._watchdog.feed()
        self._impedance.wanted = ImpedanceCommand(
            number_in(codec.COMMAND_POSITION, data, self._position),
            number_in(codec.COMMAND_VELOCITY, data, self._velocity),
            self._kp * codec.COMMAND_STIFFNESS.read(data) / codec.COMMAND_STIFFNESS.mask,
            self._kd * codec.COMMAND_DAMPING.read(data) / codec.COMMAND_DAMPING.mask,
            number_in(codec.COMMAND_TORQUE, data, self._torque * self.torque_table),
        )
        if self.motor.enabled:
            self._impedance.regulate()

    def _reply(self) -> None:
        position, velocity, torque = self._impedance.motion()
        end, node, hot = self._position, self.settings.node, round(min(127.0, self.temperature()))
        if self._wraps:
            position = (position + end) % (2 * end) - end
        data = bytes([node & 0xFF, *bytes(5)])
        if self._status == "cubemars":
            data += bytes([hot & 0xFF, self.fault])
        elif self._status == "damiao":
            data = bytes([node & 0xF | self._damiao() << 4, *bytes(5), *[max(0, hot)] * 2])
        data = written(codec.POSITION, data, position, end)
        data = written(codec.VELOCITY, data, velocity, self._velocity)
        self.send(self._host, written(codec.TORQUE, data, torque, self._torque * self.torque_table))

    def _damiao(self) -> int:
        if self.fault:
            return self.fault & 0xF
        if self._starving:
            return codec.DAMIAO_LOST
        return codec.DAMIAO_ENABLED if self.motor.enabled else codec.DAMIAO_DISABLED

    def _off(self) -> None:
        self._impedance.stop()
        self._watchdog.stop()
        self.stop_braking()
        self.motor.disable()

    def _starved(self) -> None:
        self._starving = True
        self._off()
