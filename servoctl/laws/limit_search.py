"""The search of `laws.active_set` from start to end, as a CasADi function."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.products import called
from servoctl.engine.repeat import repeat
from servoctl.engine.repetitions import without_repetitions
from servoctl.engine.symbol import symbols, to_sx
from servoctl.laws.active_set import LeastSquaresProblem, advance
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
    preferring: bool = True  # whether there is an s

    @classmethod
    def of(cls, problem: LeastSquaresProblem) -> "SearchSize":
        """The size of a problem."""
        counts, (k, m) = tuple(len(e) for _, e in problem.levels), problem.G.shape
        return cls(counts, m, k, problem.preferred is not None)

    @property
    def name(self) -> str:
        """Part of the names of functions."""
        rows = f"_{self.k}_limited{'_preferring' * self.preferring}" if self.k else ""
        return f"{'_'.join(map(str, self.counts))}x{self.m}{rows}"

    @property
    def active(self) -> int:
        """Number of inputs and rows that can be active."""
        return self.m + self.k

    @property
    def parts(self) -> list[int]:
        """Where the parts of the state end: x, active, lack; done and steps follow."""
        return [int(end) for end in np.cumsum([self.m, self.active, self.k])]

    def problem(self) -> LeastSquaresProblem:
        """A problem of this size, of symbols."""
        m = self.m
        levels = tuple((symbols("T", r, m), symbols("e", r)) for r in self.counts)
        scalars = list(symbols("scalars", 3 + len(levels)))
        lower, upper = symbols("l", m), symbols("u", m)
        s = symbols("s", m) if self.preferring else None
        return LeastSquaresProblem(
            levels,
            tuple(scalars[3:]),
            lower,
            upper,
            s,
            scalars[0],
            symbols("G", self.k, m),
            symbols("g", self.k),
            scalars[1],
            scalars[2],
        )


def search(problem: LeastSquaresProblem, x: Array, active: Array, done: Any) -> tuple[Array, Array, Array, Any, Any]:
    """Steps of `advance` until x is the answer, or `most_steps`.

    Args:
        problem: The problem.
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
    rows = [problem.row_scale] if len(problem.g) else []
    scalars = [problem.rank_tolerance, problem.rounding, *problem.scales, *rows]
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
    return ca.Function(f"limit_step_{size.name}", inputs, without_repetitions([after]), {"never_inline": True})


@cache
def search_function(size: SearchSize) -> Any:
    """CasADi function of the whole search, with the arguments of `step_function`."""
    return repeat(f"limits_{size.name}", step_function(size), most_steps(size.active), done=size.parts[-1])
