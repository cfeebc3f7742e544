"""CiA 402 drives in cyclic synchronous torque mode: bring-up, commands and stops.

The drive answers each SYNC by TPDO1 with position and velocity, and every `status_every`-th SYNC also by TPDO2 with its
status. A fault comes at once as an emergency. RPDO1 acts when it arrives. The watchdog of the drive is its heartbeat
consumer (0x1016): the loop itself sends our heartbeat, so it stops when the loop stops.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import nan
from typing import Any, ClassVar

from hil.codecs import cia402 as codec
from hil.codecs.cia402 import Cia402State
from hil.drives import cia402_setup as setup
from hil.drives.base import Condition, DriveError, Feedback, HandshakeStep, Ids, Steps, StopSteps
from hil.drives.cia402_setup import Cia402EncoderOptions, Cia402Options, Objects, drive_problems
from hil.drives.guard import after, begin_enabling, refuse_fault, silent
from hil.drives.options import address_problems, options_of
from hil.drives.settings import RUNAWAY, DriveSettings, Quantity, SensorSettings
from hil.drives.table import TableDrive, TableNode
from hil.drives.wire import (
    TURN,
    Encoding,
    Expects,
    Feeds,
    Message,
    Operation,
    Reads,
    Rounding,
    joint_torque,
    motor_torque,
)  # fmt: skip
from hil.frame import Frame
from servoctl.config.document import Problem


class Cia402Encoder(TableNode):
    """The encoder of a CiA 402 drive."""

    feedback = Feedback.SYNC
    Options: ClassVar[type[Cia402EncoderOptions]] = Cia402EncoderOptions
    on_emulated_bus: ClassVar[Mapping[str, Any]] = {"counts_per_turn": 65536, "velocity_unit": TURN / 65536}
    _options: Cia402EncoderOptions

    def __init__(self, settings: SensorSettings, period: float) -> None:
        super().__init__(settings, period)
        count = settings.joint_rate(TURN / self._options.counts_per_turn)
        rate = settings.joint_rate(self._options.velocity_unit)
        motion = (
            Reads(codec.POSITION, Quantity.POSITION, ((Operation.TIMES, count), (Operation.PLUS, settings.offset))),
            Reads(codec.VELOCITY, Quantity.VELOCITY, ((Operation.TIMES, rate),)),
        )
        self._nmt: int | None = None
        self._sdo = Objects(settings.node)
        feedback, heartbeat = codec.TPDO1 + settings.node, codec.HEARTBEAT + settings.node
        operational = Expects(codec.STATE, codec.NMT_BITS, codec.OPERATIONAL)
        self.motion = Message(feedback, codec.FEEDBACK_SIZE, motion, sample=True)
        self.messages = (
            self.motion,
            Message(heartbeat, 1, expects=(operational,), alive=True, every=setup.HEARTBEAT),
        )
        self.handlers = {
            feedback: self._on_feedback,
            heartbeat: self._on_heartbeat,
            codec.SDO_ANSWER + settings.node: self._on_answer,
        }

    @staticmethod
    def problems(settings: SensorSettings, options: Cia402EncoderOptions, period: float) -> list[Problem]:
        return address_problems(settings, codec.NODES)

    @staticmethod
    def reserved_ids(settings: SensorSettings) -> Ids:
        """Source: CiA 301, predefined connection set."""
        exclusive = {base + number * 0x100 for base in (codec.TPDO1, codec.RPDO1) for number in range(4)}
        exclusive |= {codec.EMERGENCY, codec.SDO_ANSWER, codec.SDO_REQUEST, codec.HEARTBEAT}
        return Ids(frozenset(base + settings.node for base in exclusive), frozenset({codec.NMT, codec.SYNC}))

    def _on_feedback(self, frame: Frame) -> bool:
        return len(frame.data) == codec.FEEDBACK_SIZE and self._take_sample(frame)

    def _on_heartbeat(self, frame: Frame) -> bool:
        state = codec.nmt_state(frame.data)
        if state is None:
            return False
        self._nmt = state
        return True

    def _on_answer(self, frame: Frame) -> bool:
        self._sdo.take(frame.data)
        return True

    def identify(self) -> Steps:
        """Checks the profile, maps TPDO1 and starts the node: an encoder node is not configured otherwise."""
        yield from setup.check_type(self._sdo)
        yield from setup.check_polarity(self._sdo, setup.ENCODER_POLARITY)
        yield from setup.silence(self._sdo)
        yield from setup.map_feedback(self._sdo, self.settings.node)
        before = self.sample
        yield HandshakeStep([self._nmt_frame(codec.START)], lambda: self.sample is not before, 0.5, "TPDO1 after SYNC")

    def _nmt_frame(self, command: int) -> Frame:
        return Frame(codec.NMT, codec.nmt(command, self.settings.node))


WARNING = Reads(codec.WARNING, Quantity.WARNING, ())  # bit 7 of the statusword
OWN_OBJECT = "monitor_period and the maker's object in monitor_objects"

BOOT_TIME = 1.0  # [s] longest time for the boot-up message after NMT reset communication

CONDITIONS = {
    Cia402State.NOT_READY: Condition.DISABLED,
    Cia402State.SWITCH_ON_DISABLED: Condition.DISABLED,
    Cia402State.READY: Condition.DISABLED,
    Cia402State.SWITCHED_ON: Condition.DISABLED,
    Cia402State.ENABLED: Condition.ENABLED,
    Cia402State.QUICK_STOP: Condition.STOPPING,
    Cia402State.FAULT_REACTION: Condition.FAULT,
    Cia402State.FAULT: Condition.FAULT,
}

OFF = (Cia402State.NOT_READY, Cia402State.SWITCH_ON_DISABLED, Cia402State.FAULT)
"""States that prove that the drive is off after it was told to: in other states it may still close its brake."""

STATE_TRANSITIONS = (
    (codec.SHUTDOWN, Cia402State.READY),
    (codec.SWITCH_ON, Cia402State.SWITCHED_ON),
    (codec.ENABLE_OPERATION, Cia402State.ENABLED),
)
"""Controlwords that lead to operation, and the state that confirms each (transitions 2, 3 and 4 of CiA 402)."""


class Cia402Drive(Cia402Encoder, TableDrive):
    """A CiA 402 drive in torque mode."""

    settings: DriveSettings
    _options: Cia402Options
    Options = Cia402Options
    heartbeat = setup.HEARTBEAT
    shares_heartbeat = True
    ramps = ramps_alone = holds_while_braking = True
    gauge_needs: ClassVar[Mapping[Quantity, str]] = {
        Quantity.TEMPERATURE: OWN_OBJECT,
        Quantity.MOTOR_TEMPERATURE: OWN_OBJECT,
        Quantity.SUPPLY: "monitor_period",
        Quantity.LOAD: OWN_OBJECT,
        Quantity.WARNING: "always",
    }
    ramp_time = RUNAWAY  # from the speed at which the loop gives up
    stop_steps = StopSteps(
        "quick stop (controlword 0x02) by the ramp 0x6085; then it closes its brake and goes off (0x605A = 2), or "
        "without a brake it holds until all stand (0x605A = 6, set over SDO with the order)",
        "disable operation (controlword 0x07): it ramps down (0x605C = 1), closes its brake and holds torque until its "
        "own brake delay is over; by 0x06 without a ramp (0x605B = 0) where the encoder is in doubt; the delay is a "
        "setting of its maker and must be at least brake_time",
        "disable voltage (controlword 0x00); a statusword that came after it proves it, over SDO where it has left "
        "NMT state operational",
        "its heartbeat consumer (0x1016) triggers the quick stop, then it goes off (0x6007 = 3, 0x605A = 2); the "
        "test is done while it is disabled: it proves that the loss is noticed, not that the shaft is braked",
    )

    def __init__(self, settings: DriveSettings, period: float) -> None:
        super().__init__(settings, period)
        rated = settings.rated_torque or nan
        torque = (Operation.TIMES, rated), (Operation.OVER, 1000.0), *joint_torque(settings)
        self.encoding = Encoding(
            Frame(codec.RPDO1 + settings.node, bytes(codec.COMMAND_SIZE)),
            codec.TARGET, (*motor_torque(settings), (Operation.TIMES, 1000.0), (Operation.OVER, rated)),
            Rounding.INTEGER, -0x8000, 0x7FFF, torque,
        )  # fmt: skip
        node, status_every, monitored = settings.node, self._options.status_every * period, self._options.monitored
        questions, answers = setup.questions(node, monitored), setup.answers(node, monitored)
        enabled = Expects(codec.STATUSWORD, codec.STATE_BITS | codec.LIMITED, codec.WORKING)
        reads = Reads(codec.TORQUE, Quantity.TORQUE, torque), WARNING
        self._status = Message(codec.TPDO2 + node, codec.STATUS_SIZE, reads, (enabled,), every=status_every)
        self.messages += (self._status, *self._monitor(self._options.monitor_period, questions, answers))
        masters = (*(base + node for base in codec.RPDOS), codec.SDO_REQUEST + node)
        self.handlers |= dict.fromkeys((codec.SYNC, *masters, codec.HEARTBEAT + self._options.master), self._on_foreign)
        self.handlers |= {
            codec.TPDO2 + node: self._on_status,
            codec.EMERGENCY + node: self._on_emergency,
            codec.NMT: self._on_nmt,
        }
        self._state: Cia402State | None = None  # by the last statusword; None: there was none since it was reset
        self._obeys, self._error = True, 0  # whether it obeys the controlword; error code in the last status
        self.watchdog = self._options.drive_watchdog
        self._told_off: int | None = None  # number of statuses when it was first told to stop; None: it was not
        self._asked = 0  # requests over SDO since it was told to stop
        self._reports_ramp = True
        self._emergency = self._last_emergency = 0
        self._boots = 0
        self._started = self._restarted = False  # whether it was configured and started, and restarted since
        beat = Frame(codec.HEARTBEAT + self._options.master, bytes((codec.OPERATIONAL,)))
        # our heartbeat: three fit into the watchdog, so that one may be lost
        self._beat = Feeds(beat, max(1, int(settings.watchdog / 3 / period)))

    @staticmethod
    def problems(settings: SensorSettings, options: Cia402EncoderOptions, period: float) -> list[Problem]:
        assert isinstance(settings, DriveSettings) and isinstance(options, Cia402Options)
        addresses = address_problems(settings, codec.NODES, master=options.master)
        return addresses + drive_problems(settings, options, period)

    @staticmethod
    def reserved_ids(settings: SensorSettings) -> Ids:
        own, shared = Cia402Encoder.reserved_ids(settings)
        return Ids(own, shared | {codec.HEARTBEAT + options_of(Cia402Options, settings).master})

    def _on_heartbeat(self, frame: Frame) -> bool:
        if not super()._on_heartbeat(frame):
            return False
        self.alive = frame.time
        if self._nmt == codec.BOOT_UP:
            self._boots += 1
            self._restarted = self._started
        self._judge()
        return True

    def _on_status(self, frame: Frame) -> bool:
        word = codec.STATUSWORD.read(frame.data)
        state = codec.state_of(word) if len(frame.data) == codec.STATUS_SIZE else None
        if state is None:
            return False
        values = self._status.values(frame.data)
        self._show(values)
        self._state, self._obeys, self._error = state, bool(word & codec.OBEYS), codec.ERROR.read(frame.data)
        self._answers += 1
        self.next_torque = values[Quantity.TORQUE]
        self.saturated = bool(word & codec.LIMITED)
        self._judge()
        return True

    def _on_answer(self, frame: Frame) -> bool:
        """Takes what it is asked for over SDO: gauges and its statusword."""
        self._sdo.take(frame.data)
        self._take_answer(frame)
        state = codec.read_status(frame.data)
        if state is not None:
            self._state, self._obeys = state, True
            self._answers += 1
            self.alive = frame.time
            self._judge()
        return True

    def _on_emergency(self, frame: Frame) -> bool:
        emergency = codec.emergency(frame.data)
        if emergency is None:
            return False
        self._emergency = emergency[0] if emergency[0] >> 8 else 0
        self._last_emergency = self._emergency or self._last_emergency
        self._judge()
        return True

    def _on_nmt(self, frame: Frame) -> bool:
        if len(frame.data) != 2:
            return False
        return self._on_foreign(frame) if frame.data[1] in (0, self.settings.node) else True

    def _judge(self) -> None:
        state = self._state
        self.condition = CONDITIONS[state] if state else Condition.UNKNOWN
        self.fault = ""
        if self._started and self._nmt != codec.OPERATIONAL:
            self.fault = f"left NMT state operational: is {codec.NMT_STATES[self._nmt or 0]}"
        if self._restarted:
            self.fault = "restarted, its configuration is lost (bring it up again)"
        if self._emergency:
            self.fault = f"emergency: {codec.error_text(self._emergency)}"
        elif state and self.condition is Condition.FAULT:
            self.fault = f"{state.value}: {codec.error_text(self._error) or 'no error code'}"
        # An emergency may be a mere warning (0x8120, error passive) that leaves the drive on. As long as its status
        # says that it is on, it has to be commanded, and then disabled.
        warning = self._emergency and self._nmt == codec.OPERATIONAL and not self._restarted
        if self.fault and not (warning and self.condition in (Condition.ENABLED, Condition.STOPPING)):
            self.condition = Condition.FAULT

    def explanation(self) -> str:
        """Its last emergency, also one that it has taken back, and its NMT state."""
        emergency = f"its last emergency: {codec.error_text(self._last_emergency)}" if self._last_emergency else ""
        state = "" if self._nmt is None else f"its NMT state: {codec.NMT_STATES[self._nmt]}"
        return ", ".join(filter(None, (emergency, state)))

    @property
    def confirmed_off(self) -> bool:
        """Whether a statusword says so; of a drive that this run has enabled, one that came after the order to stop."""
        state = self._state
        if not self.enable_requested:
            return super().confirmed_off and state is not Cia402State.FAULT_REACTION
        return self._told_off is not None and self._answers > self._told_off and state in OFF

    @property
    def _controlword(self) -> int:
        return codec.CONTROLWORD.read(self.encoding.frame.data)

    @_controlword.setter
    def _controlword(self, word: int) -> None:
        """Commands hold this controlword from now on."""
        frame = self.encoding.frame
        if word != self._controlword:
            data = codec.CONTROLWORD.written(frame.data, word)
            self.encoding = self.encoding._replace(frame=frame._replace(data=data))

    @property
    def feeds(self) -> Sequence[Feeds]:
        return (self._beat, *self.polls)

    def take_as_enabled(self) -> None:
        self._controlword = codec.ENABLE_OPERATION

    def alive_frames(self) -> Sequence[Frame]:
        """Our heartbeat, three times within the watchdog of the drive."""
        return (self._beat.frame,) if self.fed % self._beat.every == 0 else ()

    def identify(self) -> Steps:
        """Checks profile, torque mode and rated torque, and that the drive is not enabled."""
        yield from setup.check_type(self._sdo)
        yield from setup.check_drive(self._sdo, self.settings)

    def listen(self) -> Steps:
        """Checks as `identify`, then maps TPDO1 and starts the node; its controlword is not sent."""
        yield from self.identify()
        yield from Cia402Encoder.identify(self)

    def configure(self) -> Steps:
        """Resets the communication, sets everything and reads it back, starts the node, and clears its fault."""
        objects, node, options = self._sdo, self.settings.node, self._options
        self._started, self._restarted, self._state = False, False, None
        self._controlword, self._told_off, self._asked, self._error = codec.DISABLE_VOLTAGE, None, 0, 0
        booted = after(lambda: self._boots, 1)
        boot = "the boot-up message after NMT reset communication (is the node id right, and the bit rate?)"
        # After a lost heartbeat an EPOS4 ignores the fault reset until its communication is reset (EPOS4 firmware
        # specification, as EposLib models it). A reset also clears what an earlier master has configured.
        yield HandshakeStep([self._nmt_frame(codec.RESET_COMMUNICATION)], booted, BOOT_TIME, boot)
        self._emergency = 0
        yield from setup.silence(objects)
        yield from setup.map_feedback(objects, node)
        yield from setup.map_drive(objects, node, options.status_every)
        self.doubts = yield from setup.set_reactions(objects, self.settings, options)
        self._reports_ramp = not any(setup.STAYS in doubt for doubt in self.doubts)
        yield from setup.set_mode(objects, self.settings)
        yield from setup.set_heartbeats(objects, options, self.settings.watchdog)
        running = lambda: self._nmt == codec.OPERATIONAL and self._state is not None  # noqa: E731
        yield HandshakeStep([self._nmt_frame(codec.START)], running, 0.5, "NMT state operational, and TPDO2 after SYNC")
        self._started = True
        yield from self.reset()
        yield from self._first_answers(*options.monitored)

    def test_watchdog(self, torque: float = 0.0) -> Steps:
        """Stops our heartbeat and checks that the drive notices; `configure` must have run before."""
        if not self.watchdog:
            return
        if not self._started:
            raise DriveError("its watchdog is not armed yet (configure it first)")
        limit = 1.1 * self.settings.watchdog + 2 * setup.HEARTBEAT
        lost = "an emergency or fault 0x8130 (heartbeat lost) while our heartbeat is silent (0x1016 does not act)"
        with silent(self):
            yield HandshakeStep([], self._noticed_loss, limit, lost)
        self._last_emergency = 0  # it was asked for, and explains nothing that comes later

    def rearm(self) -> Steps:
        """Configures the drive again, which an EPOS4 needs after a lost heartbeat, when all drives get it again."""
        if self._started:
            yield from self.configure()

    def _noticed_loss(self) -> bool:
        """Whether the drive reports that our heartbeat is lost, or has left NMT state operational because of it."""
        emergency = self._emergency == codec.HEARTBEAT_LOST
        fault = self._state is Cia402State.FAULT and self._error == codec.HEARTBEAT_LOST
        return emergency or fault or self._nmt == codec.PRE_OPERATIONAL

    def enable(self, torque: float) -> Steps:
        begin_enabling(self)
        self._told_off = None
        try:
            for controlword, state in STATE_TRANSITIONS:
                self._controlword = controlword
                first = self.command(torque)
                self._feed.seed = first if controlword == codec.ENABLE_OPERATION else None
                yield HandshakeStep([first], partial(self._is, state), 0.5, f"state {state.value}")
                refuse_fault(self)
                if not self._obeys:  # a local operator panel has the drive
                    raise DriveError("its remote bit (statusword 9) is clear: it does not obey the controlword")
        finally:
            self._feed.seed = None
            if self.condition is not Condition.ENABLED:
                self._controlword = codec.DISABLE_VOLTAGE

    def _is(self, state: Cia402State) -> bool:
        """Whether the drive is in a state, or in fault, so that it will not get there."""
        return self.condition is Condition.FAULT or self._state is state

    def reset(self) -> Steps:
        """Clears a fault by a rising edge of bit 7 of the controlword (transition 15); without one, nothing happens.

        A drive that lost our heartbeat may need `configure` first, to reset its communication.
        """
        self._emergency = 0
        for controlword in (codec.DISABLE_VOLTAGE, codec.FAULT_RESET, codec.DISABLE_VOLTAGE):
            self._controlword = controlword
            done = partial(self._is_clear, self._answered(2), controlword == codec.FAULT_RESET)
            hint = "a statusword without fault (a drive that lost our heartbeat needs a new bring-up)"
            yield HandshakeStep([self.command(0.0)], done, 0.5, hint)
        self._judge()
        refuse_fault(self)

    def _is_clear(self, came: Callable[[], bool], no_fault: bool) -> bool:
        faults = (Cia402State.FAULT, Cia402State.FAULT_REACTION)
        return came() and not (no_fault and self._state in faults)

    def disable_frames(self) -> Sequence[Frame]:
        """Disable voltage (transitions 7, 9, 10, 12); later commands keep this controlword."""
        return self._order(codec.DISABLE_VOLTAGE, 0.0)

    def quick_stop_frames(self, torque: float) -> Sequence[Frame]:
        """Quick stop (transition 11); later commands keep this controlword.

        A drive without a brake is first told to hold afterwards: off, it would be dragged by joints that still move.
        """
        begins = self._controlword != codec.QUICK_STOP
        frames = self._order(codec.QUICK_STOP, 0.0)
        if self.settings.brake or not begins or not self._reports_ramp:
            return frames
        option = codec.sdo_request(setup.QUICK_STOP_OPTION, value=setup.QUICK_STOP_THEN_HOLD)
        return Frame(codec.SDO_REQUEST + self.settings.node, option), *frames

    def ramp_ended(self, stands: bool) -> bool:
        """A drive with a brake closes it at its end and goes off, which it reports; it may stand before."""
        return self.confirmed_off or (stands and not (self.settings.brake and self._reports_ramp))

    def brake_frames(self, torque: float, trusted: bool) -> Sequence[Frame]:
        """Disable operation (transition 5), or shutdown without a ramp (transition 8) if its encoder is in doubt."""
        return self._order(codec.SWITCH_ON if trusted else codec.SHUTDOWN, torque)

    def _order(self, controlword: int, torque: float) -> Sequence[Frame]:
        """Frames of a controlword that stops the drive; over SDO too where it may not obey PDOs.

        A drive that this run has not started may be enabled by a master that died, with another mapping of its PDOs.
        """
        if self._told_off is None:
            self._told_off = self._answers
            self.polls = ()  # its SDO server is needed for the stop
        self._controlword = controlword
        frame = self.command(torque)
        if self._started and self._nmt == codec.OPERATIONAL:
            return (frame,)
        self._asked += 1
        request = codec.sdo_request(0x6041) if self._asked % 2 else codec.sdo_request(0x6040, value=controlword)
        return frame, Frame(codec.SDO_REQUEST + self.settings.node, request)
