"""The published pseudoinverse methods against numpy, and how they decide rank."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plants.parallelogram import Parallelogram
from servoctl.types import Array, State
from tests.benchmarks.pseudoinverse_methods import METHODS, RankRule, greville
from tests.faces import passive_rows_of

EPS = np.finfo(float).eps
FEW = settings(max_examples=60, derandomize=True)

EACH = pytest.mark.parametrize("name", METHODS)
DIRECT = ("svd", "varga", "greville", "cod")
LEAST_SQUARES = ("householder", "gram_schmidt")

# What a method's error may be: (factor, p) of factor * rounding * condition^p. A backward stable method has p = 2, as
# the inverse itself. Greville's recursion meets leading blocks that are worse conditioned than the matrix, and the
# augmented system of least squares squares the condition number.
# Largest factors among 3000 matrices of this kind: 24, 6, 6; 2200; 8, 7.
ALLOWED = {
    "svd": (100, 2),
    "varga": (100, 2),
    "cod": (100, 2),
    "greville": (20_000, 3),
    "householder": (100, 3),
    "gram_schmidt": (100, 3),
}


def allowed(name: str, condition: float) -> float:
    factor, power = ALLOWED[name]
    return float(factor * EPS * condition**power)


@st.composite
def matrices(draw: st.DrawFn) -> tuple[Array, Array, float]:
    """A matrix up to 8x8, of any rank, singular values 1 to 1e-3 times a scale; its inverse; its condition."""
    r, n = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    rank = draw(st.integers(0, min(r, n)))
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    s = np.sort(10.0 ** -(3.0 * random.random(rank)))[::-1]
    s[:1] = 1.0
    U = np.linalg.qr(random.standard_normal((r, r)))[0][:, :rank]
    V = np.linalg.qr(random.standard_normal((n, n)))[0][:, :rank]
    scale = 10.0 ** draw(st.integers(-100, 100))
    return scale * (U * s) @ V.T, V / s @ U.T / scale, float(1.0 / s[-1]) if rank else 1.0


def parallelogram(theta: float) -> Array:
    """The constraint matrix of the parallelogram, shape (12, 12), of rank 11 unless it lies flat."""
    plant, x, y = Parallelogram(), np.cos(theta), np.sin(theta)
    links = [(pivot + x / 2, y / 2, theta) for pivot in (0.0, 1.0, 2.0)]
    state = State(0.0, np.array([*np.ravel(links), 1.0 + x, y, 0.0]), np.zeros(12))
    A: Array = passive_rows_of(plant, state).A
    return A


@EACH
@FEW
@given(case=matrices())
def test_every_method_gives_the_inverse_that_numpy_gives(name: str, case: tuple[Array, Array, float]) -> None:
    A, expected, condition = case
    size = np.linalg.norm(A, 2) or 1.0
    P, rank = METHODS[name](A, RankRule())
    small = allowed(name, condition)
    assert rank == np.linalg.matrix_rank(expected)
    np.testing.assert_allclose(P * size, expected * size, rtol=0, atol=small)
    np.testing.assert_allclose(P * size, np.linalg.pinv(A, rcond=1e-8) * size, rtol=0, atol=small)


@EACH
@pytest.mark.parametrize(("theta", "independent"), [(-0.8, 11), (2.5, 11), (0.0, 10)])
def test_every_method_inverts_the_parallelogram_with_its_dependent_rows(
    name: str, theta: float, independent: int
) -> None:
    A = parallelogram(theta)
    P, rank = METHODS[name](A, RankRule(1e-10, relative=False))
    assert rank == independent
    np.testing.assert_allclose(P, np.linalg.pinv(A, rcond=1e-10), rtol=0, atol=1e-13)  # condition number about 20


def greville_as_printed(A: Array) -> Array:
    """The recursion with b = d P^+ / (1 + d d^T) where c = 0, as it stands in the source."""
    P: Array = A[:1].T / (A[0] @ A[0])
    for i in range(1, len(A)):
        d = A[i] @ P
        c = A[i] - d @ A[:i]
        b = c / (c @ c) if c @ c > 1e-20 else d @ P / (1.0 + d @ d)
        P = np.column_stack([P - np.outer(b, d), b])
    return P


def test_the_recursion_as_printed_is_wrong_where_it_fits() -> None:
    A = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 3.0], [1.0, 3.0, 3.0]])  # the last is the sum
    P, rank = greville(A, RankRule())
    expected = np.linalg.pinv(A)
    assert rank == 3
    np.testing.assert_allclose(P, expected, rtol=0, atol=1e-14)
    assert np.abs(greville_as_printed(A) - expected).max() > 0.1
    # where every row counts, what is printed is right
    np.testing.assert_allclose(greville_as_printed(A[:3]), np.linalg.inv(A[:3]), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", DIRECT)
def test_a_pivot_equal_to_the_tolerance_does_not_count(name: str) -> None:
    A = np.diag([1.0, 2.0**-20])  # powers of two: no rounding anywhere
    at, below = (RankRule(tolerance, relative=False) for tolerance in (2.0**-20, 2.0**-21))
    assert METHODS[name](A, at)[1] == 1
    assert METHODS[name](A, at)[0].tolist() == [[1.0, 0.0], [0.0, 0.0]]
    assert METHODS[name](A, below)[1] == 2
    assert METHODS[name](A, below)[0].tolist() == [[1.0, 0.0], [0.0, 2.0**20]]


@pytest.mark.parametrize(("name", "threshold"), [*((m, 1e-8) for m in DIRECT), *((m, 1e-4) for m in LEAST_SQUARES)])
def test_least_squares_decides_rank_at_the_root_of_the_tolerance(name: str, threshold: float) -> None:
    for factor, rank in ((2.0, 2), (0.5, 1)):
        assert METHODS[name](np.diag([1.0, factor * threshold]), RankRule(1e-8, relative=False))[1] == rank


@EACH
def test_a_relative_rule_ignores_the_scale_and_an_absolute_one_does_not(name: str) -> None:
    A = np.diag([1.0, 1e-3])
    assert [METHODS[name](A * scale, RankRule(1e-8))[1] for scale in (1e-90, 1.0, 1e90)] == [2, 2, 2]
    assert METHODS[name](A * 1e-6, RankRule(1e-8, relative=False))[1] == (0 if name in LEAST_SQUARES else 1)
