"""The tables and the state of the tick in C, as one object in memory that Python and C share."""

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hil.drives.base import Drive, Feedback, Node
from hil.drives.quantities import GAUGES
from hil.drives.wire import Wire
from hil.loop.controller import Controller
from hil.safety.plan import Phase
from hil.safety.rules import Rule
from hil.sensing import arrival, plausibility, scale, tracking
from hil.sensing.prediction import Prediction
from hil.sensing.sensing import Sensing
from hil.sensing.tracking import TrackingMonitor
from hil.tick.tables import fill_encoding, fill_message, watched_ids
from servoctl.engine.ccode import CSource, Entry
from servoctl.types import Array, Status

_FOLDER = Path(__file__).parent / "c"

SOCKETS = sys.platform == "linux" and sys.byteorder == "little"
"""Whether the tick in C may send and receive on sockets itself."""

HEAD = "#include <math.h>\n#include <string.h>\n"

HEAD_WITH_SOCKETS = (
    "#define _GNU_SOURCE /* recvmmsg, ppoll */\n"
    + HEAD
    + "".join(f"#include <{name}.h>\n" for name in ("errno", "poll", "sys/socket", "sys/uio", "time", "unistd"))
)


TICK = ("common.c", "frames.c", "window.c", "sense.c", "tick.c")  # the files of a tick from frames to frames, in order

HEADERS = ("tick.h", "log.h", *(("sockets.h", "stretch.h") if SOCKETS else ()))


def header() -> str:
    """Tables, state and functions in C."""
    return text(*HEADERS)


def source() -> str:
    """All of the C."""
    code = header() + text(*TICK, "log.c")
    return HEAD_WITH_SOCKETS + code + text("sockets.c", "stretch.c") if SOCKETS else HEAD + code


def text(*names: str) -> str:
    """C files of this package, one after the other."""
    return "\n".join((_FOLDER / name).read_text() for name in names)


@lru_cache
def library() -> tuple[Any, Any]:
    """cffi and the library.

    Raises:
        CompileError: There is no compiler, or it fails.
    """
    return CSource(source, [header()], lanes=0).opened()


STATUSES = 64  # statuses that fit into the mask of those that Python handles


