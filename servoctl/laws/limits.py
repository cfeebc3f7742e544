"""Limits: the inputs inside their limits that meet the task best, and what is given up if none meet it.

    least |max(0, g - G u)|, then |T_1 u - e_1|, then |T_2 u - e_2|, ..., then |u - s|_w    with  lower <= u <= upper

in this order. If the unlimited answer is inside the limits, and G u >= g, it stays the same to the bit. If a shift in
the null space brings it inside, the task is met exactly. Otherwise as little as possible is given up, from the lowest
level up, and rows of G last.

Design: the search of `laws.active_set`, the same code on numbers and on symbols. Compiled, a step is one function
behind a branch: inputs inside their limits cost one comparison each, a search costs its steps. It takes 1.2 steps on
average (p99 4) from the inputs of the previous tick, 3.3 (p99 8) from the clipped answer: measured at 10 ms on moving
tasks of 3 rows and 5 to 8 inputs. The least peak load, min max |u_i| / u_max_i, is a linear program without a closed
form and is not offered.

Source: the problem is that of Escande, Mansard, Wieber 2014, with bounds for inequalities. The compiled form is ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from servoctl.engine.linalg import frobenius, product
from servoctl.engine.symbol import above, at_least, where, within
from servoctl.laws.active_set import ROUNDING, LeastSquaresProblem, greatest, solve
from servoctl.laws.limit_search import search
from servoctl.laws.priorities import scale_per_level
from servoctl.types import Array


@dataclass(frozen=True)
class Limited:
    """The inputs inside their limits, and what they give up."""

    u: Array  # shape (m,); never outside the limits
    given_up: tuple[Array, ...]  # per level: `e - T u`, shape (r,)
    at_limit: Array  # per input: 1 at its upper limit, -1 at its lower one, 0 between
    slack: Array  # per row of G: what it lacks, `max(0, g - G u)`; 0 up to rounding where it is met; shape (k,)
    binding: Array  # per row of G: 1 if it holds the answer at equality or lacks something, else 0; shape (k,)
    # per input: 1 or -1 if it is active at its upper or lower limit, else 0; then per row as `binding`
    active: Array
    iterations: Any  # steps of the search; 0 if the unlimited answer is inside the limits
    # whether u is proven optimal, up to rounding. It may be false if the free columns of T have a condition number
    # above 1e8. Then u is inside the limits, and no worse than the start of the search in the first level in which they
    # differ
    converged: Any


class Start(NamedTuple):
    """Where a search begins."""

    u: Array  # finite inputs, shape (m,); the active ones are put at their limit
    active: Array  # inputs and rows that are active there, as in `Limited.active`; rounding is forgiven
    known: Any = 1.0  # 1, or 0 if the search begins as without it


def within_limits(
    levels: Sequence[tuple[Array, Array]],
    lower: Array,
    upper: Array,
    preferred: Array | None = None,
    *,
    inequalities: tuple[Array, Array] | None = None,
    weights: Array | None = None,
    rank_tolerance: Any = 1e-10,
    scale: Any = None,
    row_scale: Any = None,
    unlimited: Array | None = None,
    start: Start | None = None,
    rounding: Any = ROUNDING,
) -> Limited:
    """Inputs inside their limits that meet the levels `T u = e` in order, as well as possible.

    Args:
        levels: (T, e) of each, highest first; shapes (r, m) and (r,). To minimise |measure (u - s)| among several
            answers, add (measure, measure s) as the last level.
        lower: Shape (m,), in actuator units; -inf for none. Below `upper`.
        upper: Shape (m,); inf for none.
        preferred: s, shape (m,); None: zero, for the least inputs.
        inequalities: (G, g): rows `G u >= g` above all levels, met as far as the limits allow, else the least |lack|;
            shapes (k, m) and (k,), finite numbers, or -inf in g for a row that never binds. None: none.
        weights: Weights of the norm |u - s|_w, shape (m,), positive; None: all 1.
        rank_tolerance: A direction counts when its pivot exceeds this times the scale.
        scale: Pivots count relative to this, one for all levels or a sequence of one per level; with weights it is the
            scale of `T diag(weights)^-1/2`. None: |T|_F of each.
        row_scale: Pivots of G count relative to this, as with `scale`: a row smaller than `rank_tolerance` times it has
            no effect on the inputs. None: |G|_F.
        unlimited: The answer without limits or rows, if known; None: it is computed.
        start: Where the search begins, such as the answer of the previous tick; None: at the unlimited answer, clipped,
            with the rows binding that it does not meet. It changes the number of steps and not the answer.
        rounding: As `active_set.ROUNDING`, in the precision of the numbers.

    Raises:
        ValueError: There is not one scale per level.
    """
    m = len(lower)
    G, g = (np.zeros((0, m)), np.zeros(0)) if inequalities is None else inequalities
    root = np.ones(m) if weights is None else np.sqrt(weights)
    rows = [(T, e) if weights is None else (T / root, e) for T, e in levels]
    scales = scale_per_level(rows, scale)
    s = (None if len(g) else np.zeros(m)) if preferred is None else root * preferred
    scaled = G if weights is None else G / root
    row_scale = (frobenius(scaled) if len(g) else 1.0) if row_scale is None else row_scale
    box = root * lower, root * upper
    problem = LeastSquaresProblem(tuple(rows), tuple(scales), *box, s, rank_tolerance, scaled, g, row_scale, rounding)
    whole = solve(problem, np.zeros(m)).u / root if unlimited is None else unlimited
    high, low = _beyond(problem, root * whole)
    short: Array = where(at_least(G @ whole, g), 0.0, 1.0)  # a row of NaN is not met
    inside = above(1.0, greatest(np.concatenate([high + low, short])))
    x, active = root * whole, np.concatenate([high - low, -short])
    if start is not None:
        begun, there = _begin(start, lower, upper)
        x, active = where(start.known, root * begun, x), where(start.known, there, active)
    x = within(x, *box)
    x, active, slack, done, iterations = search(problem, x, active, where(inside, 1.0, 0.0))
    # an active input takes its limit itself: x / root would differ from it by rounding
    best = where(above(active[:m], 0.0), upper, where(above(0.0, active[:m]), lower, x / root))
    u = within(where(inside, whole, best), lower, upper)
    given_up = tuple(e - product(T, u) for T, e in levels)
    active = where(inside, 0.0, active)
    binding = -active[m:]
    kept = np.concatenate([active[:m], binding])
    return Limited(u, given_up, _at_limit(u, lower, upper), slack, binding, kept, iterations, above(done, 0.0))


def _begin(start: Start, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Where a search begins from a start: the inputs, and what holds them, as `search` takes it."""
    m = len(lower)
    high, low = above(start.active, 0.5), above(-0.5, start.active)
    rows = where(high[m:], -1.0, 0.0)
    u = where(high[:m], upper, where(low[:m], lower, start.u))
    return u, np.concatenate([where(high[:m], 1.0, where(low[:m], -1.0, 0.0)), rows])


def _at_limit(u: Array, lower: Array, upper: Array) -> Array:
    """Per input: 1 at its upper limit, -1 at its lower one, 0 between."""
    sides: Array = where(above(upper, u), where(above(u, lower), 0.0, -1.0), 1.0)
    return sides


def _beyond(problem: LeastSquaresProblem, u: Array) -> tuple[Array, Array]:
    """Which inputs exceed their upper and their lower limit, as 1 or 0."""
    slack = problem.slack(u)
    high, low = above(u, problem.upper + slack), above(problem.lower - slack, u)
    return where(high, 1.0, 0.0), where(low, 1.0, 0.0)
