"""A moteus in position mode: bring-up, torque commands and stops; one reply to each command.

Its watchdog is fed only by frames that write the mode; a query shows the state of a drive whose watchdog runs out.
What it does then is its setting `servo.timeout_mode`, which is read through the tunnel to its console; the mode that it
shows, 11, stays until a stop. A stop by another master does not stay: a command of ours that is already under way
enables the drive again. As soon as a reply, or a frame of the other master, shows the stop, no torque is sent any more,
and our own stop takes that command back. No torque is sent either to a drive whose samples are stale: it may have
restarted. The answer to a frame shows the state before the command in the same frame, so a change of mode shows in the
next answer.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from math import isfinite
from typing import Annotated, ClassVar

from pydantic import Field, PlainValidator

from hil.codecs import moteus as codec
from hil.codecs.field import Field as WireField
from hil.drives.base import Condition, DriveError, Feedback, HandshakeStep, Ids, Steps, StopSteps
from hil.drives.guard import after, passed, silent, tested_time
from hil.drives.options import EncoderBits, MonitorPeriod, Word, address_problems
from hil.drives.settings import DriveSettings, Quantity, SensorSettings
from hil.drives.table import TableDrive, TurnNode
from hil.drives.wire import TURN, Encoding, Expects, Message, Reads, Rounding, joint_torque, motor_torque
from hil.frame import Frame
from hil.loop import SECOND
from servoctl.config.document import Problem
from servoctl.tree.fields import NumberField, only
from servoctl.tree.rules import Section

COASTS = 0, 12
"""Values of `servo.timeout_mode` with which the shaft coasts; with 10 and 15 the drive stops it by itself.

