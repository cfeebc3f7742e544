"""How the state of a run goes from the Python tick to the tick in C, and back."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from hil.core.constants import COMES_WITHIN
from hil.drives.base import Condition, Drive, Feedback, Node, Sample
from hil.drives.settings import GAUGES
from hil.loop import SECOND
from hil.sensing.plausibility import AxisMemory
from hil.sensing.scale import ScaleMemory
from hil.sensing.sensing import Sensing
from hil.sensing.tracking import Quick, WindowState
from hil.tick.machine import CompiledTick

# arrays of the fields of `Sample`, of an accepted one, of `ScaleMemory`, of the rest of `AxisMemory`, and of `Quick`
SAMPLE = "position", "velocity", "torque", "sample_time"
ACCEPTED = "accepted_position", "accepted_velocity", "accepted_torque", "accepted_time"
SCALE = "scale_since", "scale_start", "scale_moved", "scale_path", "scale_beyond"
AXIS = "seen", "travel", "still_since"
QUICK = "quick_elapsed", "quick_moved", "quick_sent"
HALF = "half_elapsed", "half_moved", "half_sent"  # the same of half a window
WINDOW = "window_elapsed", "moved", "sent", "made", "least", "most", "where", "beyond", "lacking"


def in_order(drives: Sequence[Drive], nodes: Sequence[Node]) -> bool:
    """Whether every node has sent a sample, and every drive works without a complaint."""
    if any([node.sample is None for node in nodes]):
        return False
    enabled = Condition.ENABLED
    return not any(
        [d.condition is not enabled or d.fault or d.foreign or d.saturated or d.quiet for d in drives]
    )  # fmt: skip


def load(machine: CompiledTick, drives: Sequence[Drive], nodes: Sequence[Node], sensing: Sensing) -> bool:
    """Gives the state to C; returns whether it is one that the tick in C knows."""
    state = sensing.state
    if not (sensing.steady and in_order(drives, nodes)):
        return False
    oldest = state.now - round(sensing.old * SECOND)  # C remembers only two questions, and an old answer is to neither
    for memory in state.memories:
        if memory.accepted is None or memory.rejected or memory.accepted.time < oldest:
            return False
    syncs, commands = state.asked[Feedback.SYNC], state.asked[Feedback.REPLY]
    _put_columns(machine, SAMPLE, [node.sample for node in nodes])
    _put_columns(machine, ACCEPTED, [memory.accepted for memory in state.memories])
    _put_columns(machine, SCALE, state.scales)
    _put_columns(machine, AXIS, [(memory.seen, memory.travel, memory.moved) for memory in state.memories])
    for i, node in enumerate(nodes):
        if node.unwrapping is not None:
            machine.arrays["wrapped"][i], machine.arrays["added"][i] = node.unwrapping.last, node.unwrapping.added
    machine.arrays["gauges"].reshape(len(GAUGES), -1)[:, : len(drives)] = np.transpose([d.gauges for d in drives])
    single = {
        "q": state.q, "v": state.v, "now": state.now, "rates": state.rates, "before": state.before,
        "sync": syncs[0], "sync_before": syncs[1], "asked": commands[0], "asked_before": commands[1],
        "next_torque": [node.next_torque for node in nodes],
        "alive": [drive.alive for drive in drives],
    }  # fmt: skip
    _put(machine, single, single.values())
    if sensing.tracking is not None:
        _load_window(machine, sensing.tracking.window)
    return True


def _put(machine: CompiledTick, names: Iterable[str], values: Iterable[Any]) -> None:
    for name, value in zip(names, values, strict=True):
        machine.arrays[name][:] = value


def _put_columns(machine: CompiledTick, names: Sequence[str], rows: Iterable[Any]) -> None:
    """Writes the fields of one object per node, each into an array."""
    _put(machine, names, zip(*rows, strict=True))


def _columns(machine: CompiledTick, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Inverse of `_put_columns`."""
    return zip(*[machine.arrays[name].tolist() for name in names], strict=True)


def _load_window(machine: CompiledTick, window: WindowState) -> None:
    x, m = machine.arrays, len(window.sent)
    _put(machine, WINDOW, (window.elapsed, window.moved, window.sent, window.made, window.least, window.most,
                           window.where, window.beyond, window.lacking))  # fmt: skip
    _put(machine, QUICK, window.quick)
    _put(machine, HALF, window.half or (-1.0, 0.0, 0.0))
    _put(machine, ("before_u", "before_d", "arrivals"), (*window.before, [*chain(*window.arrivals)]))
    x["windows"][0] = len(window.last)
    for i, pair in enumerate(window.last):
        x["last"][i * m : (i + 1) * m], x["last_allowed"][i * m : (i + 1) * m] = pair


def _stored_window(machine: CompiledTick) -> WindowState:
    """The window as C has gathered it, and what it keeps of the windows before."""
    x, m = {name: array.copy() for name, array in machine.arrays.items()}, machine.tick.m
    single = "window_elapsed", "half_elapsed", "quick_elapsed", "beyond", "lacking", "windows"
    elapsed, half, quick, beyond, lacking, windows = (x[name][0].item() for name in single)
    last = deque(
        ((x["last"][i : i + m], x["last_allowed"][i : i + m]) for i in range(0, windows * m, m)), maxlen=COMES_WITHIN
    )
    arrivals = x["arrivals"].tolist()
    return WindowState(
        elapsed, x["moved"], x["sent"], x["made"], x["least"], x["most"],
        None if half < 0.0 else (half, x["half_moved"], x["half_sent"]), x["where"], beyond, lacking, last,
        Quick(quick, x["quick_moved"], x["quick_sent"]), (arrivals[:m], arrivals[m:]),
        (x["before_u"].tolist(), x["before_d"].tolist()),
    )  # fmt: skip


def store_positions(machine: CompiledTick, nodes: Sequence[Node]) -> None:
    """Takes back where the drives are in the ranges of their frames; they get their last frames afterwards."""
    for node, (last, added) in zip(nodes, _columns(machine, ("wrapped", "added")), strict=True):
        if node.unwrapping is not None:
            node.unwrapping.last, node.unwrapping.added = last, added


def store(machine: CompiledTick, nodes: Sequence[Node], sensing: Sensing) -> None:
    """Takes the state back from C; the nodes already know their last frames."""
    x = {name: array.tolist() for name, array in machine.arrays.items()}
    for node, sample in zip(nodes, _columns(machine, SAMPLE), strict=True):
        node.sample = Sample(*sample)
    kept = zip(_columns(machine, ACCEPTED), _columns(machine, AXIS), strict=True)
    state = sensing.state
    state.q, state.v, state.now = np.array(x["q"]), np.array(x["v"]), x["now"][0]
    state.asked = {
        Feedback.SYNC: (*x["sync"], *x["sync_before"]), Feedback.REPLY: (*x["asked"], *x["asked_before"])
    }  # fmt: skip
    state.received, state.rates, state.before = x["sample_time"][: len(nodes)], x["rates"], x["before"]
    state.memories = [AxisMemory(Sample(*accepted), seen, 0, travel, moved) for accepted, (seen, travel, moved) in kept]
    state.scales = [ScaleMemory(*scale) for scale in _columns(machine, SCALE)]
    if sensing.tracking is not None:
        sensing.tracking.window = _stored_window(machine)
