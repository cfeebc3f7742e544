"""An emulated drive or encoder that speaks CANSimple, as firmware 0.6 does: see `hil.codecs.odrive`."""

import struct
from collections.abc import Callable
from math import isfinite, tau

from hil.codecs import odrive as codec
from hil.drives.settings import DriveSettings, SensorSettings
from hil.emulator.node import EmulatedDrive, EmulatedNode
from hil.frame import Frame
from hil.loop.clock import nanoseconds
from hil.loop.virtual_time import Timer, Watchdog

INPUT_POS, INPUT_VEL, REBOOT = 0x0C, 0x0D, 0x16  # further commands
TORQUE_CONTROL, PASSTHROUGH = 1, 1
VELOCITY_LIMIT_VIOLATION, ESTOP_REQUESTED = 0x8000, 0x0200_0000  # errors
DISARMED, ILLEGAL_STATE = 3, 10  # procedure results

SETPOINTS = frozenset({codec.SET_AXIS_STATE, INPUT_POS, INPUT_VEL, codec.SET_INPUT_TORQUE})
"""Commands that feed the watchdog, unless every frame does."""

HARDWARE, FIRMWARE = (4, 4, 58), (0, 6, 10, 0)

_TWO = struct.Struct("<ff")
_HEARTBEAT = struct.Struct("<IBBBx")
_ERRORS = struct.Struct("<II")
_LENGTHS = {
    codec.SET_AXIS_STATE: 4, codec.SET_CONTROLLER_MODE: 8, INPUT_POS: 8, INPUT_VEL: 8, codec.SET_INPUT_TORQUE: 4,
    codec.SET_LIMITS: 8,
}  # fmt: skip
"""Smallest number of bytes of a command."""


class Talk:
    """Cyclic messages and answers of one node."""

    def __init__(
        self, node: EmulatedNode, heartbeat: Callable[[], bytes], errors: Callable[[], tuple[int, int]]
    ) -> None:
        """Prepares the messages of a node.

        Args:
            heartbeat: Returns the payload of its heartbeat.
            errors: Returns its active errors, and the reason of the last disarming.
        """
        self._node, self._heartbeat, self._errors = node, heartbeat, errors
        self._base = codec.identifier(node.settings.node, 0)
        self.timers = [Timer(node.world, send) for send in (self.send_encoder, self.send_heartbeat, self.send_errors)]

    def start(self) -> None:
        """Starts the cyclic messages."""
        phase = nanoseconds(self._node.number("phase", 0.0))
        periods = {"feedback_period": 0.001, "heartbeat_period": 0.1, "error_period": 0.1}
        for timer, (name, usual) in zip(self.timers, periods.items(), strict=True):
            timer.start(nanoseconds(self._node.number(name, usual)), phase)

    def stop(self) -> None:
        """Stops the cyclic messages."""
        for timer in self.timers:
            timer.stop()

    def reply(self, command: int, data: bytes) -> None:
        """Sends a message."""
        self._node.send(self._base | command, data)

    def answer(self, command: int) -> bool:
        """Answers a remote frame; returns False for messages that it does not have."""
        if command == codec.GET_VERSION:
            self.reply(codec.GET_VERSION, bytes([codec.PROTOCOL, *HARDWARE, *FIRMWARE]))
        elif command == codec.HEARTBEAT:
            self.send_heartbeat()
        elif command == codec.GET_ERROR:
            self.send_errors()
        elif command == codec.GET_ENCODER_ESTIMATES:
            self.send_encoder()
        else:
            return False
        return True

    def send_encoder(self) -> None:
        """Sends position [turn] and velocity [turn/s]."""
        position, velocity = self._node.encoder.read(self._node.world.now)
        self.reply(codec.GET_ENCODER_ESTIMATES, _TWO.pack(position / tau, velocity / tau))

    def send_heartbeat(self) -> None:
        """Sends the heartbeat."""
        if not self._node.heart_stopped:
            self.reply(codec.HEARTBEAT, self._heartbeat())

    def send_errors(self) -> None:
        """Sends the errors."""
        self.reply(codec.GET_ERROR, _ERRORS.pack(*self._errors()))


