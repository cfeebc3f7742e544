"""What a run says about the search for the inputs within limits and bounds."""

from typing import Any

import numpy as np

from servoctl.run_folder.bounds import Recorded, intervals

SEARCH = ("steps", "unfinished")
"""Columns `search.<name>`: steps of the search of a tick, and 1 if it ended before its answer was proven, else 0."""


def search_events(trajectory: Recorded) -> list[dict[str, Any]]:
    """Each time in which the search ended at its largest number of steps.

    An event has `t`, `row` (from 0), `until` (None: to the end), `rows` (how many commands are not proven) and `steps`.
    """
    columns = trajectory.group("search")
    if "unfinished" not in columns:
        return []
    events, t, unfinished = [], trajectory.t, columns["unfinished"] > 0.5
    for first, end in intervals(unfinished):
        until, count = (float(t[end]) if end < len(t) else None), int(unfinished[first:end].sum())
        steps = int(np.nanmax(columns["steps"][first:end]))
        stays = "the end" if until is None else f"{until:.4g} s"
        text = (
            f"the search for the best inputs within limits and bounds stops after {steps} steps in {count} ticks until "
            f"{stays}: these commands are within the limits, but may give up more than they have to"
        )
        event = {"t": float(t[first]), "event": "search", "row": first, "until": until, "rows": count, "steps": steps}
        events.append(event | {"text": text})
    return events
