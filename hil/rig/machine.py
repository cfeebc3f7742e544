"""The tables and the state of the tick in C, as one object in memory that Python and C share."""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hil.assembly.setup import RigSetup
from hil.codecs.field import Field
from hil.core.compiled import Struct
from hil.core.constants import MOST_EXPECTS, MOST_OPERATIONS, MOST_READS, MOST_SELECTS, NEVER
from hil.core.controller import Controller
from hil.drives.base import Condition, Drive, Feedback, Node, Sample
from hil.drives.settings import GAUGES
from hil.drives.wire import Chain, Encoding, Expects, Message, Wire
from hil.frame import EXTENDED, FD, Frame
from hil.safety.ladder import Ladder
from hil.safety.plan import Phase
from hil.safety.rules import Rule
from hil.safety.torques import TorqueSource
from hil.sensing.sensing import NO_SAMPLE, SAMPLE, Sensing
from servoctl.types import Status

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


def fits(wire: Wire) -> bool:
    """Whether C has room for what the frames of a node mean."""
    chains = [reads.chain for message in wire.messages for reads in message.reads]
    if wire.command is not None:
        chains += [wire.command.chain, wire.command.steps, wire.command.back or ()]
    return all(len(chain) <= MOST_OPERATIONS for chain in chains) and all(
        len(each.selects) <= MOST_SELECTS and len(each.expects) <= MOST_EXPECTS and len(each.reads) <= MOST_READS
        for each in wire.messages
    )


def wires_of(nodes: Sequence[Node]) -> tuple[list[Wire], str]:
    """What the frames of every node mean, or none and why it is not known."""
    wires = []
    for node in nodes:
        wire = node.wire()
        if wire is None or (isinstance(node, Drive) and wire.command is None):
            return [], f"frames of protocol {node.settings.protocol} are not described for it"
        if not fits(wire):
            return [], f"a frame of protocol {node.settings.protocol} holds more than C can read"
        wires.append(wire)
    return wires, ""


STATUSES = 64  # statuses that fit into the mask of those that Python handles


