"""How far the rate of the disturbance observer is from the limit of stability, row by row."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.corrections import largest_lateness, rate_refusals, stable_rates
from servoctl.check.sections import Section, shortened
from servoctl.errors import TaskError
from servoctl.laws.bound_following import BoundConstraintFollowing
from servoctl.laws.observer_limit import LARGEST, largest_rate, of_one_row
from servoctl.laws.robust_design import decay_rates
from servoctl.laws.ultimate import observed, observer_lag
from servoctl.laws.uncertainty import ModelError

OFF = 1.0  # relative error of the model's task map at which the limit is given too


def observer_section(run: Run, error: ModelError | None) -> Iterator[Section]:
    """The rate of the observer of each row against its limit.

    Args:
        run: The run.
        error: Of the model, over the box of `law.uncertainty`; None: no box, the limit for inputs that act twice as
            much as the model says is given too.
    """
    law = run.system.law
    if not isinstance(law, BoundConstraintFollowing) or law.observer is None:
        return
    rate, lines, later = law.observer_rate, [], largest_lateness(run.loaded)
    limits = stable_rates(law, error, later)
    errors = [f"law.observer: {sentence}" for sentence in rate_refusals(law, error, later)]
    values: dict[str, Any] = {}
    inside = "" if error is None else " for every machine of the box"
    for i, name in enumerate(law.observed):
        row = of_one_row(law.observer, i)
        limit, off = limits[i], largest_rate(row, law.damping[i], law.stiffness[i], OFF, later=later)
        values[name] = {"rate": rate, "limit": limit, "limit_if_off": off, "share": rate / limit if limit else None}
        period = row.commands.period
        line = f"{name}: rate {rate:.4g} 1/s, stable up to {_limit(limit, period)}{inside}"
        if error is None:
            line += f" (up to {_limit(off, period)} if inputs act {1 + OFF:g} times as much as the model says)"
        else:
            line += f" ({100 * rate / limit:.3g} % of it)" if 0.0 < limit < np.inf else ""
        lines.append(line)
    if error is not None and not errors:
        lines += _bound(law, error, values)
    yield Section("disturbance observer", "observer", shortened(lines), values, errors=errors)


def _bound(law: BoundConstraintFollowing, error: ModelError, values: dict[str, Any]) -> list[str]:
    """Lines on what the observer leaves of the violations; adds the figures to `values`."""
    assert law.observer is not None
    values["bound"] = None
    if error.rate is None or error.command_rate is None:
        return ["no bound on what it leaves: the ideal run fails, so the rate of the disturbance is not known"]
    if not error.reached:
        return ["no bound on what it leaves: the inputs do not reach every row at some pose"]
    decays = {}
    try:
        for i in law.required:
            decays[i] = decay_rates(law.rows[i], law.damping[i], law.stiffness[i], "law.observer")
    except TaskError as wrong:
        return [f"no bound on what it leaves: {str(wrong).removeprefix('law.observer: ')}"]
    held = law.observer.commands
    delay = held.delay + max(held.lag, default=0.0)
    lag, missed = observer_lag(law.observer_rate, held.period, delay), error.command_rate * (delay + held.period)
    kappa = min(decay for _, decay in decays.values())
    beta = observed(error.rate, lag, kappa, error.rho, missed)
    values["bound"] = {"disturbance_rate": error.rate, "lag": lag, "kappa": kappa, "missed": missed, "beta": beta}
    lines = [
        f"premise: the disturbance changes by at most sup|d'| = {error.rate:.4g} per s, as on the path; the observer "
        f"follows it {1e3 * lag:.4g} ms late (1/L, hold and delay)",
        f"commands that act {1e3 * (delay + held.period):.4g} ms late miss at most {missed:.3g} of what the model asks",
        f"|beta| settles below sup|d'| / ((1 + rho_E) kappa L) + {missed:.3g} / kappa = {beta:.3g}, with "
        f"L = {1.0 / lag:.4g} 1/s for that lag and kappa = {kappa:.4g} 1/s",
    ]
    for i, (sliding, _) in decays.items():
        size = beta * (law.scale[i] if law.scale else 1.0)
        lines += [f"{law.rows[i].name}: error below {size / sliding:.3g}"] if sliding else []
        values[law.rows[i].name]["violation"] = size / sliding if sliding else None
    if error.rate * lag >= error.disturbance > 0.0:
        lines.append(
            f"the observer does not help on this path: the disturbance, {error.disturbance:.3g}, changes within the "
            "lag (raise law.observer.rate, or shorten the period)"
        )
    return lines


def _limit(rate: float, period: float) -> str:
    return f"more than {LARGEST / period:.4g} 1/s" if np.isinf(rate) else f"{rate:.4g} 1/s"
