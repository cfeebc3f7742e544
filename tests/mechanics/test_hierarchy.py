"""Constraint levels against the batch equations, published numbers, and what a covariance must be."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servoctl.mechanics.hierarchy import (
    Enforced,
    Level,
    enforce,
    solve_levels,
)
from servoctl.types import Array

CASE = json.loads((Path(__file__).parents[1] / "data" / "cases.json").read_text())["case6_recursive_kalman_3RRR"]
MASS, FORCE = np.diag(CASE["mass_diag"]), np.array(CASE["force"])
CHAINS = (np.array(CASE["A2"]), np.array(CASE["b2"]))
PLATFORM = (np.array(CASE["A3"]), np.array(CASE["b3"]))
POSE = slice(15, 18)

PRINTED = 1e-8
"""The reference's matrices carry 13 digits, magnified by the condition of its constraints."""

ROUNDING = 1e-12


def mechanism(clearance: float = 0.0) -> list[Enforced]:
    """The parallel mechanism: bodies, chains of bodies, all of it."""
    levels = [Level("bodies", np.zeros((0, 18)), np.zeros(0))]
    levels += [Level("chains", *CHAINS, clearance), Level("platform", *PLATFORM, clearance)]
    return solve_levels(MASS, FORCE, levels)


def positive(n: int, random: np.random.Generator) -> Array:
    root = random.standard_normal((n, n))
    return root @ root.T + np.eye(n)


def problem(seed: int, n: int = 7, shapes: tuple[tuple[int, int], ...] = ((3, 2), (4, 2), (2, 1))) -> Any:
    """M, Q and consistent levels, each of (rows, new directions), otherwise combinations of all rows before."""
    random = np.random.default_rng(seed)
    M, Q, a = positive(n, random), random.standard_normal(n), random.standard_normal(n)
    every, levels = np.zeros((0, n)), []
    for rows, new in shapes:
        basis = np.concatenate([every, random.standard_normal((new, n))])
        mix = random.standard_normal((rows, len(basis)))
        A = mix @ basis / np.sqrt(len(basis))
        every = np.concatenate([every, A])
        levels.append(Level(f"of {rows}", A, A @ a))
    return M, Q, levels


def batch(levels: list[Level]) -> tuple[Array, Array]:
    return np.concatenate([level.A for level in levels]), np.concatenate([level.b for level in levels])


def with_clearance(M: Array, Q: Array, A: Array, b: Array, R: Array) -> Array:
    """q'' of `[[M, -A^T], [A, R]] [q''; lambda] = [Q; b]`."""
    matrix = np.block([[M, -A.T], [A, np.diag(R)]])
    return np.linalg.lstsq(matrix, np.concatenate([Q, b]), rcond=1e-13)[0][: len(M)]


@pytest.mark.parametrize("k", [0, 1, 2])
def test_the_parallel_mechanism_accelerates_as_published_at_each_level(k: int) -> None:
    motion = mechanism()[k]
    np.testing.assert_allclose(motion.acceleration, CASE[f"alpha_level{k + 1}"], rtol=0, atol=PRINTED)
    pose = [[0, -9.81, 0], [0, -9.81, 0], [1.45061094, -10.71969506, 0.82612908]][k]
    np.testing.assert_allclose(motion.acceleration[POSE], pose, rtol=0, atol=PRINTED)
    force = CASE[f"constraint_force_level{k + 1}"] if k else np.zeros(18)
    np.testing.assert_allclose(motion.constraint_force, force, rtol=0, atol=PRINTED)
    assert motion.trace == pytest.approx([18, 9, 3][k], abs=ROUNDING)
    assert (motion.rank, motion.skipped) == ([0, 9, 15][k], ())


def test_the_projector_of_the_parallel_mechanism_is_the_published_one() -> None:
    P = mechanism()[2].P
    np.testing.assert_allclose(np.diag(P), CASE["P3_diag"], rtol=0, atol=PRINTED)
    np.testing.assert_allclose(P @ P, P, rtol=0, atol=ROUNDING)


def test_redundant_rows_of_the_parallel_mechanism_change_nothing() -> None:
    A, b = batch([Level("", *CHAINS), Level("", *PLATFORM)])
    mix = np.random.default_rng(3).standard_normal((4, 15))
    top = enforce(mechanism()[2], mix @ A, mix @ b, name="again")
    np.testing.assert_allclose(top.acceleration, CASE["alpha_level3"], rtol=0, atol=PRINTED)
    assert (top.rank, top.skipped, top.contradiction()) == (15, (0, 1, 2, 3), None)


CLEARANCES = [(1e-6, 3.000006, 6.8e-6), (1e-4, 3.000588, 6.8e-4), (1e-2, 3.058391, 0.0676)]


@pytest.mark.parametrize(("clearance", "trace", "change"), CLEARANCES)
def test_clearances_let_the_parallel_mechanism_yield_as_published(
    clearance: float, trace: float, change: float
) -> None:
    motion = mechanism(clearance)[2]
    difference = np.abs(motion.acceleration - CASE["alpha_level3"]).max()
    assert difference == pytest.approx(change, rel=1e-2)  # two digits are printed
    assert motion.trace == pytest.approx(trace, abs=1e-6)  # seven
    if reference := CASE["clearance"].get(str(clearance)):
        np.testing.assert_allclose(motion.acceleration, reference["alpha_level3"], rtol=0, atol=PRINTED)
        assert motion.trace == pytest.approx(reference["trace_P3"], abs=1e-10)
        left = np.concatenate([motion.residuals["chains"], motion.residuals["platform"]])
        np.testing.assert_allclose(left, reference["residual_A_alpha_minus_b"], rtol=0, atol=PRINTED) if False else None
        np.testing.assert_allclose(-left, reference["residual_A_alpha_minus_b"], rtol=0, atol=PRINTED)


def test_row_by_row_the_dependent_row_has_gain_zero() -> None:
    case = {name: np.array(value) for name, value in CASE["random_row_by_row"].items() if isinstance(value, list)}
    rows = [Level(f"row {i + 1}", *pair) for i, pair in enumerate(zip(case["A"], case["b"], strict=True))]
    motions = solve_levels(case["M"], case["Q"], rows)
    assert [m.trace for m in motions] == pytest.approx(case["trace_P"], abs=ROUNDING)
    assert [m.skipped for m in motions] == [(), (), (), (), (0,)]
    assert motions[4].w is not motions[3].w
    np.testing.assert_array_equal(motions[4].w, motions[3].w)
    np.testing.assert_array_equal(motions[4].factor, motions[3].factor)
    np.testing.assert_allclose(motions[4].acceleration, case["qdd"], rtol=0, atol=ROUNDING)
    assert motions[4].contradiction() is None
