"""What the law's guarantees rest on: errors of the model over a box of machines, and ultimate bounds of its terms.

Where the error of a row settles at last: closed forms for robust and adaptive terms and for a disturbance observer.
Words and terms are those of `laws.robust`. On the true plant beta' = (1 + E)(-kappa beta - g) + d. With rho >=
|d| / (1 + rho_E) and V = |beta|^2 / 2:

    V' <= -(1 + rho_E) (kappa |beta|^2 - eps / 4)
    |beta(t)|^2 <= |beta(0)|^2 e^(-2 (1 + rho_E) kappa t) + eps / (4 kappa) (1 - e^(...))

kappa is the smallest of all rows if they differ, or `mu / (1 + rho_E)` of `assembly.uncertainty` for an uncertain
plant.

With a disturbance observer of rate L instead, and rows that E does not couple:

    beta / d = s / (s^2 + (1 + E) (kappa + L) s + (1 + E) kappa L),   |beta| settles below sup|d'| / ((1 + E) kappa L)

The observer knows what acted, so it leaves alone what a late command misses: sup|T_n u_n'| (delay + h) / kappa more.

Source: derived here, in the structure of Chen, Zhang 2010; that with a constant rho (`settled`) is ours.
"""

import math
from collections.abc import Iterator

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.gains import drives_spacing, task_spacing
from servoctl.assembly.uncertainty import Machines, ModelError, machines, model_error, refusal, rows_judged
from servoctl.assembly.values import Problems
from servoctl.check.bound_path import task_state, task_states
from servoctl.check.sections import Section
from servoctl.errors import Finding, ServoctlError
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.laws.hold import RowFeedback
from servoctl.laws.robust import RobustTerm
from servoctl.mechanics.constraint_rows import accelerations
from servoctl.mechanics.model import Model
from servoctl.types import State

FASTEST = 700.0  # largest exponent of a number that is finite
POSES = 25  # states of the path at which machines are compared
ROUNDING = 1e-12  # task errors below are rounding
LATER = 1e-4  # time between two states for a rate, as a share of the duration

NOT_COVERED = (
    "not covered: errors outside of the box, forces that the model does not have, internal dynamics, poses between "
    "those compared"
)


def path_states(run: Run) -> tuple[list[State], list[State]]:
    """States on the task, and of each one a short time later; the start alone if it cannot be followed to its end."""
    step = LATER * run.settings.duration
    first = task_state(run, run.start, run.start.t)
    states = [] if first is None else [first, *task_states(run, POSES - 1)]
    later = [task_state(run, state, state.t + step) for state in states]
    if len(states) < POSES or None in later:
        return [run.start], []
    return states, [state for state in later if state is not None]


def uncertainty_section(run: Run) -> tuple[Section, ModelError | None]:
    """Errors of the model over the box of `law.uncertainty`; empty without one."""
    law, section = run.system.following, Section("model error")
    if run.loaded is None or run.refused or law is None:
        return section, None
    problems = Problems(run.loaded)
    box = machines(run.loaded, run.system.model, run.start, problems)
    if box is None:
        section.findings += problems.found
        return section, None
    states, later = path_states(run)
    try:
        error = model_error(law, run.system.model, box.models, states, later)
    except ServoctlError as wrong:
        section.findings.append(run.loaded.finding(str(wrong), "law", "uncertainty"))
        return section, None
    _describe(section, law, run.system.model, box, states, error)
    sentence = refusal(law, error, f"{box.named(error.at[1])} at t = {error.at[0]:.4g} s")
    if sentence is not None:
        section.findings.append(run.loaded.finding(sentence, "law", "uncertainty"))
    return section, error


