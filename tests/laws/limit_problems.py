"""Bounded problems of every kind, and oracles for them that share nothing with the code under test.

SciPy's BVLS gives the least residual of a task inside the limits; Lawson and Hanson's least-distance programming (by
non-negative least squares) the least distance among the inputs that keep it; and multipliers of the right sign, found
by non-negative least squares too, prove every level of a hierarchy.
"""

from collections.abc import Callable

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import lsq_linear, nnls

from servoctl.engine.decomposition import decompose
from servoctl.types import Array

Case = tuple[Array, Array, Array, Array, Array]
"""T, e, lower, upper, preferred."""


def box(random: np.random.Generator, m: int) -> tuple[Array, Array]:
    return -random.uniform(0.1, 1.0, m), random.uniform(0.1, 1.0, m)


def matrix(random: np.random.Generator) -> Array:
    m = int(random.integers(2, 11))
    return random.standard_normal((int(random.integers(1, min(m, 6) + 1)), m))


def inside(random: np.random.Generator) -> Case:
    T = matrix(random)
    lower, upper = box(random, T.shape[1])
    e = random.standard_normal(len(T))
    u = np.linalg.pinv(T) @ e
    return T, e * 0.99 / np.max(np.maximum(u / upper, u / lower)), lower, upper, np.zeros(len(u))


def feasible(random: np.random.Generator) -> Case:
    """Met by some inputs inside the limits, seldom by the least ones."""
    T = matrix(random)
    lower, upper = box(random, T.shape[1])
    preferred = random.standard_normal(T.shape[1]) * random.integers(0, 2)
    return T, T @ random.uniform(lower, upper), lower, upper, preferred


def out_of_reach(random: np.random.Generator) -> Case:
    T, e, lower, upper, preferred = feasible(random)
    return T, e * random.uniform(1.0, 5.0) + random.standard_normal(len(e)), lower, upper, preferred


def rank_deficient(random: np.random.Generator) -> Case:
    T, e, lower, upper, preferred = feasible(random)
    T = np.vstack([T, random.standard_normal((2, len(T))) @ T])
    e = T @ random.uniform(lower, upper)
    return T, e + random.integers(0, 2) * random.standard_normal(len(e)), lower, upper, preferred


def infinite(random: np.random.Generator) -> Case:
    T, e, lower, upper, preferred = (feasible, out_of_reach)[random.integers(2)](random)
    lower[random.random(len(lower)) < 0.3], upper[random.random(len(upper)) < 0.3] = -np.inf, np.inf
    return T, e, lower, upper, preferred


def one_sided(random: np.random.Generator) -> Case:
    """Cables and thrusters: they push, they do not pull."""
    T = matrix(random)
    m = T.shape[1]
    e = T @ (random.uniform(0.0, 1.0, m) * random.integers(0, 2, m)) + random.integers(0, 2) * random.standard_normal()
    return T, e, np.zeros(m), np.full(m, (1.0, np.inf)[random.integers(2)]), np.zeros(m)


def degenerate(random: np.random.Generator) -> Case:
    """Limits exactly at the answer without limits, or inputs at their limits that alone meet the task."""
    T, e, lower, upper, preferred = feasible(random)
    if random.integers(2):
        u = decompose(T, 1e-10).solve(e)
        return T, e, np.minimum(u, lower), np.where(u > 0, u, upper), np.zeros(len(u))
    corner = np.where(random.random(len(lower)) < 0.5, lower, upper)
    return T, T @ corner, lower, upper, preferred


def structured(random: np.random.Generator) -> Case:
    """Zero matrices, zero columns, equal columns, equal limits, symmetric tasks: ties everywhere."""
    m = int(random.integers(2, 9))
    T = random.integers(-1, 2, (int(random.integers(1, 5)), m)).astype(float)
    T[:, -1] = T[:, 0]
    T = T * (random.random() < 0.9)
    return T, random.integers(-3, 4, len(T)).astype(float), -np.ones(m), np.ones(m), random.integers(-2, 3, m) * 1.0


def badly_scaled(random: np.random.Generator) -> Case:
    """Tasks and inputs in units of 1e-6 to 1e6, within ten of one another."""
    return scaled(random, 6.0, 1.0)


def in_odd_units(random: np.random.Generator) -> Case:
    """Rows and inputs each in units of 1e-3 to 1e3, so entries of one T from 1e-6 to 1e6."""
    return scaled(random, 0.0, 3.0)


def scaled(random: np.random.Generator, common: float, each: float) -> Case:
    T, e, lower, upper, _ = (feasible, out_of_reach)[random.integers(2)](random)
    rows = 10.0 ** (random.uniform(-common, common) + random.uniform(-each, each, len(T)))
    columns = 10.0 ** (random.uniform(-common, common) + random.uniform(-each, each, T.shape[1]))
    return T * rows[:, None] * columns, e * rows, lower / columns, upper / columns, np.zeros(len(lower))