class ODriveNode(EmulatedNode):
    """What drives and encoder nodes share: the cyclic messages.

    Options: `feedback_period` (0.001), `heartbeat_period` (0.1), `error_period` (0.1) and `phase` (0) of the cyclic
    messages [s].
    """

    _talk: Talk

    def heartbeat_ids(self) -> tuple[int, int]:
        return self.settings.node << 5, 0x7E0  # it listens to commands alone

    def listens(self) -> frozenset[int]:
        first = codec.identifier(self.settings.node, 0)
        return frozenset(range(first, first + codec.COMMANDS))

    def timers(self) -> list[Timer]:
        return self._talk.timers

    def boot(self) -> None:
        self._talk.start()

    def halt(self) -> None:
        self._talk.stop()


class ODriveEncoder(ODriveNode):
    """An encoder node; options as of `ODriveNode`."""

    special_faults = frozenset({"heartbeat_loss", "encoder_nan"})

    def set_up(self) -> None:
        self._talk = Talk(self, lambda: _HEARTBEAT.pack(0, codec.IDLE, 0, 0), lambda: (0, 0))

    def receive(self, frame: Frame) -> None:
        if self.station.powered and frame.remote:
            self._talk.answer(frame.id & 0x1F)


class ODrive(ODriveNode, EmulatedDrive):
    """An ODrive axis.

    Options, with those of `ODriveNode`: `torque_constant` [N m/A] (0.05), `watchdog`: false switches it off,
    `watchdog_fed_by`: `setpoint` or `any`, `velocity_tolerance` (1.2), `bus_voltage` [V] (48), `vel_limit` [turn/s]
    (none), `vel_gain` [N m per turn/s] (1/6), `monitor_period` of temperature and bus voltage [s] (0: not sent).
    """

    settings: DriveSettings
    special_faults = frozenset({"wrong_mode", "heartbeat_loss", "encoder_nan"})
    usual_code, overvoltage_code, overheat_code = 0x1000, 0x100, 0x2000

    def set_up(self) -> None:
        self.state, self.result, self.error = codec.IDLE, 0, 0
        self._watchdog = Watchdog(self.world, self._starved)
        self._speed_timer = Timer(self.world, self._look_at_speed)
        self._monitor_timer = Timer(self.world, self._send_gauges)
        self._talk = Talk(self, self.heartbeat, lambda: (self.error, self.error))
        self._torque_constant = self.number("torque_constant", 0.03)
        self._fed_by_any = self.option("watchdog_fed_by", "setpoint") == "any"

    @staticmethod
    def error_codes(settings: SensorSettings) -> tuple[int, int]:
        return 1, 0xFFFF_FFFF

    def boot(self) -> None:
        self.state, self.result, self.error = codec.IDLE, 0, 0
        self._mode = (3, PASSTHROUGH)  # position control is the default mode
        self._torque = 0.0
        limited = self.option("vel_limit", None) is not None
        self._velocity_limit = self.number("vel_limit", 0.0) * tau if limited else float("inf")
        super().boot()
        self._speed_timer.start(nanoseconds(0.001))
        self._monitor_timer.start(nanoseconds(self.number("monitor_period", 0.0)))
        self._watchdog.start(nanoseconds(self.settings.watchdog) if self.option("watchdog", True) else 0)

    def halt(self) -> None:
        super().halt()
        self._speed_timer.stop()
        self._monitor_timer.stop()
        self._watchdog.stop()
        self._idle()

    def timers(self) -> list[Timer]:
        return [*super().timers(), self._monitor_timer]

    def _send_gauges(self) -> None:
        self._answer(codec.GET_TEMPERATURE)
        self._answer(codec.GET_BUS_VOLTAGE_CURRENT)

    def trip(self, code: int) -> None:
        self.error |= code
        self.result = DISARMED
        self._idle()
        self._talk.send_errors()

    def clear_fault(self) -> None:
        self.error = self.result = 0

    def heartbeat(self) -> bytes:
        """Payload of the heartbeat."""
        return _HEARTBEAT.pack(self.error, self.state, self.result, 1)

    def receive(self, frame: Frame) -> None:
        if not self.station.powered:
            return
        command = frame.id & 0x1F
        if command in SETPOINTS or self._fed_by_any:
            self._watchdog.feed()
        if frame.remote:
            self._answer(command)
        elif len(frame.data) >= _LENGTHS.get(command, 0):
            self._obey(command, frame.data)

    def _obey(self, command: int, data: bytes) -> None:
        if command == codec.SET_INPUT_TORQUE:
            self._set_torque(*struct.unpack_from("<f", data))
        elif command == codec.SET_AXIS_STATE:
            self._set_state(*struct.unpack_from("<I", data))
        elif command == codec.SET_CONTROLLER_MODE:
            mode = struct.unpack_from("<II", data)
            self._mode = (2, PASSTHROUGH) if self.wrong_mode else (mode[0], mode[1])
            self._apply()
        elif command == codec.SET_LIMITS:
            velocity, current = _TWO.unpack_from(data)
            self._velocity_limit = velocity * tau
            if self.option("torque_constant", None) is not None:
                self.motor.limit(abs(current) * self._torque_constant)
        elif command == codec.CLEAR_ERRORS:
            self.error = 0
            self.result = 0
            self._watchdog.start(self._watchdog.timeout)
        elif command == codec.ESTOP:
            self.trip(ESTOP_REQUESTED)
        elif command == REBOOT:
            self.reboot(nanoseconds(0.5))

    def _answer(self, command: int) -> None:
        reply = self._talk.reply
        if command == codec.GET_BUS_VOLTAGE_CURRENT:
            reply(codec.GET_BUS_VOLTAGE_CURRENT, _TWO.pack(self.voltage(48.0), 0.0))
        elif command == codec.GET_TEMPERATURE:
            reply(codec.GET_TEMPERATURE, _TWO.pack(temperature := self.temperature(), temperature))
        else:
            self._talk.answer(command)

    def _set_torque(self, torque: float) -> None:
        self._torque = torque if isfinite(torque) else 0.0
        self._apply()

    def _set_state(self, state: int) -> None:
        if state == codec.IDLE:
            self.result = 0
            self._idle()
        elif state == codec.CLOSED_LOOP:
            if self.error or self.refuses:
                self.result = DISARMED if self.error else ILLEGAL_STATE
                return
            self.state, self.result = codec.CLOSED_LOOP, 0
            self.motor.enable(self._limited(self._asked()))
        else:
            self.result = ILLEGAL_STATE

    def _asked(self) -> float:
        """Commanded torque; 0 in other modes than torque control."""
        return self._torque * self.torque_table if self._mode == (TORQUE_CONTROL, PASSTHROUGH) else 0.0

    def _apply(self) -> None:
        if self.state == codec.CLOSED_LOOP:
            self.motor.command(self._limited(self._asked()))

    def _limited(self, torque: float) -> float:
        """A torque within what the speed limit allows; source: `Controller::limitVel` of the published firmware 0.5."""
        if self._velocity_limit == float("inf"):
            return torque
        gain, (_, speed) = self.number("vel_gain", 1 / 6) / tau, self.encoder.read(self.world.now)
        lower, upper = (-self._velocity_limit - speed) * gain, (self._velocity_limit - speed) * gain
        return min(upper, max(lower, torque))

    def _idle(self) -> None:
        self.state = codec.IDLE
        self.motor.disable()

    def _starved(self) -> None:
        if not self.error & codec.WATCHDOG_EXPIRED:
            self.trip(codec.WATCHDOG_EXPIRED)

    def _look_at_speed(self) -> None:
        if self.state == codec.CLOSED_LOOP and self._velocity_limit < float("inf"):
            _, speed = self.encoder.read(self.world.now)
            if abs(speed) > self._velocity_limit * self.number("velocity_tolerance", 1.2):
                self.trip(VELOCITY_LIMIT_VIOLATION)
            else:
                self._apply()
