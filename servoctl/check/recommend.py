"""Gains to begin with, and why these.

    alpha = 2.5 times the fastest motion, at least 5 1/s
    alpha h <= 0.1 for the steps of rk4, alpha h < half of what decays for a held command

Design: a rule of thumb, and our own, from two systems: the parallelogram (12 absolute coordinates, 3.4 rad/s) is
computed best at alpha = 2 to 10, and gains in proportion to 1/h cost Runge-Kutta two of its four orders, because errors
of the stages, O(h^2), are multiplied by 1/h^2. Rows that are dependent need more: a slow pull-back lets the drift look
like a direction of its own. So each step of the rule is said beside the value.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.assembly import start as starts
from servoctl.assembly.gains import Spacing, passive_spacing, task_spacing
from servoctl.assembly.run import Run
from servoctl.mechanics.model import Model, Row
from servoctl.types import State

FASTER = 2.5
"""The correction against the fastest motion."""

LEAST, MOST = 5.0, 10.0
"""alpha [1/s]: below, drift is let grow; above, an adaptive method pays with evaluations in proportion."""

DEPENDENT = 20.0
"""alpha [1/s] at the least where rows are dependent."""

ACCURATE = 0.1
"""alpha h at the most for rk4: the error stays within about ten times of the best."""

INSTANTS = 256
"""At which a task is looked at."""


@dataclass(frozen=True)
class Recommendation:
    """A correction, and why this one.

    Attributes:
        field: Where it goes in the config.
        value: What to write there.
        alpha: The rate of decay behind it [1/s]; 0: no correction is behind it.
        reasons: One sentence each.
    """

    field: str
    value: dict[str, Any]
    alpha: float
    reasons: tuple[str, ...]

    @property
    def text(self) -> str:
        """To paste."""
        ((kind, gains),) = self.value.items()
        if isinstance(gains, bool):
            return f"{self.field}: {{{kind}: {str(gains).lower()}}}"
        shown = ", ".join(f"{name}: {x:g}" for name, x in gains.items()) if isinstance(gains, dict) else f"{gains:g}"
        inner = f"{{{shown}}}" if isinstance(gains, dict) else shown
        return f"{self.field}: {{{kind}: {inner}}}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"field": self.field, "value": self.value, "text": self.text, "reasons": list(self.reasons)}


def recommend(run: Run, spacing: Spacing | None = None) -> list[Recommendation]:
    """Corrections for the plant's own rows and for the task.

    Args:
        run: A run.
        spacing: How finely the law acts; None: as the run says.
    """
    model, motion = run.system.model, fastest_motion(run)
    found = []
    if model.passive_rows and spacing is None and not run.system.passive.projection:
        if run.system.passive.dependent(model):
            found.append(Recommendation("plant.passive", {"projection": True}, 0.0, (starts.UNPROJECTED,)))
        else:
            alpha, reasons = _alpha(motion, passive_spacing(run.settings), 2, False)
            found.append(_as(alpha, reasons, _passive_kind(model.passive_rows), "plant.passive.correction"))
    if run.system.law is None:
        return found
    raised = model.plain is not model
    kinds = {_kind(row, raised) for row in model.task_rows if row.has_violation}
    for kind in sorted(kinds):
        rows = [row for row in model.task_rows if row.has_violation and _kind(row, raised) == kind]
        degree = max(row.degree for row in rows)
        alpha, reasons = _alpha(motion, spacing or task_spacing(run.system, run.settings), degree, dependent=False)
        if run.internal is not None and run.internal.stable is False:
            reasons = (*reasons, "unstable internal dynamics do not count: no gain of the task reaches them")
        places = ["law.correction"] if len(kinds) == 1 else [f"task.{group}.correction" for group in _groups(rows)]
        found += [_as(alpha, reasons, kind, place) for place in places]
    return found


def fastest_motion(run: Run) -> tuple[float, str]:
    """Rate of the fastest motion that the model shows [1/s], and where it comes from.

    Unstable internal dynamics do not count: no gain of the task reaches them, and theirs is no motion to follow.
    """
    rates = {f"of {name} in time": rate for name, rate in task_rates(run.system.model.plain, run).items()}
    internal = run.internal
    if internal is not None and internal.modes and internal.stable is not False:
        rates["of what the constraints leave free"] = max(abs(mode) for mode in internal.modes)
    name = max(rates, key=lambda key: rates[key], default="")
    return (rates[name], name) if name and rates[name] > 1e-6 else (0.0, "")


def task_rates(model: Model, run: Run) -> dict[str, float]:
    """Row -> how fast it changes with time alone: max |phi_tt| / max |phi_t|, the w of sin(w t) [1/s]."""
    q, rest = run.start.q, np.zeros(model.n)
    times = run.start.t + run.settings.duration * np.arange(INSTANTS) / INSTANTS
    at = [model.matrices(State(float(t), q, rest)).task for t in times]
    found = {}
    for i, row in enumerate(model.task_rows):
        if not row.has_violation:
            continue
        speed = max(abs(float((rows.violation_rate if row.has_rate else rows.violation)[i])) for rows in at)
        change = max(abs(float(rows.b[i])) for rows in at)
        found[row.name] = change / speed if math.isfinite(change) and speed > 1e-12 else 0.0
    return found


def _alpha(motion: tuple[float, str], spacing: Spacing, degree: int, dependent: bool) -> tuple[float, tuple[str, ...]]:
    """The rate of decay, and its reasons; `degree` of the error's polynomial."""
    rate, source = motion
    alpha, reasons = MOST, ["no motion of its own rate was found in the model: 10 1/s"]
    if rate:
        alpha = max(LEAST, FASTER * rate)
        reasons = [f"fastest motion {source}: {rate:.3g} 1/s; {FASTER:g} times that, at least {LEAST:g}: {alpha:.3g}"]
    if dependent and alpha < DEPENDENT:
        alpha = DEPENDENT
        reasons.append(f"rows are dependent, and a slow pull-back loses the motion: at least {DEPENDENT:g}")
    h = spacing.h
    if h is None:
        if alpha > MOST and not dependent:
            alpha = MOST
            reasons.append(f"{spacing.method} pays for more in evaluations: at most {MOST:g}")
        return alpha, tuple(reasons)
    bears = _longest(degree, spacing) / h
    bounds = [(bears / 2, f"half of the {bears:.3g} 1/s at which a {spacing} no longer lets it decay")]
    if not spacing.held:
        bounds.append((ACCURATE / h, f"alpha h at most {ACCURATE:g}: more costs rk4 its order"))
    bound, why = min(bounds)
    if alpha > bound:
        reasons.append(f"{why}: {bound:.3g}")
    else:
        reasons.append(f"a {spacing} bears up to {bears:.3g}")
    return min(alpha, bound), tuple(reasons)


