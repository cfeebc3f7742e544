"""Many runs of fixed steps at once in C: their common plan, and their metrics in the form of a summary.

Design: a run that diverges is told by two scales. A state above `RUNAWAY` can be right (a long fall, a fast rotor), so
it counts only together with a known cause. A violation above `RUNAWAY`, or a state above `BEYOND`, counts alone: a task
that is off by a million times its unit is not followed, and at 1e12 the rounding of a double exceeds a ten-thousandth
of the unit.
"""

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from servoctl.engine.ccode import KEPT, BatchPlan, BatchResult, MetricChannel
from servoctl.run_folder.metrics import EVIDENCE, NOTHING, Figures, input_entry, plain, task_entry
from servoctl.run_folder.missed import OUT_OF_REACH
from servoctl.run_folder.trajectory import COUNTED, Trajectory
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.integrate import Wanted
from servoctl.simulation.monitor import judges_rank
from servoctl.simulation.rows import Grid, stops_of
from servoctl.simulation.settings import Settings
from servoctl.types import Array, State, Status

RUNAWAY = 1e6
"""A state, or the violation of a required task, above this times 1 + its size at the start may have run away."""

BEYOND = 1e12  # a state above this times 1 + its size at the start has run away, whatever the plant


def size(*values: Array) -> float:
    """The largest magnitude in some arrays; infinite if one is NaN."""
    return float(np.nan_to_num(np.abs(np.concatenate(values)), nan=np.inf).max(initial=0.0))


def growth(start: State, trajectory: Trajectory) -> float:
    """Size of the last state of a run relative to 1 + that of its start; 0 without rows."""
    return size(trajectory.q[-1], trajectory.v[-1]) / (1.0 + size(start.q, start.v)) if len(trajectory) else 0.0


def divergence(start: State, trajectory: Trajectory, optional_rows: Collection[str]) -> str | None:
    """What has diverged beyond doubt by the end of a run, in words; None if nothing has.

    Args:
        optional_rows: Names of task rows that may be missed.
    """
    if not len(trajectory):
        return None
    for task, rows in trajectory.tasks.items():
        names = [f"violation.{row}" for row in rows if row not in optional_rows]
        known = [np.nan_to_num(trajectory[name][[0, -1]]) for name in names if name in trajectory.columns]
        first, last = np.abs([np.zeros(2), *known]).max(axis=0)
        if last > RUNAWAY * (1.0 + first):
            return f"the error of {task} grew from {first:.3g} to {last:.3g}"
    if growth(start, trajectory) > BEYOND:
        return f"the state grew to {size(trajectory.q[-1], trajectory.v[-1]):.3g}"
    return None


def suspicious(end: Array, violations: Array) -> bool:
    """Whether a run may have diverged: never False where `divergence`, or `growth` above `RUNAWAY`, says that it has.

    Args:
        end: q and v at the end.
        violations: Size of the violation of each task at the end; NaN where a task has none.
    """
    return size(end) > RUNAWAY or bool(np.any(np.abs(violations) > RUNAWAY))


LARGEST, SMALLEST = 1e150, 1e-150  # the square of a number between these neither overflows nor vanishes
MOST_TIMES = 4_000_000  # largest number of step times that a batch keeps in memory: 32 MB


def channels(loop: Loop, settling_band: float = math.inf) -> dict[tuple[str, str], MetricChannel]:
    """Columns that metrics are computed from: ("task", name), ("input", name), ("law", name), of each bound
    ("bound", name), ("active", name), and ("passive", "rank")."""
    model, slices = loop.system.model, loop.layout.slices
    tasks: dict[str, list[int]] = {}
    for i, row in enumerate(model.task_rows):
        tasks.setdefault(row.group, []).append(slices["violation"].start + i)
    by_name = {("task", name): MetricChannel(tuple(entries), band=settling_band) for name, entries in tasks.items()}
    for i, name in enumerate(model.plant.actuators):
        by_name["input", name] = MetricChannel((slices["u"].start + i,), signed=True)
    for i, name in enumerate(loop.system.acting.bounded):
        by_name["bound", name] = MetricChannel((slices["bound"].start + i,), signed=True)
        by_name["active", name] = MetricChannel((slices["bound_active"].start + i,), signed=True)
    if model.passive_rows:
        by_name["passive", "rank"] = MetricChannel((slices["passive_rank"].start,), signed=True)
    evidence = ("status",) if loop.system.law is None else ("rank", "residual", "pivot_min", "status")
    return by_name | {("law", name): MetricChannel((slices[name].start,), signed=True) for name in evidence}


