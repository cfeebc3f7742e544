"""Which gains are a good start, and why?

    alpha = 2.5 times the fastest motion, at least 5 1/s
    alpha h <= 0.1 for steps of rk4; alpha h < half of the stability limit for a held command

Design: a rule of thumb of our own, from two systems. The parallelogram (12 absolute coordinates, 3.4 rad/s) is computed
most accurately at alpha = 2 to 10. Gains proportional to 1/h cost Runge-Kutta two of its four orders, because errors of
the stages, O(h^2), are multiplied by 1/h^2. The reasons for a value are printed with it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from servoctl.assembly.gains import Spacing, passive_spacing, task_spacing
from servoctl.assembly.run import Run
from servoctl.assembly.start import UNPROJECTED
from servoctl.errors import TaskError
from servoctl.laws.corrections import Poles
from servoctl.laws.hold import RowFeedback
from servoctl.linear.loop import local
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.model import Model
from servoctl.simulation.internal_dynamics import neutral
from servoctl.types import State

FASTER = 2.5  # alpha divided by the rate of the fastest motion

LEAST, MOST = 5.0, 10.0
"""Range of alpha [1/s]: below, drift can grow; above, the cost of an adaptive method grows in proportion."""

ACCURATE = 0.1  # largest alpha h for rk4: the error stays within about ten times of the best
DOUBLINGS = 8  # most times that poles are doubled
INSTANTS = 256  # number of times at which a task is evaluated


@dataclass(frozen=True)
class Recommendation:
    """A recommended correction with its reasons."""

    field: str  # field of the config
    value: dict[str, Any]  # value of that field
    alpha: float  # its rate of decay [1/s]; 0 if the value is not a correction
    reasons: tuple[str, ...]  # one sentence each

    @property
    def text(self) -> str:
        """Line to paste into a config or after `--set`."""
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
        spacing: Period and delay of the law; None: those of the run.
    """
    model, motion = run.system.model, fastest_motion(run)
    found = []
    if model.passive_rows and spacing is None and not run.system.passive.projection:
        if run.system.passive.dependent:
            found.append(Recommendation("plant.passive", {"projection": True}, 0.0, (UNPROJECTED,)))
        else:
            alpha, reasons = _alpha(motion, passive_spacing(run.settings), 2)
            found.append(_as(alpha, reasons, _passive_kind(model.passive_rows), "plant.passive.correction"))
    if run.system.law is None:
        return found
    input_output = model.plain is not model
    kinds = {_kind(row, input_output) for row in model.task_rows if row.has_violation}
    for kind in sorted(kinds):
        rows = [row for row in model.task_rows if row.has_violation and _kind(row, input_output) == kind]
        degree = max(row.degree for row in rows)
        at = spacing or task_spacing(run.system, run.settings)
        alpha, reasons = _alpha(motion, at, degree)
        if kind == "poles":
            alpha, reasons = _with_room(
                run, alpha, reasons, math.inf if at.h is None else _limit(degree, at) / at.h / 2
            )
        if run.internal is not None and run.internal.stable is False:
            reasons = (*reasons, "unstable internal dynamics do not count, because task gains do not act on them")
        groups = dict.fromkeys(row.group for row in rows)
        fields = ["law.correction"] if len(kinds) == 1 else [f"task.{group}.correction" for group in groups]
        found += [_as(alpha, reasons, kind, field) for field in fields]
    return found


def fastest_motion(run: Run) -> tuple[float, str]:
    """Rate of the fastest motion in the model [1/s], and its source; (0, "") if nothing moves by itself.

    Unstable internal dynamics do not count: task gains do not act on them.
    """
    rates = {f"that {name} prescribes": rate for name, rate in task_rates(run.system.model.plain, run).items()}
    internal = run.internal
    if internal is not None and internal.modes and internal.stable is not False:
        rates["of the internal dynamics"] = max(abs(mode) for mode in internal.modes)
    name = max(rates, key=lambda key: rates[key], default="")
    return (rates[name], name) if name and rates[name] > 1e-6 else (0.0, "")


def task_rates(model: Model, run: Run) -> dict[str, float]:
    """Row -> rate of its explicit change with time [1/s]: max |phi_tt| / max |phi_t|, which is w for sin(w t)."""
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