def _describe(
    section: Section,
    law: AttachedConstraintFollowing,
    model: Model,
    box: Machines,
    states: list[State],
    error: ModelError,
) -> None:
    spans = [f"{name} {100 * low:+.3g} to {100 * high:+.3g} %" for name, (low, high) in box.box.items()]
    corners = "every corner" if box.corners else "random corners"
    poses = (
        f"{len(states)} poses of the path"
        if len(states) > 1
        else "the start alone (the task cannot be followed from it)"
    )
    names = [law.rows[i].name for i in rows_judged(law)]
    units = accelerations(model.task_rows, model.row_units[1])
    sizes = ", ".join(
        f"{name} {size:.3g} {units.get(name, '')}".rstrip() for name, size in zip(names, error.rows, strict=True)
    )
    section.lines += [
        f"box: {', '.join(spans)}; {len(box.models)} machines ({corners}) at {poses}",
        f"rho_E = {error.rho:.3g}, for {box.named(error.at[1])} at t = {error.at[0]:.4g} s",
        f"the inputs act on the task {1 + error.rho:.3g} to {1 + error.upper:.3g} times as much as the model says",
        f"largest disturbance on the path: {sizes}"
        + (f"; all rows together, scaled: {error.disturbance:.3g}" if len(names) > 1 else "")
        + ("" if error.rate is None else f"; it changes by at most {error.rate:.3g} per s"),
        NOT_COVERED,
    ]
    unseen = {name: float(size) for name, (size, _) in zip(names, error.unseen, strict=True) if size > ROUNDING}
    if unseen:
        of = model.row_units[1]
        shown = [f"{name} {size:.3g} {of.get(name, '')}".rstrip() for name, size in unseen.items()]
        section.lines.append(
            f"the task itself depends on the box: the law takes task errors of up to {', '.join(shown)} for 0"
        )
    if not error.reached:
        section.lines.append("the inputs do not reach every row at some pose: what they miss there stays")
    section.key, section.values = "uncertainty", {
        "rho_E": error.rho, "upper": error.upper, "at": error.at[0], "machine": box.errors[error.at[1]],
        "box": box.box, "machines": len(box.models),
        "poses": len(states), "disturbance": error.disturbance, "disturbance_rate": error.rate,
        "rows": dict(zip(names, error.rows, strict=True)), "full_rank": error.reached, "unseen": unseen,
    }  # fmt: skip


def robust_section(run: Run, error: ModelError | None) -> Iterator[Section]:
    """Ultimate bounds of a robust or adaptive term, its gain in sampled time, and the premise."""
    law = run.system.following
    if law is None or law.robust is None or (error is not None and error.rho <= -1.0):
        return
    term, members = law.robust, law.robust.members
    rho_E = 0.0 if error is None else error.rho
    kappa = (
        min(law.correction.decay(i, law.robust.sliding[i]) for i in members)
        if error is None
        else error.decay / (1.0 + rho_E)
    )
    needed = None if error is None else error.disturbance / (1.0 + rho_E)
    values = {"kappa": kappa, "rho_E": None if error is None else rho_E, "needed": needed}
    section = Section("robust term", "robust", values=values)
    if not kappa > 0.0:
        section.lines.append("no bound: the corrections of the rows differ too much for this box (use equal ones)")
        section.values["bound"] = None
        yield section
        return
    reach = _adaptive(section, term, kappa, rho_E, needed) if term.adaptive else _robust(section, term, kappa, needed)
    if reach is not None:
        _per_row(section, law, reach, error)
    _gain(run, section, law, 0.0 if error is None else error.upper)
    yield section


def _robust(section: Section, term: RobustTerm, kappa: float, needed: float | None) -> float:
    rho, eps = term.bound, term.layer
    R, tight = radius(eps, kappa), settled(rho, eps, kappa)
    section.values |= {"rho": rho, "boundary_layer": eps, "R": R, "R_tight": tight}
    section.lines.append(f"rho = {rho:.4g}, boundary layer eps = {eps:.4g}")
    section.lines.append(f"|beta| settles below {tight:.3g} (below {R:.3g} for any larger rho)")
    if needed is None:
        section.lines.append(
            "premise: the disturbance is at most (1 + rho_E) rho (law.uncertainty lets check compare them)"
        )
        return tight
    holds = needed <= rho
    section.values["premise"] = holds
    section.lines.append(
        f"premise: disturbance / (1 + rho_E) = {needed:.4g} is at most rho = {rho:.4g}: "
        + ("holds on the path" if holds else "DOES NOT HOLD")
    )
    if not holds:
        less = f"{rho:.4g} is less than the disturbance of the box, {needed:.4g}"
        told = f"{less}: the bounds that check prints do not hold (raise it)"
        section.findings.append(Finding("law.robust.bound", told))
    return tight


