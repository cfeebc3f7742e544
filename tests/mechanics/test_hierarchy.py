"""Constraint levels against the batch equations, published numbers and the published covariance."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servoctl.errors import PlantError
from servoctl.mechanics import hierarchy
from servoctl.mechanics.hierarchy import Enforced, Level
from servoctl.types import Array
from tests.multipliers import multiplier_equation

CASE = json.loads((Path(__file__).parents[1] / "data" / "cases.json").read_text())["case6_recursive_kalman_3RRR"]
MASS, FORCE = np.diag(CASE["mass_diag"]), np.array(CASE["force"])
CHAINS = (np.array(CASE["A2"]), np.array(CASE["b2"]))
PLATFORM = (np.array(CASE["A3"]), np.array(CASE["b3"]))

PRINTED = 1e-8
"""The reference's matrices carry 13 digits, magnified by the condition of its constraints."""

ROUNDING = 1e-12


def level(name: str, A: Any, b: Any, clearance: Any = 0.0) -> Level:
    """A level from rows and targets of any shape; its rows are called by their numbers."""
    b = np.atleast_1d(b)
    R = np.broadcast_to(np.asarray(clearance, dtype=float), b.shape)
    return Level(name, np.atleast_2d(A), b, R, tuple(f"row {i}" for i in range(len(b))))


def solve_levels(M: Array, Q: Array, levels: list[Level]) -> list[Enforced]:
    """The motion after each level."""
    return hierarchy.solve_levels(M, Q, levels)[1:]


def covariance(motion: Enforced) -> Array:
    return motion.factor @ motion.factor.T


def constraint_force(motion: Enforced, M: Array, Q: Array) -> Array:
    return M @ motion.acceleration - Q


def residuals(motion: Enforced) -> dict[str, Array]:
    return {each.name: motion.residual(each) for each in motion.levels}


def mechanism(clearance: float = 0.0) -> list[Enforced]:
    """The parallel mechanism: bodies, chains of bodies, all of it."""
    levels = [level("bodies", np.zeros((0, 18)), np.zeros(0))]
    levels += [level("chains", *CHAINS, clearance), level("platform", *PLATFORM, clearance)]
    return solve_levels(MASS, FORCE, levels)


def positive(n: int, random: np.random.Generator) -> Array:
    root = random.standard_normal((n, n))
    return root @ root.T + np.eye(n)


SHAPES = [
    ((3, 2), (4, 2), (2, 1)),
    ((1, 1), (1, 0), (1, 1)),
    ((2, 2), (3, 3), (4, 2)),
    ((0, 0), (5, 3)),
    ((3, 1), (2, 0), (2, 1), (3, 2)),
]
"""Levels of seven coordinates: (rows, directions that are new at the level)."""


def problem(shapes: tuple[tuple[int, int], ...], seed: int) -> tuple[Array, Array, list[Level]]:
    """M, Q and consistent levels; a level's rows combine all rows before with its new directions."""
    random, n = np.random.default_rng(seed), 7
    M, Q, a = positive(n, random), random.standard_normal(n), random.standard_normal(n)
    directions, levels = np.linalg.qr(random.standard_normal((n, n)))[0], []
    known = 0
    for k, (rows, new) in enumerate(shapes):
        known += new
        A = random.standard_normal((rows, known)) @ directions[:known]
        A[:new] += 2 * directions[known - new : known]
        levels.append(level(f"level {k + 1}", A, A @ a))
    return M, Q, levels


PROBLEMS = pytest.mark.parametrize("case", [problem(shapes, seed) for shapes in SHAPES for seed in range(4)])


def batch(levels: list[Level]) -> tuple[Array, Array]:
    return np.concatenate([each.A for each in levels]), np.concatenate([each.b for each in levels])


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
        left = np.concatenate([residuals(motion)["chains"], residuals(motion)["platform"]])
        np.testing.assert_allclose(-left, reference["residual_A_alpha_minus_b"], rtol=0, atol=PRINTED)


def test_row_by_row_the_dependent_row_has_gain_zero() -> None:
    case = {name: np.array(value) for name, value in CASE["random_row_by_row"].items() if isinstance(value, list)}
    rows = [level(f"row {i + 1}", *pair) for i, pair in enumerate(zip(case["A"], case["b"], strict=True))]
    motions = solve_levels(case["M"], case["Q"], rows)
    assert [m.trace for m in motions] == pytest.approx(case["trace_P"], abs=ROUNDING)
    assert [m.skipped for m in motions] == [(), (), (), (), ("row 0",)]
    np.testing.assert_array_equal(motions[4].w, motions[3].w)
    np.testing.assert_array_equal(motions[4].factor, motions[3].factor)
    np.testing.assert_allclose(motions[4].acceleration, case["qdd"], rtol=0, atol=ROUNDING)
    assert motions[4].contradiction() is None


