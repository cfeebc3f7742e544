"""Problems with limits, levels and rows `G u >= g` above them, and two oracles that share nothing with the product.

Multipliers of the right sign, found by Lawson and Hanson's non-negative least squares, prove every level of an answer;
qpOASES solves a problem as a cascade of quadratic programs, one per level.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import casadi as ca
import numpy as np
from scipy.linalg import null_space
from scipy.optimize import nnls

from servoctl.engine.decomposition import decompose, frobenius
from servoctl.laws import limits
from servoctl.laws.limits import LeastSquaresProblem, Limited, Start, solve
from servoctl.types import Array

KEPT = 1e-9
"""A quadratic program keeps the levels above to this, or it has no inner point."""


def within_limits(
    levels: Sequence[tuple[Array, Array]],
    lower: Array | None,
    upper: Array | None,
    preferred: Array | None = None,
    *,
    inequalities: tuple[Array, Array] | None = None,
    weights: Array | None = None,
    rank_tolerance: float = 1e-10,
    unlimited: Array | None = None,
    start: Start | None = None,
) -> Limited:
    """`limits.within_limits` with its numbers found from the matrices; None for a limit: no input has one."""
    m = levels[0][0].shape[1]
    lower, upper = (np.zeros(0), np.zeros(0)) if lower is None or upper is None else (lower, upper)
    G, g = (np.zeros((0, m)), np.zeros(0)) if inequalities is None else inequalities
    root = np.ones(m) if weights is None else np.sqrt(weights)
    scales = tuple(frobenius(T / root) for T, _ in levels)
    row_scale = frobenius(G / root) if len(g) else 1.0
    problem = LeastSquaresProblem(tuple(levels), scales, lower, upper, preferred, rank_tolerance, G, g, row_scale)
    if unlimited is None:
        free = problem if weights is None else problem.weighted(root)
        unlimited = solve(free, np.zeros(len(lower))).u / root
    return limits.within_limits(problem, unlimited, weights, start)


@dataclass(frozen=True)
class Problem:
    """least |max(0, g - G u)|, then each |T u - e|, then |u - s|, inside the limits."""

    levels: tuple[tuple[Array, Array], ...]
    G: Array
    g: Array
    lower: Array
    upper: Array
    s: Array

    @classmethod
    def of(cls, T: Array, e: Array, lower: Array, upper: Array, s: Array | None = None) -> "Problem":
        """One level, and no rows above it."""
        m = T.shape[1]
        return cls(((T, e),), np.zeros((0, m)), np.zeros(0), lower, upper, np.zeros(m) if s is None else s)

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

    def in_units(self, inputs: Array | float, rows: float, task: Array | float) -> "Problem":
        """The same with inputs, rows and task in other units; all numbers of a kind are multiplied."""
        levels = tuple((np.reshape(task, (-1, 1)) * T / inputs, e * task) for T, e in self.levels)
        limits = {name: getattr(self, name) * inputs for name in ("lower", "upper", "s")}
        return replace(self, levels=levels, G=self.G * rows / inputs, g=self.g * rows, **limits)


def box(random: np.random.Generator, m: int) -> tuple[Array, Array]:
    return -random.uniform(0.1, 1.0, m), random.uniform(0.1, 1.0, m)


def matrix(random: np.random.Generator) -> Array:
    m = int(random.integers(2, 11))
    return random.standard_normal((int(random.integers(1, min(m, 6) + 1)), m))


def inside(random: np.random.Generator) -> Problem:
    T = matrix(random)
    lower, upper = box(random, T.shape[1])
    e = random.standard_normal(len(T))
    u = np.linalg.pinv(T) @ e
    return Problem.of(T, e * 0.99 / np.max(np.maximum(u / upper, u / lower)), lower, upper)


def feasible(random: np.random.Generator) -> Problem:
    """Met by some inputs inside the limits, seldom by the least ones."""
    T = matrix(random)
    lower, upper = box(random, T.shape[1])
    s = random.standard_normal(T.shape[1]) * random.integers(0, 2)
    return Problem.of(T, T @ random.uniform(lower, upper), lower, upper, s)


def out_of_reach(random: np.random.Generator) -> Problem:
    problem = feasible(random)
    ((T, e),) = problem.levels
    return replace(problem, levels=((T, e * random.uniform(1.0, 5.0) + random.standard_normal(len(e))),))


def rank_deficient(random: np.random.Generator) -> Problem:
    problem = feasible(random)
    ((T, _),) = problem.levels
    T = np.vstack([T, random.standard_normal((2, len(T))) @ T])
    e = T @ random.uniform(problem.lower, problem.upper)
    return replace(problem, levels=((T, e + random.integers(0, 2) * random.standard_normal(len(e))),))


def infinite(random: np.random.Generator) -> Problem:
    problem = (feasible, out_of_reach)[random.integers(2)](random)
    m = len(problem.s)
    lower, upper = (np.where(random.random(m) < 0.3, np.inf, limit) for limit in (-problem.lower, problem.upper))
    return replace(problem, lower=-lower, upper=upper)


def one_sided(random: np.random.Generator) -> Problem:
    """Cables and thrusters: they push, they do not pull."""
    T = matrix(random)
    m = T.shape[1]
    e = T @ (random.uniform(0.0, 1.0, m) * random.integers(0, 2, m)) + random.integers(0, 2) * random.standard_normal()
    return Problem.of(T, e, np.zeros(m), np.full(m, (1.0, np.inf)[random.integers(2)]))


def corners(random: np.random.Generator) -> Problem:
    """Limits exactly at the answer without limits, or inputs at their limits that alone meet the task."""
    problem = feasible(random)
    ((T, e),) = problem.levels
    lower, upper = problem.lower, problem.upper
    if random.integers(2):
        u = decompose(T, 1e-10).solve(e)
        return Problem.of(T, e, np.minimum(u, lower), np.where(u > 0, u, upper))
    return replace(problem, levels=((T, T @ np.where(random.random(len(lower)) < 0.5, lower, upper)),))


def badly_scaled(random: np.random.Generator) -> Problem:
    """Tasks and inputs in units of 1e-6 to 1e6, within ten of one another."""
    return scaled(random, 6.0, 1.0)


def in_odd_units(random: np.random.Generator) -> Problem:
    """Rows and inputs each in units of 1e-3 to 1e3, so entries of one T from 1e-6 to 1e6."""
    return scaled(random, 0.0, 3.0)


def scaled(random: np.random.Generator, common: float, each: float) -> Problem:
    problem = replace((feasible, out_of_reach)[random.integers(2)](random), s=np.zeros(1))
    counts = len(problem.levels[0][1]), len(problem.lower)
    rows, inputs = (10.0 ** (random.uniform(-common, common) + random.uniform(-each, each, n)) for n in counts)
    return replace(problem.in_units(inputs, 1.0, rows), s=np.zeros(counts[1]))


def large(random: np.random.Generator) -> Problem:
    T = random.standard_normal((int(random.integers(1, 13)), 12))
    lower, upper = box(random, 12)
    return Problem.of(T, T @ random.uniform(lower, upper) * random.uniform(1.0, 3.0), lower, upper)


def hierarchy(random: np.random.Generator) -> Problem:
    """Levels with dependent rows, conflicts between levels, equal columns, infinite limits; often out of reach."""
    count = int(random.integers(2, 4))
    m = int(random.integers(count, 10))
    lower, upper = box(random, m)
    u = random.uniform(lower, upper) * random.choice([1.0, 1.0, 3.0])
    levels: list[tuple[Array, Array]] = []
    for _ in range(count):
        T = random.standard_normal((int(random.integers(1, 4)), m))
        kind = random.integers(5)
        T[-1] = 2.0 * levels[0][0][0] if kind == 0 and levels else (T[0] if kind == 1 else T[-1])
        T[:, 0] = T[:, -1] if kind == 2 else T[:, 0]
        levels.append((T, T @ u + (random.standard_normal(len(T)) if random.random() < 0.4 else 0.0)))
    lower[random.random(m) < 0.1], upper[random.random(m) < 0.1] = -np.inf, np.inf
    s = random.standard_normal(m) * random.integers(0, 2)
    return Problem(tuple(levels), np.zeros((0, m)), np.zeros(0), lower, upper, s)


def with_rows(random: np.random.Generator) -> Problem:
    """2 to 6 inputs, up to 3 task rows in one or two levels, 1 to 3 rows of G; conflicts of all with all."""
    m, r, k = int(random.integers(2, 7)), int(random.integers(0, 4)), int(random.integers(1, 4))
    counts = [1, r - 1] if r > 1 and random.integers(2) else [r]
    levels = tuple((random.standard_normal((count, m)), 1.5 * random.standard_normal(count)) for count in counts)
    lower, upper = -random.uniform(0.3, 1.5, m), random.uniform(0.3, 1.5, m)
    s = random.standard_normal(m) * random.integers(0, 2)
    return Problem(levels, random.standard_normal((k, m)), random.standard_normal(k) - 0.3, lower, upper, s)


def equal_rows(random: np.random.Generator) -> Problem:
    problem = with_rows(random)
    twice = np.repeat(np.arange(len(problem.g)), 2)
    return replace(problem, G=problem.G[twice], g=problem.g[twice])


def dependent_rows(random: np.random.Generator) -> Problem:
    """More rows than directions, and bounds that all can be met or not."""
    problem = with_rows(random)
    G = random.standard_normal((4, len(problem.G))) @ problem.G
    return replace(problem, G=np.vstack([problem.G, G]), g=np.concatenate([problem.g, random.standard_normal(4)]))


def zero_rows(random: np.random.Generator) -> Problem:
    """One row that no input reaches and is not met, and one that is met by nothing."""
    problem = with_rows(random)
    G = np.vstack([problem.G, np.zeros((2, len(problem.s)))])
    return replace(problem, G=G, g=np.concatenate([problem.g, [0.7, 0.0]]))


def contradicting_rows(random: np.random.Generator) -> Problem:
    """Each row wants more than the one that it is opposite to allows."""
    problem = with_rows(random)
    gap = random.uniform(0.1, 2.0, len(problem.g))
    return replace(problem, G=np.vstack([problem.G, -problem.G]), g=np.concatenate([problem.g, gap - problem.g]))


def integers(random: np.random.Generator) -> Problem:
    """Ties everywhere: entries of -1, 0 and 1, zero matrices, equal columns, equal limits."""
    m = int(random.integers(2, 9))
    T, G = (random.integers(-1, 2, (int(random.integers(1, 5)), m)) * 1.0 for _ in range(2))
    T[:, -1] = T[:, 0]
    T = T * (random.random() < 0.9)
    e, g = random.integers(-3, 4, len(T)) * 1.0, random.integers(-2, 3, len(G)) * 1.0
    rows = random.integers(0, len(G) + 1)
    return Problem(((T, e),), G[:rows], g[:rows], -np.ones(m), np.ones(m), random.integers(-2, 3, m) * 1.0)


def without_limits(random: np.random.Generator) -> Problem:
    problem = with_rows(random)
    unlimited = np.full(len(problem.s), np.inf)
    return replace(problem, lower=-unlimited, upper=unlimited)


Family = Callable[[np.random.Generator], Problem]

OF_LIMITS: tuple[Family, ...] = (
    *(inside, feasible, out_of_reach, rank_deficient, infinite, one_sided, corners, badly_scaled, large, hierarchy),
)
OF_ROWS: tuple[Family, ...] = (
    *(with_rows, equal_rows, dependent_rows, zero_rows, contradicting_rows, integers, without_limits),
)


def unproven(problem: Problem, u: Array) -> float:
    """By how much multipliers of the right sign miss a gradient, the worst over the levels and the distance to s.

    The rows are the first level, `G u - y = g` with y >= 0.
    """
    k, m = problem.G.shape
    z = np.concatenate([u, np.maximum(0.0, problem.G @ u - problem.g)])
    levels = [(np.hstack([problem.G, -np.eye(k)]), problem.g)]
    levels += [(np.hstack([T, np.zeros((len(T), k))]), e) for T, e in (*problem.levels, (np.eye(m), problem.s))]
    lower, upper = np.append(problem.lower, np.zeros(k)), np.append(problem.upper, np.full(k, np.inf))
    near = 1e-9 * (1.0 + np.abs(z))
    normals = np.hstack([np.eye(m + k)[:, z >= upper - near], -np.eye(m + k)[:, z <= lower + near]])
    N, worst = np.eye(m + k), 0.0
    for T, e in [level for level in levels if len(level[1])]:
        missed, size = T @ z - e, np.linalg.norm(e) + np.linalg.norm(T) * np.linalg.norm(z)
        missed[np.abs(missed) <= 1e-10 * size] = 0.0
        force = -N.T @ (T.T @ missed)
        if N.shape[1] and np.linalg.norm(T) * size:
            gap = nnls(N.T @ normals, force, maxiter=1000)[1] if normals.shape[1] else np.linalg.norm(force)
            worst = max(worst, float(gap / (np.linalg.norm(T) * size)))
        if np.linalg.norm(T @ N) > 1e-9 * np.linalg.norm(T):
            N = N @ null_space(T @ N, rcond=1e-9)
    return worst


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