class CompiledTick(Struct):
    """A `tick` of `c/tick.h` with its arrays.

    Args:
        asks: Whether nodes are asked for samples; if not, none is awaited.

    Attributes:
        wires: What the frames of each node mean; empty: it is not known, and the nodes read and write them.
        why: Why it is not known; empty if it is.
    """

    def __init__(self, setup: RigSetup, controller: Controller, asks: bool) -> None:
        self.drives, self.sensing = setup.drives, setup.sensing  # drives in the order of the actuators
        self.nodes = nodes = setup.nodes  # drives, then encoder nodes
        n, m, channels = len(controller.tick.q), len(setup.drives), len(nodes)
        sizes = {"n": n, "m": m, "channels": channels, "1": 1, "m m": m * m, "gauges": len(GAUGES) * channels}
        super().__init__("tick", sizes, self.sensing.calls)
        self.wires, self.why = wires_of(nodes)
        self.tick: Any = self.c  # the struct in C
        self.tick.n, self.tick.m, self.tick.channels = n, m, channels
        buses = {name: number for number, name in enumerate(setup.settings.buses)}
        self.tick.failed = self.calls.failed
        self._share(self.sensing)
        self._law(controller, setup.loop.system.acting.stops_on)
        self._channels(buses, asks)
        self._tables(buses)
        self.connect(self.tick.law, controller.tick.call)
        x, sensed, gauges = self.arrays, self.sensing.struct.arrays, self.arrays["gauges"].reshape(len(GAUGES), -1)
        # what a rule may judge (`Rule.measured`) -> its numbers, shape (nodes,) or (m,)
        self.measured = {
            "position": sensed["displacements"], "speed": sensed["speeds"], "age": sensed["ages"],
            "silence": x["silences"], "torque": x["torque"], **{gauge.name: gauges[gauge.place] for gauge in GAUGES},
        }  # fmt: skip

    def _share(self, sensing: Sensing) -> None:
        """Lets sensing read the samples and torques of this struct, and takes what it finds."""
        sensing.share({name: self.arrays[name] for name in SAMPLE} | {"command": self.arrays["carried"]})
        self.tick.sensing = sensing.struct.c

    def _law(self, controller: Controller, stops_on: frozenset[int]) -> None:
        tick, loop = self.tick, controller.loop
        tick.memory, tick.status_start = controller.struct.c, loop.layout.slices["status"].start
        tick.estimates, tick.elapsed_at = controller.estimating, controller.elapsed_at
        stops = {code for code in range(STATUSES) if code in stops_on or code >= Status.NOT_POSITIVE.code}
        tick.stops = sum(1 << code for code in stops)

    def _channels(self, buses: Mapping[str, int], asks: bool) -> None:
        self.tick.channel = self.array("tick_channel", len(self.nodes))
        for i, node in enumerate(self.nodes):
            place = self.tick.channel[i]
            place.bus, place.awaited = buses[node.settings.bus], asks and node.feedback is not Feedback.CYCLIC
            place.synced = node.feedback is Feedback.SYNC

    def _tables(self, buses: Mapping[str, int]) -> None:
        tick, nodes = self.tick, self.nodes
        tick.encoding = self.array("tick_encoding", len(self.drives))
        messages = [(i, message) for i, wire in enumerate(self.wires) for message in wire.messages]
        tick.message, tick.messages = self.array("tick_message", len(messages)), len(messages)
        self._buses = list(buses)
        for k, (i, message) in enumerate(messages):
            settings = nodes[i].settings
            fill_message(tick.message[k], message, buses[settings.bus], i, settings.fd)
        watched = watched_ids(nodes, buses)
        tick.watch, tick.watched = self.array("tick_watched", len(watched)), len(watched)
        for k, (mask, value, bus, extended) in enumerate(watched):
            place = tick.watch[k]
            place.mask, place.value, place.bus, place.extended = mask, value, bus, extended

    def take_torques(self, source: TorqueSource, ladder: Ladder) -> None:
        """Takes what makes torques: C and Python work on the same memory."""
        self.tick.source, self.tick.ladder = source.struct.c, ladder.struct.c
        if self.wires:  # how torques become numbers does not depend on the state of a drive
            self.take_commands()
            source.struct.c.encoding = self.tick.encoding
        self._torques = source, ladder  # kept alive

    def raise_failure(self) -> None:
        super().raise_failure()
        source, _ = self._torques
        source.struct.raise_failure()

    def take_rules(self, rules: Sequence[Rule], phase: Phase) -> None:
        """Judges those of these rules that hold in a phase, and no others, in every tick that C decides."""
        rules = [rule for rule in rules if phase in rule.phases]
        self.tick.rule, self.tick.rules = self.array("tick_rule", len(rules)), len(rules)
        for i, rule in enumerate(rules):
            place = self.tick.rule[i]
            place.value = self.pointer("double", self.measured[rule.measured][rule.node :])
            place.waits, place.lower, place.upper = rule.waits, rule.lower, rule.upper
            place.broken = self.string(rule.kind.meaning)

    def take_commands(self) -> list[tuple[str, Frame, Callable[[], tuple[int, bytes]]]]:
        """Takes the commands as the drivers would send them now; the encodings stay where they are.

        Returns:
            Of each drive its bus, its command of zero torque, and what reads id and payload of the one that C writes.
        """
        commands = []
        for i, drive in enumerate(self.drives):
            wire, place = drive.wire(), self.tick.encoding[i]
            assert wire is not None and wire.command is not None
            fill_encoding(place, wire.command)
            reader = frame_reader(self.ffi.buffer(place.frame, 4 + place.length))
            commands.append((drive.settings.bus, wire.command.frame, reader))
        return commands

    def load(self, number: int) -> None:
        """Takes what a node knows: its last sample, where it is in the range of its frames, its gauges."""
        tick, node = self.tick, self.nodes[number]
        sample = node.sample or NO_SAMPLE
        tick.position[number], tick.velocity[number], tick.torque[number], tick.sample_time[number] = sample
        tick.next_torque[number] = node.next_torque
        if node.unwrapping is not None:
            last, added = node.unwrapping.last, node.unwrapping.added
            tick.wrapped[number], tick.added[number] = np.nan if last is None else last, added
        if isinstance(node, Drive):
            tick.alive[number] = node.alive
            for place, value in enumerate(node.gauges):
                tick.gauges[place * len(self.nodes) + number] = value

    def show(self, number: int) -> None:
        """Gives a node the last sample that C has taken of it, or that it has itself."""
        tick, node = self.tick, self.nodes[number]
        if (time := tick.sample_time[number]) != NEVER:
            node.sample = Sample(tick.position[number], tick.velocity[number], tick.torque[number], time)
            if node.unwrapping is not None:
                node.unwrapping.last, node.unwrapping.added = tick.wrapped[number], tick.added[number]

    def forget_frames(self) -> None:
        """The drivers know all that C has taken up to now."""
        for message in self.tick.message[0 : self.tick.messages]:
            message.order = 0

    def last_frames(self) -> Iterator[tuple[str, Frame]]:
        """Bus and last frame of each message that C has taken since `forget_frames`, in the order of their arrival."""
        taken = [message for message in self.tick.message[0 : self.tick.messages] if message.order]
        for message in sorted(taken, key=lambda each: int(each.order)):
            data = bytes(self.ffi.buffer(message.data)[0 : message.length])
            extended, fd = bool(message.flags & EXTENDED), bool(message.flags & FD)
            yield self._buses[message.bus], Frame(message.id, data, extended, time=message.time, fd=fd)

    def see_mutes(self) -> None:
        """Takes which drives a command of torque may enable: `tick_mute` in `c/tick.c`."""
        for place, drive in zip(self.tick.channel[0 : len(self.drives)], self.drives, strict=True):
            place.mutes = drive.enabled_by_command and drive.condition is not Condition.DISABLED

    @property
    def trouble(self) -> str:
        """Why the last tick was given back; empty if it was not."""
        text = self.tick.trouble
        return "" if text == self.ffi.NULL else self.ffi.string(text).decode()
