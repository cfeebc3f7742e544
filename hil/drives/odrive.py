"""ODrive over CANSimple, in torque mode: bring-up, commands and stops.

CANSimple can read back neither the control mode nor the settings of the watchdog: parameters (RxSdo) are addressed by
numbers that differ between firmware versions. So the watchdog must be set in the drive (`axis0.config.enable_watchdog`,
`axis0.config.watchdog_timeout`), and counts only after it has run out in `test_watchdog`. Only the motion shows another
mode than torque: the run then stops because an encoder seems stuck, or the machine does not follow its model. A drive
that is not enabled coasts: it cannot brake by itself.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from math import isfinite, isnan, nan
from typing import Annotated, ClassVar

from hil.codecs import odrive as codec
from hil.codecs.field import Field, packed
from hil.drives.base import Condition, DriveError, Feedback, HandshakeStep, Ids, Steps, StopSteps
from hil.drives.guard import silent
from hil.drives.options import EncoderBits, Flag, MonitorPeriod, address_problems
from hil.drives.settings import DriveSettings, Quantity, SensorSettings
from hil.drives.table import TableDrive, TurnNode
from hil.drives.wire import LARGEST_SINGLE, TURN, Encoding, Expects, Message, Reads, Rounding, motor_torque
from hil.frame import Frame
from hil.loop import SECOND
from servoctl.config.document import Problem
from servoctl.tree.fields import NumberField
from servoctl.tree.rules import Section

INTERVALS = 40  # number of encoder periods over which the rate of the drive is measured
ENCODER_RATE = "set axis0.config.can.encoder_msg_rate_ms"
RATE_TOLERANCE = 0.25  # largest relative difference between the measured period and `feedback_period`


class OdriveEncoderOptions(Section):
    # [s] period of the encoder estimates
    feedback_period: Annotated[float, NumberField("a period above 0 [s]", above=0.0)] = 0.001
    encoder_bits: EncoderBits = None  # bits per turn of the encoder; None: the resolution of single precision
    fd: Flag = False  # whether it speaks CAN FD: `can.config.data_baud_rate` is set in it


class OdriveEncoder(TurnNode):
    """The encoder of an ODrive, which sends by its own timer."""

    feedback = Feedback.CYCLIC
    fd_remedy = "`fd: true` says that its can.config.data_baud_rate is set"
    Options: ClassVar[type[OdriveEncoderOptions]] = OdriveEncoderOptions
    _options: OdriveEncoderOptions

    def __init__(self, settings: SensorSettings, period: float) -> None:
        super().__init__(settings, period)
        self.bits = self._options.encoder_bits
        self._version = Frame(0)  # its answer to Get_Version
        self._times: deque[int] = deque(maxlen=INTERVALS + 1)  # [ns] of the last encoder estimates
        estimates = self._id(codec.GET_ENCODER_ESTIMATES)
        every = self._options.feedback_period
        turns = self._turns(codec.POSITION, codec.VELOCITY)
        self.motion = Message(estimates, codec.SIZE, turns, sample=True, every=every)
        self.messages = (self.motion,)
        self.handlers = {
            estimates: self._on_estimate,
            self._id(codec.GET_VERSION): self._on_version,
        }

    @staticmethod
    def problems(settings: SensorSettings, options: OdriveEncoderOptions, period: float) -> list[Problem]:
        problems = address_problems(settings, codec.NODES)
        if options.feedback_period > period:
            longer = f"{options.feedback_period} s is longer than the loop's period of {period} s"
            remedy = "set it and axis0.config.can.encoder_msg_rate_ms lower"
            problems.append(Problem(("feedback_period",), f"{longer} ({remedy})"))
        if options.fd and not settings.fd:
            problems.append(Problem(("fd",), f"true on bus '{settings.bus}', which is classic (give the bus fd: true)"))
        return problems

    @staticmethod
    def reserved_ids(settings: SensorSettings) -> Ids:
        first = settings.node * codec.COMMANDS
        return Ids(frozenset(range(first, first + codec.COMMANDS)))

    def accept(self, frame: Frame) -> None:
        if frame.remote and not (frame.extended or frame.error):
            self._on_request(frame)
        elif frame.id & 0x1F not in codec.MASTER_COMMANDS and len(frame.data) != codec.SIZE:
            self.rejected += 1
        else:
            super().accept(frame)

    def _on_request(self, frame: Frame) -> None:
        """Handles a remote frame: another master reads this node, which does no harm to an encoder."""

    def _on_estimate(self, frame: Frame) -> bool:
        if valid := self._take_sample(frame):
            self._times.append(frame.time)
        return valid

    def _on_version(self, frame: Frame) -> bool:
        self._version = frame
        return True

    def _id(self, command: int) -> int:
        return codec.identifier(self.settings.node, command)

    @staticmethod
    def speaks_fd(settings: SensorSettings) -> bool:
        return settings.options.get("fd") is True

    def identify(self) -> Steps:
        """Asks for the version, and measures the period of the encoder estimates."""
        yield from self.answer()
        protocol, firmware = codec.PROTOCOL_NUMBER.read(self._version.data), codec.firmware(self._version.data)
        if protocol != codec.PROTOCOL or firmware < (0, 6):
            what = f"speaks CANSimple {protocol} with firmware {'.'.join(map(str, firmware))}"
            raise DriveError(f"{what} (protocol {codec.PROTOCOL} with firmware 0.6 or later is needed)")
        yield from self._measure_period()

    def answer(self) -> Steps:
        """Asks for the version: its estimates come by its own timer, and answer nothing."""
        ask = Frame(self._id(codec.GET_VERSION), remote=True, length=8)  # FD has no remote frames: a classic one
        before, remedy = self._version, "is the node id right, and the bit rate?"
        came = lambda: self._version is not before  # noqa: E731
        yield HandshakeStep([ask], came, 0.5, f"an answer to Get_Version ({remedy})")

    @property
    def answered(self) -> int:
        return self._version.time

    def _measure_period(self) -> Steps:
        self._times.clear()
        declared = self._options.feedback_period
        many = f"{INTERVALS + 1} encoder estimates ({ENCODER_RATE})"
        yield HandshakeStep([], lambda: len(self._times) > INTERVALS, 0.5 + 4 * INTERVALS * declared, many)
        _check_period(self._times, declared, "an encoder estimate", "feedback_period", ENCODER_RATE)


def _check_period(times: Sequence[int], declared: float, sent: str, option: str, remedy: str) -> None:
    """Compares the period of a cyclic message, by the times of some [ns], with the one that an option declares."""
    measured = (times[-1] - times[0]) / (len(times) - 1) / SECOND
    if abs(measured - declared) > RATE_TOLERANCE * declared:
        raise DriveError(f"sends {sent} every {measured:.4g} s, {option} says {declared:.4g} s ({remedy})")


GAUGES = {  # cyclic message -> what it brings
    codec.GET_TEMPERATURE: (
        Reads(codec.INVERTER, Quantity.TEMPERATURE, ()),
        Reads(codec.MOTOR, Quantity.MOTOR_TEMPERATURE, ()),
    ),
    codec.GET_BUS_VOLTAGE_CURRENT: (Reads(codec.BUS_VOLTAGE, Quantity.SUPPLY, ()),),
}
RATES = "axis0.config.can: set temperature_msg_rate_ms and bus_voltage_msg_rate_ms, or leave monitor_period out"

ATTEMPTS = 3  # how often errors are cleared before they count as permanent
DEFAULT_VEL_LIMIT = 2.0  # [turn/s] `vel_limit` of a drive in which none was saved
SPEED_MARGIN = 1.2  # speed limit in the drive over that of the config: the loop reacts first


class OdriveOptions(OdriveEncoderOptions):
    # [s] period of the heartbeat
    heartbeat_period: Annotated[
        float, NumberField("a period above 0 and at most 0.15 [s]", above=0.0, below=0.1501)
    ] = 0.1
    # current limit of the motor [A]; None: the current and speed limits in the drive stay
    current_limit: Annotated[float | None, NumberField("a current above 0 [A]", above=0.0)] = None
    # speed limit that is saved in the drive [turn/s]; None: not stated, so that the maker's 2 is assumed
    vel_limit: Annotated[float | None, NumberField("a speed above 0 [turn/s]", above=0.0)] = None
    # period of Get_Temperature and Get_Bus_Voltage_Current, as set in the drive [s]; None: it sends neither
    monitor_period: MonitorPeriod = None
    # [N m per turn/s] velocity gain that is saved in the drive
    vel_gain: Annotated[float, NumberField("a gain above 0 [N m per turn/s]", above=0.0)] = 1 / 6


class OdriveDrive(OdriveEncoder, TableDrive):
    """An ODrive in torque mode; each torque command feeds its watchdog."""

    settings: DriveSettings
    _options: OdriveOptions
    Options = OdriveOptions
    stop_steps = StopSteps(
        "it cannot: in torque control nothing in the drive brakes, so it coasts in state IDLE",
        "the brake closes only once the axis is in state IDLE: it falls until then",
        "Set_Axis_State IDLE; a heartbeat in state IDLE proves it",
        "its watchdog disarms it and it coasts; the test is done in IDLE: it proves that the loss is noticed",
    )
    gauge_needs: ClassVar[Mapping[Quantity, str]] = dict.fromkeys(
        (each.quantity for reads in GAUGES.values() for each in reads),
        "monitor_period, and temperature_msg_rate_ms and bus_voltage_msg_rate_ms in axis0.config.can",
    )
    unverified = (
        "the control mode cannot be read back over CANSimple: torque control is set at start-up, and only the motion "
        "shows another mode (axis0.controller.config.control_mode: save it as TORQUE_CONTROL, and run --stage zero "
        "first)"
    )

    def __init__(self, settings: DriveSettings, period: float) -> None:
        super().__init__(settings, period)
        self.heartbeat = self._options.heartbeat_period
        # Polling by remote frames would not do while it is off: firmware 0.5 feeds the watchdog by every frame to the
        # node (do_command in its can_simple.cpp), so polling would keep a drive on whose commands have stopped.
        self.encoding = Encoding(
            self._frame(codec.SET_INPUT_TORQUE, {}), codec.TORQUE, motor_torque(settings),
            Rounding.SINGLE, -LARGEST_SINGLE, LARGEST_SINGLE, None,
        )  # fmt: skip
        self._state = codec.IDLE
        self._error = self._active = 0  # errors by the last heartbeat, and by the last Get_Error
        working = (Expects(codec.ERROR, 0xFFFF_FFFF, 0), Expects(codec.STATE, 0xFF, codec.CLOSED_LOOP))
        heartbeat, errors = self._id(codec.HEARTBEAT), self._id(codec.GET_ERROR)
        self.messages += (
            Message(heartbeat, codec.SIZE, expects=working, alive=True, every=self.heartbeat),
            Message(errors, codec.SIZE, expects=working[:1], every=self.heartbeat),
        )
        self.handlers |= dict.fromkeys(map(self._id, codec.MASTER_COMMANDS), self._on_foreign)
        self.handlers |= {heartbeat: self._on_heartbeat, errors: self._on_errors}
        if (every := self._options.monitor_period) is not None:
            gauges = {self._id(command): reads for command, reads in GAUGES.items()}
            self.messages += tuple(Message(each, codec.SIZE, reads, every=every) for each, reads in gauges.items())
            self.handlers |= dict.fromkeys(gauges, self._on_gauges)
        self._voltage_times: deque[int] = deque(maxlen=3)  # [ns] of the last bus voltages
        if self._options.current_limit is None:
            self.unverified += (
                "; its own current and speed limits stay as they are saved (give current_limit to set both)"
            )
            self._assume_limit()

    def _assume_limit(self) -> None:
        """Takes the maker's default for a `vel_limit` that the config does not state."""
        settings, least = self.settings, _least_limit(self.settings, self._options)
        if self._options.vel_limit is not None or least <= DEFAULT_VEL_LIMIT:
            return
        lost = settings.motor_limit / self._options.vel_gain
        self.assumed_speed = max(0.0, DEFAULT_VEL_LIMIT - lost) * abs(self._turn)
        self.assumption = (
            f"vel_limit is not stated: at its default, {DEFAULT_VEL_LIMIT:g} turn/s, the drive gives less than "
            f"torque_limit from a speed of {self.assumed_speed:.3g} on, and none at {DEFAULT_VEL_LIMIT:g} turn/s "
            f"(save {least:.4g} or more in the drive and state it: vel_limit; or give current_limit, which sets both)"
        )

    @staticmethod
    def problems(settings: SensorSettings, options: OdriveOptions, period: float) -> list[Problem]:  # type: ignore[override]
        problems = OdriveEncoder.problems(settings, options, period)
        assert isinstance(settings, DriveSettings)
        limit, least = options.vel_limit, _least_limit(settings, options)
        if options.current_limit is None and limit is not None and limit < least:
            what = f"at {limit:g} turn/s the drive does not give torque_limit up to speed_limit: it limits torque to "
            what += f"(vel_limit - speed) vel_gain (set it to {least:.4g} or more in the drive, or give current_limit)"
            problems.append(Problem(("vel_limit",), what))
        return problems

    def _on_request(self, frame: Frame) -> None:
        self.foreign = self.foreign or f"another master polls this drive by {frame}, which may feed its watchdog"

    def _on_heartbeat(self, frame: Frame) -> bool:
        self._error, self._state = codec.ERROR.read(frame.data), codec.STATE.read(frame.data)
        self.alive = frame.time
        self._answers += 1
        self._judge()
        return True

    def _on_errors(self, frame: Frame) -> bool:
        self._active = codec.ERROR.read(frame.data)
        self._judge()
        return True

    def _on_gauges(self, frame: Frame) -> bool:
        self._take_answer(frame)
        if frame.id == self._id(codec.GET_BUS_VOLTAGE_CURRENT):
            self._voltage_times.append(frame.time)
        return True

    def _judge(self) -> None:
        error, state = self._error | self._active, self._state
        self.fault = codec.error_text(error)
        if error and state != codec.CLOSED_LOOP:  # an error in closed loop does not prove that it has disarmed
            self.condition = Condition.FAULT
        elif not self._answers:
            self.condition = Condition.UNKNOWN
        elif state == codec.CLOSED_LOOP:
            self.condition = Condition.ENABLED
        elif state in (0, codec.IDLE):
            self.condition = Condition.DISABLED
        else:  # a procedure that moves the motor by itself, or an unknown state
            self.condition = Condition.UNKNOWN

    def explanation(self) -> str:
        """Its axis state and its errors, by its last heartbeat."""
        if not self._answers:
            return ""
        state = f"its axis state: {codec.state_text(self._state)}"
        return f"{state}, its errors: {self.fault}" if self.fault else state

    def _frame(self, command: int, numbers: Mapping[Field, float]) -> Frame:
        if not all(map(isfinite, numbers.values())):
            raise ValueError(f"{self.settings.name}: {', '.join(map(str, numbers.values()))}: not finite")
        return self.settings.frame(self._id(command), packed(codec.SIZE, numbers))

    def identify(self) -> Steps:
        """Checks versions, the period of the encoder estimates, and that the axis is idle."""
        came = self._answered(1)
        yield HandshakeStep([], came, 0.5, "a heartbeat (is the node id right, the bit rate, heartbeat_msg_rate_ms?)")
        if self._state not in (0, codec.IDLE):
            state = codec.state_text(self._state)
            raise DriveError(f"is in state {state} already (disable it; is there another master?)")
        yield from super().identify()
        if self._options.monitor_period is not None:
            yield from self._measure_monitoring(self._options.monitor_period)

    def _measure_monitoring(self, declared: float) -> Steps:
        """Waits for temperatures and bus voltages, and measures their period, which the bus load depends on."""
        self.gauges = [nan] * len(self.gauges)
        self._voltage_times.clear()
        came = lambda: len(self._voltage_times) > 2 and not isnan(self.gauges[0])  # noqa: E731
        expected = f"Get_Temperature and Get_Bus_Voltage_Current ({RATES})"
        yield HandshakeStep([], came, 0.5 + 4 * declared, expected)
        _check_period(self._voltage_times, declared, "Get_Bus_Voltage_Current", "monitor_period", RATES)

    def configure(self) -> Steps:
        """Sets idle, torque mode without ramp, zero torque, and with `current_limit` also limits."""
        modes = {codec.CONTROL_MODE: codec.TORQUE_CONTROL, codec.INPUT_MODE: codec.PASSTHROUGH}
        frames = [*self.disable_frames(), self._frame(codec.SET_CONTROLLER_MODE, modes)]
        if (current := self._options.current_limit) is not None:
            speed = _least_limit(self.settings, self._options)
            frames.append(self._frame(codec.SET_LIMITS, {codec.VELOCITY_LIMIT: speed, codec.CURRENT_LIMIT: current}))
        frames.append(self.encoding.frame)
        came = self._answered(2)
        idle = lambda: came() and self._state in (0, codec.IDLE)  # noqa: E731
        yield HandshakeStep(frames, idle, 0.5, "axis state IDLE")

    def test_watchdog(self, torque: float = 0.0) -> Steps:
        yield from self.reset()
        settings = self.settings
        limit = 1.1 * settings.watchdog + 2.5 * self._options.heartbeat_period
        setting = f"set axis0.config.enable_watchdog and watchdog_timeout = {settings.watchdog}"
        with silent(self):
            expired = lambda: bool((self._error | self._active) & codec.WATCHDOG_EXPIRED)  # noqa: E731
            yield HandshakeStep(
                [self.encoding.frame], expired, limit, f"WATCHDOG_TIMER_EXPIRED while nothing is sent ({setting})"
            )
        yield from self.reset()

    def enable(self, torque: float) -> Steps:
        start = self._frame(codec.SET_AXIS_STATE, {codec.REQUESTED_STATE: codec.CLOSED_LOOP})
        with self._seeded(torque) as seed:
            self._feed.fed = True
            self.may_go_on()
            expected = "axis state CLOSED_LOOP_CONTROL (is the axis calibrated?)"
            yield HandshakeStep([seed, start], self._decided, 0.5, expected)

    def reset(self) -> Steps:
        """Clears errors, repeatedly: a watchdog that was fed late expires again."""
        frames = [self.encoding.frame, self.settings.frame(self._id(codec.CLEAR_ERRORS), b"\0")]
        for _ in range(ATTEMPTS):
            self._active = 0
            yield HandshakeStep(frames, self._answered(2), 0.5, "heartbeats after Clear_Errors")
            if self.condition is Condition.DISABLED:
                return
        state = codec.state_text(self._state)
        raise DriveError(f"is in state {state} after Clear_Errors: {self.fault or 'no error'}")

    def disable_frames(self) -> Sequence[Frame]:
        return (self._frame(codec.SET_AXIS_STATE, {codec.REQUESTED_STATE: codec.IDLE}),)


def _least_limit(settings: DriveSettings, options: OdriveOptions) -> float:
    """Smallest vel_limit with which the drive gives the largest torque at the largest speed [turn/s].

    In torque mode the firmware limits torque to `(vel_limit - speed) vel_gain`.
    Source: `Controller::limitVel` of the published firmware 0.5.
    """
    speed = abs(settings.motor_rate(settings.speed_limit)) / TURN
    return max(SPEED_MARGIN * speed, speed + settings.motor_limit / options.vel_gain)