With 12 it regulates to zero velocity by the gains of the last command, and those of a torque command are 0.
"""
SET_TIMEOUT_MODE = "in tview or moteus_tool: conf set servo.timeout_mode 15, conf write"


_timeout_mode = only(
    lambda value: type(value) is int and value in (0, 10, 12, 15), "0, 10, 12 or 15, as servo.timeout_mode in the drive"
)


class MoteusOptions(Section):
    # `servo.timeout_mode` as it is set in the drive: what it does when commands stop. 15 brakes, 10 holds; 0 and 12 let
    # a shaft coast that was commanded by torque, and need a brake
    timeout_mode: Annotated[int, PlainValidator(_timeout_mode), Field(description="0, 10, 12 or 15")] = 15
    # least home state: `output`, `rotor` (known within one turn of the rotor) or `relative`
    home: Annotated[str, Word("output, rotor or relative", tuple(codec.HOME_STATES))] = "output"
    # id of the loop on the bus
    source: Annotated[int, NumberField("an id from 0 to 126", least=0, below=127, whole=True)] = 0
    encoder_bits: EncoderBits = None  # bits per turn of the output shaft; None: the resolution of single precision
    # time between two questions for bus voltage and temperatures [s]; None: they are not asked for
    monitor_period: MonitorPeriod = None


OLDEST_MAP = 5  # first version of the register map that has `ILIMIT_SCALE` and the home state

ASKED = (codec.MODEL, codec.FIRMWARE, codec.MAP_VERSION, codec.HOME_STATE)

POLLS = 20  # how often the console is asked for the rest of an answer

LATE = 0.02
"""The watchdog may run out this much after its time: the pace of queries, and frames that wait for the bus [s]."""

_CONDITIONS = {  # mode -> condition; in every other mode it is unknown what moves the shaft
    codec.STOPPED: Condition.DISABLED,
    codec.IN_FAULT: Condition.FAULT,
    codec.IN_POSITION: Condition.ENABLED,
    codec.TIMED_OUT: Condition.STOPPING,
    codec.ZERO_VELOCITY: Condition.STOPPING,
    codec.BRAKE: Condition.STOPPING,
}

# in the order of what they bring in the tables
_MOTION_REGISTERS = (codec.POSITION, codec.VELOCITY, codec.TORQUE)
_GAUGE_REGISTERS = (codec.VOLTAGE, codec.TEMPERATURE, codec.MOTOR_TEMPERATURE)

GAUGES = (  # what the answer to `codec.GAUGES` brings
    Reads(codec.GAUGE_VOLTAGE, Quantity.SUPPLY, ()),
    Reads(codec.GAUGE_TEMPERATURE, Quantity.TEMPERATURE, ()),
    Reads(codec.GAUGE_MOTOR, Quantity.MOTOR_TEMPERATURE, ()),
)


def _expected(heads: Mapping[WireField, int]) -> tuple[Expects, ...]:
    return tuple(Expects(field, field.mask, value) for field, value in heads.items())


class MoteusDrive(TurnNode, TableDrive):
    """A moteus that is commanded by torque."""

    feedback = Feedback.REPLY
    test_enables = True
    Options: ClassVar[type[MoteusOptions]] = MoteusOptions
    _options: MoteusOptions
    enabled_by_command, ramps, ramp_needs_encoder = True, True, False
    ramp_time = 1.0  # shorted phases brake by the motor's own time constant
    gauge_needs: ClassVar[Mapping[Quantity, str]] = dict.fromkeys((each.quantity for each in GAUGES), "monitor_period")
    stop_steps = StopSteps(
        "mode 15: it shorts its phases, which brakes without supply, the less the slower; it does not hold against "
        "gravity",
        "the brake closes only once the drive makes no torque (mode 15 or 0); until it is closed the shorted phases "
        "slow the fall",
        "mode 0; an answer that came after it shows mode 0 or a fault",
        "its watchdog runs out into servo.timeout_mode, which is read: 15 shorts the phases, 0 and 12 let the shaft "
        "coast; the test is done while it is enabled: it proves the mode, not the braking",
    )

    def __init__(self, settings: DriveSettings, period: float) -> None:
        super().__init__(settings, period)
        options = self._options
        self.bits = options.encoder_bits
        torque = Reads(codec.STATE_TORQUE, Quantity.TORQUE, joint_torque(settings))
        reads = (*self._turns(codec.STATE_POSITION, codec.STATE_VELOCITY), torque)
        self._command_id = codec.identifier(settings.node, options.source)
        reply = codec.reply_identifier(settings.node, options.source)
        working = codec.STATE_HEADS | {codec.STATE_MODE: codec.IN_POSITION, codec.STATE_FAULT: 0}
        self.motion = Message(reply, codec.STATE_SIZE, reads, _expected(working), sample=True, alive=True)
        self._gauges = Message(reply, codec.GAUGE_SIZE, GAUGES, _expected(codec.GAUGE_HEADS))
        asked = self._monitor(options.monitor_period, [self._frame(codec.GAUGES)], [self._gauges])
        self.messages = (self.motion, *asked)
        foreign = codec.command_identifiers(settings.node, options.source)
        self.handlers = {reply: self._on_reply, **dict.fromkeys(foreign, self._on_command)}
        self.encoding = self._encoding(settings.watchdog)
        self._query = self._frame(codec.padded(codec.QUERY))
        self._mode = codec.STOPPED
        self._ours = False  # whether it was enabled by this run, and not stopped by it
        self._left = False  # whether it left position mode meanwhile
        self._revocation: Frame | None = None  # a command of ours may have enabled it again: what takes it back
        self._known: dict[int, float] = {}  # registers that it has answered; NaN: it does not know one
        self._text, self._polled = "", 0  # text of its console, and number of answers with text

    def _encoding(self, watchdog: float) -> Encoding:
        """How a torque is sent with this time of the watchdog [s]."""
        settings, most = self.settings, codec.LARGEST_TORQUE
        zero = codec.torque_command(min(settings.motor_limit, most), watchdog)  # a limit beyond is refused, once built
        torque = motor_torque(settings)
        return Encoding(self._frame(zero), codec.COMMAND_TORQUE, torque, Rounding.SINGLE, -most, most, None)

    @staticmethod
    def speaks_fd(settings: SensorSettings) -> bool:
        return True

    @classmethod
    def reserved_ids(cls, settings: SensorSettings) -> Ids:
        """Every id with its own as destination too: it obeys them all, also the bytes of another protocol."""
        table = super().reserved_ids(settings)
        obeyed = {codec.identifier(settings.node, source, reply=False) for source in range(128)}
        return table._replace(exclusive=table.exclusive | obeyed)

    @staticmethod
    def problems(settings: SensorSettings, options: MoteusOptions, period: float) -> list[Problem]:
        assert isinstance(settings, DriveSettings)
        problems = address_problems(settings, codec.NODES, source=options.source)
        if not settings.fd:
            what = f"{settings.name}: a moteus speaks CAN FD only, and bus '{settings.bus}' is classic"
            problems.append(Problem(("bus",), f"{what} (give the bus fd: true and data_bitrate: 5000000)"))
        if options.timeout_mode in COASTS and not settings.brake:
            what = f"{options.timeout_mode}: the shaft coasts when commands stop, and no brake is declared"
            problems.append(Problem(("timeout_mode",), f"{what} ({SET_TIMEOUT_MODE}; or declare brake: true)"))
        step, longest = codec.WATCHDOG_STEP, codec.LONGEST_WATCHDOG
        steps = settings.watchdog / step
        if not step <= settings.watchdog <= longest or abs(steps - round(steps)) > 1e-6:
            what = f"hil.safety.drive_watchdog is {settings.watchdog:g} s"
            remedy = f"a command of a moteus holds multiples of {step:g} s up to {longest:g} s"
            problems.append(Problem(("protocol",), f"{what} ({remedy})"))
        return problems

    def _on_reply(self, frame: Frame) -> bool:
        answer = codec.answered(frame.data)
        if answer is None:
            return False
        known, text = answer
        if not isfinite(known.get(codec.MODE, 0.0) + known.get(codec.FAULT, 0.0)):
            return False
        if known.keys() >= {codec.MODE, *_MOTION_REGISTERS, codec.FAULT}:
            motion = self.motion.scaled(known[register] for register in _MOTION_REGISTERS)
            self._take(int(known[codec.MODE]), int(known[codec.FAULT]), motion, frame.time)
        if known.keys() >= set(_GAUGE_REGISTERS):
            self._show(self._gauges.scaled(known[register] for register in _GAUGE_REGISTERS))
        if text is not None:
            self._text += text
            self._polled += 1
        self._known |= known
        return True

    def _on_command(self, frame: Frame) -> bool:
        mode = codec.commanded_mode(frame.data)
        if self._ours and mode is not None and mode != codec.IN_POSITION:
            self._leave(mode)
        return self._on_foreign(frame)

    def _take(self, mode: int, fault: int, motion: Mapping[Quantity, float], time: int) -> None:
        """Takes its state; a drive with an encoder fault reports NaN: its fault counts, and the sample is missing."""
        self.alive = time
        self._answers += 1
        self._judge(mode, fault)
        self._take_values(motion, time)

    def out_of_touch(self) -> None:
        """A command of torque would enable a drive that has restarted, so it gets none any more, but a stop."""
        if self._ours:
            self._leave(codec.STOPPED)
            self.condition = Condition.UNKNOWN

    def _leave(self, mode: int) -> None:
        """Ends all torque commands until the drive is enabled again: it is in another mode, or may be."""
        self._ours, self._left, self.condition = False, True, Condition.STOPPING
        self._revocation = self._frame(codec.mode_command(mode if mode == codec.BRAKE else codec.STOPPED))

    def _judge(self, mode: int, fault: int) -> None:
        self._mode = mode
        if self._ours and mode not in (codec.IN_POSITION, codec.IN_FAULT, codec.TIMED_OUT):  # the last two stay anyway
            self._leave(mode)
        self.condition = _CONDITIONS.get(mode, Condition.UNKNOWN)
        if self._left and mode == codec.IN_POSITION:
            self.condition = Condition.STOPPING
        self.saturated = mode == codec.IN_POSITION and fault in codec.LIMITING
        self.fault = ""
        if mode == codec.IN_FAULT:
            self.fault = codec.fault_text(fault)
        elif mode == codec.TIMED_OUT:
            self.fault = f"its watchdog ran out: {codec.mode_text(mode)}"
        elif fault and fault not in codec.LIMITING:
            self.fault = codec.fault_text(fault)

    def _frame(self, data: bytes) -> Frame:
        return self.settings.frame(self._command_id, data)

    def alive_frames(self) -> Sequence[Frame]:
        """A query while the drive is not enabled, which does not feed the watchdog; or the stop after a foreign one."""
        if self._revocation is not None:
            revocation, self._revocation = self._revocation, None
            return (revocation,)
        return self._feed.frames(self._query, self.condition is Condition.ENABLED)

    def queries(self) -> Sequence[Frame]:
        return (self._query,)

    def explanation(self) -> str:
        if not self._answers:
            return ""
        return f"it is in {codec.mode_text(self._mode)}{f', {self.fault}' if self.fault else ''}"

    def identify(self) -> Steps:
        """Checks that the drive is off, knows all registers that are used, and its position as the config says."""
        remedy = "is the id right, are both bit rates, and sample point 0.666?"
        yield HandshakeStep([self._query], self._answered(1), 0.5, f"an answer to a query ({remedy})")
        if self._mode not in (codec.STOPPED, codec.IN_FAULT, codec.TIMED_OUT, codec.BRAKE):
            raise DriveError(f"is in {codec.mode_text(self._mode)} already (stop it; is there another master?)")
        for register in ASKED:
            self._known.pop(register, None)
        answered = lambda: all(register in self._known for register in ASKED)  # noqa: E731
        frames = [self._frame(codec.padded(data)) for data in (codec.IDENTITY, codec.HOME)]
        yield HandshakeStep(frames, answered, 0.5, "its model, firmware and home state")
        version, home = self._known[codec.MAP_VERSION], self._known[codec.HOME_STATE]
        if not version >= OLDEST_MAP:
            what = f"has version {version:g} of the register map, version {OLDEST_MAP} or later is needed"
            raise DriveError(f"{what} (update its firmware: moteus_tool --flash)")
        if not home >= codec.HOME_STATES.index(self._options.home):
            known = codec.HOME_STATES[int(home)] if home in (0, 1, 2) else f"{home:g}"
            what = f"its home state is {known}: its position may be wrong by turns of the rotor"
            exact = "bring the joint to a known pose and send `d exact`, or give it an encoder at the output"
            raise DriveError(f"{what} ({exact}; or check the start pose each time, and set home: {known})")

    def _setting(self, name: str) -> Generator[HandshakeStep, None, float]:
        """Reads a setting through the console; the caller checks it."""
        self._text = ""
        ask = [self._frame(codec.console_write(f"conf get {name}\n"))]
        poll = self._frame(codec.padded(codec.CONSOLE_POLL))
        for _ in range(POLLS):
            expected = f"an answer of its console to conf get {name}"
            yield HandshakeStep([*ask, poll], after(lambda: self._polled, 1), 0.5, expected)
            ask = []
            if "\n" in self._text:
                break
        answer = self._text.strip()
        try:
            return float(answer)
        except ValueError:
            remedy = "update its firmware: moteus_tool --flash"
            raise DriveError(f"answers {answer!r} to conf get {name} ({remedy})") from None

    def configure(self) -> Steps:
        """Stops the drive, and reads the settings that decide what it does without commands."""
        yield from self.reset()
        wanted = self._options.timeout_mode
        mode = yield from self._setting("servo.timeout_mode")
        if mode != wanted:
            what = f"its servo.timeout_mode is {mode:g}, the config says {wanted}"
            if mode in COASTS:
                what += ": when commands stop, the shaft coasts"
            raise DriveError(f"{what} ({SET_TIMEOUT_MODE})")
        lower = yield from self._setting("servopos.position_min")
        upper = yield from self._setting("servopos.position_max")
        first, last = sorted(self.settings.motor(limit) / TURN for limit in self.settings.position_limits)
        if lower > first or upper < last:  # inside the limits of the config it would limit its torque
            what = f"its servopos.position_min and position_max are {lower:g} and {upper:g} rev"
            ours = f"position_limits of the config are {first:.4g} and {last:.4g} rev at its shaft"
            raise DriveError(f"{what}, {ours} (widen the first: conf set, conf write; or narrow the second)")
        yield from self._first_answers(Quantity.SUPPLY)

    def test_watchdog(self, torque: float = 0.0) -> Steps:
        """Lets the watchdog run out at one torque, while queries show the mode, and stops the drive.

        Each command holds the time of the watchdog; that of the test is short if a brake opens for it.
        """
        yield from self.reset()
        with silent(self):
            sent = self._answered(1)
            seconds = tested_time(self.settings)
            command = self._torque_frame(torque, self._encoding(seconds))
            self.may_go_on()
            yield HandshakeStep([command], sent, 0.5, "a reply to a command of torque")
            begun, limit, enabled = self.alive, seconds + LATE, False
            while self._mode != codec.TIMED_OUT:
                yield HandshakeStep([self._query], self._answered_later(), 0.5, "an answer to a query")
                if self._mode == codec.IN_POSITION and not enabled:  # the command may have waited for a busy bus
                    begun, enabled = self.alive, True
                if self.fault and self._mode != codec.TIMED_OUT:
                    raise DriveError(f"in fault: {self.fault}")
                waited = (self.alive - begun) / SECOND
                if self._mode != codec.TIMED_OUT and waited > limit:
                    what = f"is in {codec.mode_text(self._mode)} {waited:.3f} s after the last command"
                    raise DriveError(f"{what}, the watchdog in that command was {seconds:g} s")
        yield from self.reset()

    def _answered_later(self) -> Callable[[], bool]:
        """A condition: an answer has come, and it is not the instant of the query any more: one query in each tick."""
        came, later = self._answered(1), passed(1)
        return lambda: later() and came()

    def enable(self, torque: float) -> Steps:
        self._left, self._revocation = False, None
        with self._seeded(torque):
            self._feed.fed = False  # `alive_frames` sends the first torque
            self.may_go_on()
            expected = "mode 10, position (is it calibrated: moteus_tool --calibrate?)"
            yield HandshakeStep([], self._decided, 0.5, expected)
        self._ours = True

    def reset(self) -> Steps:
        """Stops the drive, which clears its fault and the mode of its watchdog."""
        frames = [*self.disable_frames(), self._query]
        yield HandshakeStep(frames, self._disabled(), 0.5, "mode 0, stopped, without a fault")

    def disable_frames(self) -> Sequence[Frame]:
        return self._mode_frames(codec.STOPPED)

    def quick_stop_frames(self, torque: float) -> Sequence[Frame]:
        """Mode 15 shorts the phases: it brakes without gains, whatever the last command was."""
        return self._mode_frames(codec.BRAKE)

    def brake_frames(self, torque: float, trusted: bool) -> Sequence[Frame]:
        """Mode 15 makes no torque of its own, so the brake closes; the shorted phases slow the shaft meanwhile."""
        return self._mode_frames(codec.BRAKE)

    def _mode_frames(self, mode: int) -> Sequence[Frame]:
        self._feed.fed, self._ours, self._revocation = True, False, None
        return (self._frame(codec.mode_command(mode)),)
