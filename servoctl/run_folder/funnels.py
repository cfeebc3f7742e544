"""What a run says about its funnels: beta of each row, the half-width around it, and when it was outside.

beta = phi' + rate phi, or phi of a row without a rate;    width = (start - end) e^(-shrink t) + end
"""

from typing import Any, NamedTuple

import numpy as np

from servoctl.run_folder.bounds import Recorded, intervals
from servoctl.types import Array

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
