"""Nodes whose frames are stated as data: samples are read, and torques are sent, by their table."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil, inf, isfinite, isnan, nan
from typing import Any

from hil.bus.load import FrameTraffic
from hil.codecs.field import Field
from hil.drives.base import Condition, Drive, FrameEnds, HandshakeStep, Ids, Node, Sample, Steps
from hil.drives.guard import Feed, after, begin_enabling, motor_torque, passed, refuse_fault
from hil.drives.options import options_of
from hil.drives.settings import FIRST_GAUGE, DriveSettings, Quantity, SensorSettings
from hil.drives.wire import (
    COARSE,
    SINGLE,
    TURN,
    Encoding,
    Feeds,
    Message,
    Operation,
    Reads,
    Rounding,
    chained,
    single_step,
    step_of,
)
from hil.frame import Frame

PATIENCE = 0.1  # time for the first answer [s]; a drive that gives none is asked no more
Handler = Callable[[Frame], bool]  # takes a frame; returns whether it is valid


class TableNode(Node):
    """A node whose samples are read by its table, in Python and in C; of any other node Python decides each tick."""

    motion: Message  # the frame of a sample
    messages: tuple[Message, ...]  # the frames that it sends while it works
    handlers: dict[int, Handler]  # id -> what takes its frames
    shared: frozenset[int] = frozenset()  # ids that it shares with other nodes of its protocol
    _options: Any

    def __init__(self, settings: SensorSettings, period: float) -> None:
        super().__init__(settings, period)
        self._options, self._period = options_of(self.Options, settings), period

    @property
    def identities(self) -> frozenset[int]:
        return frozenset(self.handlers)

    @classmethod
    def reserved_ids(cls, settings: SensorSettings) -> Ids:
        """The ids of its table; ids that hold data stand for those that differ in it."""
        node = cls(settings, 1.0)
        return Ids(node.identities | {family.value for family in node.families}, node.shared)

    def accept(self, frame: Frame) -> None:
        handler = self._handler(frame.id)
        unusual = frame.remote or frame.error or frame.extended is not (frame.id > 0x7FF)
        if unusual or handler is None or not handler(frame):
            self.rejected += 1

    def _handler(self, identity: int) -> Handler | None:
        return self.handlers.get(identity)

    def _take_sample(self, frame: Frame) -> bool:
        """Takes the sample in a frame; returns whether its motion is finite, else nothing changes."""
        return self._take_values(self.motion.values(frame.data, self.unwrapping), frame.time)

    def _take_values(self, values: Mapping[Quantity, float], time: int) -> bool:
        position, velocity = values[Quantity.POSITION], values[Quantity.VELOCITY]
        if not (isfinite(position) and isfinite(velocity)):
            return False
        self.sample = Sample(position, velocity, values.get(Quantity.TORQUE, self.next_torque), time)
        return True

    @classmethod
    def traffic(cls, settings: SensorSettings, period: float) -> list[FrameTraffic]:
        return list(cls(settings, period)._frames_of_loop(period))

    def _frames_of_loop(self, period: float) -> Iterator[FrameTraffic]:
        """The frames of its table in the loop, of those that mean the same the longest."""
        longest = {message.meaning: message for message in sorted(self.messages, key=lambda each: each.length)}
        for message in longest.values():
            yield self._frames(message.length, message.every or period, message.id > 0x7FF)

    def _frames(self, size: int, every: float, extended: bool) -> FrameTraffic:
        return FrameTraffic(size, 1 / every, extended, self.settings.fd, self.settings.brs)

    def quantum(self) -> tuple[float, float, float]:
        """Smallest steps on the wire, at the joint: of whole numbers, by their scales in the table."""
        steps = {reads.quantity: step_of(reads.chain) for reads in self.motion.reads}
        return steps[Quantity.POSITION], steps[Quantity.VELOCITY], nan


class TurnNode(TableNode):
    """A node whose frames hold turns of the motor in single precision."""

    bits: int | None  # per turn of its encoder; None: the config does not say
    farthest = 1.0  # [turn] how far from zero its position may be, where single precision is coarsest

    def _turns(self, position: Field, velocity: Field) -> tuple[Reads, ...]:
        """The reads of both, from turns of the motor."""
        settings = self.settings
        self._turn = settings.sign * TURN / settings.gear  # [joint unit/turn]
        turn = (Operation.TIMES, self._turn)
        if isinstance(settings, DriveSettings):
            self.farthest = max(1.0, *(abs(settings.motor(limit)) / TURN for limit in settings.position_limits))
        return (
            Reads(position, Quantity.POSITION, (turn, (Operation.PLUS, settings.offset))),
            Reads(velocity, Quantity.VELOCITY, (turn,)),
        )

    def quantum(self) -> tuple[float, float, float]:
        """Smallest steps at the joint: of the encoder or of single precision; of speed near one turn per second."""
        return self._step(self.bits or SINGLE), abs(self._turn) * single_step(1.0), super().quantum()[2]

    def visible(self) -> float:
        return self._step(self.bits or COARSE)

    def _step(self, bits: int) -> float:
        return abs(self._turn) * max(2.0**-bits, single_step(self.farthest))


class TableDrive(TableNode, Drive):
    """A drive whose torques are sent by its table."""

    encoding: Encoding  # how a torque is sent; its frame is that of zero torque
    questions: tuple[Feeds, ...] = ()  # frames that ask for gauges; `polls` are those of them that it answers

    def __init__(self, settings: DriveSettings, period: float) -> None:
        super().__init__(settings, period)
        self._feed = Feed()
        self._answers = 0  # number of frames that have shown its state

    def command(self, torque: float) -> Frame:
        self._feed.fed = True
        return self._torque_frame(torque, self.encoding)

    def _torque_frame(self, torque: float, encoding: Encoding) -> Frame:
        """The frame of a torque at the joint; raises as `command`."""
        motor_torque(self.settings, torque)  # refuses a torque beyond the limit
        return encoding.frame_of(torque)

    @property
    def shows(self) -> frozenset[Quantity]:
        quantities = (reads.quantity for message in self.messages for reads in message.reads)
        return frozenset(quantity for quantity in quantities if quantity >= FIRST_GAUGE)

    def _take_values(self, values: Mapping[Quantity, float], time: int) -> bool:
        self._show(values)
        return super()._take_values(values, time)

    def _monitor(self, every: float | None, frames: Sequence[Frame], answers: Iterable[Message]) -> tuple[Message, ...]:
        """Asks by these frames, each once in `every` [s], None: never; returns the answers that then come.

        Drives of different nodes are asked in different ticks.
        """
        if every is None:
            return ()
        ticks = max(1, round(every / self._period))
        phases = enumerate(frames, self.settings.node)
        self.polls = self.questions = tuple(Feeds(frame, ticks, phase % ticks) for phase, frame in phases)
        return tuple(answer._replace(every=ticks * self._period) for answer in answers)

    def _first_answers(self, *quantities: Quantity) -> Steps:
        """Asks once, before the drive is enabled, for one quantity of each poll; what is silent is asked no more."""
        self.polls = self.questions
        if not self.polls:
            return
        places = [quantity - FIRST_GAUGE for quantity in quantities]
        for place in places:
            self.gauges[place] = nan
        patience = passed(ceil(PATIENCE / self._period))

        def seen() -> list[bool]:
            return [not isnan(self.gauges[place]) for place in places]

        over = lambda: all(seen()) or patience()  # noqa: E731
        yield HandshakeStep([poll.frame for poll in self.polls], over, 1.0 + 2 * PATIENCE, "its own state")
        self.polls = tuple(poll for poll, answered in zip(self.polls, seen(), strict=True) if answered)

    def _take_answer(self, frame: Frame) -> None:
        """Takes the gauges in the answer to a poll."""
        for message in self.messages:
            fits = (message.id, message.length) == (frame.id, len(frame.data))
            if fits and all(each.holds(frame.data) for each in message.selects):
                self._show(message.values(frame.data))

    def _show(self, values: Mapping[Quantity, float]) -> None:
        for quantity, value in values.items():
            if quantity >= FIRST_GAUGE:
                self.gauges[quantity - FIRST_GAUGE] = value

    def _answered(self, more: int) -> Callable[[], bool]:
        """A condition: so many frames that show its state have come since this call."""
        return after(lambda: self._answers, more)

    def _disabled(self) -> Callable[[], bool]:
        """A condition: it is disabled and has no fault, by two of these frames: one may have been on its way."""
        came = self._answered(2)
        return lambda: came() and self.condition is Condition.DISABLED

    def _decided(self) -> bool:
        """Whether it is enabled, or in fault, so that it will not be."""
        return self.condition in (Condition.ENABLED, Condition.FAULT)

    def _on_foreign(self, frame: Frame) -> bool:
        """Notes a frame that only another master sends."""
        self.foreign = self.foreign or f"another master commands this drive: {frame}"
        return True

    @contextmanager
    def _seeded(self, torque: float) -> Iterator[Frame]:
        """Repeats the first torque within the block, which enables the drive; DriveError if it is in fault."""
        begin_enabling(self)
        self._feed.seed = seed = self._torque_frame(torque, self.encoding)
        try:
            yield seed
        finally:
            self._feed.seed = None
        refuse_fault(self)

    @property
    def begins(self) -> bool:
        return self._feed.seed is not None and not self.has_worked

    def carried(self, torque: float) -> float:
        return self.encoding.carried(torque)

    def torque_bytes(self, frame: Frame) -> bytes | None:
        return self.encoding.torque_bits(frame)

    def _frames_of_loop(self, period: float) -> Iterator[FrameTraffic]:
        yield from super()._frames_of_loop(period)
        for frame, ticks in [(self.encoding.frame, 1), *((feed.frame, feed.every) for feed in self.feeds)]:
            yield self._frames(len(frame.data), ticks * period, frame.extended)

    @property
    def feeds(self) -> Sequence[Feeds]:
        """What `routine_frames` gives while the drive is enabled."""
        return self.polls

    def quantum(self) -> tuple[float, float, float]:
        position, velocity, _ = super().quantum()
        settings, encoding = self.settings, self.encoding
        if encoding.rounding is Rounding.SINGLE:
            return position, velocity, settings.gear * single_step(settings.motor_limit)
        return position, velocity, 1.0 / step_of((*encoding.chain, *encoding.steps))

    @property
    def ends(self) -> FrameEnds:
        """By its table; a position that is followed over the ends of its range has none."""
        settings, encoding = self.settings, self.encoding
        ends = {reads.quantity: chained(reads.chain, reads.field.most) for reads in self.motion.reads}
        position = settings.motor(ends[Quantity.POSITION]) if self.unwrapping is None else inf
        speed, torque = settings.motor_rate(ends[Quantity.VELOCITY]), encoding.highest
        if encoding.back is not None:
            torque = settings.motor_torque(chained(encoding.back, torque))
        return FrameEnds(abs(position), abs(speed), abs(torque))

    def alive_frames(self) -> Sequence[Frame]:
        """Zero torque while the drive is not enabled, its first torque while it is being enabled."""
        return self._feed.frames(self.encoding.frame, self.condition is Condition.ENABLED)
