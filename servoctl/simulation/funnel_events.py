"""Events of a run whose violations left their funnels."""

from typing import Any

import numpy as np

from servoctl.laws.bound_following import BoundConstraintFollowing
from servoctl.laws.law import BoundLaw
from servoctl.run_folder.bounds import intervals
from servoctl.run_folder.trajectory import Trajectory


def funnel_events(trajectory: Trajectory, law: BoundLaw | None) -> list[dict[str, Any]]:
    """Each time in which a row was outside its funnel.

    An event has `t`, `until` (None: to the end), `row` and `ratio`, the largest |beta| / rho.
    """
    if not isinstance(law, BoundConstraintFollowing) or law.funnel is None:
        return []
    events, t = [], trajectory.t
    of_rows = law.funnel.of_rows(law.funnel_numbers)
    for name, by_rate, numbers in zip(law.funnel.names, law.funnel.by_rate, of_rows, strict=True):
        beta = trajectory[f"violation.{name}"]
        if by_rate:
            beta = trajectory[f"violation_rate.{name}"] + numbers.rate * beta
        ratio = np.abs(beta) / numbers.width(t)
        for first, end in intervals(ratio > 1.0):
            until, most = (float(t[end]) if end < len(t) else None), float(ratio[first:end].max())
            stays = "the end" if until is None else f"{until:.4g} s"
            text = f"task {name} is outside its funnel until {stays}: at most {most:.4g} times the half-width"
            event = {"t": float(t[first]), "event": "funnel", "row": name, "until": until, "ratio": most, "text": text}
            events.append(event)
    return events
