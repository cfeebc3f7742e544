"""Limits: the inputs inside their limits that meet the task best, and what is given up if none meet it.

    least |max(0, g - G u)|, then |T_1 u - e_1|, then |T_2 u - e_2|, ..., then |u - s|_w    with  lower <= u <= upper

in this order. If the unlimited answer is inside the limits, and G u >= g, it stays the same to the bit. If a shift in
the null space brings it inside, the task is met exactly. Otherwise as little as possible is given up, from the lowest
level up, and rows of G last.

One step of the active-set search: the active inputs are at a limit, the active rows of `G u >= g` at equality. The free
inputs solve the levels in order, without limits, by the rank-revealing decomposition; the active rows are the first
level. If this moves a free input out of its limits, or a free row below zero, the step goes towards the solution up to
the first limit, which becomes active. If not, the step releases the active input or row that costs the highest level
most. If none costs any level, the search is done.

A row is an equality with a bounded variable: `G u - y = g`, y >= 0, at the highest level. A free y takes up all of its
row, so only active rows, y = 0, are solved for, and an active row that no input reaches keeps its lack: no problem is
infeasible. Measured with 4 inputs, 3 rows and 3 task rows: a step has 1,500 instructions and decomposes 4 columns;
with y as inputs like all others it has 5,300 and decomposes 7.

Design: the same code on numbers and on symbols. Compiled, a step is one function behind a branch: inputs inside their
limits cost one comparison each, a search costs its steps. It takes 1.2 steps on average (p99 4) from the inputs of the
previous tick, 3.3 (p99 8) from the clipped answer: measured at 10 ms on moving tasks of 3 rows and 5 to 8 inputs. The
least peak load, min max |u_i| / u_max_i, is a linear program without a closed form and is not offered.

Design: every point of the search is inside the limits and, level by level, no worse than the point before. A search
that ends early therefore still gives a usable answer. Measured on random problems of up to 12 inputs, with degenerate
and rank-deficient ones: this search always ended, on 12,000 problems within 29 steps. Exchanging all wrong inputs at
once (block pivoting) had not ended after 60 exchanges on 45 of 12,000. A semismooth Newton method on the dual missed
the active set of a quarter of 4,000, where the task is infeasible or its rows are dependent: it needs a Gram matrix.

Source: Escande, Mansard, Wieber 2014 for the problem, with bounds for inequalities, and for the signs of the
multipliers, level by level. Every limit bounds a single input or y, so active limits are never dependent; that makes
the search short. The compiled form is ours.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from servoctl.engine.decomposition import Decomposition
from servoctl.engine.linalg import called, product, solve_lower
from servoctl.engine.ops import repeat
from servoctl.engine.symbol import above, at_least, fmax, maximum, symbols, to_sx, where, within
from servoctl.laws.priorities import Levels
from servoctl.types import Array

ROUNDING = 1e-13
"""Residuals and multipliers below this, relative to the terms that they are sums of, are rounding.

