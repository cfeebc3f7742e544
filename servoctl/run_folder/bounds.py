"""What a run says about its bounds and funnels: how near it came, when bounds held the inputs, what was given up.

The funnel of a row is the corridor |beta| < width:

beta = phi' + rate phi, or phi of a row without a rate;    width = (start - end) e^(-shrink t) + end
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from servoctl.run_folder.values import time_where
from servoctl.types import Array

VIOLATED = 1e-9  # a bound counts as violated where h is below minus this [unit of the bound]; less is rounding

COUNTED = 1e-6
"""`violated_time` counts where h is below minus this [unit of the bound]; `min` shows all of it.

A bound that holds the inputs is met at equality, and samples differ from it a little to both sides.
"""

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


def bound_events(trajectory: Recorded) -> list[dict[str, Any]]:
    """Each time in which a bound held the inputs, with what each task gave up meanwhile; and bounds left at the start.

    An event has `t`, `until` (None: to the end), `bound`, `given_up` (task -> largest acceleration that it asked for
    and did not get), and `lack`, if inputs within their limits could not hold the bound.
    """
    events: list[dict[str, Any]] = []
    t, given_up, lack = trajectory.t, trajectory.group("given_up"), trajectory.group("bound_lack")
    for name, h in trajectory.group("bound").items():
        if len(h) and h[0] < -VIOLATED:
            text = f"the start is outside bound {name} (h = {h[0]:.4g})"
            events.append({"t": float(t[0]), "event": "outside", "bound": name, "h": float(h[0]), "text": text})
    for name, active in trajectory.group("bound_active").items():
        for first, end in intervals(active > 0.5):
            most = {
                task: max(_largest(given_up[row][first:end]) for row in rows if row in given_up)
                for task, rows in trajectory.tasks.items()
                if any(row in given_up for row in rows)
            }
            event: dict[str, Any] = {
                "t": float(t[first]),
                "event": "bound",
                "bound": name,
                "until": float(t[end]) if end < len(t) else None,
                "given_up": {task: value for task, value in most.items() if value > VIOLATED},
            }
            short = _largest(lack[name][first:end])
            event |= {"lack": short} if short > 0.0 else {}
            events.append(event | {"text": _in_words(event, trajectory)})
    return events


def _in_words(event: dict[str, Any], trajectory: Recorded) -> str:
    """What was given up for a bound, and until when."""

    def amount(value: float, *columns: str) -> str:
        units = {trajectory.units.get(column, "") for column in columns if column in trajectory.columns}
        return f"{value:.4g} {' or '.join(sorted(units))}".rstrip()

    until = "the end" if event["until"] is None else f"{event['until']:.4g} s"
    amounts = [
        f"{task} by up to {amount(value, *[f'given_up.{row}' for row in trajectory.tasks[task]])}"
        for task, value in event["given_up"].items()
    ]
    cost = f"gives up {', '.join(amounts)}" if amounts else "costs the task nothing"
    lack = amount(event["lack"], f"bound_lack.{event['bound']}") if "lack" in event else ""
    short = f"; within their limits the inputs lack {lack}" if lack else ""
    return f"bound {event['bound']} holds the inputs until {until}: {cost}{short}"


def intervals(where: Array) -> list[tuple[int, int]]:
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


def funnel_events(trajectory: Recorded) -> list[dict[str, Any]]:
    """Each time in which a row was outside its funnel.

    An event has `t`, `until` (None: to the end), `row` and `ratio`, the largest |beta| / width.
    """
    events, t = [], trajectory.t
    for name, (beta, width) in funnel_curves(trajectory).items():
        ratio = np.abs(beta) / width
        for first, end in intervals(ratio > 1.0):
            until, most = (float(t[end]) if end < len(t) else None), float(np.nanmax(ratio[first:end]))
            stays = "the end" if until is None else f"{until:.4g} s"
            text = f"task {name} is outside its funnel until {stays}: at most {most:.4g} times the half-width"
            event = {"t": float(t[first]), "event": "funnel", "row": name, "until": until, "ratio": most, "text": text}
            events.append(event)
    return events


def _largest(values: Array) -> float:
    """The largest number; NaN where there is none."""
    return float(np.fmax.reduce(values))
