"""How far the rate of the disturbance observer is from the limit of stability, row by row."""

from typing import Any

import numpy as np

from servoctl.assembly import Run
from servoctl.laws.bound_following import BoundConstraintFollowing
from servoctl.laws.observer_limit import LARGEST, largest_rate, of_one_row

OFF = 1.0
"""Relative error of the model's task map at which the limit is given too."""


def observer_section(run: Run) -> tuple[list[str], dict[str, Any], list[str]]:
    """Lines, the same as values, and errors; empty without an observer."""
    law = run.system.law
    if not isinstance(law, BoundConstraintFollowing) or law.observer is None:
        return [], {}, []
    rate, lines, errors = law.observer_rate, [], []
    values: dict[str, Any] = {}
    for i, name in enumerate(law.observed):
        row = of_one_row(law.observer, i)
        exact, off = (largest_rate(row, law.damping[i], law.stiffness[i], error) for error in (0.0, OFF))
        values[name] = {"rate": rate, "limit": exact, "limit_if_off": off, "share": rate / exact}
        lines.append(
            f"{name}: rate {rate:.4g} 1/s, stable up to {_limit(exact, row.commands.period)} "
            f"(up to {_limit(off, row.commands.period)} if inputs act {1 + OFF:g} times as much as the model says)"
        )
        if rate > exact:
            errors.append(f"law.observer: {name}: unstable at {rate:.4g} 1/s (use a rate below {exact:.4g})")
    return lines, values, errors


def _limit(rate: float, period: float) -> str:
    return f"more than {LARGEST / period:.4g} 1/s" if np.isinf(rate) else f"{rate:.4g} 1/s"
