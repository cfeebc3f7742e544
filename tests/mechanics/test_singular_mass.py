"""Singular mass matrices against closed forms, multipliers, the regular form and the limit of small masses."""

import re

import numpy as np
import pytest

from servoctl.engine.kernel import Kernel, inputs
from servoctl.errors import PlantError
from servoctl.mechanics.terms import null_direction, regular_form, require_unique
from servoctl.types import Array
from tests.mechanics.equations import singular_mass_equation, terms_of
from tests.multipliers import multiplier_equation

AGREEMENT = 1e-11
"""Conditions of the problems lie below 100."""

Problem = tuple[Array, Array, Array, Array]

SHAPES = [(5, 3, 2, 2), (6, 2, 5, 4), (4, 0, 4, 4), (7, 6, 4, 1), (3, 3, 2, 1), (6, 4, 6, 3), (4, 4, 0, 0)]
"""Coordinates, rank of M, rows, rank of A; together of full column rank."""


def problem(shape: tuple[int, int, int, int], seed: int) -> Problem:
    """M, Q, A and consistent b; the rows hold what M leaves without mass, slantwise, before anything else."""
    (n, masses, rows, rank), random = shape, np.random.default_rng(seed)
    V = np.linalg.qr(random.standard_normal((n, n)))[0]
    M = (V[:, :masses] * random.uniform(0.5, 2.0, masses)) @ V[:, :masses].T
    directions = V.T[::-1][:rank] + 0.1 * random.standard_normal((rank, n))
    A = np.linalg.qr(random.standard_normal((rows, rows)))[0][:, :rank] @ directions
    return M, random.standard_normal(n), A, A @ random.standard_normal(n)


PROBLEMS = pytest.mark.parametrize("case", [problem(shape, seed) for shape in SHAPES for seed in range(4)])


def distance(found: Array, expected: Array) -> float:
    return float(np.abs(found - expected).max(initial=0.0) / max(1.0, np.abs(expected).max(initial=0.0)))


def motion(M: Array, Q: Array, A: Array, b: Array, singular: bool = True) -> Array:
    """q'' by the terms of laws and simulations."""
    return terms_of(M, Q, A, b, singular=singular).acceleration(np.zeros(0))


@PROBLEMS
def test_the_motion_is_the_published_one_and_the_one_of_multipliers(case: Problem) -> None:
    M, Q, A, b = case
    terms = terms_of(*case, singular=True)
    a = motion(*case)
    force = terms.passive_force(a, np.zeros(0))
    assert distance(a, singular_mass_equation(M, Q, A, b)) < AGREEMENT
    assert distance(a, multiplier_equation(M, Q, A, b)) < AGREEMENT
    assert distance(force, M @ a - Q) < 10 * AGREEMENT
    assert distance(terms.consistency, np.zeros(len(b))) < AGREEMENT
    assert terms.passive.rank == (np.linalg.matrix_rank(A, tol=1e-9) if A.size else 0)
    for s in (1.0, 0.3, 20.0):  # whatever the weight of the rows in the regular form
        assert distance(motion(M + s * A.T @ A, Q + s * A.T @ b, A, b, singular=False), a) < AGREEMENT


def pendulum(angle: float, rate: float, m: float = 1.3, length: float = 0.7, g: float = 9.81) -> Problem:
    """A point mass at (x, y) on a massless rod with its angle for a coordinate: x = l sin, y = -l cos."""
    M, Q = np.diag([m, m, 0.0]), np.array([0.0, -m * g, 0.0])
    s, c = length * np.sin(angle), length * np.cos(angle)
    A = np.array([[1.0, 0.0, -c], [0.0, 1.0, -s]])
    return M, Q, A, rate**2 * np.array([-s, c])


def test_the_regular_form_is_well_conditioned_in_any_units() -> None:
    """Lengths in micrometres and tonnes make M and A differ by twelve orders."""
    M, Q, A, b = pendulum(0.4, 1.0)
    found = motion(1e9 * M, 1e9 * Q, 1e-3 * A, 1e-3 * b)
    np.testing.assert_allclose(found, motion(M, Q, A, b), rtol=1e-12)
    assert np.linalg.cond(regular_form(1e9 * M, Q, 1e-3 * A, b)[0]) < 20.0


def test_contradicting_rows_are_met_by_least_squares() -> None:
    M, Q, A, b = pendulum(0.4, 1.0)
    twice, off = np.vstack([A, A[0]]), np.append(b, b[0] + 2.0)
    found = motion(M, Q, twice, off)
    np.testing.assert_allclose(twice @ found - off, [1.0, 0.0, -1.0], atol=1e-12)
    assert distance(found, singular_mass_equation(M, Q, twice, off)) < AGREEMENT


def test_a_direction_without_mass_and_constraint_is_named() -> None:
    M, A = np.diag([2.0, 2.0, 0.0, 0.0]), np.array([[1.0, 0.0, 1.0, 1.0]])
    text = (
        "mass matrix: singular along 0.707 spool -0.707 reel, which no constraint holds either "
        "(give it mass or a constraint, or leave out a coordinate)"
    )
    with pytest.raises(PlantError, match=re.escape(text)):
        require_unique(M, A, coordinates=["x", "y", "spool", "reel"])
    direction = null_direction(M, A)
    assert direction is not None
    np.testing.assert_allclose(direction, [0, 0, np.sqrt(0.5), -np.sqrt(0.5)], atol=1e-15)


def test_of_several_directions_the_one_nearest_to_a_coordinate_is_named() -> None:
    M, A = np.diag([1.0, 0.0, 0.0, 0.0]), np.array([[0.0, 1.0, 1.0, 0.0]])
    with pytest.raises(PlantError, match="singular along 1 free, which"):
        require_unique(M, A, coordinates=["x", "a", "b", "free"])


def test_there_is_no_null_direction_if_mass_and_constraints_span_the_space() -> None:
    M, _, A, _ = pendulum(0.4, 0.0)
    assert null_direction(M, A) is None
    assert null_direction(np.zeros((2, 2)), np.eye(2)) is None
    require_unique(M, A, ["x", "y", "angle"])


def test_a_negative_mass_is_refused_with_its_eigenvalue() -> None:
    M = np.diag([1.0, -0.5, 0.0])
    text = "mass matrix: not positive semidefinite (smallest eigenvalue -5.0e-01; check the masses)"
    with pytest.raises(PlantError, match=re.escape(text)):
        require_unique(M, np.eye(3), ["x", "y", "z"])


def test_the_regular_form_of_symbols_is_that_of_numbers() -> None:
    M, Q, A, b = problem(SHAPES[0], 1)
    given = inputs({"M": M.shape, "Q": Q.shape, "A": A.shape, "b": b.shape})
    mass, force = regular_form(given["M"], given["Q"], given["A"], given["b"])
    kernel = Kernel.compile("regular", given, {"mass": mass, "force": force})
    for found, expected in zip(kernel(M, Q, A, b), regular_form(M, Q, A, b), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-13)
    assert np.isfinite(kernel(0 * M, Q, 0 * A, b)[0]).all()