def relative(found: Array, expected: Array) -> float:
    return float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max()))


@PROBLEMS
def test_every_level_equals_the_batch_solution_of_all_rows_up_to_it(case: tuple[Array, Array, list[Level]]) -> None:
    M, Q, levels = case
    for k, motion in enumerate(solve_levels(M, Q, levels), start=1):
        A, b = batch(levels[:k])
        expected = multiplier_equation(M, Q, A, b)
        rank = np.linalg.matrix_rank(A, tol=1e-9) if len(A) else 0
        assert relative(motion.acceleration, expected) < 10 * ROUNDING
        assert relative(constraint_force(motion, M, Q), M @ expected - Q) < 100 * ROUNDING
        assert (motion.rank, motion.trace) == (rank, pytest.approx(7 - rank, abs=ROUNDING))
        assert max((np.abs(left).max(initial=0.0) for left in residuals(motion).values()), default=0.0) < 10 * ROUNDING


@pytest.mark.parametrize("seed", range(4))
def test_rows_with_and_without_clearance_mix_in_any_order(seed: int) -> None:
    M, Q, levels = problem(SHAPES[0], seed)
    A, b = batch(levels)
    b = b + 0.1 * np.random.default_rng(seed).standard_normal(len(b))  # no exact row depends on another
    R = np.array([0.0, 0.3, 1e-3, 0.5, 0.0, 1e-6, 2.0, 0.0, 0.7])
    splits = [np.split(values, [3, 7]) for values in (A, b, R)]
    motions = solve_levels(M, Q, [level(str(i), *parts) for i, parts in enumerate(zip(*splits, strict=True))])
    for k, motion in zip([3, 7, 9], motions, strict=True):
        assert relative(motion.acceleration, multiplier_equation(M, Q, A[:k], b[:k], R=R[:k])) < 1e-10  # R down to 1e-6
    backward = solve_levels(M, Q, [level(str(i), *parts) for i, parts in enumerate(zip(*splits, strict=True))][::-1])
    assert relative(backward[-1].acceleration, motions[-1].acceleration) < 1e-10
    assert relative(covariance(backward[-1]), covariance(motions[-1])) < 1e-10


def test_an_exact_level_stays_enforced_while_later_ones_pull() -> None:
    """Rows nearly those of the level before, with targets a million times larger than its own."""
    random = np.random.default_rng(8)
    M, A = positive(6, random), random.standard_normal((3, 6))
    Q, firm = random.standard_normal(6), level("firm", A, np.ones(3))
    pulls = level("next", A + 1e-6 * random.standard_normal((3, 6)), np.full(3, 1.0 + 1e-3))
    _, motion = solve_levels(M, Q, [firm, pulls])
    assert np.abs(motion.acceleration).max() > 100.0
    assert np.abs(residuals(motion)["firm"]).max() < 1e-12 * np.abs(motion.acceleration).max()
    assert motion.rank == 6


def test_a_dependent_row_with_a_tiny_clearance_is_skipped_not_amplified() -> None:
    M, Q, levels = problem(SHAPES[0], 2)
    mixed = np.array([1.0, -2.0, 0.5]) @ levels[0].A
    motion, after = solve_levels(M, Q, [levels[0], level("next", mixed, 1e3, clearance=1e-30)])
    assert after.skipped == ("row 0",)
    np.testing.assert_array_equal(after.w, motion.w)


E1, E2, E3 = np.eye(3)


def test_rows_that_contradict_each_other_meet_by_least_squares() -> None:
    second = level("second", np.array([E2, E3, E3]), np.array([5.0, 0.0, 2.0]))
    _, motion = solve_levels(np.eye(3), np.zeros(3), [level("first", E1, 1.0), second])
    np.testing.assert_allclose(motion.acceleration, [1.0, 5.0, 1.0], atol=1e-14)
    found = motion.contradiction()
    assert found is not None and (found.names, found.against) == (("row 1", "row 2"), ())
    assert "row 1 by -1, row 2 by 1: cannot be met (at odds with each other" in str(found)


def test_a_level_that_is_not_finite_is_refused_by_name() -> None:
    with pytest.raises(PlantError, match=r"level 'x': A or b is not finite"):
        solve_levels(np.eye(3), np.zeros(3), [level("x", np.ones(3), np.inf)])


def test_a_mass_matrix_that_is_not_positive_definite_or_finite_is_refused() -> None:
    text = "not positive definite (smallest eigenvalue 0.0e+00; if it is singular, see mechanics.terms)"
    with pytest.raises(PlantError, match=re.escape(text)):
        solve_levels(np.diag([1.0, 0.0]), np.zeros(2), [])
    with pytest.raises(PlantError, match="mass matrix or force: not finite"):
        solve_levels(np.diag([1.0, np.nan]), np.zeros(2), [])
