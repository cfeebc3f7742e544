"""An emulated moteus: registers over CAN FD, position mode, and a watchdog whose mode stays until a stop.

A frame is answered with the state before its command, as the firmware does. Not emulated are modes of voltage and
current, `stay within`, limits of position, velocity and acceleration, and writes of settings and of the position.

Source: mjbots/moteus, docs/protocol, docs/reference/configuration.md, fw/moteus_controller.cc for what writing the mode
resets, and fw/bldc_servo_control.h; what `servo.timeout_mode` does was measured on its control code with a motor model:
with 12 the shaft coasts after a torque command, whose kd scale is 0; 15 brakes it.
"""

from collections.abc import Iterator, Mapping
from math import inf, isfinite, isnan, nan, tau

from hil.codecs import moteus as codec
from hil.codecs.moteus import BRAKE, IN_FAULT, IN_POSITION, STOPPED, TIMED_OUT, ZERO_VELOCITY
from hil.emulator.node import EmulatedDrive
from hil.emulator.station import key
from hil.emulator.timers import Watchdog
from hil.frame import FD_SIZES, Frame
from hil.loop.clock import SECOND, nanoseconds

COMMANDED = {  # registers of a command -> what a write of the mode resets them to
    **dict.fromkeys((0x010, 0x011, 0x012, *range(0x014, 0x01F), 0x026, 0x028, 0x029, 0x02A, 0x02C), 0.0),  # no effect
    codec.COMMAND_POSITION: 0.0,  # NaN: where the shaft is
    codec.COMMAND_VELOCITY: 0.0,
    codec.FEEDFORWARD_TORQUE: 0.0,
    codec.KP_SCALE: 1.0,
    codec.KD_SCALE: 1.0,
    codec.MAX_TORQUE: inf,
    codec.WATCHDOG: 0.0,  # 0: that of the settings; NaN: none
    codec.ILIMIT_SCALE: 1.0,
    codec.IGNORE_BOUNDS: 0.0,
}

INT32_ONLY = {0x100: 0x20, 0x101: 0x010A, 0x102: 5, 0x158: 1}
"""Model, firmware, version of the register map, and UUID mask -> value; answered only with 32 bits."""
NUMBERED = (*range(0x120, 0x123), *range(0x150, 0x154))  # likewise: serial number and UUID
IDLE = (0x004, 0x005, *range(0x030, 0x049), *range(0x052, 0x080))  # registers that are always 0 here

_MODES_OF_MASTERS = (STOPPED, IN_POSITION, ZERO_VELOCITY, BRAKE)
"""Modes that can be written here; the others change nothing."""

LIMITED_BY_CURRENT, LIMITED_BY_COMMAND = 99, 102  # codes of the fault register

HOMED = codec.HOME_STATES.index("output")  # its position is always known
SHORTED = 200.0  # [1/s] rate at which shorted phases brake a motor


