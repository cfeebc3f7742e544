"""Runs of fixed steps side by side in C: what they have in common, and their metrics as a summary has them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from servoctl.engine.batch import KEPT, BatchPlan, BatchResult, MetricChannel
from servoctl.run_folder.missed import OUT_OF_REACH
from servoctl.run_folder.trajectory import SETTLING_BAND, plain
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.fixed import Wanted
from servoctl.simulation.grid import Grid
from servoctl.simulation.rows import Integrator, stops_of
from servoctl.simulation.traced import CompiledLoop
from servoctl.types import Array, Status

LARGEST, SMALLEST = 1e150, 1e-150
"""Between these a square neither overflows nor vanishes."""

MOST_TIMES = 4_000_000
"""Times of steps that a batch holds in memory: 32 MB."""


def channels(loop: Loop, settling_band: float = math.inf) -> dict[tuple[str, str], MetricChannel]:
    """What metrics are made of: ("task", name), ("input", name), and what a law says of itself."""
    model, slices = loop.system.model, loop.layout.slices
    tasks: dict[str, list[int]] = {}
    for i, row in enumerate(model.task_rows):
        tasks.setdefault(row.group, []).append(slices["violation"].start + i)
    found = {("task", name): MetricChannel(tuple(entries), band=settling_band) for name, entries in tasks.items()}
    for i, name in enumerate(model.plant.actuators):
        found["input", name] = MetricChannel((slices["u"].start + i,), signed=True)
    evidence = () if loop.system.law is None else ("rank", "residual", "pivot_min")
    return found | {("law", name): MetricChannel((slices[name].start,), signed=True) for name in evidence}


def plan_of(
    loop: Loop,
    start: float,
    duration: float,
    integrator: Integrator,
    period: float | None,
    output_step: float | None,
    settling_band: float = SETTLING_BAND,
) -> BatchPlan | None:
    """What runs of this kind have in common; None where they cannot be taken side by side.

    That takes fixed steps, not too many, compiled throughout, without projection, and rows that stand at steps.
    """
    if integrator.method != "rk4" or not isinstance(loop, CompiledLoop) or loop.projects:
        return None
    times = Grid(start, start + duration, period or integrator.step)
    if len(times) > MOST_TIMES:
        return None
    wanted = Wanted(times, output_step if period is None else None)
    if not wanted.only_steps:
        return None
    status = loop.layout.slices["status"].start
    found = list(channels(loop, settling_band).values())
    return BatchPlan(times[:], wanted.every, status, sorted(stops_of(loop)), len(Status), found)


def summary_of(
    names: Sequence[tuple[str, str]], outcome: BatchResult, run: int, plan: BatchPlan
) -> dict[str, Any] | None:
    """Metrics of one run as `Trajectory.summary` has them; None where it must be looked at alone.

    Args:
        names: Of the channels.
        outcome: Of the batch.
        run: Which run.
        plan: Of the batch.
    """
    if outcome.good[run] < len(plan.times):
        return None
    found: dict[str, dict[str, Any]] = {"task": {}, "input": {}, "law": {}}
    for (group, name), values in zip(names, outcome.metrics[run], strict=True):
        kept = dict(zip(KEPT, values.tolist(), strict=True))
        if not kept["count"]:
            kept |= {"rms": math.nan}
        elif _unfit_to_square(values) or not kept["span"]:
            return None
        else:
            kept |= {"rms": math.sqrt(kept["area"] / kept["span"])}
        found[group][name] = kept
    law = found["law"]
    evidence = {
        "rank_min": ("rank", "least"),
        "rank_max": ("rank", "greatest"),
        "residual_max": ("residual", "greatest"),
        "pivot_min": ("pivot_min", "least"),
    }
    said = {
        "tasks": {
            name: {
                "max_violation": kept["greatest"],
                "rms_violation": kept["rms"],
                "final_violation": kept["last"],
                "drift": kept["last"] - kept["first"],
                "settling_time": _settled(plan, kept["late"]) if kept["count"] else None,
            }
            for name, kept in found["task"].items()
        },
        "inputs": {
            name: {"min": kept["least"], "max": kept["greatest"], "rms": kept["rms"]}
            for name, kept in found["input"].items()
        },
    } | {key: law[name][kept] for key, (name, kept) in evidence.items() if law}
    codes = outcome.statuses[run].tolist()
    if 3 * sum(codes[status.code] for status in OUT_OF_REACH) > sum(codes):
        return None  # its tasks may be missed
    said |= {"duration": plan.times[-1] - plan.times[0]}
    said |= {"status_counts": {Status.from_code(code).name: int(count) for code, count in enumerate(codes) if count}}
    return dict(plain(said))


def _settled(plan: BatchPlan, late: float) -> float | None:
    """Time from the first row to the one after the last that was above the band; None where there is none after it."""
    if math.isnan(late):
        return 0.0
    rows = np.append(plan.times[:-1][:: plan.every], plan.times[-1])
    place = int(np.searchsorted(rows, late)) + 1
    return float(rows[place] - rows[0]) if place < len(rows) else None


def _unfit_to_square(values: Array) -> bool:
    """Whether the square of a channel's largest number overflows or vanishes."""
    size = float(np.abs(values[:2]).max())
    return not size < LARGEST or 0.0 < size < SMALLEST