Measured: at 3e-14 the search cycled on one of 12,000 hierarchies; at 1e-12 small multipliers count as zero.
"""

SLACK = 10.0
"""An input may exceed its limits by this many roundings, relative to all inputs and to its effect on the tasks."""


@dataclass(frozen=True)
class LeastSquaresProblem:
    """The problem of the module's docstring, on numbers or on symbols.

    What can be active is counted from 0 to n: first the inputs, if any has a limit, then the rows.
    """

    levels: tuple[tuple[Array, Array], ...]  # (T, e) of each, highest first; shapes (r, m) and (r,)
    scales: tuple[Any, ...]  # per level: pivots count relative to this
    lower: Array  # shape (m,), may be -inf; shape (0,) if no input has a limit
    upper: Array  # the same; may be inf
    preferred: Array | None  # s, shape (m,); None: zero
    rank_tolerance: Any  # a direction counts when its pivot exceeds this times the scale
    G: Array  # rows `G u >= g` above all levels, shape (k, m)
    g: Array  # shape (k,); may be -inf
    row_scale: Any  # pivots of G count relative to this: a smaller row has no effect on the inputs

    def weighted(self, root: Array) -> "LeastSquaresProblem":
        """The same for inputs that are multiplied by a root: its plain norm is one with weights."""
        levels = tuple((T / root, e) for T, e in self.levels)
        lower, upper = (root[: len(limit)] * limit for limit in (self.lower, self.upper))
        preferred = None if self.preferred is None else root * self.preferred
        return replace(self, levels=levels, lower=lower, upper=upper, preferred=preferred, G=self.G / root)

    def holding(self, active: Array) -> "LeastSquaresProblem":
        """The same with the active rows of G as equalities in the first level.

        Args:
            active: As of `advance`, for rows alone.
        """
        if not len(self.g):
            return self
        binds = above(0.0, active)
        rows = where(binds[:, None], self.G, 0.0), where(binds, self.g, 0.0)
        return replace(self, levels=(rows, *self.levels), scales=(self.row_scale, *self.scales))

    def sizes(self, terms: Array) -> list[tuple[Array, Any]]:
        """Per level: the size of each column of T, shape (m,), and of the terms of `e - T u`, from those of u."""
        columns = [np.abs(T).sum(axis=0) for T, _ in self.levels]
        return [(c, np.abs(e).sum() + c @ terms) for c, (_, e) in zip(columns, self.levels, strict=True)]

    def slack(self, u: Array) -> Array:
        """How far each input may exceed its limits, shape (m,): clipping it changes inputs and tasks by rounding."""
        excess = np.full(len(u), greatest(np.abs(u)))
        for columns, size in self.sizes(np.abs(u)):
            reaches = above(columns, 0.0)
            excess = where(reaches, least(size / where(reaches, columns, 1.0), excess), excess)
        slack: Array = SLACK * ROUNDING * excess
        return slack

    def beyond(self, u: Array) -> tuple[Array, Array]:
        """Which inputs exceed their upper and their lower limit, as far as they have limits."""
        b = len(self.lower)
        slack = self.slack(u)[:b]
        return above(u[:b], self.upper + slack), above(self.lower - slack, u[:b])


@dataclass(frozen=True)
class Solution:
    """The best inputs with some active, and no limits for the others."""

    u: Array  # shape (m,)
    terms: Array  # size of the terms that each input is a sum of, shape (m,)
    splits: Sequence[Decomposition]  # a decomposition per level


def least(a: Array, b: Array) -> Array:
    """The smaller of the two, entry by entry."""
    smaller: Array = where(above(a, b), b, a)
    return smaller


def greatest(values: Array) -> Any:
    """The largest entry; 0 where none is positive."""
    result: Any = 0.0
    for value in values:
        result = fmax(result, value)
    return result


def solve(problem: LeastSquaresProblem, active: Array) -> Solution:
    """The best inputs with some active at their limits and no limits for the others.

    Args:
        problem: The problem, with the rows that it holds in its levels.
        active: Per input: 1 at its upper limit, -1 at its lower one, 0 free; shape (m,), or (0,) if none has a limit.
    """
    m = problem.levels[0][0].shape[1]
    free: Array = 1.0 - np.abs(active) if len(active) else np.ones(m)
    u: Array = np.zeros(m)
    if len(active):
        u = where(above(active, 0.0), problem.upper, where(above(0.0, active), problem.lower, 0.0))
    maps, targets = zip(*problem.levels, strict=True)
    levels = Levels.of(maps, problem.rank_tolerance, problem.scales, free, masked=len(problem.g) > 0)
    u, terms = levels.solve(targets, u)
    if problem.preferred is None:
        return Solution(u, terms, levels.splits)
    shift = free * problem.preferred
    taken = product(levels.basis.T, product(levels.basis, shift))
    return Solution(u + (shift - taken), terms + np.abs(shift) + np.abs(taken), levels.splits)


def gradients(problem: LeastSquaresProblem, solution: Solution) -> Iterator[tuple[Array, Array]]:
    """Per level, and last for |u - s|: the gradient by what can be active, and a bound on its rounding, of shape (n,).

    The free inputs undo the effect of an active one on the higher levels j: `g - T_j^T lambda_j`. The columns of y are
    -1 in the level of the rows, 0 in all others.
    """
    u, splits, k = solution.u, solution.splits, len(problem.g)
    unlimited = len(u) - len(problem.lower)
    sizes = problem.sizes(solution.terms if k else np.abs(u))  # at g = 0 a row's terms may all be rounding
    wide = [
        np.hstack([T, np.zeros((len(T), k)) if j else -np.eye(len(T), k)]) for j, (T, _) in enumerate(problem.levels)
    ]
    columns = [np.concatenate([size, np.zeros(k) if j else np.ones(k)]) for j, (size, _) in enumerate(sizes)]
    for i in range(len(problem.levels) + 1):
        if i < len(problem.levels):
            T, e = problem.levels[i]
            excess, size = product(T, u) - e, sizes[i][1]
            gradient = product(wide[i].T, where(above(np.abs(excess), ROUNDING * size), excess, 0.0))
            terms = columns[i] * size
        else:
            s = np.zeros(len(u)) if problem.preferred is None else problem.preferred
            gradient = np.concatenate([u - s, np.zeros(k)])
            terms = np.concatenate([np.abs(u) + np.abs(s), np.zeros(k)])
        for j in reversed(range(i)):
            split = splits[j]
            along = product(split.row_basis, gradient[: len(u)])
            force = product(split.column_basis, solve_lower(split.triangle.T, along)) / split.scale
            gradient = gradient - product(wide[j].T, force)
            terms = terms + columns[j] * (np.abs(force).sum() + greatest(terms) / split.scale)
        yield gradient[unlimited:], ROUNDING * terms[unlimited:]


def released(problem: LeastSquaresProblem, active: Array, solution: Solution) -> tuple[Array, Any]:
    """What is active and gains most by release, at the highest level where any gains, and whether there is any."""
    undecided, chosen, any_released = above(np.abs(active), 0.0), np.zeros(len(active)), 0.0
    for gradient, rounding in gradients(problem, solution):
        # the level improves inside the limit if the gradient is positive at an upper limit, negative at a lower one
        gain = active * gradient
        wrong = where(undecided & above(gain, rounding), gain, 0.0)
        most = greatest(wrong)
        best = where(above(wrong, 0.0), where(above(most, wrong), 0.0, 1.0), 0.0)
        chosen = chosen + (1.0 - any_released) * best
        any_released = where(above(most, 0.0), 1.0, any_released)
        undecided = undecided & ~above(-gain, rounding)
    return chosen, any_released


def advance(problem: LeastSquaresProblem, x: Array, active: Array) -> tuple[Array, Array, Array, Any]:
    """One step of the search.

    Args:
        x: Inputs inside the limits, the active ones at theirs; shape (m,).
        active: Per input as of `solve`, then per row of G -1 if it is active, 0 if it is free; shape (n,).

    Returns:
        The next x and active, what the rows of G lack at x, shape (k,), and 1 if x is the answer, else 0.
    """
    b = len(problem.lower)
    solved, free = problem.holding(active[b:]), ~above(np.abs(active), 0.0)
    solution = solve(solved, active[:b])
    u = solution.u
    high, low, back = _beyond(solved, x, u, free[:b])
    short, back_of_rows, slack = _crossed(problem, x, solution, free[b:])
    outside, back = np.concatenate([high | low, short]), np.concatenate([back, back_of_rows])
    most = greatest(back)  # the largest share lies beyond the limit that blocks first
    blocked, first = above(most, 0.0), outside & ~above(most, back)
    onward = u - most * (u - x)
    if b:
        limit = where(high, problem.upper, problem.lower)
        onward = within(where(first[:b], limit, onward), problem.lower, problem.upper)
    let_go, any_released = released(solved, active, solution)
    side = np.concatenate([where(high, 1.0, -1.0), -np.ones(len(problem.g))])
    kept = where(blocked, where(first, side, active), active * (1.0 - let_go))
    room = problem.G @ onward - problem.g
    lack = where(at_least(room, -slack), 0.0, -room)  # NaN stays NaN
    return onward, kept, lack, where(blocked, 0.0, 1.0 - any_released)


def _beyond(problem: LeastSquaresProblem, x: Array, u: Array, free: Array) -> tuple[Array, Array, Array]:
    """Which free inputs exceed their upper and their lower limit at u, and the share of the step from x beyond it."""
    high, low = (free & side for side in problem.beyond(u))
    outside, limit, b = high | low, where(high, problem.upper, problem.lower), len(free)
    return high, low, where(outside, (u[:b] - limit) / where(outside, (u - x)[:b], 1.0), 0.0)


def _crossed(problem: LeastSquaresProblem, x: Array, solution: Solution, free: Array) -> tuple[Array, Array, Array]:
    """Which free rows of G are below zero at the solution, the share of the step from x below it, and their slack."""
    room = problem.G @ solution.u - problem.g
    slack = SLACK * ROUNDING * (np.abs(problem.G) @ solution.terms + np.abs(problem.g))
    crossed = free & above(-room, slack)
    before = where(crossed, maximum(problem.G @ x - problem.g, 0.0), 0.0)
    return crossed, where(crossed, room / where(crossed, room - before, 1.0), 0.0), slack


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
    high, low = (where(side, 1.0, 0.0) for side in scaled.beyond(root * unlimited))
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
