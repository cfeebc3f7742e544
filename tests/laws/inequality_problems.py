"""Problems with rows `G u >= g` above the task, and two oracles that share nothing with the code under test.

qpOASES solves the problem as a cascade of quadratic programs, one per level; multipliers of the right sign, found by
non-negative least squares, prove every level of an answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import casadi as ca
import numpy as np
from limit_problems import unproven

from servoctl.laws.limits import Limited, within_limits
from servoctl.types import Array

KEPT = 1e-9
"""A quadratic program keeps the levels above to this, or it has no inner point."""


@dataclass(frozen=True)
class Problem:
    """least |max(0, g - G u)|, then each |T u - e|, then |u - s|, inside the limits."""

    levels: tuple[tuple[Array, Array], ...]
    G: Array
    g: Array
    lower: Array
    upper: Array
    s: Array

    def solve(self, **options: Any) -> Limited:
        rows = (self.G, self.g)
        return within_limits(self.levels, self.lower, self.upper, self.s, inequalities=rows, **options)

    def costs(self, u: Array) -> Array:
        """What each level misses, then the distance to s."""
        lack = np.maximum(0.0, self.g - self.G @ u)
        missed = [lack, *(T @ u - e for T, e in self.levels), u - self.s]
        return np.array([np.linalg.norm(part) for part in missed])

    def moved(self, random: np.random.Generator, share: float) -> "Problem":
        """Every number of the rows and of the task, up to a share larger or smaller."""

        def near(values: Array) -> Array:
            return values * (1.0 + share * random.uniform(-1.0, 1.0, values.shape))

        levels = tuple((near(T), near(e)) for T, e in self.levels)
        return replace(self, levels=levels, G=near(self.G), g=near(self.g))

    def in_units(self, inputs: float, rows: float, task: float) -> "Problem":
        """The same with inputs, rows and task in other units; all numbers of a kind are multiplied."""
        levels = tuple((T * task / inputs, e * task) for T, e in self.levels)
        limits = {name: getattr(self, name) * inputs for name in ("lower", "upper", "s")}
        return replace(self, levels=levels, G=self.G * rows / inputs, g=self.g * rows, **limits)


def any_problem(random: np.random.Generator) -> Problem:
    """2 to 6 inputs, up to 3 task rows in one or two levels, 1 to 3 rows of G; conflicts of all with all."""
    m, r, k = int(random.integers(2, 7)), int(random.integers(0, 4)), int(random.integers(1, 4))
    counts = [1, r - 1] if r > 1 and random.integers(2) else [r]
    levels = tuple((random.standard_normal((count, m)), 1.5 * random.standard_normal(count)) for count in counts)
    lower, upper = -random.uniform(0.3, 1.5, m), random.uniform(0.3, 1.5, m)
    s = random.standard_normal(m) * random.integers(0, 2)
    return Problem(levels, random.standard_normal((k, m)), random.standard_normal(k) - 0.3, lower, upper, s)


def equal_rows(random: np.random.Generator) -> Problem:
    problem = any_problem(random)
    twice = np.repeat(np.arange(len(problem.g)), 2)
    return replace(problem, G=problem.G[twice], g=problem.g[twice])


def dependent_rows(random: np.random.Generator) -> Problem:
    """More rows than directions, and bounds that all can be met or not."""
    problem = any_problem(random)
    G = random.standard_normal((4, len(problem.G))) @ problem.G
    return replace(problem, G=np.vstack([problem.G, G]), g=np.concatenate([problem.g, random.standard_normal(4)]))


def zero_rows(random: np.random.Generator) -> Problem:
    """One row that no input reaches and is not met, and one that is met by nothing."""
    problem = any_problem(random)
    G = np.vstack([problem.G, np.zeros((2, len(problem.s)))])
    return replace(problem, G=G, g=np.concatenate([problem.g, [0.7, 0.0]]))


def contradicting_rows(random: np.random.Generator) -> Problem:
    """Each row wants more than the one that it is opposite to allows."""
    problem = any_problem(random)
    gap = random.uniform(0.1, 2.0, len(problem.g))
    return replace(problem, G=np.vstack([problem.G, -problem.G]), g=np.concatenate([problem.g, gap - problem.g]))


def integers(random: np.random.Generator) -> Problem:
    """Ties everywhere: entries of -1, 0 and 1."""
    m = int(random.integers(2, 6))
    T, G = (random.integers(-1, 2, (int(random.integers(1, 4)), m)) * 1.0 for _ in range(2))
    e, g = random.integers(-3, 4, len(T)) * 1.0, random.integers(-2, 3, len(G)) * 1.0
    return Problem(((T, e),), G, g, -np.ones(m), np.ones(m), random.integers(-2, 3, m) * 1.0)


def without_limits(random: np.random.Generator) -> Problem:
    problem = any_problem(random)
    infinite = np.full(len(problem.s), np.inf)
    return replace(problem, lower=-infinite, upper=infinite)


DEGENERATE = (equal_rows, dependent_rows, zero_rows, contradicting_rows, integers, without_limits)


def unproven_rows(problem: Problem, u: Array) -> float:
    """By how much multipliers miss a gradient; the rows are the first level, `G u - y = g` with y >= 0."""
    k, m = problem.G.shape
    z = np.concatenate([u, np.maximum(0.0, problem.G @ u - problem.g)])
    levels = [(np.hstack([problem.G, -np.eye(k)]), problem.g)]
    levels += [(np.hstack([T, np.zeros((len(T), k))]), e) for T, e in (*problem.levels, (np.eye(m), problem.s))]
    lower, upper = np.append(problem.lower, np.zeros(k)), np.append(problem.upper, np.full(k, np.inf))
    return unproven([level for level in levels if len(level[1])], z, lower, upper, z)


def cascade(problem: Problem) -> tuple[Array, bool]:
    """The costs of each level by one quadratic program each, and whether all of them were solved."""
    k, m = problem.G.shape
    free, none = np.full(k, np.inf), np.zeros(k)
    start = _program(
        np.diag(np.append(np.zeros(m), np.ones(k))),
        np.zeros(m + k),
        (np.hstack([problem.G, np.eye(k)]), problem.g, free),
        (np.append(problem.lower, none), np.append(problem.upper, free)),
    )
    u, solved = start[0][:m], [start[1]]
    A, low, high = problem.G, np.minimum(problem.g, problem.G @ u) - KEPT, free
    for T, e in (*problem.levels, (np.eye(m), problem.s)):
        u, one = _program(T.T @ T, -T.T @ e, (A, low, high), (problem.lower, problem.upper))
        A, low, high = np.vstack([A, T]), np.append(low, T @ u - KEPT), np.append(high, T @ u + KEPT)
        solved.append(one)
    return problem.costs(u), all(solved)


def _program(H: Array, c: Array, rows: Sequence[Array], box: Sequence[Array]) -> tuple[Array, bool]:
    """least u^T H u / 2 + c^T u with low <= A u <= high inside a box: u, and whether it was solved."""
    A, low, high = rows
    solver = _solver(*A.shape)
    arguments = {"g": c, "lba": low, "uba": high, "lbx": box[0], "ubx": box[1]}
    result = solver(h=H + 1e-12 * np.eye(len(c)), a=A, **arguments)
    return np.array(result["x"]).ravel(), bool(solver.stats()["success"])


@cache
def _solver(rows: int, n: int) -> Any:
    shape = {"h": ca.Sparsity.dense(n, n), "a": ca.Sparsity.dense(rows, n)}
    exact = {"terminationTolerance": 1e-13, "boundTolerance": 1e-12}
    return ca.conic("program", "qpoases", shape, {"printLevel": "none", "error_on_fail": False, **exact})
