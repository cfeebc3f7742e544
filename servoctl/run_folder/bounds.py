"""What a run says about its bounds and funnels: how near it came, when bounds held the inputs, what was given up.

The funnel of a row is the corridor |beta| < width:

beta = phi' + rate phi, or phi of a row without a rate;    width = (start - end) e^(-shrink t) + end
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from servoctl.run_folder.values import time_where
from servoctl.types import Array

VIOLATED = 1e-9  # a bound counts as violated where h is below minus this [unit of the bound]; less is rounding

COUNTED = 1e-6
"""`violated_time` counts where h is below minus this [unit of the bound]; `min` shows all of it.

A bound that holds the inputs is met at equality, and samples differ from it a little to both sides.
"""

SEARCH = ("steps", "unfinished")
"""Columns `search.<name>`: steps of the search of a tick, and 1 if it ended before its answer was proven, else 0."""

APART = 5  # times at which a bound holds are one event if fewer rows lie between them


class Recorded(Protocol):
    """What is read of a `Trajectory`, which calls this module and others."""

    @property
    def t(self) -> Array: ...

    @property
    def tasks(self) -> Mapping[str, Sequence[str]]: ...

    @property
    def columns(self) -> Mapping[str, Array]: ...

    @property
    def units(self) -> Mapping[str, str]: ...

    @property
    def metadata(self) -> Mapping[str, Any]: ...

    def group(self, prefix: str) -> Mapping[str, Array]: ...

    def during(self, name: str) -> slice: ...


def bound_metrics(trajectory: Recorded) -> dict[str, dict[str, Any]]:
    """Bound -> least h, and the time in which it held the inputs and in which it was violated [s], see `COUNTED`."""
    active, t = trajectory.group("bound_active"), trajectory.t
    return {
        name: {
            "min": float(np.nanmin(h)) if not np.all(np.isnan(h)) else None,
            "active_time": time_where(t, active[name] > 0.5) if name in active else None,
            "violated_time": time_where(t, h < -COUNTED),
        }
        for name, h in trajectory.group("bound").items()
    }


def events_of(trajectory: Recorded) -> list[dict[str, Any]]:
    """What bounds, funnels and the search for inputs within limits did, each with `t`, `event` and `text`.

    All but `outside`, a bound left at the start, have `until` (None: to the end). `bound`, a time in which it held the
    inputs, has `given_up` (task -> largest acceleration that it asked for and did not get), and `lack`, if inputs
    within their limits could not hold it. `funnel`, a time in which a `row` was outside, has `ratio`, the largest
    |beta| / width. `search`, a time in which it ended at its largest number of `steps`, has `row` (from 0) and `rows`,
    how many commands are not proven.
    """
    return [*_outside(trajectory), *_bounds(trajectory), *_funnels(trajectory), *_searches(trajectory)]


def _spans(trajectory: Recorded, where: Array) -> Iterator[tuple[slice, dict[str, Any], str]]:
    """Rows of each time in which a condition holds, its `t` and `until`, and its end in words."""
    t = trajectory.t
    for first, end in _intervals(where):
        until = float(t[end]) if end < len(t) else None
        yield (
            slice(first, end),
            {"t": float(t[first]), "until": until},
            "the end" if until is None else f"{until:.4g} s",
        )


def _outside(trajectory: Recorded) -> Iterator[dict[str, Any]]:
    for name, h in trajectory.group("bound").items():
        if len(h) and h[0] < -VIOLATED:
            text = f"the start is outside bound {name} (h = {h[0]:.4g})"
            yield {"t": float(trajectory.t[0]), "event": "outside", "bound": name, "h": float(h[0]), "text": text}


def _bounds(trajectory: Recorded) -> Iterator[dict[str, Any]]:
    given_up, lack = trajectory.group("given_up"), trajectory.group("bound_lack")
    by_task = {task: [row for row in of if row in given_up] for task, of in trajectory.tasks.items()}
    for name, active in trajectory.group("bound_active").items():
        for rows, span, until in _spans(trajectory, active > 0.5):
            most = {task: max(_largest(given_up[row][rows]) for row in of) for task, of in by_task.items() if of}
            lost = {task: value for task, value in most.items() if value > VIOLATED}
            amounts = [
                f"{task} by up to {_amount(trajectory, value, *(f'given_up.{row}' for row in trajectory.tasks[task]))}"
                for task, value in lost.items()
            ]
            text = f"bound {name} holds the inputs until {until}: "
            text += f"gives up {', '.join(amounts)}" if amounts else "costs the task nothing"
            event = {"event": "bound", "bound": name, **span, "given_up": lost}
            short = _largest(lack[name][rows])
            if short > 0.0:
                event["lack"] = short
                lacking = _amount(trajectory, short, f"bound_lack.{name}")
                text += f"; within their limits the inputs lack {lacking}"
            yield event | {"text": text}


def _amount(trajectory: Recorded, value: float, *columns: str) -> str:
    """A value with the unit of some columns."""
    units = {trajectory.units.get(column, "") for column in columns if column in trajectory.columns}
    return f"{value:.4g} {' or '.join(sorted(units))}".rstrip()


def _funnels(trajectory: Recorded) -> Iterator[dict[str, Any]]:
    for name, (beta, width) in funnel_curves(trajectory).items():
        ratio = np.abs(beta) / width
        for rows, span, until in _spans(trajectory, ratio > 1.0):
            most = float(np.nanmax(ratio[rows]))
            text = f"task {name} is outside its funnel until {until}: at most {most:.4g} times the half-width"
            yield {"event": "funnel", "row": name, **span, "ratio": most, "text": text}


def _searches(trajectory: Recorded) -> Iterator[dict[str, Any]]:
    columns = trajectory.group("search")
    unfinished = columns.get("unfinished", np.zeros(0)) > 0.5
    for rows, span, until in _spans(trajectory, unfinished):
        count, steps = int(unfinished[rows].sum()), int(np.nanmax(columns["steps"][rows]))
        text = (
            f"the search for the best inputs within limits and bounds stops after {steps} steps in {count} ticks until "
            f"{until}: these commands are within the limits, but may give up more than they have to"
        )
        yield {"event": "search", **span, "row": rows.start, "rows": count, "steps": steps, "text": text}


def _intervals(where: Array) -> list[tuple[int, int]]:
    """First row, and the row after the last, of each stretch in which a condition holds; short gaps are closed."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], where, [False]]).astype(int)))
    found: list[tuple[int, int]] = []
    for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if found and first - found[-1][1] < APART:
            found[-1] = (found[-1][0], end)
        else:
            found.append((first, end))
    return found


