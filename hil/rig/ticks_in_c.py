"""The ticks of a run in C, as one object in memory that Python and C share: its tables and its state.

Design: C measures, Python decides. In the loop C takes every frame first. A frame that its table describes it takes in
place of the driver; while a drive does not work without a complaint, only samples that say nothing of its state. Any
other frame goes to its driver before the next one is read, and what the driver knows then goes back to C. So in every
stage samples are judged, and the state of the machine is computed, in C; Python decides from this reading whose torques
are sent. While all drives work (`WORKING`), C encodes, sends and records them; in ordinary ticks C decides too, several
of them in one call as long as nothing asks for Python.

A verdict on a sample or on the motion is part of the reading, and Python decides that tick, as it does a tick in which
a driver has got a frame. A torque that no frame carries leaves no trace in C. The reaction is that of a run without C,
in the same tick.
"""

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hil.assembly.setup import RigSetup
from hil.codecs.field import Field
from hil.core.compiled import Struct
from hil.core.constants import MOST_EXPECTS, MOST_OPERATIONS, MOST_READS, MOST_SELECTS, NEVER, UNKNOWN
from hil.core.controller import Controller
from hil.drives.base import Condition, Drive, Feedback, Node, Sample
from hil.drives.settings import GAUGES
from hil.drives.table import TableDrive, TableNode
from hil.drives.wire import Chain, Encoding, Expects, Message
from hil.frame import EXTENDED, FD, Frame
from hil.loop import SECOND, Reading, Tick, nanoseconds
from hil.rig.dispatch import Dispatch
from hil.safety.plan import WORKING, Phase
from hil.safety.stages import Stages
from hil.sensing.sensing import NO_SAMPLE, SAMPLE
from servoctl.types import Array, Status

KINDS = {"unsigned": 0, "signed": 1, "float": 2}

STANDARD = 0x7FF  # largest id of 11 bits


def fill_message(target: Any, message: Message, bus: int, node: int, fd: bool) -> None:
    """Writes a `tick_message`."""
    target.id, target.bus, target.node = message.id, bus, node
    target.flags = fd * FD | (message.id > STANDARD) * EXTENDED
    target.length, target.sample, target.alive = message.length, message.sample, message.alive
    target.selects_count, target.expects_count = len(message.selects), len(message.expects)
    target.reads_count = len(message.reads)
    for place, each in [*zip(target.selects, message.selects, strict=False),
                        *zip(target.expects, message.expects, strict=False)]:  # fmt: skip
        fill_expects(place, each)
    for place, reads in zip(target.reads, message.reads, strict=False):
        place.quantity = reads.quantity
        fill_field(place.field, reads.field)
        _fill_chain(place.chain, reads.chain)


def fill_encoding(target: Any, encoding: Encoding) -> None:
    """Writes a `tick_encoding`."""
    frame = encoding.frame
    target.length, target.rounding = len(frame.data), encoding.rounding
    for i, byte in enumerate(frame.id.to_bytes(4, "big") + frame.data):
        target.frame[i] = byte
    target.lowest, target.highest, target.hair = encoding.lowest, encoding.highest, encoding.hair
    fill_field(target.field, encoding.field)
    _fill_chain(target.chain, encoding.chain)
    _fill_chain(target.steps, encoding.steps)
    if encoding.back is None:
        target.back.count = -1
    else:
        _fill_chain(target.back, encoding.back)


def frame_reader(memory: Any) -> Callable[[], tuple[int, bytes]]:
    """Reads id and payload from the bytes of a `tick_encoding`, whenever it is called."""
    return partial(struct.Struct(f">I{len(memory) - 4}s").unpack_from, memory)


def fill_field(target: Any, field: Field) -> None:
    """Writes a `tick_field`."""
    target.first, target.size, target.shift = field.first, field.size, field.shift
    target.kind, target.big = KINDS[field.kind], field.big
    target.mask = field.mask


def fill_expects(target: Any, expects: Expects) -> None:
    """Writes a `tick_expects`."""
    fill_field(target.field, expects.field)
    target.mask, target.value = expects.mask, expects.value