def _adaptive(section: Section, n: RobustTerm, kappa: float, rho_E: float, needed: float | None) -> float | None:
    """Lines and values; the root mean square of beta, if there is a bound."""
    alpha, of = (1.0, "per unit of disturbance / (1 + rho_E)") if needed is None else (needed, "on the path")
    section.values |= {"alpha": needed, "rate": n.rate, "leak": n.leak, "width": n.width}
    if n.leak > 0.0 and not n.width:
        rms = leakage_rms(alpha, n.rate, n.leak, kappa, n.gain)
        section.values["rms"] = rms
        if not math.isfinite(rms):
            section.lines.append("no bound: leak / rate is below 1 / (4 G) of the gain budget (raise leak)")
            return None
        section.lines.append(f"root mean square of beta settles below {rms:.3g} {of}")
        return rms if needed is not None else None
    if n.leak > 0.0:
        section.lines.append("no closed form for leakage together with width: simulate it")
        return None
    time = dead_zone_time(alpha, n.rate, n.width, kappa, n.gain, rho_E)
    section.values["time_outside"] = time
    if not math.isfinite(time):
        section.lines.append("no bound: the boundary layer of the gain budget is wider than width (raise width)")
        return None
    section.lines.append(f"|beta| is above {n.width:.3g} for at most {time:.3g} s in all, from rest {of}")
    return n.width if needed is not None else None


def _per_row(section: Section, law: AttachedConstraintFollowing, beta: float, error: ModelError | None) -> None:
    """The bounds of the violations, with what the law does not see of them."""
    assert law.robust is not None
    bounds = {}
    unseen = np.zeros((len(law.robust.members), 2)) if error is None else error.unseen
    for i, (of_row, of_rate) in zip(law.robust.members, unseen.tolist(), strict=True):
        row, size = law.rows[i], beta * law.robust.scale[i]
        if not row.has_rate:
            bounds[row.name] = {"violation": size + of_row}
        elif law.robust.sliding[i]:
            violation = size / law.robust.sliding[i] + of_row
            bounds[row.name] = {"violation": violation, "violation_rate": 2.0 * size + of_rate}
        else:
            bounds[row.name] = {"violation_rate": size + of_rate}
    words = {"violation": "error", "violation_rate": "its rate"}
    for name, each in bounds.items():
        section.lines.append(f"{name}: " + ", ".join(f"{words[key]} {value:.3g}" for key, value in each.items()))
    section.values["bounds"] = bounds


def _gain(run: Run, section: Section, law: AttachedConstraintFollowing, upper: float) -> None:
    """The gain inside the boundary layer beside the limit of the sampled loop."""
    assert law.robust is not None
    term = law.robust
    layer = term.gain if term.adaptive else term.bound**2 / term.layer
    gain = max(law.correction.decay(i, law.robust.sliding[i]) for i in law.robust.members) + layer
    section.values["gain"] = gain
    on_drives = drives_spacing(run.hil, run.system.model.plant) if run.settings.period is None else None
    spacing = on_drives or task_spacing(run.system, run.settings)
    if spacing.h is None or not spacing.held:
        section.lines.append(f"gain in the boundary layer: {gain:.4g} 1/s")
        return
    share = 0.0
    for i in law.robust.members:
        K, sliding = law.correction.decay(i, law.robust.sliding[i]) + layer, law.robust.sliding[i]
        feedback = RowFeedback(0.0, (1.0 + upper) * K, has_rate=False)
        if law.rows[i].has_rate:
            feedback = RowFeedback((1.0 + upper) * (K + sliding), (1.0 + upper) * K * sliding)
        longest = spacing.longest(feedback)
        share = max(share, spacing.h / longest if longest else math.inf)
    section.values |= {"gain_limit": gain / share, "gain_share": share}
    section.lines.append(
        f"gain in the boundary layer: {gain:.4g} 1/s, {100 * share:.3g} % of what a {spacing} bears"
        + (f" if inputs act {1 + upper:.3g} times as much as the model says" if upper > 0.0 else "")
    )
    if share >= 1.0:
        remedy = "gain_budget" if law.robust.adaptive else "boundary_layer"
        field = "law.adaptive" if law.robust.adaptive else "law.robust"
        thin = (
            "the boundary layer is too thin for the period: the force chatters with |beta| up to about (d + 1) rho h "
            f"({remedy}: auto, or {'lower' if law.robust.adaptive else 'raise'} it by a factor of {2 * share:.2g})"
        )
        section.findings.append(Finding(field, thin))


