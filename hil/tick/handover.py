"""How the state of a run goes from the Python tick to the tick in C, and back."""

from collections.abc import Sequence

import numpy as np

from hil.drives.base import Condition, Drive, Node, Sample
from hil.drives.quantities import GAUGES
from hil.safety.limits import Limits
from hil.sensing.plausibility import AxisMemory
from hil.sensing.scale import ScaleMemory
from hil.sensing.sensing import Sensing, SensingState
from hil.sensing.window import Quick, WindowState
from hil.tick.machine import CompiledTick


def in_order(drives: Sequence[Drive], nodes: Sequence[Node]) -> bool:
    """Whether every node has sent a sample, and every drive works without a complaint."""
    if any([node.sample is None for node in nodes]):
        return False
    enabled = Condition.ENABLED
    return not any(
        [d.condition is not enabled or d.fault or d.foreign or d.saturated or d.quiet for d in drives]
    )  # fmt: skip


def load(
    machine: CompiledTick, drives: Sequence[Drive], nodes: Sequence[Node], sensing: Sensing, limits: Limits
) -> bool:
    """Gives the state to C; returns whether it is one that the tick in C knows."""
    state = sensing.state
    if not (state.steady and in_order(drives, nodes)):
        return False
    x, k = machine.numbers, machine.times
    x["q"][:], x["v"][:], k["now"][0] = state.q, state.v, state.now
    k["sync"][0], k["sync_before"][0] = state.syncs[:2]
    k["asked"][0], k["asked_before"][0] = state.commands[:2]
    x["rates"][:], x["before"][:] = state.rates, state.before
    for i, (node, memory, scale) in enumerate(zip(nodes, state.memories, state.scales, strict=True)):
        sample, accepted = node.sample, memory.accepted
        if sample is None or accepted is None or memory.rejected:
            return False
        x["position"][i], x["velocity"][i], x["torque"][i], k["sample_time"][i] = sample
        x["accepted_position"][i], x["accepted_velocity"][i], x["accepted_torque"][i], k["accepted_time"][i] = accepted
        x["travel"][i], k["still_since"][i], k["seen"][i] = memory.travel, memory.moved, memory.seen
        k["scale_since"][i], x["scale_start"][i], x["scale_moved"][i], x["scale_path"][i], k["scale_beyond"][i] = scale
        x["next_torque"][i] = node.next_torque
        if node.unwrapping is not None:
            x["wrapped"][i], x["added"][i] = node.unwrapping.last, node.unwrapping.added
    x["gauges"].reshape(len(GAUGES), -1)[:, : len(drives)] = np.transpose([drive.gauges for drive in drives])
    k["alive"][:] = [drive.alive for drive in drives]
    x["previous"][:], k["limits_time"][0] = limits.previous, limits.last
    if sensing.tracking is not None:
        _load_window(machine, sensing.tracking.window)
    return True


def _load_window(machine: CompiledTick, window: WindowState) -> None:
    x = machine.numbers
    x["window_elapsed"][0], x["moved"][:], x["sent"][:] = window.elapsed, window.moved, window.sent
    x["made"][:] = window.made
    x["least"][:], x["most"][:], x["where"][:] = window.least, window.most, window.where
    x["half_elapsed"][0] = -1.0
    if window.half is not None:
        x["half_elapsed"][0], x["half_moved"][:], x["half_sent"][:] = window.half
    x["quick_elapsed"][0], x["quick_moved"][:], x["quick_sent"][:] = window.quick
    k, m = machine.times, len(window.sent)
    k["beyond"][0], k["lacking"][0], k["windows"][0] = window.beyond, window.lacking, len(window.last)
    k["arrivals"][:m], k["arrivals"][m:] = window.arrivals
    x["before_u"][:], x["before_d"][:] = window.before
    for i, (d, allowed) in enumerate(window.last):
        x["last"][i * m : (i + 1) * m], x["last_allowed"][i * m : (i + 1) * m] = d, allowed


def _stored_window(machine: CompiledTick) -> WindowState:
    """The window as C has gathered it, and what it keeps of the windows before."""
    x, k, m = {name: array.copy() for name, array in machine.numbers.items()}, machine.times, machine.tick.m
    half = float(x["half_elapsed"][0])
    before = None if half < 0.0 else (half, x["half_moved"], x["half_sent"])
    last = [(x["last"][i : i + m], x["last_allowed"][i : i + m]) for i in range(0, int(k["windows"][0]) * m, m)]
    quick = Quick(float(x["quick_elapsed"][0]), x["quick_moved"], x["quick_sent"])
    arrivals = k["arrivals"].tolist()
    return WindowState(
        float(x["window_elapsed"][0]), x["moved"], x["sent"], x["made"], x["least"], x["most"], before, x["where"],
        int(k["beyond"][0]), int(k["lacking"][0]), last, quick, (arrivals[:m], arrivals[m:]),
        (x["before_u"].tolist(), x["before_d"].tolist()),
    )  # fmt: skip


def store_positions(machine: CompiledTick, nodes: Sequence[Node]) -> None:
    """Takes back where the drives are in the ranges of their frames; they get their last frames afterwards."""
    wrapped, added = machine.numbers["wrapped"].tolist(), machine.numbers["added"].tolist()
    for node, last, more in zip(nodes, wrapped, added, strict=True):
        if node.unwrapping is not None:
            node.unwrapping.last, node.unwrapping.added = last, more


def store(machine: CompiledTick, nodes: Sequence[Node], sensing: Sensing, limits: Limits) -> None:
    """Takes the state back from C; the nodes already know their last frames."""
    x = {name: array.tolist() for name, array in machine.numbers.items()}
    k = {name: array.tolist() for name, array in machine.times.items()}
    memories, scales = [], []
    for i, node in enumerate(nodes):
        node.sample = Sample(x["position"][i], x["velocity"][i], x["torque"][i], k["sample_time"][i])
        accepted = Sample(
            x["accepted_position"][i], x["accepted_velocity"][i], x["accepted_torque"][i], k["accepted_time"][i]
        )
        memories.append(AxisMemory(accepted, k["seen"][i], 0, x["travel"][i], k["still_since"][i]))
        scales.append(
            ScaleMemory(
                k["scale_since"][i], x["scale_start"][i], x["scale_moved"][i], x["scale_path"][i], k["scale_beyond"][i]
            )
        )
    syncs, commands = (k["sync"][0], k["sync_before"][0]), (k["asked"][0], k["asked_before"][0])
    q, v = np.array(x["q"]), np.array(x["v"])
    received = k["sample_time"][: len(nodes)]
    sensing.resume(
        SensingState(q, v, k["now"][0], syncs, commands, received, memories, scales, x["rates"], x["before"])
    )
    limits.previous, limits.last = x["previous"], k["limits_time"][0]
    if sensing.tracking is not None:
        sensing.tracking.resume(_stored_window(machine))