def _fill_chain(target: Any, chain: Chain) -> None:
    target.count = len(chain)
    for i, (operation, constant) in enumerate(chain):
        target.operations[i].operation, target.operations[i].constant = operation, constant


def watched_ids(nodes: Iterable[Node], buses: Mapping[str, int]) -> list[tuple[int, int, int, bool]]:
    """Mask, value, bus and whether of 29 bits, of every id that a node takes."""
    watched = []
    for node in nodes:
        bus = buses[node.settings.bus]
        watched += [(0xFFFF_FFFF, identity, bus, False) for identity in sorted(node.identities)]
        watched += [(family.mask, family.value, bus, True) for family in node.families]
    return watched


def fits(node: TableNode) -> bool:
    """Whether C has room for what the frames of a node mean."""
    chains = [reads.chain for message in node.messages for reads in message.reads]
    if isinstance(node, TableDrive):
        chains += [node.encoding.chain, node.encoding.steps, node.encoding.back or ()]
    return all(len(chain) <= MOST_OPERATIONS for chain in chains) and all(
        len(each.selects) <= MOST_SELECTS and len(each.expects) <= MOST_EXPECTS and len(each.reads) <= MOST_READS
        for each in node.messages
    )


def tables_of(nodes: Sequence[Node]) -> tuple[list[TableNode], str]:
    """The nodes, whose frames C can read and write; or none, and why it cannot."""
    tables = []
    for node in nodes:
        if not isinstance(node, TableNode) or (isinstance(node, Drive) and not isinstance(node, TableDrive)):
            return [], f"frames of protocol {node.settings.protocol} are not described for it"
        if not fits(node):
            return [], f"a frame of protocol {node.settings.protocol} holds more than C can read"
        tables.append(node)
    return tables, ""


WAIT_SHARE = 0.6  # share of the period for which a tick waits for samples
PAUSE = 3  # ticks that Python decides from a frame on that its driver gets: what is rare seldom comes alone

STATUSES = 64  # statuses that fit into the mask of those that Python handles


def in_order(drives: Sequence[Drive], nodes: Sequence[Node]) -> bool:
    """Whether every node has sent a sample, and every drive works without a complaint."""
    if any([node.sample is None for node in nodes]):
        return False
    enabled = Condition.ENABLED
    return not any(
        [d.condition is not enabled or d.fault or d.foreign or d.saturated or d.quiet for d in drives]
    )  # fmt: skip


