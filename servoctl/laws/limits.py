"""Limits: the inputs inside their limits that meet the task best, and what is given up if none meet it.

    least |T_1 u - e_1|, then |T_2 u - e_2|, ..., then |u - s|_w      subject to  lower <= u <= upper

in this order. If the unlimited answer is inside the limits, it stays the same to the bit. If a shift in the null space
brings it inside, the task is met exactly. Otherwise as little as possible is given up, from the lowest level up.

Design: the search of `laws.active_set`, the same code on numbers and on symbols. Compiled, a step is one function
behind a branch: inputs inside their limits cost one comparison each, a search costs its steps. It takes 1.2 steps on
average (p99 4) from the inputs of the previous tick, 3.3 (p99 8) from the clipped answer: measured at 10 ms on moving
tasks of 3 rows and 5 to 8 inputs. The least peak load, min max |u_i| / u_max_i, is a linear program without a closed
form and is not offered.

Source: the problem is that of Escande, Mansard, Wieber 2014, with bounds for inequalities. The compiled form is ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.repeat import repeat
from servoctl.engine.symbol import clip, from_sx, is_symbolic, symbols, to_sx, where
from servoctl.laws.active_set import LeastSquaresProblem, above, advance, greatest, solve
from servoctl.laws.priorities import scale_per_level
from servoctl.types import Array


def most_steps(m: int) -> int:
    """Bound on the steps for m inputs, a power of two: twice the steps needed on 12,000 random problems."""
    return 1 << (4 * m - 1).bit_length()


@dataclass(frozen=True)
class Limited:
    """The inputs inside their limits, and what they give up.

    Attributes:
        u: Shape (m,); never outside the limits.
        given_up: Per level: `e - T u`, shape (r,).
        at_limit: Per input: 1 at its upper limit, -1 at its lower one, 0 between.
        iterations: Steps of the search; 0 if the unlimited answer is inside the limits.
        converged: Whether u is proven optimal, up to rounding. It may be false if the free columns of T have a
            condition number above 1e8. Then u is inside the limits, and no worse than the start of the search in the
            first level in which they differ.
    """

    u: Array
    given_up: tuple[Array, ...]
    at_limit: Array
    iterations: Any
    converged: Any


def within_limits(
    levels: Sequence[tuple[Array, Array]],
    lower: Array,
    upper: Array,
    preferred: Array | None = None,
    *,
    weights: Array | None = None,
    rank_tolerance: Any = 1e-10,
    scale: Any = None,
    unlimited: Array | None = None,
    start: Array | None = None,
) -> Limited:
    """Inputs inside their limits that meet the levels `T u = e` in order, as well as possible.

    Args:
        levels: (T, e) of each, highest first; shapes (r, m) and (r,). To minimise |measure (u - s)| among several
            answers, add (measure, measure s) as the last level.
        lower: Shape (m,), in actuator units; -inf for none. Below `upper`.
        upper: Shape (m,); inf for none.
        preferred: s, shape (m,); None: zero, for the least inputs.
        weights: Weights of the norm |u - s|_w, shape (m,), positive; None: all 1.
        rank_tolerance: A direction counts when its pivot exceeds this times the scale.
        scale: Pivots count relative to this, one for all levels or a sequence of one per level; with weights it is the
            scale of `T diag(weights)^-1/2`. None: |T|_F of each.
        unlimited: The answer without limits, if known; None: it is computed.
        start: Finite inputs where the search begins, such as those of the previous tick, shape (m,); None: the clipped
            answer. It changes the number of steps and not the answer.

    Raises:
        ValueError: There is not one scale per level.
    """
    m = len(lower)
    root = np.ones(m) if weights is None else np.sqrt(weights)
    rows = [(T, e) if weights is None else (T / root, e) for T, e in levels]
    scales = scale_per_level(rows, scale)
    s = np.zeros(m) if preferred is None else root * preferred
    problem = LeastSquaresProblem(tuple(rows), tuple(scales), root * lower, root * upper, s, rank_tolerance)
    whole = solve(problem, np.zeros(m))[0] / root if unlimited is None else unlimited
    high, low = _beyond(problem, root * whole)
    inside = above(1.0, greatest(high + low))
    x = clip(root * whole, problem.lower, problem.upper)
    held = high - low
    if start is not None:
        begin = clip(start, lower, upper)
        x, held = root * begin, _at_limit(begin, lower, upper)
    x, held, done, iterations = _search(problem, x, held, where(inside, 1.0, 0.0))
    # a held input takes its limit itself: x / root would differ from it by rounding
    found = where(above(held, 0.0), upper, where(above(0.0, held), lower, x / root))
    u = clip(where(inside, whole, found), lower, upper)
    given_up = tuple(e - T @ u for T, e in levels)
    return Limited(u, given_up, _at_limit(u, lower, upper), iterations, above(done, 0.0))


def _at_limit(u: Array, lower: Array, upper: Array) -> Array:
    """Per input: 1 at its upper limit, -1 at its lower one, 0 between."""
    sides: Array = where(above(upper, u), where(above(u, lower), 0.0, -1.0), 1.0)
    return sides


def _beyond(problem: LeastSquaresProblem, u: Array) -> tuple[Array, Array]:
    """Which inputs exceed their upper and their lower limit, as 1 or 0."""
    slack = problem.slack(u)
    high, low = above(u, problem.upper + slack), above(problem.lower - slack, u)
    return where(high, 1.0, 0.0), where(low, 1.0, 0.0)


def _search(problem: LeastSquaresProblem, x: Array, held: Array, done: Any) -> tuple[Array, Array, Any, Any]:
    """Steps until x is the answer or the bound is reached: x, held, whether x is the answer, and the steps taken."""
    m = len(x)
    given = (problem.lower, problem.upper, problem.preferred, problem.rank_tolerance, *problem.scales)
    if is_symbolic(x, held, *given, *(part for level in problem.levels for part in level)):
        function = search_function(tuple(len(e) for _, e in problem.levels), m)
        state = function(to_sx(np.concatenate([x, held, [done, 0.0]])), *map(to_sx, _flat(problem)))
        values = from_sx(state, (2 * m + 2,))
        return values[:m], values[m : 2 * m], values[2 * m], values[2 * m + 1]
    steps = 0
    while not done and steps < most_steps(m):
        x, held, done = advance(problem, x, held)
        steps += 1
    return x, held, done, steps


def _flat(problem: LeastSquaresProblem) -> list[Array]:
    """The problem as the arguments of `search_function`."""
    T, e = zip(*problem.levels, strict=True)
    scalars = np.array([problem.rank_tolerance, *problem.scales], dtype=object)
    return [np.vstack(T), np.concatenate(e), problem.lower, problem.upper, problem.preferred, scalars]


@cache
def step_function(counts: tuple[int, ...], m: int) -> Any:
    """CasADi function (state, problem) -> state after one step; `counts` are the rows per level.

    The state is (x, held, done, steps).
    """
    r = sum(counts)
    T, e, scalars = symbols("T", r, m), symbols("e", r), symbols("scalars", 1 + len(counts))
    lower, upper, s, state = (symbols(name, size) for name, size in zip("lusx", (m, m, m, 2 * m + 2), strict=True))
    ends = np.cumsum(counts)
    parts = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    levels = tuple((T[part], e[part]) for part in parts)
    problem = LeastSquaresProblem(levels, tuple(scalars[1:]), lower, upper, s, scalars[0])
    x, held, done = advance(problem, state[:m], state[m : 2 * m])
    after = to_sx(np.concatenate([x, held, [done, state[-1] + 1.0]]))
    inputs = [to_sx(part) for part in (state, T, e, lower, upper, s, scalars)]
    return ca.Function(f"limit_step_{'_'.join(map(str, counts))}x{m}", inputs, ca.cse([after]), {"never_inline": True})


@cache
def search_function(counts: tuple[int, ...], m: int) -> Any:
    """CasADi function of the whole search, with the arguments of `step_function`."""
    return repeat(f"limits_{'_'.join(map(str, counts))}x{m}", step_function(counts, m), most_steps(m), done=2 * m)