class Moteus(EmulatedDrive):
    """A moteus. Option: `timeout_mode` (15), its `servo.timeout_mode`."""

    mode = STOPPED  # its mode now
    voltage = 24.0
    special_faults = frozenset({"encoder_nan"})
    codes = 32, 95
    usual_code, overvoltage_code, overheat_code = 33, 34, 38

    def set_up(self) -> None:
        node = self.settings.node
        # settings by name, as its console reads them
        self._configured: dict[str, int | float] = {
            "servo.timeout_mode": int(self.number("timeout_mode", 15)), "servo.default_timeout_s": 0.1,
            "servo.timeout_max_torque_Nm": 5.0, "servo.pid_position.kp": 4.0, "servo.pid_position.kd": 0.05,
            "servopos.position_min": nan, "servopos.position_max": nan,
        }  # fmt: skip
        self._fixed = {0x110: node, **INT32_ONLY, **dict.fromkeys(IDLE, 0)}
        self._fixed |= {register: 0x1000 * node + register for register in NUMBERED}
        self._line = self._answers = b""
        self._watchdog = Watchdog(self.world, self._starved)
        self._held: float | None = None

    def listens(self) -> frozenset[int]:
        node = self.settings.node
        ids = (codec.identifier(node, source, reply) for reply in (False, True) for source in range(128))
        return frozenset(key(self.settings.frame(identity, b"")) for identity in ids)

    def boot(self) -> None:
        self._since = self.world.now
        self._off(STOPPED)

    def halt(self) -> None:
        self._off(STOPPED)

    def trip(self, code: int) -> None:
        self._off(IN_FAULT)
        self.fault = code

    def clear_fault(self) -> None:
        if self.mode == IN_FAULT:
            self._off(STOPPED)

    def receive(self, frame: Frame) -> None:
        """Obeys a frame; an answer that its frame has no room for is left out."""
        if not self.station.powered or frame.remote:
            return
        answer = b""
        mode: int | None = None
        command = dict(self._command)
        registers: dict[int, float] | None = None
        for part in _known(frame.data):
            if part.kind == codec.READ:
                registers = registers or self._fixed | self._command | self._measured()
                answer += _fitting(answer, _answer(part, registers))
            elif part.kind == codec.TUNNEL_WRITE and part.first == codec.CHANNEL:
                self._write_console(part.text)
            elif part.kind == codec.TUNNEL_POLL and part.first == codec.CHANNEL:
                room = FD_SIZES[-1] - len(answer) - len(codec.tunnelled(codec.TUNNEL_DATA, b""))
                if room >= 0:
                    answer += codec.tunnelled(codec.TUNNEL_DATA, self._read_console(min(part.number, room)))
            for register, value in enumerate(part.values if part.kind == codec.WRITE else (), part.first):
                if register == codec.MODE and value in range(len(codec.MODES)):
                    mode, command = int(value), dict(COMMANDED)
                elif register in command:
                    command[register] = value
                else:
                    answer += _fitting(answer, codec.error(codec.WRITE_ERROR, register))
        if frame.id & codec.REPLY_WANTED and answer:
            self.send(codec.reply_identifier(self.settings.node, frame.id >> 8 & 0x7F), codec.padded(answer))
        if mode is not None:  # a frame that does not write the mode changes nothing
            self._obey(mode, command)

    def _measured(self) -> dict[int, float]:
        """Register -> value of what it measures [its unit]."""
        position, velocity = self._motion()
        torque = self.motor.torque() / self.torque_table
        mode, fault = self.mode, self.fault
        if mode == IN_POSITION:
            fault = self._limited or (LIMITED_BY_CURRENT if self.motor.saturated else 0)
        milliseconds = (self.world.now - self._since) // (SECOND // 1000)
        temperature = self.temperature()  # it may switch the drive off, which the next answer shows
        return {
            codec.MODE: mode, codec.POSITION: position, codec.VELOCITY: velocity, codec.TORQUE: torque, 0x006: nan,
            0x007: torque * velocity * tau, codec.MOTOR_TEMPERATURE: temperature, 0x00B: 1,
            codec.HOME_STATE: HOMED, codec.VOLTAGE: self.voltage, codec.TEMPERATURE: temperature,
            codec.FAULT: fault, 0x038: nan, 0x039: nan, 0x03A: torque, 0x050: position % 1.0, 0x051: velocity,
            0x058: 0b11, 0x070: milliseconds % (1 << 23), 0x071: 0,
        }  # fmt: skip

    def _motion(self) -> tuple[float, float]:
        """Position [rev] and velocity [rev/s] of the output."""
        position, velocity = self.encoder.read(self.world.now)
        return position / tau, velocity / tau

    def _write_console(self, text: bytes) -> None:
        """Takes text for the console; each whole line is carried out."""
        *lines, self._line = (self._line + text).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            if words := line.decode(errors="replace").split():
                self._answers += self._told(words).encode() + b"\r\n"

    def _read_console(self, most: int) -> bytes:
        """The next bytes of the answers, at most so many."""
        count = min(most, codec.MOST_TEXT)
        part, self._answers = self._answers[:count], self._answers[count:]
        return part

    def _told(self, words: list[str]) -> str:
        """What the console says to a line: it only knows how to read a setting."""
        if words[:2] != ["conf", "get"]:
            return "ERR unknown command"
        value = self._configured.get(" ".join(words[2:]))
        if value is None:
            return "ERR error reading"
        return str(value) if isinstance(value, int) else f"{value:.6f}"

    def _obey(self, mode: int, command: dict[int, float]) -> None:
        """Acts on a command; after a fault or the watchdog only a stop counts."""
        if mode == STOPPED:
            self._off(STOPPED)
            return
        if self.mode in (IN_FAULT, TIMED_OUT) or mode not in _MODES_OF_MASTERS or self.refuses:
            return
        self.stop_control()
        self.mode, self._command = mode, command
        position = command[codec.COMMAND_POSITION]
        self._held = None if isnan(position) else position
        if mode == BRAKE:
            self._short()
        else:
            self._regulate()
        seconds = command[codec.WATCHDOG] or float(self._configured["servo.default_timeout_s"])
        off = mode != IN_POSITION or isnan(seconds)  # the watchdog acts in position mode only
        self._watchdog.start(0 if off else nanoseconds(seconds))

    def _regulate(self) -> None:
        """tau = kp (p - position) + kd (v - velocity) + t, every millisecond where it depends on the motion."""
        command, values = self._command, self._configured
        kp = command[codec.KP_SCALE] * values["servo.pid_position.kp"] if self.mode != ZERO_VELOCITY else 0.0
        kd = command[codec.KD_SCALE] * values["servo.pid_position.kd"]
        follows = self.mode == IN_POSITION
        torque = command[codec.FEEDFORWARD_TORQUE] if follows else 0.0
        if kp or kd:
            position, velocity = self._motion()
            held, speed = position if self._held is None else self._held, command[codec.COMMAND_VELOCITY] * follows
            self._held = held + speed / 1000
            torque += kp * (held - position) + kd * (speed - velocity)
            self.control_again(self._regulate)
        limit = abs(command[codec.MAX_TORQUE])
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
        self.motor.short(SHORTED, self.settings.motor_limit)
        self.control_again(self._short)

    def _starved(self) -> None:
        """The watchdog has run out: mode 11, and what `servo.timeout_mode` says."""
        self.stop_control()
        self.mode = TIMED_OUT
        kind, damping = int(self._configured["servo.timeout_mode"]), self._command[codec.KD_SCALE]
        if kind == BRAKE:
            self._short()
        elif kind == ZERO_VELOCITY:
            largest = float(self._configured["servo.timeout_max_torque_Nm"])
            slowing = {codec.KP_SCALE: 0.0, codec.KD_SCALE: damping, codec.MAX_TORQUE: largest}
            self._command = COMMANDED | slowing
            self._regulate()
        elif kind == IN_POSITION:
            self._command, self._held = dict(COMMANDED), None
            self._regulate()
        else:
            self.motor.disable()

    def _off(self, mode: int) -> None:
        self.stop_control()
        self._watchdog.stop()
        self.mode, self.fault = mode, 0
        self._command = dict(COMMANDED)
        self.motor.disable()


def _known(data: bytes) -> Iterator[codec.Subframe]:
    """The subframes of a payload up to the first that is unknown or cut short."""
    try:
        yield from codec.subframes(data)
    except ValueError:
        return


def _answer(asked: codec.Subframe, registers: Mapping[int, float]) -> bytes:
    """Answer to a read: the values in one subframe, or an error for each register that does not exist."""
    if asked.number > FD_SIZES[-1]:  # each value takes a byte at least
        return b""
    resolution, first = asked.resolution, asked.first
    hidden = () if resolution == codec.INT32 else (*INT32_ONLY, *NUMBERED)
    numbers = range(first, first + asked.number)
    values = [None if number in hidden else registers.get(number) for number in numbers]
    known = [value for value in values if value is not None]
    if len(known) == asked.number:
        return codec.reply(first, known, resolution)
    return b"".join(
        codec.error(codec.READ_ERROR, number) if value is None else codec.reply(number, [value], resolution)
        for number, value in zip(numbers, values, strict=True)
    )


def _fitting(answer: bytes, more: bytes) -> bytes:
    """The next part of an answer; empty if its frame has no room for it."""
    return more if len(answer) + len(more) <= FD_SIZES[-1] else b""
