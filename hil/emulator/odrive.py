"""An emulated drive or encoder that speaks CANSimple, as firmware 0.6 does: see `hil.codecs.odrive`."""

from functools import partial
from math import inf, isfinite, tau

from hil.codecs import odrive as codec
from hil.codecs.field import packed
from hil.drives.settings import DriveSettings
from hil.emulator.node import EmulatedDrive, EmulatedNode
from hil.emulator.timers import Timer, Watchdog
from hil.frame import Frame
from hil.loop.clock import nanoseconds

INPUT_POS, INPUT_VEL, REBOOT = 0x0C, 0x0D, 0x16  # further commands
VELOCITY_LIMIT_VIOLATION, ESTOP_REQUESTED = 0x8000, 0x0200_0000  # errors
DISARMED, ILLEGAL_STATE = 3, 10  # procedure results
VELOCITY_TOLERANCE = 1.2  # it disarms above so many times its speed limit

SETPOINTS = frozenset({codec.SET_AXIS_STATE, INPUT_POS, INPUT_VEL, codec.SET_INPUT_TORQUE})
"""Commands that feed the watchdog, unless every frame does."""

HARDWARE, FIRMWARE = (4, 4, 58), (0, 6, 10, 0)

_LENGTHS = {  # smallest number of bytes of a command
    codec.SET_AXIS_STATE: 4, codec.SET_CONTROLLER_MODE: 8, INPUT_POS: 8, INPUT_VEL: 8, codec.SET_INPUT_TORQUE: 4,
    codec.SET_LIMITS: 8,
}  # fmt: skip


class ODriveNode(EmulatedNode):
    """What drives and encoder nodes share: the cyclic messages, and the answers to remote frames.

    Options: `feedback_period` (0.001) and `heartbeat_period` (0.1) of the cyclic messages [s]; errors are sent every
    0.1 s.
    """

    state, result, error = codec.IDLE, 0, 0  # axis state, procedure result, active errors
    trajectory_done = 0  # flag in its heartbeat

    def set_up(self) -> None:
        self._cyclic = {command: Timer(self.world, partial(self._send, command)) for command in self._periods()}

    def _periods(self) -> dict[int, float]:
        """Period of each cyclic message [s]; 0: it is not sent by itself."""
        estimates, heartbeat = self.number("feedback_period", 0.001), self.number("heartbeat_period", 0.1)
        return {codec.GET_ENCODER_ESTIMATES: estimates, codec.HEARTBEAT: heartbeat, codec.GET_ERROR: 0.1}

    def heartbeat_ids(self) -> tuple[int, int]:
        return self.settings.node << 5, 0x1FFF_FFE0  # it listens to commands alone

    def listens(self) -> frozenset[int]:
        first = codec.identifier(self.settings.node, 0)
        return frozenset(range(first, first + codec.COMMANDS))

    def timers(self) -> list[Timer]:
        return list(self._cyclic.values())

    def boot(self) -> None:
        for command, period in self._periods().items():
            self._cyclic[command].start(nanoseconds(period))

    def halt(self) -> None:
        for timer in self.timers():
            timer.stop()

    def _send(self, command: int) -> None:
        """Sends a message, by itself or where a remote frame asks for it; none that it does not have."""
        data = self._message(command)
        if data and not (command == codec.HEARTBEAT and self.heart_stopped):
            self.send(codec.identifier(self.settings.node, command), data)

    def _message(self, command: int) -> bytes:
        """The payload of a message now; empty for one that it does not have."""
        if command == codec.GET_VERSION:
            return bytes([codec.PROTOCOL, *HARDWARE, *FIRMWARE])
        if command == codec.HEARTBEAT:
            numbers = {codec.ERROR: self.error, codec.STATE: self.state, codec.RESULT: self.result}
            return packed(codec.SIZE, {**numbers, codec.TRAJECTORY_DONE: self.trajectory_done})
        if command == codec.GET_ERROR:
            return packed(codec.SIZE, {codec.ERROR: self.error, codec.DISARM_REASON: self.error})
        if command == codec.GET_ENCODER_ESTIMATES:
            position, velocity = self.encoder.read(self.world.now)
            return packed(codec.SIZE, {codec.POSITION: position / tau, codec.VELOCITY: velocity / tau})
        return b""


class ODriveEncoder(ODriveNode):
    """An encoder node; options as of `ODriveNode`."""

    special_faults = frozenset({"clock_drift", "heartbeat_loss", "encoder_nan"})

    def receive(self, frame: Frame) -> None:
        if self.station.powered and frame.remote:
            self._send(frame.id & 0x1F)