class TicksInC(Struct):
    """Ticks in C, a `tick` of `c/tick.h` with its arrays; Python sends and receives.

    Attributes:
        tables: The nodes, by whose tables C reads and writes frames; empty: it cannot, and the nodes do.
        why: Why it cannot; empty if it can.
    """

    how = "C"  # what computes a tick, for the summary

    def __init__(self, setup: RigSetup, controller: Controller, dispatch: Dispatch, stages: Stages) -> None:
        self.drives, self.nodes, self._sensing = setup.drives, setup.nodes, setup.sensing
        self._dispatch, self._stages = dispatch, stages
        n, m, channels = len(controller.tick.q), len(self.drives), len(self.nodes)
        sizes = {"n": n, "m": m, "channels": channels, "gauges": len(GAUGES) * channels}
        super().__init__("tick", sizes, self._sensing.calls)
        self.count = 0  # number of ticks that C did
        self.given_back = Counter[str]()  # why C gave ticks back -> how often
        self.decided = False  # whether C has decided the present tick
        self.begun = False  # whether C has begun the present tick, and left it after its read
        self._names = list(dispatch.buses)
        self._bus_numbers = {name: number for number, name in enumerate(self._names)}
        self._numbers = {node: number for number, node in enumerate(self.nodes)}
        self._asks, self.period = stages.plan.stage.asks, nanoseconds(setup.settings.values.period)  # [ns] of the loop
        self.wait = round(
            WAIT_SHARE * self.period
        )  # longest time after the beginning of a tick to wait for samples [ns]
        self._rules: tuple[int, Phase] | None = None  # number of rules, and in which phase C knows them
        self._pause = 0
        c, x, loop, sensed = self.c, self.arrays, controller.loop, self._sensing.struct
        c.n, c.m, c.channels, c.failed = n, m, channels, self.calls.failed
        c.began = c.written = -1 if self._asks else NEVER  # `NEVER`: nothing is asked for
        # sensing reads the samples and the torques in frames that are here
        self._sensing.share({name: x[name] for name in SAMPLE} | {"command": x["carried"]})
        c.sensing, c.source, c.ladder = sensed.c, stages.torques.struct.c, stages.ladder.struct.c
        self.connect(c.law, controller.tick.call)
        c.memory, c.status_start = controller.struct.c, loop.layout.slices["status"].start
        c.estimates, c.elapsed_at = controller.estimating, controller.elapsed_at
        stops_on = loop.system.acting.stops_on
        c.stops = sum(1 << code for code in range(STATUSES) if code in stops_on or code >= Status.NOT_POSITIVE.code)
        channel = c.channel = self.array("tick_channel", channels)
        for place, node in zip(channel, self.nodes, strict=True):
            place.bus = self._bus_numbers[node.settings.bus]
            place.awaited = self._asks and node.feedback is not Feedback.CYCLIC
            place.synced = node.feedback is Feedback.SYNC
        self.tables, self.why = tables_of(self.nodes)
        self._tables()
        # torques of the last tick, and those in the frames that were sent last, shape (m,) [actuator units]
        self.torques, self.carried = stages.torques.struct.arrays["torques"], x["carried"]
        gauges = x["gauges"].reshape(len(GAUGES), -1)
        # what a rule may judge (`Rule.measured`) -> its numbers, shape (nodes,) or (m,)
        self.measured = {
            "position": sensed.arrays["displacements"], "speed": sensed.arrays["speeds"],
            "age": sensed.arrays["ages"], "silence": x["silences"], "torque": x["torque"],
            **{gauge.name: gauges[gauge.place] for gauge in GAUGES},
        }  # fmt: skip

    def _tables(self) -> None:
        c, buses = self.c, self._bus_numbers
        messages = [(i, message) for i, node in enumerate(self.tables) for message in node.messages]
        table = c.message = self.array("tick_message", len(messages))
        for place, (i, message) in zip(table, messages, strict=False):
            settings = self.nodes[i].settings
            fill_message(place, message, buses[settings.bus], i, settings.fd)
        watched = watched_ids(self.nodes, buses)
        watch = c.watch = self.array("tick_watched", len(watched))
        c.messages, c.watched = len(messages), len(watched)
        for place, (mask, value, bus, extended) in zip(watch, watched, strict=False):
            place.mask, place.value, place.bus, place.extended = mask, value, bus, extended
        c.encoding = self.array("tick_encoding", len(self.drives))
        if self.tables:  # how torques become numbers does not depend on the state of a drive
            self._take_commands()
            c.source.encoding = c.encoding

    def _take_commands(self) -> None:
        """Takes the commands as the drivers would send them now; the encodings stay where they are."""
        # of each drive its bus, its command of zero torque, and what reads id and payload of the one that C writes
        self._encoded: list[tuple[str, Frame, Callable[[], tuple[int, bytes]]]] = []
        for place, drive in zip(self.c.encoding[0 : len(self.drives)], self._table_drives, strict=True):
            fill_encoding(place, drive.encoding)
            reader = frame_reader(self.ffi.buffer(place.frame, 4 + place.length))
            self._encoded.append((drive.settings.bus, drive.encoding.frame, reader))

    @property
    def _table_drives(self) -> list[TableDrive]:
        return [node for node in self.tables if isinstance(node, TableDrive)]

    def raise_failure(self) -> None:
        super().raise_failure()
        self._stages.torques.struct.raise_failure()

    def write(self, now: int) -> None:
        """The first of the next torques is sent now [ns]: a reply may come before the last one is sent."""
        if self._asks:
            self.c.written = now

    @property
    def healthy(self) -> bool:
        """Whether every drive works without a complaint, and C takes the frames that say so again."""
        return bool(self.c.healthy)

    def enter(self) -> None:
        """C takes the frames from now on."""
        self.load_all()
        self._dispatch.taker = self.take

    def leave(self) -> None:
        """The drivers take the frames again."""
        if self._dispatch.taker is not None:
            self.give_back()
            self._show_all()
            self._dispatch.taker = None

    def take_over(self, free: bool, allowed: bool) -> None:
        """Begins a tick.

        Args:
            free: Whether torques alone move the machine; a test judges the motion itself.
            allowed: Whether C may take the frames of drives that work, and send their torques.
        """
        self.c.free = free and not self._stages.testing
        if not (allowed and self.tables and self._stages.mode in WORKING and self._dispatch.healthy):
            self.give_back()
        elif not (self.healthy or self._pause) and in_order(self.drives, self.nodes):
            self._take_drives()

    def _source(self) -> bool:
        """Tells C what makes the torques of the next tick; returns whether C decides it."""
        c, stages, source = self.c, self._stages, self._stages.source
        if source is None or not stages.ordinary:
            return False
        self._take_rules()
        c.entered, c.end, c.moves = stages.entered, source.end, source.moves
        stages.torques.take(source, stages.mode is not Phase.FULL)
        return True

    def _take_rules(self) -> None:
        """Takes the rules that hold now, if others held before: a warning is judged only once."""
        rules, phase = self._stages.monitor.rules, self._stages.mode
        if self._rules == (len(rules), phase):
            return
        self._rules = len(rules), phase
        held = [rule for rule in rules if phase in rule.phases]
        table = self.c.rule = self.array("tick_rule", len(held))
        self.c.rules = len(held)
        for place, rule in zip(table, held, strict=False):
            place.value = self.pointer("double", self.measured[rule.measured][rule.node :])
            place.waits, place.lower, place.upper = rule.waits, rule.lower, rule.upper
            place.broken = self.string(rule.kind.meaning)

    def _take_drives(self) -> None:
        """C takes the frames of drives that work from now on; their drivers know all that came up to now."""
        self._see_mutes()
        for message in self._messages:
            message.order = 0
        self._take_commands()
        self.c.healthy = True

    @property
    def _messages(self) -> Sequence[Any]:
        messages: Sequence[Any] = self.c.message[0 : self.c.messages]
        return messages

    def give_back(self) -> None:
        """The drivers take the frames of drives that work again; they get the last one of each message."""
        if not self.healthy:
            return
        self.c.healthy = False
        taken = [message for message in self._messages if message.order]
        for message in sorted(taken, key=lambda each: int(each.order)):
            data = bytes(self.ffi.buffer(message.data)[0 : message.length])
            extended, fd = bool(message.flags & EXTENDED), bool(message.flags & FD)
            frame = Frame(message.id, data, extended, time=message.time, fd=fd)
            self._dispatch.deliver(self._names[message.bus], frame)
        self._show_all()

    # Measure.

    def load_all(self) -> None:
        """Takes what every node knows."""
        for number in range(len(self.nodes)):
            self.load(number)

    def load(self, number: int) -> None:
        """Takes what a node knows: its last sample, where it is in the range of its frames, its gauges."""
        c, node = self.c, self.nodes[number]
        sample = node.sample or NO_SAMPLE
        c.position[number], c.velocity[number], c.torque[number], c.sample_time[number] = sample
        c.next_torque[number] = node.next_torque
        if node.unwrapping is not None:
            last, added = node.unwrapping.last, node.unwrapping.added
            c.wrapped[number], c.added[number] = np.nan if last is None else last, added
        if isinstance(node, Drive):
            c.alive[number] = node.alive
            for place, value in enumerate(node.gauges):
                c.gauges[place * len(self.nodes) + number] = value

    def _show_all(self) -> None:
        """Gives every node its last sample."""
        for number in range(len(self.nodes)):
            self._show(number)

    def _show(self, number: int) -> None:
        """Gives a node the last sample that C has taken of it, or that it has itself."""
        c, node = self.c, self.nodes[number]
        if (time := c.sample_time[number]) != NEVER:
            node.sample = Sample(c.position[number], c.velocity[number], c.torque[number], time)
            if node.unwrapping is not None:
                node.unwrapping.last, node.unwrapping.added = c.wrapped[number], c.added[number]

    def begin(self, due: int, began: int) -> None:
        """Begins a tick that was due at a time [ns]."""
        self.c.due = due
        if self._asks:
            self.c.began = began
        self.c.trouble = self.ffi.NULL

    def take(self, bus: str, frame: Frame) -> None:
        """Takes a received frame."""
        number = self.functions.tick_take(
            self.c, self._bus_numbers[bus], frame.id, frame.flags, len(frame.data), frame.data, frame.time
        )
        if number == UNKNOWN:
            self._dispatch.unknown += 1
        elif number < 0:
            self._pass_on(bus, frame)

    def _pass_on(self, bus: str, frame: Frame) -> None:
        """Gives a frame that C does not take to its driver, and takes what this knows then."""
        if self.healthy:
            self._count()
            self._pause = PAUSE
            self.give_back()
        self._deliver(bus, frame)

    def _deliver(self, bus: str, frame: Frame) -> None:
        """Gives a frame to its driver, and takes what this knows then."""
        for node in self._dispatch.nodes_of(bus, frame):
            number = self._numbers[node]
            self._show(number)
            node.accept(frame)
            self.load(number)

    def missing(self) -> str | None:
        """Name of a bus on which a sample of this tick is still missing."""
        bus = self.functions.tick_missing(self.c)
        return None if bus < 0 else self._names[bus]

    def receive(self, deadline: int) -> bool:
        """C sends SYNC, receives samples until a moment [ns], and computes the state; False: Python must."""
        return False

    def finish(self) -> None:
        """Ends a read in C."""
        self.begun = False
        self._pause = max(0, self._pause - 1)
        self.raise_failure()

    def sense(self, now: int) -> None:
        """Computes the state of the machine from the samples that have come."""
        self.functions.tick_sense(self.c, now)
        self.finish()

    def _see_mutes(self) -> None:
        """Takes which drives a command of torque may enable: `tick_mute` in `hil/core/c/tick.c`."""
        for place, drive in zip(self.c.channel[0 : len(self.drives)], self.drives, strict=True):
            place.mutes = drive.enabled_by_command and drive.condition is not Condition.DISABLED

    def mute(self) -> list[str]:
        """Buses on which no command may be sent, by what the nodes know."""
        self._see_mutes()
        buses = self.functions.tick_mute(self.c)
        return [name for number, name in enumerate(self._names) if buses >> number & 1]

    def _count(self) -> None:
        if self.c.trouble != self.ffi.NULL:  # else the stage ends
            self.given_back[self.ffi.string(self.c.trouble).decode()] += 1

    @property
    def sensed(self) -> int:
        """When the last state was computed [ns]."""
        return int(self._sensing.struct.c.read)

    def reading(self) -> Reading:
        """The state that was computed last."""
        if not self.healthy:
            self._show_all()
        sensed, m = self._sensing.struct, len(self.drives)
        measured = {name: numbers.tolist() for name, numbers in self.measured.items()}
        q, v, ages = (sensed.arrays[name].copy() for name in ("law_q", "law_v", "ages"))
        return Reading(
            q, v, ages, bool(sensed.c.valid), sensed.c.residual,
            measured["position"][:m], measured["speed"][:m], self._sensing.findings, measured,
        )  # fmt: skip

    # Decide and act.

    def decide(self, tick: Tick, now: int) -> Array | None:
        """Torques to send, shape (m,) [actuator units]; None: Python must decide, from the reading of this tick."""
        self.decided = False
        if not self.healthy:
            return None
        stages = self._stages
        asks = self.functions.tick_asks(self.c)
        if not (tick.skipped or asks) and self._dispatch.healthy and self._source():
            if not self.functions.tick_decide(self.c, now, tick.elapsed / SECOND, stages.next_task_time):
                stages.follow(tick)
                self.decided = True
                self.count += 1
                return self.torques.copy()
            self._count()
            self.raise_failure()
        return None

    def act(self, now: int) -> bool:
        """Sends the torques of this tick, now [ns]; False: Python must, and nothing was sent."""
        if not self.decided and (self.c.mute or self.functions.tick_act(self.c)):
            self._count()
            return False
        self.write(now)
        for bus, like, encoded in self._encoded:
            identity, data = encoded()
            self._dispatch.send(bus, Frame(identity, data, like.extended, fd=like.fd, brs=like.brs))
        self._dispatch.keep_alive()
        return True
