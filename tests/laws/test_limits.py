"""Inputs inside their limits, against independent oracles: bounded least squares, least distance, and duality.

SciPy's BVLS gives the least residual of a task inside the limits; Lawson and Hanson's least-distance programming (by
non-negative least squares) the least distance among the inputs that keep it; and multipliers of the right sign, found
by non-negative least squares too, prove every level of a hierarchy.
"""

from collections.abc import Callable
from functools import lru_cache

import casadi as ca
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import null_space, orth
from scipy.optimize import linprog, lsq_linear, nnls

from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.linalg import decompose
from servoctl.laws.limits import Limited, most_steps, search_function, step_function, within_limits
from servoctl.types import Array

FEW = settings(max_examples=60, deadline=None, derandomize=True)
PER_FAMILY = 200
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
    """Rows and inputs in units of 1e-3 to 1e3, so entries of T from 1e-6 to 1e6."""
    T, e, lower, upper, _ = (feasible, out_of_reach)[random.integers(2)](random)
    rows, columns = 10.0 ** random.uniform(-3, 3, len(T)), 10.0 ** random.uniform(-3, 3, T.shape[1])
    return T * rows[:, None] * columns, e * rows, lower / columns, upper / columns, np.zeros(len(lower))


FAMILIES: dict[str, Callable[[np.random.Generator], Case]] = {
    family.__name__: family
    for family in (
        inside, feasible, out_of_reach, rank_deficient, infinite, one_sided, degenerate, structured, badly_scaled,
    )
}  # fmt: skip


def large(random: np.random.Generator) -> Case:
    T = random.standard_normal((int(random.integers(1, 13)), 12))
    lower, upper = box(random, 12)
    return T, T @ random.uniform(lower, upper) * random.uniform(1.0, 3.0), lower, upper, np.zeros(12)


FAMILIES["large"] = large


def least_residual(T: Array, e: Array, lower: Array, upper: Array) -> float:
    """min |T u - e| inside the limits, by BVLS; an input's unit is taken out first, which changes nothing."""
    unit = np.linalg.norm(T, axis=0)
    unit[unit == 0.0] = 1.0
    result = lsq_linear(T / unit, e, (lower * unit, upper * unit), method="bvls", tol=1e-15, max_iter=500)
    return float(np.linalg.norm(T / unit @ result.x - e))


def least_distance(T: Array, u: Array, lower: Array, upper: Array, preferred: Array) -> float:
    """min |w - s| over `T w = T u`, `lower <= w <= upper`: least-distance programming in the null space of T."""
    unit = np.linalg.norm(T, axis=1)
    N = null_space(T[unit > 0] / unit[unit > 0, None], rcond=1e-10) if unit.any() else np.eye(len(u))
    start, centre = u - preferred, N @ (N.T @ (u - preferred))
    low, high = np.isfinite(lower), np.isfinite(upper)
    # y from the null-space minimum: w = u - centre + N y
    G = np.vstack([N[low], -N[high]])
    h = np.concatenate([(lower - u + centre)[low], (u - centre - upper)[high]])
    if not N.shape[1] or not len(h):
        return float(np.linalg.norm(start - centre))
    E, f = np.vstack([G.T, h]), np.append(np.zeros(N.shape[1]), 1.0)
    rest = E @ nnls(E, f, maxiter=1000)[0] - f
    y = -rest[:-1] / rest[-1]
    return float(np.hypot(np.linalg.norm(start - centre), np.linalg.norm(y)))


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


def tolerance_of(family: str) -> float:
    return 1e-14 if family == "badly_scaled" else 1e-10


def solve(case: Case, family: str = "") -> Limited:
    T, e, lower, upper, preferred = case
    return within_limits([(T, e)], lower, upper, preferred, rank_tolerance=tolerance_of(family))


@lru_cache(maxsize=None)
def kernel(rows: tuple[int, ...], m: int, weighted: bool = False) -> Kernel:
    """within_limits, traced."""
    shapes: dict[str, tuple[int, ...]] = {}
    for k, r in enumerate(rows):
        shapes |= {f"T{k}": (r, m), f"e{k}": (r,)}
    values = inputs(shapes | {"lower": (m,), "upper": (m,), "s": (m,), "w": (m,), "tolerance": (1,)})
    result = within_limits(
        [(values[f"T{k}"], values[f"e{k}"]) for k in range(len(rows))],
        values["lower"],
        values["upper"],
        values["s"],
        weights=values["w"] if weighted else None,
        rank_tolerance=values["tolerance"][0],
    )
    outputs = {"u": result.u, "given_up": np.concatenate(result.given_up), "at_limit": result.at_limit}
    counts = {"iterations": np.array([result.iterations]), "converged": np.array([result.converged])}
    return Kernel.compile("limits", values, outputs | counts)


def traced(levels: list[tuple[Array, Array]], *rest: Array, tolerance: float = 1e-10, weights: Array | None = None) -> list[Array]:
    m = levels[0][0].shape[1]
    arrays = [part for level in levels for part in level]
    weighted = weights is not None
    return kernel(tuple(len(e) for _, e in levels), m, weighted)(
        *arrays, *rest, weights if weighted else np.ones(m), tolerance
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_the_answer_is_inside_least_residual_then_nearest(family: str) -> None:
    random = np.random.default_rng(1)
    for index in range(PER_FAMILY):
        case = FAMILIES[family](random)
        T, e, lower, upper, preferred = case
        found = solve(case, family)
        u = found.u
        assert found.converged, (family, index)
        assert (u >= lower).all() and (u <= upper).all()
        missed, demand = float(np.linalg.norm(found.given_up[0])), float(np.linalg.norm(e))
        assert missed == np.linalg.norm(e - T @ u)
        least = least_residual(T, e, lower, upper)
        assert missed <= least + 1e-8 * least + 1e-11 * (1e-3 + demand), (family, index, missed, least)
        if family in ("inside", "feasible"):
            assert missed <= 1e-12 * (demand + np.linalg.norm(T) * np.linalg.norm(u))
        distance = float(np.linalg.norm(u - preferred))
        shortest = least_distance(T, u, lower, upper, preferred)
        assert distance <= shortest * (1 + 1e-7) + 1e-12, (family, index, distance, shortest)


@pytest.mark.parametrize("family", FAMILIES)
def test_numbers_and_symbols_agree(family: str) -> None:
    random = np.random.default_rng(2)
    seen = 0
    while seen < 25:
        T, e, lower, upper, preferred = case = FAMILIES[family](random)
        if T.shape[1] > 6:
            if family != "large" or seen > 3:
                seen += family == "large"
                continue
        seen += 1
        found = solve(case, family)
        u, given_up, at_limit, iterations, converged = traced(
            [(T, e)], lower, upper, preferred, tolerance=tolerance_of(family)
        )
        size = np.abs(found.u).max() + 1e-9
        np.testing.assert_allclose(u, found.u, rtol=1e-9, atol=1e-9 * size, err_msg=f"{family} {seen}")
        assert converged == found.converged == 1
