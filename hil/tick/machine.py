"""The tables and the state of the tick in C, as one object in memory that Python and C share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import Any

import numpy as np

from hil.assembly.setup import RigSetup
from hil.codecs.field import Field
from hil.core.constants import COMES_WITHIN
from hil.core.library import BLOCKS, DTYPES, RESULTS, STATE, library
from hil.drives.base import Drive, Feedback, Node
from hil.drives.settings import GAUGES
from hil.drives.wire import Chain, Encoding, Expects, Message, Wire
from hil.frame import EXTENDED, FD
from hil.loop import SECOND, nanoseconds
from hil.loop.controller import Controller
from hil.safety.ladder import LEFT, STILL_TICKS, Ladder
from hil.safety.limits import ROOM
from hil.safety.plan import Phase
from hil.safety.pose_hold import PoseHold
from hil.safety.proof import CERTAIN, JUDGED, LATE, LONGER, MOVING, SIGNS, UNLIKE, WINDOWS, TorqueProof
from hil.safety.rules import Rule
from hil.sensing import arrival, plausibility, scale, tracking
from hil.sensing.sensing import Sensing
from hil.sensing.tracking import TrackingMonitor
from servoctl.engine.ccode import BoundCall
from servoctl.errors import CompileError
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
    target.lowest, target.highest = encoding.lowest, encoding.highest
    fill_field(target.field, encoding.field)
    _fill_chain(target.chain, encoding.chain)
    _fill_chain(target.steps, encoding.steps)
    if encoding.back is None:
        target.back.count = -1
    else:
        _fill_chain(target.back, encoding.back)


def frame_reader(memory: Any) -> Callable[[], tuple[int, bytes]]:
    """Reads id and payload from the bytes of a `tick_encoding`, whenever it is called."""
    return partial(Struct(f">I{len(memory) - 4}s").unpack_from, memory)


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


def wires_of(nodes: Sequence[Node]) -> tuple[list[Wire], str]:
    """What the frames of every node mean, or why it is not known."""
    wires = []
    for node in nodes:
        wire = node.wire()
        if wire is None or (isinstance(node, Drive) and wire.command is None):
            return [], f"frames of protocol {node.settings.protocol} are not described for it"
        wires.append(wire)
    return wires, ""


STATUSES = 64  # statuses that fit into the mask of those that Python handles


class CompiledTick:
    """A `tick` of `c/tick.h` with its arrays.

    Args:
        wires: What the frames of each node mean.
    """

    def __init__(self, setup: RigSetup, controller: Controller, wires: Sequence[Wire]) -> None:
        # ffi: cffi of the functions
        # functions: the functions of `c/tick.h`
        self.ffi, self.functions = library()
        self.wires = wires  # what the frames of each node mean
        self.tick: Any = self.ffi.new("tick *")  # the struct in C
        self.arrays: dict[str, Array] = {}  # name -> array of `STATE` or `RESULTS`
        self._kept: list[Any] = []
        self._failure: BaseException | None = None  # what a call raised within C
        nodes, sensing = (*setup.drives, *setup.sensors), setup.sensing
        buses = {name: number for number, name in enumerate(setup.settings.buses)}
        self._make_arrays(len(controller.tick.q), len(setup.drives), len(nodes))
        self._settings(sensing, setup.bounds.period, setup.settings.values.prediction)
        law = setup.loop.system.law
        self._law(controller, frozenset() if law is None else law.stops_on)
        self._channels(nodes, buses, sensing)
        self._drives(setup.drives, wires, nodes, buses)
        for target, call in (
            (self.tick.predict, setup.prediction.call.bound), (self.tick.sense, sensing.coordinates.call),
            (self.tick.law, controller.tick.call), (self.tick.hold, setup.gravity_compensation.buffered().bound),
        ):  # fmt: skip
            self.connect(target, call)

    def _make_arrays(self, n: int, m: int, channels: int) -> None:
        """Makes all arrays of `STATE` and `RESULTS`; the struct points to them."""
        tick, sizes = self.tick, {"n": n, "m": m, "channels": channels, "1": 1, "2 m": 2 * m, "m m": m * m}
        sizes |= {"windows": COMES_WITHIN * m, "gauges": len(GAUGES) * channels}
        tick.n, tick.m, tick.channels = n, m, channels
        for table, keeps in ((STATE, True), (RESULTS, False)):
            for kind, groups in table.items():
                parts = {name: sizes[size] for size, names in groups.items() for name in names.split()}
                block: Array = np.zeros(sum(parts.values()), dtype=DTYPES[kind])
                ends = np.cumsum([0, *parts.values()]).tolist()
                for name, first, last in zip(parts, ends, ends[1:], strict=False):
                    self.arrays[name] = block[first:last]
                    setattr(tick, name, self.pointer(kind, self.arrays[name]))
                if keeps:
                    counts, whole, kept = BLOCKS[kind]
                    setattr(tick, counts, len(block))
                    setattr(tick, whole, self.pointer(kind, block))
                    setattr(tick, kept, self.pointer(kind, np.zeros_like(block)))

    def pointer(self, kind: str, array: Array) -> Any:
        """Address of an array, which is kept alive."""
        self._kept.append(array)
        return self.ffi.cast(f"{kind} *", array.ctypes.data)

    def _array(self, kind: str, count: int) -> Any:
        made = self.ffi.new(f"{kind}[]", max(1, count))
        self._kept.append(made)
        return made

    def connect(self, target: Any, call: BoundCall) -> None:
        """Writes a `tick_call` on the arrays of a call, which is kept alive; one that does not run in C is called back.

        No exception can pass through C: one of the call gives NaN and is kept for `raise_failure`.
        """
        for name, arrays in (("arguments", call.arguments), ("results", call.results)):
            pointers = self._array("double *", len(arrays))
            for i, array in enumerate(arrays):
                pointers[i] = self.pointer("double", array)
            setattr(target, name, pointers)
        if call.address is None:
            target.function = function = self.ffi.callback("tick_function", lambda *_: self._call_back(call))
        else:
            target.function = function = self.ffi.cast("tick_function", call.address)
        self._kept += [call, function]

    def _call_back(self, call: BoundCall) -> None:
        try:
            call.evaluate()
        except BaseException as error:  # Ctrl-C and SystemExit too
            self._failure = self._failure or error
            self.tick.failed = True
            for array in call.results:
                array.fill(np.nan)

    def raise_failure(self) -> None:
        """Raises what a call raised within C since the last time."""
        if self._failure is not None:
            error, self._failure, self.tick.failed = self._failure, None, False
            raise error

    def _settings(self, sensing: Sensing, period: float, predicts: bool) -> None:
        tick, follows = self.tick, sensing.tracking
        tolerance = sensing.residual_tolerance
        tick.period, tick.skew, tick.old = period, sensing.skew, sensing.old
        tick.residual_tolerance = np.nan if tolerance is None else tolerance
        tick.predicts, tick.tracks = predicts, follows is not None
        if follows is not None:
            self._tracking(follows)
        tick.window, tick.longest = tracking.WINDOW, 0.0 if follows is None else follows.longest
        tick.margin, tick.steps, tick.stuck_travel = plausibility.MARGIN, plausibility.STEPS, plausibility.STUCK_TRAVEL
        tick.stuck_time, tick.stuck_window = plausibility.STUCK_TIME, plausibility.STUCK_WINDOW
        tick.scale_window, tick.scale_longest, tick.scale_share = scale.WINDOW, scale.LONGEST, scale.SHARE
        tick.scale_enough, tick.scale_told, tick.scale_gap = scale.ENOUGH, scale.TOLD, scale.GAP

    def _tracking(self, follows: TrackingMonitor) -> None:
        tick, call = self.tick, follows.observer.buffered()
        tick.share, tick.lag, tick.compares_windows = follows.share, follows.lag, follows.estimated
        tick.level_model, tick.rate_model = follows.level_model, tracking.MODEL
        tick.lack, tick.felt = tracking.LACK, self.pointer("double", np.array(follows.felt, dtype=float))
        tick.resolved = self.pointer("double", follows.resolved)
        tick.torque_limits = self.pointer("double", np.array(follows.limits, dtype=float))
        tick.quick, tick.none_left, tick.half = follows.quick, arrival.NONE_LEFT, arrival.HALF
        tick.single, tick.alone, tick.shown = arrival.SINGLE, arrival.ALONE, arrival.SHOWN
        tick.most_windows = follows.most_windows
        tick.change, tick.quick_least = arrival.CHANGE, self.pointer("double", follows.quick_least)
        tick.least_torque, tick.slow = self.pointer("double", follows.least), self.pointer("double", follows.slow)
        tick.friction = self.pointer("double", follows.friction)
        tick.floors = self.pointer("double", follows.floors)  # Python renews them
        self.connect(tick.disturbance, call.bound)

    def _law(self, controller: Controller, stops_on: frozenset[int]) -> None:
        tick, loop = self.tick, controller.loop
        slices, period = loop.layout.slices, loop.memory_period
        tick.own_memory, tick.memory = controller.own_memory, len(controller.memory)
        tick.sent_at, tick.elapsed_at = controller.sent_at.start, controller.elapsed_at
        tick.estimates, tick.memory_period = controller.estimating, np.nan if period is None else period
        tick.rate_start, tick.status_start = slices["memory_rate"].start, slices["status"].start
        stops = {code for code in range(STATUSES) if code in stops_on or code >= Status.NOT_POSITIVE.code}
        tick.stops = sum(1 << code for code in stops)
        tick.controller_memory = self.pointer("double", controller.memory)
        tick.memory_start = self.pointer("double", np.array(loop.memory_start, dtype=float))

    def _channels(self, nodes: Sequence[Node], buses: Mapping[str, int], sensing: Sensing) -> None:
        displacements, tick = sensing.displacements, self.tick
        rows = displacements.rows or []
        tick.channel = self._array("tick_channel", len(nodes))
        floors = plausibility.FLOOR * displacements.errors
        flat = [entry for row in rows for entry in row]
        tick.factor_index = self.pointer("int", np.array([j for j, _ in flat], dtype=np.int32))
        tick.factor = self.pointer("double", np.array([factor for _, factor in flat], dtype=float))
        first = 0
        for i, (node, channel) in enumerate(zip(nodes, displacements.channels, strict=True)):
            place = tick.channel[i]
            place.bus, place.awaited = buses[node.settings.bus], node.feedback is not Feedback.CYCLIC
            place.synced, place.replies = node.feedback is Feedback.SYNC, node.feedback is Feedback.REPLY
            place.mutes = isinstance(node, Drive) and node.enabled_by_command
            place.resolution, place.speed_limit, place.leap = channel.resolution, channel.speed_limit, channel.leap
            place.interval, place.held, place.floor = channel.interval, channel.held, floors[i]
            place.position_error, place.speed_error = channel.position_error, channel.speed_error
            place.visible = channel.visible or channel.resolution
            place.first_factor, place.factors = first, len(rows[i])
            first += len(rows[i])

    def _drives(
        self, drives: Sequence[Drive], wires: Sequence[Wire], nodes: Sequence[Node], buses: Mapping[str, int]
    ) -> None:
        tick = self.tick
        tick.drive, tick.encoding = self._array("tick_drive", len(drives)), self._array("tick_encoding", len(drives))
        messages = [(i, message) for i, wire in enumerate(wires) for message in wire.messages]
        tick.message, tick.messages = self._array("tick_message", len(messages)), len(messages)
        for k, (i, message) in enumerate(messages):
            settings = nodes[i].settings
            fill_message(tick.message[k], message, buses[settings.bus], i, settings.fd)
        watched = watched_ids(nodes, buses)
        tick.watch, tick.watched = self._array("tick_watched", len(watched)), len(watched)
        for k, (mask, value, bus, extended) in enumerate(watched):
            place = tick.watch[k]
            place.mask, place.value, place.bus, place.extended = mask, value, bus, extended

    def take_pose(self, pose: PoseHold, torque_limits: Sequence[float]) -> None:
        """Takes the constants by which a pose is held, and a machine is guided."""
        tick, w, guiding = self.tick, pose.pole, pose.guiding
        tick.stop_rate, tick.stop_room = pose.stop_rate, ROOM
        tick.stop_decay = pose.decay(nanoseconds(tick.period) / SECOND)
        tick.stiffness, tick.damping, tick.integral_gain = 3 * w**2, 3 * w, w**3
        tick.most_bias, tick.wire_limits = self._numbers(pose.largest), self._numbers(torque_limits)
        if guiding is not None:
            tick.spring, tick.slowing, tick.wall, tick.wall_damping = (
                guiding.stiffness, guiding.damping, (2 * w) ** 2, 4 * w,
            )  # fmt: skip
            tick.grip, tick.guide_limits = self._numbers(guiding.grip), self._numbers(guiding.limits)
            tick.wall_lower, tick.wall_upper = self._numbers(pose.lower), self._numbers(pose.upper)
            tick.weighs = self._numbers(pose.weighs)

    def take_test(self, proof: TorqueProof) -> None:
        """Takes the present round of the test of the drives, and what its motion is judged by."""
        tick, x, axes = self.tick, self.arrays, proof.motion
        tick.late, tick.judged, tick.certain, tick.unlike, tick.moving = LATE, JUDGED, CERTAIN, UNLIKE, MOVING
        tick.signs, tick.ticks = SIGNS, (*WINDOWS, *LONGER)
        tick.quarter, tick.half_square = proof.quarter, tick.period**2 / 2
        x["test"][:], x["pushed"][:], x["most_travel"][:] = proof.test, proof.pushed, proof.most_travel
        x["test_noise"][:], x["speed_step"][:], x["turns"][:] = axes.noise, axes.speed_step, axes.turns
        x["test_inertia"][:], x["projector"][:] = axes.W.ravel(), axes.projector.ravel()
        self._history = axes.rows  # kept alive
        tick.history, tick.room = self.ffi.cast("double *", axes.rows.ctypes.data), len(axes.rows)

    def take_ladder(self, ladder: Ladder) -> None:
        """Takes the speeds below which joints may stand."""
        self.tick.still_ticks, self.tick.still_left = STILL_TICKS, LEFT
        for place, each in zip(self.tick.drive[0 : self.tick.m], ladder.slow_speeds, strict=True):
            place.slow, place.noise = each

    def _numbers(self, values: Sequence[float] | Array) -> Any:
        return self.pointer("double", np.array(values, dtype=float))

    def take_rules(self, rules: Sequence[Rule], phase: Phase) -> None:
        """Judges those of these rules that hold in a phase, and no others, in every tick that C decides."""
        rules = [rule for rule in rules if phase in rule.phases]
        self.tick.rule, self.tick.rules = self._array("tick_rule", len(rules)), len(rules)
        for i, rule in enumerate(rules):
            place = self.tick.rule[i]
            place.measured, place.node, place.lower, place.upper = rule.measured, rule.node, rule.lower, rule.upper

    def take_limits(self, axes: Sequence[tuple[float, float]]) -> None:
        """Keeps torques within these limits: largest torque of each drive, and largest change of it per second."""
        for place, each in zip(self.tick.drive[0 : len(axes)], axes, strict=True):
            place.torque_limit, place.torque_rate_limit = each

    def take_commands(self, wires: Sequence[Wire]) -> None:
        """Takes the commands as the drivers would send them now; the encodings stay where they are."""
        for i, wire in enumerate(wires):
            if wire.command is not None:
                fill_encoding(self.tick.encoding[i], wire.command)

    def encoded(self) -> list[Any]:
        """Where C writes the command of each drive: its id, 4 bytes, and its payload."""
        encodings = [self.tick.encoding[i] for i in range(self.tick.m)]
        return [self.ffi.buffer(each.frame, 4 + each.length) for each in encodings]

    @property
    def trouble(self) -> str:
        """Why the last tick was given back; empty if it was not."""
        text = self.tick.trouble
        return "" if text == self.ffi.NULL else self.ffi.string(text).decode()


def machine_of(setup: RigSetup, controller: Controller) -> tuple[CompiledTick | None, str]:
    """Tables and state of the tick in C, or None and why C cannot do the ticks of a config."""
    wires, why = wires_of((*setup.drives, *setup.sensors))
    why = why or _obstacle(setup.sensing)
    if why:
        return None, why
    try:
        machine = CompiledTick(setup, controller, wires)
        return machine, ""
    except CompileError as error:
        return None, str(error)


def _obstacle(sensing: Sensing) -> str:
    """Why C cannot do the ticks of a config; empty if it can."""
    if sensing.filtered:
        return "speeds are filtered from positions"
    return "" if sensing.displacements.rows is not None else "the directions of the motors depend on the pose"
