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

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from servoctl.engine.linalg import called
from servoctl.engine.ops import repeat
from servoctl.engine.symbol import above, at_least, symbols, to_sx, where, within
from servoctl.laws.active_set import LeastSquaresProblem, advance, greatest
from servoctl.types import Array


def most_steps(n: int) -> int:
    """Bound on the steps for n inputs and rows, a power of two: twice the steps needed on 12,000 random problems."""
    return 1 << (4 * n - 1).bit_length()


@dataclass(frozen=True)
class SearchSize:
    """What a search is compiled for."""

    counts: tuple[int, ...]  # rows per level
    m: int  # inputs
    k: int = 0  # rows of G
    limited: bool = True  # whether any input has a limit
    preferring: bool = True  # whether there is an s

    @classmethod
    def of(cls, problem: LeastSquaresProblem) -> "SearchSize":
        """The size of a problem."""
        counts, (k, m) = tuple(len(e) for _, e in problem.levels), problem.G.shape
        return cls(counts, m, k, len(problem.lower) > 0, problem.preferred is not None)

    @property
    def name(self) -> str:
        """Part of the names of functions."""
        counts = "_".join(map(str, self.counts))
        return f"{counts}x{self.m}_{self.k}{'_limited' * self.limited}{'_preferring' * self.preferring}"

    @property
    def active(self) -> int:
        """Number of inputs and rows that can be active."""
        return (self.m if self.limited else 0) + self.k

    @property
    def parts(self) -> list[int]:
        """Where the parts of the state end: x, active, lack; done and steps follow."""
        return [int(end) for end in np.cumsum([self.m, self.active, self.k])]

    def problem(self) -> LeastSquaresProblem:
        """A problem of this size, of symbols."""
        m, limits = self.m, self.m if self.limited else 0
        levels = tuple((symbols("T", r, m), symbols("e", r)) for r in self.counts)
        tolerance, row_scale, *scales = symbols("scalars", 2 + len(levels))
        lower, upper, G, g = symbols("l", limits), symbols("u", limits), symbols("G", self.k, m), symbols("g", self.k)
        s = symbols("s", m) if self.preferring else None
        return LeastSquaresProblem(levels, tuple(scales), lower, upper, s, tolerance, G, g, row_scale)


def search(problem: LeastSquaresProblem, x: Array, active: Array, done: Any) -> tuple[Array, Array, Array, Any, Any]:
    """Steps of `advance` until x is the answer, or `most_steps`.

    Args:
        x: Where the search begins; see `advance`.
        active: What is active there.
        done: 1 if x is the answer already, else 0.

    Returns:
        x, active, what the rows of G lack at x, whether x is the answer, and the steps taken.
    """
    size = SearchSize.of(problem)
    state = np.concatenate([x, active, np.zeros(size.k), [done, 0.0]])
    (values,) = called(search_function(size), (state, *_flat(problem)), state.shape)
    x, active, lack, (done, steps) = np.split(values, size.parts)
    return x, active, lack, done, steps


def _flat(problem: LeastSquaresProblem) -> list[Array]:
    """The problem as the arguments of `search_function`."""
    T, e = zip(*problem.levels, strict=True)
    scalars = [problem.rank_tolerance, problem.row_scale, *problem.scales]
    parts = [np.vstack(T), np.concatenate(e), problem.lower, problem.upper]
    parts += [] if problem.preferred is None else [problem.preferred]
    parts += [np.array(scalars, dtype=object), problem.G, problem.g]
    return [part for part in parts if part.size]


@cache
def step_function(size: SearchSize) -> Any:
    """CasADi function (state, problem) -> state after one step; the state is (x, active, lack, done, steps)."""
    problem, state = size.problem(), symbols("x", size.parts[-1] + 2)
    x, active, _, _ = np.split(state, size.parts)
    x, active, lack, done = advance(problem, x, active)
    after = to_sx(np.concatenate([x, active, lack, [done, state[-1] + 1.0]]))
    inputs = [to_sx(part) for part in (state, *_flat(problem))]
    return ca.Function(f"limit_step_{size.name}", inputs, ca.cse([after]), {"never_inline": True})


@cache
def search_function(size: SearchSize) -> Any:
    """CasADi function of the whole search, with the arguments of `step_function`."""
    return repeat(f"limits_{size.name}", step_function(size), most_steps(size.active), done=size.parts[-1])


@dataclass(frozen=True)
class Limited:
    """The inputs inside their limits, and what rows and search say of them."""

    u: Array  # shape (m,); never outside the limits
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
    problem: LeastSquaresProblem, unlimited: Array, weights: Array | None = None, start: Start | None = None
) -> Limited:
    """The inputs that solve a problem.

    Args:
        unlimited: The answer without limits or rows, shape (m,).
        weights: Weights of the norm |u - s|, shape (m,), positive, for which the scales of the problem are; None: 1.
        start: Where the search begins, such as the answer of the previous tick; None: at the unlimited answer, clipped,
            with the rows binding that it does not meet. It changes the number of steps and not the answer.
    """
    m, b = len(unlimited), len(problem.lower)
    root = np.ones(m) if weights is None else np.sqrt(weights)
    scaled = problem if weights is None else problem.weighted(root)
    high, low = _beyond(scaled, root * unlimited) if b else (np.zeros(0), np.zeros(0))
    short: Array = where(at_least(problem.G @ unlimited, problem.g), 0.0, 1.0)  # a row of NaN is not met
    inside = above(1.0, greatest(np.concatenate([high + low, short])))
    x, active = root * unlimited, np.concatenate([high - low, -short])
    if start is not None:
        begun, there = _begin(start, problem.lower, problem.upper)
        x, active = where(start.known, root * begun, x), where(start.known, there, active)
    x = within(x, scaled.lower, scaled.upper) if b else x
    x, active, slack, done, iterations = search(scaled, x, active, where(inside, 1.0, 0.0))
    u = where(inside, unlimited, x / root)
    active = where(inside, 0.0, active)
    if b:  # an active input takes its limit itself: x / root would differ from it by rounding
        u = where(above(active[:b], 0.0), problem.upper, where(above(0.0, active[:b]), problem.lower, u))
        u = within(u, problem.lower, problem.upper)
    binding = -active[b:]
    kept = np.concatenate([active[:b], np.zeros(m - b), binding])
    return Limited(u, slack, binding, kept, iterations, above(done, 0.0))


def _begin(start: Start, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Where a search begins from a start: the inputs, and what holds them, as `search` takes it."""
    m, b = len(start.u), len(lower)
    high, low = above(start.active, 0.5), above(-0.5, start.active)
    rows = where(high[m:], -1.0, 0.0)
    if not b:
        return start.u, rows
    u = where(high[:m], upper, where(low[:m], lower, start.u))
    return u, np.concatenate([where(high[:m], 1.0, where(low[:m], -1.0, 0.0)), rows])


def _beyond(problem: LeastSquaresProblem, u: Array) -> tuple[Array, Array]:
    """Which inputs exceed their upper and their lower limit, as 1 or 0."""
    slack = problem.slack(u)
    high, low = above(u, problem.upper + slack), above(problem.lower - slack, u)
    return where(high, 1.0, 0.0), where(low, 1.0, 0.0)
