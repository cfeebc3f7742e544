"""Bounds of a law whose commands are held: their rows as means over the period in which the command acts.

    G(now) u >= least(then) - free(now) - share [(G(middle) - G(now)) u_last + free(middle) - free(now)]

`then` is the state at which the command begins to act, `middle` half a period later; see `laws.bounds_term`.

Design: what the last command does to the bounds at the middle is a function that is called, so that generated C holds
it once; the command is its only input, which spares the map of all inputs. It stands behind a branch: where commands
act at once, and the last one leaves all bounds far from binding, the rows of now serve. The task is not looked at
there: bounds that do not hold leave the command as it was. A bound of what a task moves has the direction of the task's
row, which G(middle) would miss by a little; inputs that meet both would be enormous. So the rows keep the direction
that they have now, and are exact for the last command.
"""

import hashlib
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.linalg import product
from servoctl.engine.ops import repeat
from servoctl.engine.symbol import above, at_least, from_sx, symbols, to_sx, where
from servoctl.engine.trace import trace
from servoctl.laws.bounds_term import BoundsTerm
from servoctl.laws.limits import greatest
from servoctl.mechanics.constraint import InputRows
from servoctl.mechanics.terms import Matrices, Terms
from servoctl.simulation.estimated import TracedPlant, called_kernel, disturbed
from servoctl.simulation.system import System
from servoctl.types import Array, State

NEAR = 0.5
"""A bound is near where its room is below this share of the terms that the room is the sum of.

The drift within half a period is a smaller share if the period resolves the motion; if not, the row of now serves.
"""


def predicting(system: System) -> bool:
    """Whether the law looks at its bounds over a period."""
    bounds = system.acting.bounds
    return bounds is not None and bounds.sampled


def with_mean_bounds(terms: Terms, plant: TracedPlant, d: Array | None = None) -> Terms:
    """The terms with the rows of the bounds as means.

    Args:
        terms: The terms now, with the disturbance and the commands under way.
        plant: Of the system with the law.
        d: Estimated disturbance, shape (n,), which stays; None: there is no estimator.
    """
    system, p, more = plant.system, plant.p, [] if d is None else [d]
    bounds, n = system.acting.bounds, system.model.n
    assert bounds is not None
    given = {**inputs({"t": (1,), "q": (n,), "v": (n,)}), "p": p}
    moved = {**given, **inputs({"u": (system.model.m,)})}
    pushed = trace(_under_command, plant.matrices(given), moved["u"])
    at_middle = trace(system.terms, State(given["t"][0], given["q"], given["v"]), pushed)
    if d is not None:
        moved |= inputs({"d": (n,)})
        at_middle = trace(disturbed, at_middle, moved["d"])
    kernel = called_kernel(
        "bounds", moved, {"values": where(at_middle.sound, trace(_values, bounds, at_middle), np.nan)}
    )
    rows = at_middle.matrices.bounds
    values = {"violation": rows.violation, "violation_rate": rows.violation_rate}
    at_then = called_kernel("bound_values", given, values) if bounds.rows else None

    def acceleration(state: State, u: Array) -> Array:
        free = plant.acceleration(state, u)
        return free if d is None else free + d

    def held() -> Terms:
        under_way = terms.under_way
        assert under_way is not None
        then, middle = bounds.predicted(terms, under_way, acceleration)
        of, late = terms.matrices.bounds, then is not terms.state
        if late and at_then is not None:
            h, rate = at_then(np.array([then.t]), then.q, then.v, p)
            of = replace(of, violation=h, violation_rate=rate)
        G, free, size = bounds.effect(terms)
        least, last = bounds.least(of), under_way.sent[0]
        effect = G @ last
        far = 0.0 if late else 1.0 - _near(effect, free, least)
        change = _lazy_change(kernel, far, [np.array([middle.t]), middle.q, middle.v, p, last, *more], effect + free)
        return replace(
            terms, mean_bounds=InputRows(G, least - free - bounds.mean_change(change, under_way.running), size)
        )

    found: Terms = trace(held)
    return found


def _under_command(matrices: Matrices, u: Array) -> Matrices:
    """The matrices with what the inputs u do as their only input, in units of u."""
    return replace(matrices, B=product(matrices.B, u)[:, None])


def _values(bounds: BoundsTerm, terms: Terms) -> Array:
    """`G u + free` where the only input is 1."""
    G, free, _ = bounds.effect(terms)
    values: Array = G[:, 0] + free
    return values


def _near(effect: Array, free: Array, least: Array) -> Any:
    """Whether any bound is near where an input has this effect on the rows, as 1 or 0."""
    room, size = effect + free - least, np.abs(effect) + np.abs(free) + np.abs(least)
    return greatest(where(at_least(room, NEAR * size), 0.0, 1.0))  # NaN is near


def _lazy_change(kernel: Kernel, far: Any, middle: list[Array], now: Array) -> Array:
    """By how much what the bounds limit changes until later, by the kernel; 0 where that is not known.

    It is 0, and not evaluated, if `far` is 1.
    """
    arguments = [*middle, now]
    fresh = [symbols(f"x{i}", *np.shape(each)) for i, each in enumerate(arguments)]
    state, (later,) = symbols("state", len(now) + 1), kernel(*fresh[:-1])
    change = later - fresh[-1]
    outcome = np.append(where(above(np.inf, np.abs(change)), change, 0.0), 1.0)
    step = ca.Function(
        "bounds_change",
        [to_sx(each) for each in (state, *fresh)],
        ca.cse([to_sx(outcome)]),
        {"never_inline": True},
    )
    # what is repeated is known by its name, in the whole program
    name = f"bounds_change_{hashlib.sha256(step.serialize().encode()).hexdigest()[:16]}"
    start = to_sx(np.append(np.zeros(len(now)), far))
    after = repeat(name, step, 1, done=len(now))(start, *map(to_sx, arguments))
    return from_sx(after, (len(now) + 1,))[:-1]