def _alpha(motion: tuple[float, str], spacing: Spacing, degree: int) -> tuple[float, tuple[str, ...]]:
    """The rate of decay [1/s] and its reasons; `degree` is that of the error's polynomial."""
    rate, source = motion
    alpha, reasons = MOST, [f"the model shows no motion of its own: alpha = {MOST:g} 1/s"]
    if rate:
        alpha = max(LEAST, FASTER * rate)
        wanted = f"{FASTER:g} times that, but at least {LEAST:g} 1/s: {alpha:.3g} 1/s"
        reasons = [f"fastest motion {source}: {rate:.3g} 1/s; {wanted}"]
    h = spacing.h
    if h is None:
        if alpha > MOST:
            alpha = MOST
            reasons.append(f"at most {MOST:g}, because {spacing.method} needs more evaluations for faster gains")
        return alpha, tuple(reasons)
    limit = _limit(degree, spacing) / h
    bounds = [(limit / 2, f"half of the stability limit, {limit:.3g} 1/s at a {spacing}")]
    if not spacing.held:
        bounds.append((ACCURATE / h, f"alpha h at most {ACCURATE:g}, because rk4 loses accuracy above"))
    bound, why = min(bounds)
    if alpha > bound:
        reasons.append(f"{why}: {bound:.3g}")
    else:
        reasons.append(f"stable up to {limit:.3g} 1/s at a {spacing}")
    return min(alpha, bound), tuple(reasons)


def _with_room(run: Run, alpha: float, reasons: tuple[str, ...], most: float) -> tuple[float, tuple[str, ...]]:
    """Poles with which the loop stays stable if torques are half or twice those of the law, doubled until they are.

    Where poles are far below the plant's own motions, which the law cancels, a small error of the torques is enough.
    """
    slow = alpha
    for _ in range(DOUBLINGS):
        stable = _stable_with_other_torques(run, alpha)
        if stable is None:
            return slow, reasons
        if stable:
            faster = f"with {slow:.3g} 1/s, half or twice the torque would make the loop unstable: {alpha:.3g} 1/s"
            return alpha, reasons if alpha == slow else (*reasons, faster)
        if 2.0 * alpha > most:
            break
        alpha *= 2.0
    return slow, (*reasons, f"up to {alpha:.3g} 1/s, half or twice the torque makes the loop unstable (see analyse)")


def _stable_with_other_torques(run: Run, alpha: float) -> bool | None:
    """Whether no more motions grow at the start if torques act half or twice as much; None: it is not known."""
    law, model, loop = run.system.following, run.system.model, run.loop
    if law is None or run.system.estimator is not None or not loop.differentiable:
        return None
    gains = law.correction.with_gains(Poles(-alpha).gains(law.rows))
    other = loop.of(replace(run.system, law=law.with_terms([gains])))
    try:
        at = local(run, run.start.t, loop.x_at(run.start), "full", law=other.parameters)
    except TaskError:
        return None

    def growing(factor: float) -> int:
        K = at.K.copy()
        K[: model.m] *= factor  # the other rows are rates of the law's memory
        poles = np.linalg.eigvals(at.A + at.B @ K)
        return int((poles.real > neutral(poles)).sum())

    return max(growing(0.5), growing(2.0)) <= growing(1.0)


def _limit(degree: int, spacing: Spacing) -> float:
    """alpha h from which errors with the polynomial (s + alpha)^degree no longer decay."""
    stiffness, *rest = [float(math.comb(degree, k)) for k in range(degree)]
    damping, higher = (rest[0], tuple(rest[1:])) if rest else (0.0, ())
    return spacing.longest(RowFeedback(damping, stiffness, degree > 1, higher))


def _kind(row: Row, input_output: bool) -> str:
    return "poles" if input_output else "baumgarte" if row.has_rate else "p_feedback"


def _passive_kind(rows: Sequence[Row]) -> str:
    """The kind of correction that fits all passive rows, which share one correction."""
    rates = [row.has_rate for row in rows if row.has_violation]
    return "baumgarte" if all(rates) else "p_feedback with rate" if any(rates) else "p_feedback"


def _as(alpha: float, reasons: tuple[str, ...], kind: str, field: str) -> Recommendation:
    """The correction with this rate of decay, rounded down to two digits."""
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