def _longest(degree: int, spacing: Spacing) -> float:
    """alpha h at which (s + alpha)^degree no longer decays."""
    stiffness, *rest = [float(math.comb(degree, k)) for k in range(degree)]
    damping, higher = (rest[0], tuple(rest[1:])) if rest else (0.0, ())
    return spacing.longest(damping, stiffness, degree > 1, higher)


def _kind(row: Row, raised: bool) -> str:
    """The correction that fits a row."""
    return "poles" if raised else "baumgarte" if row.has_rate else "p_feedback"


def _passive_kind(rows: Sequence[Row]) -> str:
    """The correction that fits all of a plant's own rows: they have one in common."""
    rates = [row.has_rate for row in rows if row.has_violation]
    return "baumgarte" if all(rates) else "p_feedback with rate" if any(rates) else "p_feedback"


def _groups(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.group for row in rows))


def _as(alpha: float, reasons: tuple[str, ...], kind: str, field: str) -> Recommendation:
    """The correction that decays at this rate; two digits, the slower side."""
    digits = 1 - math.floor(math.log10(alpha))
    alpha = math.floor(alpha * 10**digits * (1 + 1e-12)) / 10**digits
    value: dict[str, Any] = {"baumgarte": {"alpha": alpha, "beta": alpha}}
    if kind == "p_feedback":
        value = {"p_feedback": {"P": float(f"{1 / alpha:.3g}")}}
    elif kind == "p_feedback with rate":  # (s + alpha)^2 where a row has a position, s + alpha where it has none
        value = {"p_feedback": {"P": float(f"{1 / alpha:.3g}"), "rate": alpha}}
    elif kind == "poles":
        value = {"poles": -alpha}
    return Recommendation(field, value, alpha, reasons)