def radius(eps: float, kappa: float) -> float:
    """R: |beta| settles below it whatever rho is [rate of the row, scaled]."""
    return math.sqrt(eps / (4.0 * kappa))


def settled(rho: float, eps: float, kappa: float) -> float:
    """|beta| settles below it for a constant rho; at most `radius`, and equal to it at rho^2 = kappa eps."""
    return rho * eps / (kappa * eps + rho * rho)


def leakage_rms(alpha: float, rate: float, leak: float, kappa: float, gain: float) -> float:
    """Root mean square of beta that a leaking estimate settles below; infinite if there is no bound.

    Averaged, -(leak / rate) (x - alpha) x + x^2 / (4 G) of the estimate x is at most
    c^2 alpha^2 / (4 (c - 1 / (4 G))) with c = leak / rate.

    Args:
        alpha: Size of the disturbance divided by 1 + rho_E.
        rate, leak: Of the estimate [1/s^2], [1/s].
        kappa: Decay rate of beta [1/s].
        gain: G, the gain budget without kappa [1/s].
    """
    c = leak / rate
    rest = c - 1.0 / (4.0 * gain)
    return alpha * math.sqrt(c * c / (4.0 * rest * kappa)) if rest > 0.0 else math.inf


def dead_zone_time(
    alpha: float, rate: float, width: float, kappa: float, gain: float, rho_E: float, beta: float = 0.0
) -> float:
    """Longest total time for which |beta| is above the dead zone [s]; infinite if there is no bound.

    Args:
        alpha, rate, kappa, gain: As of `leakage_rms`.
        width: Of the dead zone.
        rho_E: Worst relative error of the task map.
        beta: |beta| at the start.
    """
    V = beta * beta / 2.0 + (1.0 + rho_E) * alpha * alpha / (2.0 * rate)
    largest = alpha + math.sqrt(2.0 * rate * V / (1.0 + rho_E))  # of the estimate: V never grows outside the zone
    rest = kappa * width * width - largest * largest / (4.0 * gain)
    return V / ((1.0 + rho_E) * rest) if rest > 0.0 else math.inf


def observer_lag(rate: float, period: float, delay: float) -> float:
    """Time by which a held observer follows a disturbance late [s]: 1 / L, half a period, the delay and the hold.

    Args:
        rate: L [1/s].
        delay: From the measurement to the torque [s].
    """
    return period / math.expm1(min(rate * period, FASTEST)) + 1.5 * period + delay


def observed(rate: float, lag: float, kappa: float, rho_E: float, missed: float = 0.0) -> float:
    """|beta| settles below it with a disturbance observer; infinite if rho_E is at or below -1.

    For E below 0 the poles may be complex. The largest answer to a bounded d' is then that of their step response with
    every swing added: coth(pi zeta / (2 sqrt(1 - zeta^2))) times as large.

    Args:
        rate: Largest |d'| [acceleration of the rows per s, scaled].
        lag: Of the observer [s]; 1 / L if it is not held.
        kappa: Decay rate of beta [1/s].
        rho_E: Worst relative error of the task map.
        missed: Largest part of the model's own acceleration that late commands miss [as of `rate`, times s].
    """
    if not rho_E > -1.0:
        return math.inf
    damping, stiffness = (1.0 + rho_E) * (kappa + 1.0 / lag), (1.0 + rho_E) * kappa / lag
    zeta = damping / (2.0 * math.sqrt(stiffness))
    swings = 1.0 if zeta >= 1.0 else 1.0 / math.tanh(math.pi * zeta / (2.0 * math.sqrt(1.0 - zeta * zeta)))
    return (rate / stiffness + missed / kappa) * swings