class CompiledTick:
    """A `tick` of `c/tick.h` with its arrays.

    Args:
        drives: In the order of the actuators.
        nodes: Drives, then encoder nodes.
        wires: What their frames mean.
        buses: Name of each bus -> its number.
        sensing: Computes q and v.
        prediction: Predicts the model's motion.
        controller: Evaluates the law.
        period: Period of the loop [s].
        rules: What is judged at every tick.
        predicts: Whether the law gets the predicted state.
        stops_on: Codes of the statuses of the law that stop the run.

    Attributes:
        numbers: Name -> array of doubles.
        times: Name -> array of whole numbers, mostly times [ns].
    """

    def __init__(
        self,
        drives: Sequence[Drive],
        nodes: Sequence[Node],
        wires: Sequence[Wire],
        buses: Mapping[str, int],
        sensing: Sensing,
        prediction: Prediction,
        controller: Controller,
        period: float,
        rules: Sequence[Rule],
        predicts: bool,
        stops_on: frozenset[int],
    ) -> None:
        # ffi: cffi of the functions
        # functions: the functions of `c/tick.h`
        self.ffi, self.functions = library()
        self.wires = wires  # what the frames of each node mean
        self.tick: Any = self.ffi.new("tick *")  # the struct in C
        self._kept: list[Any] = []
        n, m = len(controller.tick.q), len(drives)
        self._sizes(n, m, len(nodes))
        self._settings(sensing, period, predicts)
        self._law(controller, stops_on)
        self._channels(nodes, buses, sensing)
        self._drives(drives, wires, nodes, buses)
        self.take_rules(rules)
        for name, entry in (
            ("predict", prediction.call), ("sense", sensing.coordinates.call), ("law", controller.tick.evaluate)
        ):  # fmt: skip
            self._kept.append(entry)  # C calls it on its own arrays
            self.connect(getattr(self.tick, name), entry.entry)  # type: ignore[union-attr]

    def _sizes(self, n: int, m: int, channels: int) -> None:
        """Makes all arrays."""
        tick = self.tick
        tick.n, tick.m, tick.channels = n, m, channels
        kept = dict.fromkeys(("q", "v", "law_q", "law_v", "moved", "half_moved", "quick_moved"), n)
        kept |= dict.fromkeys(
            (
                "sent",
                "made",
                "least",
                "most",
                "half_sent",
                "quick_sent",
                "before_u",
                "before_d",
                "where",
                "carried",
                "previous",
            ),
            m,
        )
        kept |= dict.fromkeys(("window_elapsed", "half_elapsed", "quick_elapsed"), 1)
        of_channels: tuple[str, ...] = (
            "accepted_position",
            "accepted_velocity",
            "accepted_torque",
            "travel",
            "rates",
            "before",
        )
        of_channels += ("scale_start", "scale_moved", "scale_path")
        kept |= dict.fromkeys(
            (*of_channels, "wrapped", "added", "position", "velocity", "torque", "next_torque"), channels
        )
        kept |= dict.fromkeys(("last", "last_allowed"), tracking.COMES_WITHIN * m)
        kept |= {"gauges": len(GAUGES) * channels}
        single = (
            "now",
            "sync",
            "sync_before",
            "asked",
            "asked_before",
            "limits_time",
            "due",
            "began",
            "written",
            "beyond",
            "lacking",
            "windows",
        )
        times = dict.fromkeys(single, 1) | dict.fromkeys(
            ("accepted_time", "seen", "still_since", "sample_time", "scale_since", "scale_beyond"), channels
        )
        times |= {"alive": m, "arrivals": 2 * m}
        self.numbers, block = self._block(kept, float)
        self.times, moments = self._block(times, np.int64)
        tick.doubles, tick.integers = len(block), len(moments)
        tick.numbers, tick.times = self.pointer("double", block), self.pointer("long long", moments)
        tick.kept_numbers = self.pointer("double", np.zeros_like(block))
        tick.kept_times = self.pointer("long long", np.zeros_like(moments))
        results = dict.fromkeys(("torques", "raw", "allowed"), m)
        results |= {"silences": m} | dict.fromkeys(("ages", "displacements", "slack", "expected"), channels)
        more, _ = self._block(results, float)
        self.numbers |= more
        self.clamped = np.zeros(m, dtype=np.int32)
        tick.clamped = self.pointer("int", self.clamped)

    def _block(self, sizes: Mapping[str, int], kind: type) -> tuple[dict[str, Array], Array]:
        """Arrays one after the other in one block; the struct points to them."""
        block: Array = np.zeros(sum(sizes.values()), dtype=kind)
        parts, place = {}, 0
        for name, size in sizes.items():
            parts[name] = block[place : place + size]
            setattr(self.tick, name, self.pointer("double" if kind is float else "long long", parts[name]))
            place += size
        return parts, block

    def pointer(self, kind: str, array: Array) -> Any:
        """Address of an array, which is kept alive."""
        self._kept.append(array)
        return self.ffi.cast(f"{kind} *", array.ctypes.data)

    def _array(self, kind: str, count: int) -> Any:
        made = self.ffi.new(f"{kind}[]", max(1, count))
        self._kept.append(made)
        return made

    def connect(self, target: Any, entry: Entry) -> None:
        """Writes a `tick_call`; the caller keeps the entry alive."""
        target.function = self.ffi.cast("tick_function", entry.function)
        target.arguments = self.ffi.cast("double **", entry.arguments)
        target.results = self.ffi.cast("double **", entry.results)

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
        tick.alone, tick.shown, tick.most_windows = arrival.ALONE, arrival.SHOWN, follows.most_windows
        tick.change, tick.quick_least = arrival.CHANGE, self.pointer("double", follows.quick_least)
        tick.least_torque, tick.slow = self.pointer("double", follows.least), self.pointer("double", follows.slow)
        tick.friction = self.pointer("double", follows.friction)
        tick.floors = self.pointer("double", follows.floors)  # Python renews them
        if call.entry is not None:
            tick.ends_windows = True
            self._kept.append(call)
            self.connect(tick.disturbance, call.entry)

    def _law(self, controller: Controller, stops_on: frozenset[int]) -> None:
        tick, loop = self.tick, controller.loop
        slices, period = loop.layout.slices, loop.memory_period
        tick.own_memory, tick.memory = controller.own_memory, len(controller.memory)
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
        for i, drive in enumerate(drives):
            place, each = tick.drive[i], drive.settings
            place.torque_limit, place.torque_rate_limit = each.torque_limit, each.torque_rate_limit
            place.lower, place.upper = each.position_limits
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

    def take_rules(self, rules: Sequence[Rule]) -> None:
        """Judges these rules, and no others, in every tick."""
        rules = [rule for rule in rules if Phase.FULL in rule.phases]
        self.tick.rule, self.tick.rules = self._array("tick_rule", len(rules)), len(rules)
        for i, rule in enumerate(rules):
            place = self.tick.rule[i]
            place.measured, place.node, place.lower, place.upper = rule.measured, rule.node, rule.lower, rule.upper

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
