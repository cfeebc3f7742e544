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
from functools import cache
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.linalg import frobenius
from servoctl.engine.repeat import repeat
from servoctl.engine.symbol import clip, from_sx, is_symbolic, symbols, to_sx, where
from servoctl.laws.active_set import LeastSquaresProblem, above, advance, at_least, greatest, solve
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
        slack: Per row of G: what it lacks, `max(0, g - G u)`; 0 up to rounding where it is met; shape (k,).
        binding: Per row of G: 1 if it holds the answer at equality or lacks something, else 0; shape (k,).
        iterations: Steps of the search; 0 if the unlimited answer is inside the limits.
        converged: Whether u is proven optimal, up to rounding. It may be false if the free columns of T have a
            condition number above 1e8. Then u is inside the limits, and no worse than the start of the search in the
            first level in which they differ.
    """

    u: Array
    given_up: tuple[Array, ...]
    at_limit: Array
    slack: Array
    binding: Array
    iterations: Any
    converged: Any


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
    start: Array | None = None,
    start_binding: Array | None = None,
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
        start: Finite inputs where the search begins, such as those of the previous tick, shape (m,); None: the clipped
            answer. It changes the number of steps and not the answer.
        start_binding: Rows of G that bind there, as in `Limited.binding`; None: those that the
            unlimited answer does not meet.

    Raises:
        ValueError: There is not one scale per level.
    """
    m = len(lower)
    root = np.ones(m) if weights is None else np.sqrt(weights)
    rows = [(T, e) if weights is None else (T / root, e) for T, e in levels]
    scales = scale_per_level(rows, scale)
    s = np.zeros(m) if preferred is None else root * preferred
    G, g = (np.zeros((0, m)), np.zeros(0)) if inequalities is None else inequalities
    G = G if weights is None else G / root
    row_scale = (frobenius(G) if len(g) else 1.0) if row_scale is None else row_scale
    problem = LeastSquaresProblem(
        tuple(rows), tuple(scales), root * lower, root * upper, s, rank_tolerance, G, g, row_scale
    )
    whole = solve(problem, np.zeros(m))[0] / root if unlimited is None else unlimited
    high, low = _beyond(problem, root * whole)
    short = _short(problem, root * whole)
    inside = above(1.0, greatest(np.concatenate([high + low, short])))
    x = clip(root * whole, problem.lower, problem.upper)
    held = high - low
    if start is not None:
        begin = clip(start, lower, upper)
        x, held = root * begin, _at_limit(begin, lower, upper)
    held = np.concatenate([held, -short if start_binding is None else -start_binding])
    x, held, done, iterations = _search(problem, x, held, where(inside, 1.0, 0.0))
    # a held input takes its limit itself: x / root would differ from it by rounding
    best = where(above(held[:m], 0.0), upper, where(above(0.0, held[:m]), lower, x / root))
    u = clip(where(inside, whole, best), lower, upper)
    given_up = tuple(e - T @ u for T, e in levels)
    room, rounding = problem.room(root * u)
    slack = where(at_least(room, -rounding), 0.0, -room)  # NaN stays NaN
    binding = where(inside, 0.0, -held[m:])
    return Limited(u, given_up, _at_limit(u, lower, upper), slack, binding, iterations, above(done, 0.0))


def _at_limit(u: Array, lower: Array, upper: Array) -> Array:
    """Per input: 1 at its upper limit, -1 at its lower one, 0 between."""
    sides: Array = where(above(upper, u), where(above(u, lower), 0.0, -1.0), 1.0)
    return sides


def _beyond(problem: LeastSquaresProblem, u: Array) -> tuple[Array, Array]:
    """Which inputs exceed their upper and their lower limit, as 1 or 0."""
    slack = problem.slack(u)
    high, low = above(u, problem.upper + slack), above(problem.lower - slack, u)
    return where(high, 1.0, 0.0), where(low, 1.0, 0.0)


def _short(problem: LeastSquaresProblem, u: Array) -> Array:
    """Which rows of G are not met, as 1 or 0; a row of NaN is not."""
    room, rounding = problem.room(u)
    short: Array = where(at_least(room, -rounding), 0.0, 1.0)
    return short


def _search(problem: LeastSquaresProblem, x: Array, held: Array, done: Any) -> tuple[Array, Array, Any, Any]:
    """Steps until x is the answer or the bound is reached: x, held, whether x is the answer, and the steps taken."""
    m, n = len(x), len(held)
    parts = _flat(problem)
    if is_symbolic(x, held, *parts):
        function = search_function(tuple(len(e) for _, e in problem.levels), m, n - m)
        state = function(to_sx(np.concatenate([x, held, [done, 0.0]])), *map(to_sx, parts))
        values = from_sx(state, (m + n + 2,))
        return values[:m], values[m : m + n], values[m + n], values[m + n + 1]
    steps = 0
    while not done and steps < most_steps(n):
        x, held, done = advance(problem, x, held)
        steps += 1
    return x, held, done, steps


def _flat(problem: LeastSquaresProblem) -> list[Array]:
    """The problem as the arguments of `search_function`."""
    T, e = zip(*problem.levels, strict=True)
    scalars = [problem.rank_tolerance, *problem.scales]
    parts = [np.vstack(T), np.concatenate(e), problem.lower, problem.upper, problem.preferred]
    if not len(problem.g):
        return [*parts, np.array(scalars, dtype=object)]
    return [*parts, np.array([*scalars, problem.row_scale], dtype=object), problem.G, problem.g]


@cache
def step_function(counts: tuple[int, ...], m: int, k: int = 0) -> Any:
    """CasADi function (state, problem) -> state after one step; `counts` are the rows per level, k the rows of G.

    The state is (x, held, done, steps).
    """
    r = sum(counts)
    T, e, scalars = symbols("T", r, m), symbols("e", r), symbols("scalars", 1 + len(counts) + (1 if k else 0))
    lower, upper, s, state = (symbols(name, size) for name, size in zip("lusx", (m, m, m, 2 * m + k + 2), strict=True))
    G, g = (symbols("G", k, m), symbols("g", k)) if k else (np.zeros((0, m)), np.zeros(0))
    ends = np.cumsum(counts)
    parts = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    levels = tuple((T[part], e[part]) for part in parts)
    scales = tuple(scalars[1 : 1 + len(counts)])
    problem = LeastSquaresProblem(levels, scales, lower, upper, s, scalars[0], G, g, scalars[-1])
    x, held, done = advance(problem, state[:m], state[m : 2 * m + k])
    after = to_sx(np.concatenate([x, held, [done, state[-1] + 1.0]]))
    inputs = [to_sx(part) for part in (state, T, e, lower, upper, s, scalars, *((G, g) if k else ()))]
    return ca.Function(f"limit_step_{_size(counts, m, k)}", inputs, ca.cse([after]), {"never_inline": True})


@cache
def search_function(counts: tuple[int, ...], m: int, k: int = 0) -> Any:
    """CasADi function of the whole search, with the arguments of `step_function`."""
    return repeat(f"limits_{_size(counts, m, k)}", step_function(counts, m, k), most_steps(m + k), done=2 * m + k)


def _size(counts: tuple[int, ...], m: int, k: int) -> str:
    return f"{'_'.join(map(str, counts))}x{m}" + (f"_{k}" if k else "")