def plan_of(loop: Loop, start: float, settings: Settings) -> BatchPlan | None:
    """The common plan of such runs; None if they cannot run side by side.

    They can with fixed steps, not too many, a compiled loop without projection, and rows at steps.

    Args:
        start: Time of the start [s].
    """
    step, period = settings.integrator.fixed_step, settings.period
    if step is None or not loop.traced or loop.projects or loop.system.machine:
        return None
    times = Grid(start, start + settings.duration, period or step)
    if len(times) > MOST_TIMES:
        return None
    wanted = Wanted(times, settings.output_step if period is None else None)
    if not wanted.only_steps:
        return None
    status = loop.layout.slices["status"].start
    measured = list(channels(loop, settings.settling_band).values())
    return BatchPlan(times[:], wanted.every, status, sorted(stops_of(loop)), len(Status), measured)


def summary_of(loop: Loop, outcome: BatchResult, run: int, plan: BatchPlan) -> dict[str, Any] | None:
    """Metrics of one run, equal to those of `Trajectory.summary`; None if the run must be simulated alone.

    A run in which a bound holds or is violated must be, because only its rows say for how long; and so must each run
    that the judges of a single run (`simulation.monitor`, `assembly.diagnosis`) might end or call bad.

    Args:
        outcome: Result of the batch.
        run: Number of the run.
    """
    if outcome.good[run] < len(plan.times):
        return None
    groups = ("task", "input", "law", "bound", "active", "passive")
    by_name: dict[str, dict[str, Figures]] = {group: {} for group in groups}
    for (group, name), values in zip(channels(loop), outcome.metrics[run], strict=True):
        kept = dict(zip(KEPT, values.tolist(), strict=True))
        if kept["count"] and (_unfit_to_square(values) or not kept["span"]):
            return None
        by_name[group][name] = _figures(plan, kept)
    law = by_name["law"]
    if _needs_judges(loop, outcome.ends[run], by_name):
        return None
    summary = {
        "tasks": {name: task_entry(x) for name, x in by_name["task"].items()},
        "inputs": {name: input_entry(x) for name, x in by_name["input"].items()},
    } | {key: getattr(law[name], figure) for key, (name, figure) in EVIDENCE.items() if name in law}
    if by_name["bound"]:
        held = max(x.greatest for x in by_name["active"].values()) > 0.5
        if held or min(x.least for x in by_name["bound"].values()) < -COUNTED:
            return None
        never = {"active_time": 0.0, "violated_time": 0.0}
        summary["bounds"] = {name: {"min": x.least, **never} for name, x in by_name["bound"].items()}
    saturated = _saturation_time(plan, outcome.statuses[run], law["status"].last)
    if saturated is None:
        return None
    codes = outcome.statuses[run].tolist()
    if 3 * sum(codes[code] for code in OUT_OF_REACH) > sum(codes):
        return None  # its tasks may be missed
    summary["saturation_time"] = saturated
    return dict(plain(summary))


def _needs_judges(loop: Loop, end: Array, by_name: dict[str, dict[str, Figures]]) -> bool:
    """Whether a judge of single runs might end this run, or call it bad."""
    last = [x.last for x in by_name["task"].values()]
    rank, passive = by_name["law"].get("rank"), by_name["passive"].get("rank")
    return (
        suspicious(end[: 2 * loop.system.model.n], np.array(last))
        or (rank is not None and rank.least < rank.greatest and judges_rank(loop))
        or (passive is not None and passive.greatest > loop.system.passive.allowed)
    )


def _saturation_time(plan: BatchPlan, counts: Array, last: float) -> float | None:
    """Time of the rows at an input limit [s], each valid until the next; None if the last step is shorter.

    Args:
        counts: How many rows had each status, shape (codes,).
        last: Status of the last row.
    """
    rows = counts[Status.SATURATED.code] - (last == Status.SATURATED.code)
    steps = np.diff(plan.measured)
    if rows and not math.isclose(steps[-1], steps[0], rel_tol=1e-9):
        return None
    return float(rows * (plan.times[-1] - plan.times[0]) / len(steps)) if rows else 0.0


def _figures(plan: BatchPlan, kept: dict[str, float]) -> Figures:
    """The figures of a channel, from what C kept of it."""
    if not kept["count"]:
        return NOTHING
    rms, settled, rows = math.sqrt(kept["area"] / kept["span"]), 0.0, plan.measured
    if not math.isnan(kept["late"]):
        i = int(np.searchsorted(rows, kept["late"])) + 1
        settled = float(rows[i] - rows[0]) if i < len(rows) else math.nan
    return Figures(kept["least"], kept["greatest"], kept["first"], kept["last"], rms, settled)


def _unfit_to_square(values: Array) -> bool:
    """Whether the square of a channel's largest number overflows or vanishes."""
    size = float(np.abs(values[:2]).max())
    return not size < LARGEST or 0.0 < size < SMALLEST
