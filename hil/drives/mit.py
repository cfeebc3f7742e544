"""MIT drives: enabling, commands of torque alone, and disabling; one reply to each command.

A motor replies with the id of its host, one for each motor, and has its own id in the first byte. Without status it
counts as enabled or disabled after it has answered the command to do so. A watchdog that the config declares counts
only after it has run out in a test. Only a Damiao reports which ranges it uses; of others a wrong table cannot be found
here.

Design: registers of a Damiao are only read. They live in flash memory with about 10,000 writes, and a range that is
changed behind the back of another program would scale its torques.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import isclose
from typing import Annotated, ClassVar

from hil.codecs import mit as codec
from hil.drives.base import Condition, DriveError, HandshakeStep, Steps, StopSteps
from hil.drives.linear_ranges import LinearDrive, RangeOptions, range_problems
from hil.drives.options import MaybeFlag, Word, address_problems
from hil.drives.settings import DriveSettings, Quantity, SensorSettings
from hil.drives.wire import Expects, Message, Reads
from hil.frame import Frame
from servoctl.config.document import Problem
from servoctl.tree.fields import NumberField

RANGE_TOLERANCE = 1e-3  # largest relative difference of a range: the register may hold 12.566 for 4 pi

NAMES = {  # register -> its name in the maker's tool
    codec.CONTROL_MODE: "CTRL_MODE",
    codec.TIMEOUT: "TIMEOUT",
    codec.PMAX: "PMAX",
    codec.VMAX: "VMAX",
    codec.TMAX: "TMAX",
}

ANSWERS = 3
"""Replies before a motor without status counts as enabled or disabled: two commands may be on their way before it."""

LATEST = 100_000_000
"""A motor without status counts as disabled when it has replied for so long since the command [ns]: replies that are
late, in a queue or on a busy bus, answer older commands."""

TEMPERATURES = {  # kind of status -> temperatures in its replies
    "none": (),
    "cubemars": (Reads(codec.TEMPERATURE, Quantity.TEMPERATURE, ()),),
    "damiao": (Reads(codec.ELECTRONICS, Quantity.TEMPERATURE, ()), Reads(codec.ROTOR, Quantity.MOTOR_TEMPERATURE, ())),
}

WORKING = {  # kind of status -> what it says of a motor that is enabled and without a fault
    "none": (),
    "cubemars": (Expects(codec.ERROR, 0xFF, 0),),
    "damiao": (Expects(codec.FIRST, 0xF0, codec.DAMIAO_ENABLED << 4),),
}


class MitOptions(RangeOptions):
    # id of its replies, as it is set in the motor; on one bus each motor needs another
    host: Annotated[int, NumberField("an id from 0 to 2047", least=0, below=2048, whole=True)] = 0
    # kind of status in a reply: `cubemars`, `damiao` or `none`
    status: Annotated[str, Word("cubemars, damiao or none", ("cubemars", "damiao", "none"))] = "none"
    # whether the drive stops by itself when commands stop; None: unknown, which is refused on a real bus
    drive_watchdog: MaybeFlag = None


class MitDrive(LinearDrive):
    """An MIT drive; its position is followed over the ends of its range."""

    fields = codec.FIELDS
    enable_answer = "an answer to the command to enable"
    watchdog_remedy = "set its timeout, or drive_watchdog: false"
    fd_remedy = "with `status: damiao` it speaks FD"
    Options: ClassVar[type[MitOptions]] = MitOptions
    _options: MitOptions
    gauge_needs: ClassVar[Mapping[Quantity, str]] = {
        Quantity.TEMPERATURE: "status: cubemars or damiao",
        Quantity.MOTOR_TEMPERATURE: "status: damiao",
    }
    stop_steps = StopSteps(
        "damping in the motor: kd with velocity zero, at most what torque_limit leaves at speed_limit, and the torque "
        "that holds the pose; held by each next command",
        "the brake closes only once the motor is disabled: the axis falls until then",
        "the command to disable; a Damiao reports it, of others answers that came after it count",
        "a Damiao with TIMEOUT disables itself and coasts, which is tested while it is enabled; others keep their last "
        "command for ever",
    )

    def __init__(self, settings: DriveSettings, period: float) -> None:
        super().__init__(settings, period, settings.node, codec.NO_MOTION)
        options = self._options
        self._status, self._host = options.status, options.host
        self.watchdog = options.drive_watchdog
        self._lengths = codec.SIZES if options.status == "none" else (8,)
        # A Damiao has its id in the lower four bits of the first byte, and its status in the upper four.
        mask = 0xF if options.status == "damiao" else 0xFF
        self._own = Expects(codec.FIRST, mask, settings.node & mask)
        reads, working = (*self.reads, *TEMPERATURES[options.status]), WORKING[options.status]
        reply = Message(self._host, 0, reads, working, (self._own,), sample=True, alive=True)
        self.messages = tuple(reply._replace(length=length) for length in self._lengths)
        self.motion = self.messages[0]
        # replies of two motors that start at the same instant destroy each other, where they share an id
        self.handlers = {self._host: self._on_reply, settings.node: self._on_foreign}
        self.enable_frame = self._special(codec.ENABLE)
        self._registers: dict[int, float] = {}  # what a Damiao has answered about its registers
        if options.status == "damiao":
            self.unverified, self.shared = "", frozenset({codec.REGISTERS})
        self._requested = Condition.UNKNOWN
        self._replies_since_request = 0
        self._first_reply = 0

    @staticmethod
    def problems(settings: SensorSettings, options: MitOptions, period: float) -> list[Problem]:
        assert isinstance(settings, DriveSettings)
        addresses = range(1, 16 if options.status == "damiao" else 256)  # that a reply can hold
        problems = address_problems(settings, addresses, host=options.host)
        if options.drive_watchdog and options.status != "damiao":
            what = f"true cannot be tested with status {options.status}, which does not report lost commands"
            problems.append(Problem(("drive_watchdog",), f"{what} (set false: an untested watchdog does not count)"))
        return [*problems, *range_problems(settings, options, codec.FIELDS.command_torque)]

    def _on_reply(self, frame: Frame) -> bool:
        if not (frame.data and self._own.holds(frame.data)):
            return True  # of another motor with the same host
        if self._status == "damiao" and (answer := codec.register_value(frame.data, self.settings.node)):
            register, value = answer
            self._registers[register] = value
            return True
        if len(frame.data) not in self._lengths:
            return False
        self._take_sample(frame)
        self.alive = frame.time
        self._answers += 1
        self._first_reply = self._first_reply if self._replies_since_request else frame.time
        self._replies_since_request += 1
        self._judge(frame.data)
        return True

    def _judge(self, reply: bytes) -> None:
        self.fault = ""
        if self._status == "damiao":
            self._judge_damiao(codec.FIRST.read(reply) >> 4)
        elif self._status == "cubemars" and (code := codec.ERROR.read(reply)):
            self.condition = Condition.FAULT
            self.fault = f"{codec.CUBEMARS_FAULTS.get(code, 'unknown fault')} (error {code})"
        elif self._obeyed or self.condition is Condition.FAULT:
            self.condition = self._requested

    @property
    def _obeyed(self) -> bool:
        """Whether a motor without status has answered the last request; that it is disabled must be certain."""
        certain = self.alive - self._first_reply >= LATEST
        return self._replies_since_request >= ANSWERS and (certain or self._requested is Condition.ENABLED)

    def _judge_damiao(self, code: int) -> None:
        if code == codec.DAMIAO_ENABLED:
            self.condition = Condition.ENABLED
        elif code == codec.DAMIAO_DISABLED:
            self.condition = Condition.DISABLED
        else:
            self.condition = Condition.FAULT
            self.fault = f"{codec.DAMIAO_FAULTS.get(code, 'unknown status')} (status {code:X})"

    @staticmethod
    def speaks_fd(settings: SensorSettings) -> bool:
        return settings.options.get("status") == "damiao"

    def _special(self, code: int) -> Frame:
        return self.settings.frame(self.settings.node, codec.special(code))

    def _request(self, condition: Condition) -> None:
        if condition is not self._requested:
            self._requested, self._replies_since_request = condition, 0

    def identify(self) -> Steps:
        """Checks that replies have the length that fits `status`; a Damiao must be off, with the right registers."""
        rejected, answered = self.rejected, self._answered(1)
        came = lambda: answered() or self.rejected > rejected  # noqa: E731
        remedy = "is the node id right, the bit rate, and the host's id?"
        yield HandshakeStep([self.encoding.frame], came, 0.5, f"a reply to a command of zero torque ({remedy})")
        if not answered():
            lengths = " or ".join(map(str, self._lengths))
            raise DriveError(f"its reply is not {lengths} bytes, as with status {self._status} (correct `status`)")
        if self._status == "damiao":
            yield from self._check_damiao()

    def queries(self) -> Sequence[Frame]:
        """Only to a Damiao: the others answer to nothing but commands."""
        if self._status != "damiao":
            return ()
        return (self.settings.frame(codec.REGISTERS, codec.refresh(self.settings.node)),)

    def listen(self) -> Steps:
        """Asks a Damiao for a reply, and compares its registers with the config; no torque is commanded."""
        expected = "a reply to a request to refresh (is the node id right?)"
        yield HandshakeStep(self.queries(), self._answered(1), 0.5, expected)
        yield from self._check_damiao()

    def _check_damiao(self) -> Steps:
        if self.condition is Condition.ENABLED:
            raise DriveError("is enabled already (disable it; is there another master?)")
        self._registers.clear()
        for register, name in NAMES.items():
            request = self.settings.frame(codec.REGISTERS, codec.read_register(self.settings.node, register))
            expected = f"an answer to the request for {name} (register {register})"
            yield HandshakeStep([request], lambda register=register: register in self._registers, 0.5, expected)  # type: ignore[misc]
        problems = list(self._register_problems(self._registers))
        if problems:
            raise DriveError("; ".join(problems))

    def _register_problems(self, values: Mapping[int, float]) -> Iterator[str]:
        mode = round(values[codec.CONTROL_MODE])
        if mode != codec.MIT_MODE:
            what = f"{mode} ({codec.MODES.get(mode, 'unknown')})"
            yield f"CTRL_MODE (register 10) is {what}, torque commands need 1 (MIT): set it with the maker's tool"
        for register, field, unit in (
            (codec.PMAX, "position", "rad"),
            (codec.VMAX, "velocity", "rad/s"),
            (codec.TMAX, "torque", "N m"),
        ):
            actual, ours = values[register], float(getattr(self._ranges, field))
            if not isclose(actual, ours, rel_tol=RANGE_TOLERANCE):
                yield (
                    f"{NAMES[register]} (register {register}) is {actual:g} {unit}, the range of {field} in the config "
                    f"is {ours:g} {unit} (write `ranges` with the drive's value, or correct `motor`)"
                )
        yield from self._timeout_problems(values[codec.TIMEOUT] * codec.TICK)

    def _timeout_problems(self, timeout: float) -> Iterator[str]:
        """Problems of the watchdog's time [s]; 0 means that there is none."""
        allowed = self.settings.watchdog
        wanted = f"{round(allowed / codec.TICK)}, {allowed:g} s"
        if not timeout:
            if self.watchdog:
                yield f"TIMEOUT (register 9) is 0: no watchdog (set it to {wanted}; or drive_watchdog: false)"
        elif timeout < 3 * self._period:
            yield f"TIMEOUT (register 9) is {timeout:g} s, less than 3 periods of the loop (set it to {wanted})"
        elif self.watchdog and timeout > allowed * (1 + RANGE_TOLERANCE):
            what = f"TIMEOUT (register 9) is {timeout:g} s, hil.safety.drive_watchdog is {allowed:g} s"
            yield f"{what} (set it to {wanted}; or raise drive_watchdog)"

    def configure(self) -> Steps:
        """Disables the motor; its mode and limits cannot be set by MIT frames."""
        frames, came = self.disable_frames(), self._answered(2)
        over = lambda: came() and self.condition in (Condition.DISABLED, Condition.FAULT)  # noqa: E731
        yield HandshakeStep(frames, over, 0.5, "an answer to the command to disable")

    def enable(self, torque: float) -> Steps:
        with self._seeded(torque) as seed:
            try:
                # Some motors start with the last command that they received: it must be this one.
                yield HandshakeStep([seed], self._answered(2), 0.5, "replies to the first torque")
                self._request(Condition.ENABLED)
                self.may_go_on()
                yield HandshakeStep([self.enable_frame], self._decided, 0.5, self.enable_answer)
            finally:
                if self.condition is not Condition.ENABLED:
                    self._request(Condition.DISABLED)

    def reset(self) -> Steps:
        """Disables, and clears the fault of a Damiao.

        Other makers have no command for it. To an enabled motor that does not know it, FF ... FB would be a command of
        nearly full torque.
        """
        frames = [*self.disable_frames()]
        if self._status == "damiao":
            frames.append(self._special(codec.CLEAR_FAULT))
        expected = "a reply without a fault (else switch its power off and on)"
        yield HandshakeStep(frames, self._disabled(), 0.5, expected)

    def disable_frames(self) -> Sequence[Frame]:
        """The command to disable; the motor counts as disabled after its answer."""
        self._request(Condition.DISABLED)
        self._feed.fed = True  # it is answered like a command of zero torque, which is not needed in this tick too
        return (self._special(codec.DISABLE),)