def large(random: np.random.Generator) -> Case:
    T = random.standard_normal((int(random.integers(1, 13)), 12))
    lower, upper = box(random, 12)
    return T, T @ random.uniform(lower, upper) * random.uniform(1.0, 3.0), lower, upper, np.zeros(12)


FAMILIES: dict[str, Callable[[np.random.Generator], Case]] = {
    "inside": inside,
    "feasible": feasible,
    "out_of_reach": out_of_reach,
    "rank_deficient": rank_deficient,
    "infinite": infinite,
    "one_sided": one_sided,
    "degenerate": degenerate,
    "structured": structured,
    "badly_scaled": badly_scaled,
    "large": large,
}


def hierarchy(random: np.random.Generator, count: int) -> tuple[list[tuple[Array, Array]], Array, Array, Array]:
    """Levels with dependent rows, conflicts between levels, equal columns, infinite limits; often out of reach."""
    m = int(random.integers(count, 10))
    lower, upper = box(random, m)
    u = random.uniform(lower, upper) * random.choice([1.0, 1.0, 3.0])
    levels = []
    for _ in range(count):
        T = random.standard_normal((int(random.integers(1, 4)), m))
        kind = random.integers(5)
        T[-1] = 2.0 * levels[0][0][0] if kind == 0 and levels else (T[0] if kind == 1 else T[-1])
        T[:, 0] = T[:, -1] if kind == 2 else T[:, 0]
        levels.append((T, T @ u + (random.standard_normal(len(T)) if random.random() < 0.4 else 0.0)))
    lower[random.random(m) < 0.1], upper[random.random(m) < 0.1] = -np.inf, np.inf
    return levels, lower, upper, random.standard_normal(m) * random.integers(0, 2)


def size_of(T: Array, e: Array, u: Array) -> float:
    """What the terms of `e - T u` add up to: its rounding goes by that."""
    return float(np.linalg.norm(e) + np.linalg.norm(np.abs(T) @ np.abs(u)))


def least_residual(T: Array, e: Array, lower: Array, upper: Array) -> float:
    """min |T u - e| inside the limits, by BVLS; NaN where it fails (it divides by zero at some corners)."""
    unit = np.linalg.norm(T, axis=0)
    unit[unit == 0.0] = 1.0
    with np.errstate(all="ignore"):
        result = lsq_linear(T / unit, e, (lower * unit, upper * unit), method="bvls", tol=1e-15, max_iter=500)
    return float(np.linalg.norm(T / unit @ result.x - e))


def least_distance(T: Array, u: Array, lower: Array, upper: Array, preferred: Array) -> float:
    """min |w - s| over `T w = T u`, `lower <= w <= upper`: least-distance programming in the null space of T.

    NaN where its own answer leaves the limits: where few w meet them, the distance is a quotient of small numbers.
    """
    unit = np.linalg.norm(T, axis=1)
    N = null_space(T[unit > 0] / unit[unit > 0, None], rcond=1e-10) if unit.any() else np.eye(len(u))
    centre = u - N @ (N.T @ (u - preferred))
    low, high = np.isfinite(lower), np.isfinite(upper)
    G, h = np.vstack([N[low], -N[high]]), np.concatenate([(lower - centre)[low], (centre - upper)[high]])
    y = np.zeros(N.shape[1])
    if N.shape[1] and (h > 0).any():
        E, f = np.vstack([G.T, h]), np.append(y, 1.0)
        rest = E @ nnls(E, f, maxiter=1000)[0] - f
        y = -rest[:-1] / rest[-1] if rest[-1] else y
    w = centre + N @ y
    fits = (G @ y >= h - 1e-9 * np.abs(u).max()).all() if len(h) else True
    return float(np.linalg.norm(w - preferred)) if fits else np.nan


def unproven(levels: list[tuple[Array, Array]], u: Array, lower: Array, upper: Array, preferred: Array) -> float:
    """By how much multipliers of the right sign miss a gradient, the worst over the levels and the distance to s."""
    near = 1e-9 * (1.0 + np.abs(u))
    normals = np.hstack([np.eye(len(u))[:, u >= upper - near], -np.eye(len(u))[:, u <= lower + near]])
    N, worst = np.eye(len(u)), 0.0
    for T, e in [*levels, (np.eye(len(u)), preferred)]:
        missed = T @ u - e
        missed[np.abs(missed) <= 1e-10 * (np.linalg.norm(e) + np.linalg.norm(T) * np.linalg.norm(u))] = 0.0
        force = -N.T @ (T.T @ missed)
        size = np.linalg.norm(T) * (np.linalg.norm(e) + np.linalg.norm(T) * np.linalg.norm(u))
        if N.shape[1] and size:
            gap = nnls(N.T @ normals, force, maxiter=1000)[1] if normals.shape[1] else np.linalg.norm(force)
            worst = max(worst, float(gap / size))
        if np.linalg.norm(T @ N) > 1e-9 * np.linalg.norm(T):
            N = N @ null_space(T @ N, rcond=1e-9)
    return worst
