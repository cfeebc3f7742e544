"""An emulated moteus: registers over CAN FD, position mode, and a watchdog whose mode stays until a stop.

A frame is answered with the state before its command, as the firmware does. Modes of voltage and current, `stay within`
and limits of velocity and acceleration are not emulated.

Source: mjbots/moteus, docs/protocol, docs/reference/configuration.md, fw/moteus_controller.cc for what writing the mode
resets, and fw/bldc_servo_control.h; what `servo.timeout_mode` does was measured on its control code with a motor model:
with 12 the shaft coasts after a torque command, whose kd scale is 0; 15 brakes it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan, nan, tau

from hil.codecs import moteus as codec
from hil.drives.settings import SensorSettings
from hil.emulator.node import EmulatedDrive
from hil.emulator.timers import Watchdog
from hil.frame import FD_SIZES, Frame
from hil.loop.clock import SECOND, Event, cancel, nanoseconds

COMMAND_FIELDS = {
    0x020: "position",
    0x021: "velocity",
    0x022: "torque",
    0x023: "kp_scale",
    0x024: "kd_scale",
    0x025: "max_torque",
    0x027: "timeout",
    0x02B: "ilimit_scale",
    0x02D: "ignore_bounds",
}
"""Register -> field of `MoteusCommand`."""

_IGNORED = frozenset({0x010, 0x011, 0x012, *range(0x014, 0x01F), 0x026, 0x028, 0x029, 0x02A, 0x02C})
"""Registers of modes and limits that are taken and have no effect here."""

_MODEL, _FIRMWARE, _MAP_VERSION = 0x20, 0x010A, 5
_IDENTITY = {0x100: _MODEL, 0x101: _FIRMWARE, 0x102: _MAP_VERSION, 0x158: 1}
_SERIAL, _UUID = 0x120, 0x150


@dataclass
class MoteusCommand:
    """A command; its defaults are what a write of the mode resets it to."""

    mode: int
    position: float = 0.0  # position [rev]; NaN: where the shaft is
    velocity: float = 0.0  # [rev/s] velocity
    torque: float = 0.0  # [N m] feedforward torque
    kp_scale: float = 1.0  # factor of the stiffness
    kd_scale: float = 1.0  # factor of the damping
    max_torque: float = inf  # [N m] largest torque
    timeout: float = 0.0  # watchdog [s]; 0: that of the settings; NaN: none
    ilimit_scale: float = 1.0  # factor of the limit of the integral, which is 0 in the default settings
    ignore_bounds: float = 0.0  # whether the bounds of the position do not count

    def write(self, register: int, value: float) -> bool:
        """Writes a register of the command; returns whether there is one."""
        name = COMMAND_FIELDS.get(register)
        if name is not None:
            setattr(self, name, value)
        return name is not None or register in _IGNORED

    def read(self, register: int) -> float | None:
        """Value of a register of the command; None if there is none."""
        name = COMMAND_FIELDS.get(register)
        return 0.0 if name is None and register in _IGNORED else None if name is None else float(getattr(self, name))


def fixed(register: int, node: int) -> float | None:
    """Value of a register that never changes, in the drive with this id; None if there is none."""
    if register == 0x110:
        return node
    if register in _IDENTITY:
        return _IDENTITY[register]
    if _SERIAL <= register < _SERIAL + 3 or _UUID <= register < _UUID + 4:
        return 0x1000 * node + register
    idle = register in (0x004, 0x005) or 0x030 <= register <= 0x048 or 0x052 <= register <= 0x07F
    return 0 if idle else None


INT32_ONLY = frozenset({0x100, 0x101, 0x102, *range(0x120, 0x123), *range(0x150, 0x154), 0x158})
"""Registers that are answered only with 32 bits."""


MOST = 61  # most bytes of text in one frame


def _settings(node: int, timeout_mode: int) -> dict[str, int | float]:
    """Settings by name, as `conf get` shows them: the defaults of the firmware, but for these two."""
    return {
        "id.id": node, "can.prefix": 0, "servo.timeout_mode": timeout_mode, "servo.default_timeout_s": 0.1,
        "servo.timeout_max_torque_Nm": 5.0, "servo.max_current_A": 100.0, "servo.max_velocity": 500.0,
        "servo.default_velocity_limit": nan, "servo.default_accel_limit": nan, "servo.fault_position_error": nan,
        "servo.fault_velocity_error": nan, "servo.pid_position.kp": 4.0, "servo.pid_position.ki": 1.0,
        "servo.pid_position.kd": 0.05, "servo.pid_position.ilimit": 0.0, "servopos.position_min": nan,
        "servopos.position_max": nan, "motor_position.rotor_to_output_ratio": 1.0,
    }  # fmt: skip


STOPPED, FAULT, POSITION, TIMEOUT, ZERO_VELOCITY, BRAKE = 0, 1, 10, 11, 12, 15
_MODES = range(16)
_MODES_OF_MASTERS = (STOPPED, POSITION, ZERO_VELOCITY, BRAKE)
"""Modes that can be written here; the others change nothing."""

OUTSIDE_LIMIT, LIMITED_BY_CURRENT, LIMITED_BY_COMMAND = 39, 99, 102

SHORTED = 200.0  # [1/s] rate at which shorted phases brake a motor

REPLY_BIT, EXTENDED = 0x8000, 1 << 29


class Moteus(EmulatedDrive):
    """A moteus.

    Options: `timeout_mode` (15): `servo.timeout_mode`. Quirks: `home_state` (2); `watchdog`: false switches it off;
    `bus_voltage` [V] (24).
    """

    special_faults = frozenset({"encoder_nan"})
    usual_code, overvoltage_code, overheat_code = 33, 34, 38

    def set_up(self) -> None:
        self.mode = STOPPED
        self.fault = 0
        # settings by name, as its console reads and writes them
        self.registers = _settings(self.settings.node, int(self.number("timeout_mode", 15)))
        self._line = self._answers = b""
        self._command = MoteusCommand(STOPPED)
        self._watchdog = Watchdog(self.world, self._starved)
        self._regulating: Event | None = None
        self._held: float | None = None
        self._limited = 0
        self._zero = 0.0
        self._home = 0
        self._since = 0

    @staticmethod
    def error_codes(settings: SensorSettings) -> tuple[int, int]:
        return 32, 95

    def listens(self) -> frozenset[int]:
        node = self.settings.node
        ids = [wanted | source << 8 | node for wanted in (0, REPLY_BIT) for source in range(128)]
        return frozenset(identity | EXTENDED if identity > 0x7FF else identity for identity in ids)

    def boot(self) -> None:
        self._since = self.world.now
        self.mode, self.fault = STOPPED, 0
        self._zero, self._home = 0.0, int(self.number("home_state", 2))

    def halt(self) -> None:
        self._off(STOPPED)

    def trip(self, code: int) -> None:
        self._off(FAULT)
        self.fault = code

    def clear_fault(self) -> None:
        if self.mode == FAULT:
            self._off(STOPPED)

    def receive(self, frame: Frame) -> None:
        """Obeys a frame; an answer that its frame has no room for is left out."""
        if not self.station.powered or frame.remote:
            return
        answer = b""
        mode: int | None = None
        command = self._command
        measured: dict[int, float] | None = None
        for part in _known(frame.data):
            if part.kind == codec.READ:
                measured = measured or self._measured()
                answer += _fitting(answer, self._read(part.first, part.number, part.resolution, measured))
            elif part.kind == codec.TUNNEL_WRITE and part.first == codec.CHANNEL:
                self._write_console(part.text)
                measured = None
            elif part.kind == codec.TUNNEL_POLL and part.first == codec.CHANNEL:
                room = FD_SIZES[-1] - len(answer) - len(codec.tunnelled(codec.TUNNEL_DATA, b""))
                if room >= 0:
                    answer += codec.tunnelled(codec.TUNNEL_DATA, self._read_console(min(part.number, room)))
            for register, value in enumerate(part.values if part.kind == codec.WRITE else (), part.first):
                if register == codec.MODE and value in _MODES:
                    mode = int(value)
                    command = MoteusCommand(mode)
                elif register in (codec.SET_OUTPUT_NEAREST, codec.SET_OUTPUT_EXACT):
                    self._set_output(value, register == codec.SET_OUTPUT_EXACT)
                    measured = None
                else:
                    if mode is None:  # a frame that does not write the mode changes nothing
                        command = replace(self._command)
                    if not command.write(register, value):
                        answer += _fitting(answer, codec.error(codec.WRITE_ERROR, register))
        if frame.id & REPLY_BIT and answer:
            self.send(self.settings.node << 8 | frame.id >> 8 & 0x7F, codec.padded(answer))
        if mode is not None:
            self._obey(command)

    def _read(self, first: int, count: int, resolution: int, measured: Mapping[int, float]) -> bytes:
        """Answer to a read: the values in one subframe, or an error where a register does not exist."""
        if count > FD_SIZES[-1]:  # each value takes a byte at least
            return b""
        values = [self._value(register, resolution, measured) for register in range(first, first + count)]
        known = [value for value in values if value is not None]
        if len(known) == count:
            return codec.reply(first, known, resolution)
        return b"".join(
            codec.error(codec.READ_ERROR, register) if value is None else codec.reply(register, [value], resolution)
            for register, value in enumerate(values, first)
        )

    def _value(self, register: int, resolution: int, measured: Mapping[int, float]) -> float | None:
        """Value of a register [its unit]; None if there is none, or not at this resolution."""
        value = measured.get(register)
        if value is None and (resolution == 2 or register not in INT32_ONLY):
            value = fixed(register, self.settings.node)
            value = self._command.read(register) if value is None else value
        return value

    def _measured(self) -> dict[int, float]:
        """Register -> value of what it measures [its unit]."""
        position, velocity = self._motion()
        torque = self.motor.torque() / self.torque_table
        limited = self._limited or (LIMITED_BY_CURRENT if self.motor.saturated else 0)
        mode, fault = self.mode, limited if self.mode == POSITION else self.fault
        milliseconds = (self.world.now - self._since) // (SECOND // 1000)
        temperature = self.temperature()  # it may switch the drive off, which the next answer shows
        return {
            0x000: mode, 0x001: position, 0x002: velocity, 0x003: torque, 0x006: nan,
            0x007: torque * velocity * 6.283185307179586, 0x00A: temperature, 0x00B: 1, 0x00C: self._home,
            0x00D: self.voltage(24.0), 0x00E: temperature, 0x00F: fault, 0x038: nan, 0x039: nan, 0x03A: torque,
            0x050: position % 1.0, 0x051: velocity, 0x058: 0b11, 0x070: milliseconds % (1 << 23), 0x071: 0,
        }  # fmt: skip

    def _motion(self) -> tuple[float, float]:
        """Position [rev] and velocity [rev/s] of the output."""
        position, velocity = self.encoder.read(self.world.now)
        return position / tau - self._zero, velocity / tau

    def _set_output(self, value: float, exact: bool) -> None:
        position, _ = self._motion()
        if isfinite(position) and isfinite(value):
            self._zero += position - (value if exact else value + round(position - value))
            self._home = 2

    def _write_console(self, text: bytes) -> None:
        """Takes text for the console; each whole line is carried out."""
        *lines, self._line = (self._line + text).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            if words := line.decode(errors="replace").split():
                self._answers += self._told(words).encode() + b"\r\n"

    def _read_console(self, most: int) -> bytes:
        """The next bytes of the answers, at most so many."""
        count = min(most, MOST)
        part, self._answers = self._answers[:count], self._answers[count:]
        return part

    def _told(self, words: list[str]) -> str:
        """The answer of the console to a line."""
        values = self.registers
        match words:
            case ["conf", "get", name] if name in values:
                value = values[name]
                return str(value) if isinstance(value, int) else f"{value:.6f}"
            case ["conf", "get", _]:
                return "ERR error reading"
            case ["conf", "set", name, text]:
                if name not in values or not _is_number(text, type(values[name])):
                    return "ERR error setting"
                values[name] = type(values[name])(text)
                return "OK"
            case ["conf", "write"] | ["tel", "stop"]:
                return "OK"
            case ["d", *rest] if self._debug(rest):
                return "OK"
        return "ERR unknown command"

    def _debug(self, words: list[str]) -> bool:
        """Carries out a `d` command of the console; returns whether there is one."""
        match words:
            case ["stop"]:
                self._obey(MoteusCommand(STOPPED))
            case ["brake"]:
                self._obey(MoteusCommand(BRAKE))
            case ["exact" | "nearest" as word, text] if _is_number(text):
                self._set_output(float(text), word == "exact")
            case _:
                return False
        return True

    def _obey(self, command: MoteusCommand) -> None:
        """Acts on a command; after a fault or the watchdog only a stop counts."""
        if command.mode == STOPPED:
            self._off(STOPPED)
            return
        if self.mode in (FAULT, TIMEOUT) or command.mode not in _MODES_OF_MASTERS or self.refuses:
            return
        if command.mode == POSITION and self.mode != POSITION and self._outside(command):
            self.trip(OUTSIDE_LIMIT)
            return
        cancel(self._regulating)
        self.mode, self._command = command.mode, command
        self._held = None if isnan(command.position) else command.position
        self._limited = 0
        if command.mode == BRAKE:
            self._short()
        else:
            self._regulate()
        self._watch(command)

    def _outside(self, command: MoteusCommand) -> bool:
        position, _ = self._motion()
        lower, upper = (float(self.registers[f"servopos.position_{end}"]) for end in ("min", "max"))
        return not command.ignore_bounds and (position < lower or position > upper)  # NaN: no bound

    def _watch(self, command: MoteusCommand) -> None:
        """Restarts the watchdog with the time in a command; it acts in position mode only."""
        seconds = command.timeout or float(self.registers["servo.default_timeout_s"])
        off = command.mode != POSITION or isnan(seconds) or not self.option("watchdog", True)
        timeout = 0 if off else nanoseconds(seconds)
        if timeout != self._watchdog.timeout:
            self._watchdog.stop()
        self._watchdog.start(timeout)

    def _regulate(self) -> None:
        """tau = kp (p - position) + kd (v - velocity) + t, every millisecond where it depends on the motion."""
        self._regulating = None
        command, values = self._command, self.registers
        kp = command.kp_scale * values["servo.pid_position.kp"] if self.mode != ZERO_VELOCITY else 0.0
        kd = command.kd_scale * values["servo.pid_position.kd"]
        torque = command.torque if self.mode == POSITION else 0.0
        if kp or kd:
            position, velocity = self._motion()
            held = position if self._held is None else self._held
            self._held = held + command.velocity * (self.mode == POSITION) / 1000
            torque += kp * (held - position) + kd * (command.velocity * (self.mode == POSITION) - velocity)
            self._regulating = self.world.after(SECOND // 1000, self._regulate)
        limit = abs(command.max_torque)
        self._limited = LIMITED_BY_COMMAND if abs(torque) > limit else 0
        torque = min(limit, max(-limit, torque)) * self.torque_table if isfinite(torque) else 0.0
        if self.motor.enabled:
            self.motor.command(torque)
        else:
            self.motor.enable(torque)

    def _short(self) -> None:
        """Shorts the phases: a torque against the motion, without supply, every millisecond."""
        if self.motor.enabled:
            self.motor.disable()
        _, velocity = self._motion()
        largest = abs(self.settings.motor_torque(self.settings.torque_limit))
        torque = -SHORTED * self.motor.inertia * velocity * tau
        self.motor.short(min(largest, max(-largest, torque)) if isfinite(torque) else 0.0)
        self._regulating = self.world.after(SECOND // 1000, self._short)

    def _starved(self) -> None:
        """The watchdog has run out: mode 11, and what `servo.timeout_mode` says."""
        cancel(self._regulating)
        self._regulating = None
        self.mode, self._limited = TIMEOUT, 0
        kind = int(self.registers["servo.timeout_mode"])
        last, largest = self._command, float(self.registers["servo.timeout_max_torque_Nm"])
        if kind == BRAKE:
            self._short()
        elif kind == ZERO_VELOCITY:
            self._command = MoteusCommand(TIMEOUT, kp_scale=0.0, kd_scale=last.kd_scale, max_torque=largest)
            self._regulate()
        elif kind == POSITION:
            self._command, self._held = MoteusCommand(TIMEOUT), None
            self._regulate()
        else:
            self.motor.disable()

    def _off(self, mode: int) -> None:
        cancel(self._regulating)
        self._regulating = None
        self._watchdog.stop()
        self.mode, self.fault, self._limited = mode, 0, 0
        self._command = MoteusCommand(mode)
        self.motor.disable()


def _known(data: bytes) -> Iterator[codec.Subframe]:
    """The subframes of a payload up to the first that is unknown or cut short."""
    try:
        yield from codec.subframes(data)
    except ValueError:
        return


def _is_number(text: str, kind: type[int | float] = float) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def _fitting(answer: bytes, more: bytes) -> bytes:
    """The next part of an answer; empty if its frame has no room for it."""
    return more if len(answer) + len(more) <= FD_SIZES[-1] else b""