KEYS = ("rate", "start", "end", "shrink", "by_rate")
"""Facts of each row in the metadata `funnels`; `by_rate`: 1 where beta has phi', else 0."""


class FunnelCurve(NamedTuple):
    """A row and its funnel over time; NaN where the task does not run."""

    beta: Array  # what stays inside, shape (rows,)
    width: Array  # half-width, shape (rows,)


def funnel_curves(trajectory: Recorded) -> dict[str, FunnelCurve]:
    """Row -> curve, of each row with a funnel."""
    found = {}
    columns = trajectory.columns
    t = columns.get("task_time", trajectory.t)
    for name, of in trajectory.metadata.get("funnels", {}).items():
        needed = [f"violation.{name}", *([f"violation_rate.{name}"] if of.get("by_rate") else [])]
        if not all(column in columns for column in needed) or not all(key in of for key in KEYS):
            continue
        phi = columns[f"violation.{name}"]
        beta = columns[f"violation_rate.{name}"] + of["rate"] * phi if of["by_rate"] else phi
        width = (of["start"] - of["end"]) * np.exp(-of["shrink"] * np.maximum(t, 0.0)) + of["end"]
        counts = np.zeros(len(beta), dtype=bool)
        counts[trajectory.during(name)] = True
        found[name] = FunnelCurve(np.where(counts, beta, np.nan), np.where(counts, width, np.nan))
    return found


def _largest(values: Array) -> float:
    """The largest number; NaN where there is none."""
    return float(np.fmax.reduce(values))