class ODrive(ODriveNode, EmulatedDrive):
    """An ODrive axis.

    Options, with those of `ODriveNode`: `vel_limit` [turn/s] (none), `vel_gain` [N m per turn/s] (1/6) and
    `monitor_period` of temperature and bus voltage [s] (0: not sent). A current limit has no effect.
    """

    settings: DriveSettings
    special_faults = ODriveEncoder.special_faults | {"wrong_mode"}
    codes = 1, 0xFFFF_FFFF
    usual_code, overvoltage_code, overheat_code = 0x1000, 0x100, 0x2000

    trajectory_done = 1

    def set_up(self) -> None:
        super().set_up()
        self._watchdog = Watchdog(self.world, self._starved)
        self._speed_timer = Timer(self.world, self._look_at_speed)

    def boot(self) -> None:
        self.state, self.result, self.error = codec.IDLE, 0, 0
        self._mode = (3, codec.PASSTHROUGH)  # position control is the default mode
        self._torque = 0.0
        self._velocity_limit = self.number("vel_limit", inf) * tau
        super().boot()
        self._speed_timer.start(nanoseconds(0.001))
        self._watchdog.start(nanoseconds(self.settings.watchdog))

    def halt(self) -> None:
        super().halt()
        self._speed_timer.stop()
        self._watchdog.stop()
        self._idle()

    def _periods(self) -> dict[int, float]:
        gauges = (codec.GET_TEMPERATURE, codec.GET_BUS_VOLTAGE_CURRENT)
        return super()._periods() | dict.fromkeys(gauges, self.number("monitor_period", 0.0))

    def trip(self, code: int) -> None:
        self.error |= code
        self.result = DISARMED
        self._idle()
        self._send(codec.GET_ERROR)

    def clear_fault(self) -> None:
        self.error = self.result = 0

    def receive(self, frame: Frame) -> None:
        if not self.station.powered:
            return
        command = frame.id & 0x1F
        if command in SETPOINTS:
            self._watchdog.feed()
        if frame.remote:
            self._send(command)
        elif len(frame.data) >= _LENGTHS.get(command, 0):
            self._obey(command, frame.data)

    def _obey(self, command: int, data: bytes) -> None:
        if command == codec.SET_INPUT_TORQUE:
            torque = codec.TORQUE.number(data)
            self._torque = torque if isfinite(torque) else 0.0
            self._apply()
        elif command == codec.SET_AXIS_STATE:
            self._set_state(codec.REQUESTED_STATE.read(data))
        elif command == codec.SET_CONTROLLER_MODE:
            mode = codec.CONTROL_MODE.read(data), codec.INPUT_MODE.read(data)
            self._mode = (2, codec.PASSTHROUGH) if self.wrong_mode else mode
            self._apply()
        elif command == codec.SET_LIMITS:
            self._velocity_limit = codec.VELOCITY_LIMIT.number(data) * tau
        elif command == codec.CLEAR_ERRORS:
            self.clear_fault()
            self._watchdog.feed()
        elif command == codec.ESTOP:
            self.trip(ESTOP_REQUESTED)
        elif command == REBOOT:
            self.reboot(nanoseconds(0.5))

    def _message(self, command: int) -> bytes:
        if command == codec.GET_BUS_VOLTAGE_CURRENT:
            return packed(codec.SIZE, {codec.BUS_VOLTAGE: self.voltage})
        if command == codec.GET_TEMPERATURE:
            return packed(codec.SIZE, dict.fromkeys((codec.INVERTER, codec.MOTOR), self.temperature()))
        return super()._message(command)

    def _set_state(self, state: int) -> None:
        if state == codec.IDLE:
            self.result = 0
            self._idle()
        elif state == codec.CLOSED_LOOP:
            if self.error or self.refuses:
                self.result = DISARMED if self.error else ILLEGAL_STATE
                return
            self.state, self.result = codec.CLOSED_LOOP, 0
            self.motor.enable(self._allowed_torque())
        else:
            self.result = ILLEGAL_STATE

    def _apply(self) -> None:
        if self.state == codec.CLOSED_LOOP:
            self.motor.command(self._allowed_torque())

    def _allowed_torque(self) -> float:
        """The commanded torque, 0 in other modes, within what the speed limit allows.

        Source: `Controller::limitVel` of the published firmware 0.5.
        """
        torque = self._torque * self.torque_table if self._mode == (codec.TORQUE_CONTROL, codec.PASSTHROUGH) else 0.0
        if self._velocity_limit == inf:
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
        if self.state == codec.CLOSED_LOOP and self._velocity_limit < inf:
            _, speed = self.encoder.read(self.world.now)
            if abs(speed) > VELOCITY_TOLERANCE * self._velocity_limit:
                self.trip(VELOCITY_LIMIT_VIOLATION)
            else:
                self._apply()
