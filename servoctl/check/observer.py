"""How far the rate of the disturbance observer is from the limit of stability, row by row."""

from typing import Any

import numpy as np

from servoctl.assembly import Run
from servoctl.laws.bound_following import BoundConstraintFollowing
from servoctl.laws.observer import RowObserver
from servoctl.laws.observer_limit import LARGEST, largest_rate, of_one_row
from servoctl.laws.uncertainty import ModelError

OFF = 1.0
"""Relative error of the model's task map at which the limit is given too."""


def observer_section(run: Run, error: ModelError | None = None) -> tuple[list[str], dict[str, Any], list[str]]:
    """Lines, the same as values, and errors; empty without an observer.

    Args:
        run: The run.
        error: Of the model, over the box of `law.uncertainty`; None: no box, the limit for inputs that act twice as
            much as the model says is given too.
    """
    law = run.system.law
    if not isinstance(law, BoundConstraintFollowing) or law.observer is None:
        return [], {}, []
    rate, lines, errors = law.observer_rate, [], []
    values: dict[str, Any] = {}
    inside = "" if error is None else " for every machine of the box"
    for i, name in enumerate(law.observed):
        row = of_one_row(law.observer, i)

        def largest(E: float, row: RowObserver = row, i: int = i) -> float:
            return largest_rate(row, law.damping[i], law.stiffness[i], E)

        limit = min(largest(E) for E in ((0.0,) if error is None else (error.rho, 0.0, error.upper)))
        off = largest(OFF)
        values[name] = {"rate": rate, "limit": limit, "limit_if_off": off, "share": rate / limit if limit else None}
        period = row.commands.period
        line = f"{name}: rate {rate:.4g} 1/s, stable up to {_limit(limit, period)}{inside}"
        if error is None:
            line += f" (up to {_limit(off, period)} if inputs act {1 + OFF:g} times as much as the model says)"
        else:
            line += f" ({100 * rate / limit:.3g} % of it)" if 0.0 < limit < np.inf else ""
        lines.append(line)
        if rate > limit:
            errors.append(f"law.observer: {name}: unstable at {rate:.4g} 1/s{inside} (use a rate below {limit:.4g})")
    return lines, values, errors


def _limit(rate: float, period: float) -> str:
    return f"more than {LARGEST / period:.4g} 1/s" if np.isinf(rate) else f"{rate:.4g} 1/s"
