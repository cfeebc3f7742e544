"""The published pseudoinverse methods against numpy, Penrose's conditions and each other, and how they decide rank."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import servoctl
from plants.parallelogram import Parallelogram
from servoctl.errors import ConfigError
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
def test_every_method_meets_the_four_conditions_of_penrose(name: str, case: tuple[Array, Array, float]) -> None:
    A, expected, condition = case
    size = np.linalg.norm(A, 2) or 1.0
    P, rank = METHODS[name](A, RankRule())
    assert rank == np.linalg.matrix_rank(expected)
    A, P = A / size, P * size
    small = allowed(name, condition)
    assert np.abs(A @ P @ A - A).max() <= small
    assert np.abs(P @ A @ P - P).max() <= small * condition
    assert np.abs(A @ P - (A @ P).T).max() <= small
    assert np.abs(P @ A - (P @ A).T).max() <= small


@EACH
@FEW
@given(case=matrices())
def test_every_method_gives_the_inverse_that_numpy_gives(name: str, case: tuple[Array, Array, float]) -> None:
    A, expected, condition = case
    size = np.linalg.norm(A, 2) or 1.0
    P, _ = METHODS[name](A, RankRule())
    small = allowed(name, condition)
    np.testing.assert_allclose(P * size, expected * size, rtol=0, atol=small)
    np.testing.assert_allclose(P * size, np.linalg.pinv(A, rcond=1e-8) * size, rtol=0, atol=small)


@EACH
@pytest.mark.parametrize("theta", [-0.8, 0.3, 1.57, 2.5])
def test_every_method_inverts_the_parallelogram_with_its_dependent_row(name: str, theta: float) -> None:
    A = parallelogram(theta)
    P, rank = METHODS[name](A, RankRule(1e-10, relative=False))
    assert rank == 11
    np.testing.assert_allclose(P, np.linalg.pinv(A, rcond=1e-10), rtol=0, atol=1e-13)  # condition number about 20


@EACH
def test_every_method_sees_that_the_flat_parallelogram_loses_another_row(name: str) -> None:
    A = parallelogram(0.0)
    P, rank = METHODS[name](A, RankRule(1e-10, relative=False))
    assert rank == 10
    np.testing.assert_allclose(P, np.linalg.pinv(A, rcond=1e-10), rtol=0, atol=1e-13)


def greville_as_printed(A: Array) -> Array:
    """The recursion with b = d P^+ / (1 + d d^T) where c = 0, as it stands in the source."""
    P: Array = A[:1].T / (A[0] @ A[0])
    for i in range(1, len(A)):
        d = A[i] @ P
        c = A[i] - d @ A[:i]
        b = c / (c @ c) if c @ c > 1e-20 else d @ P / (1.0 + d @ d)
        P = np.column_stack([P - np.outer(b, d), b])
    return P


def test_the_recursion_as_printed_does_not_fit_the_parallelogram() -> None:
    with pytest.raises(ValueError, match="size 12 is different from 11"):
        greville_as_printed(parallelogram(-0.8))


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


@EACH
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 2), (4, 4)])
@pytest.mark.parametrize("rule", [RankRule(0.0), RankRule(0.0, relative=False)], ids=["relative", "absolute"])
def test_nothing_counts_in_a_zero_matrix_even_at_tolerance_zero(
    name: str, shape: tuple[int, int], rule: RankRule
) -> None:
    P, rank = METHODS[name](np.zeros(shape), rule)
    assert rank == 0
    assert P.tolist() == np.zeros(shape[::-1]).tolist()


@pytest.mark.parametrize(("name", "threshold"), [*((m, 1e-8) for m in DIRECT), *((m, 1e-4) for m in LEAST_SQUARES)])
def test_least_squares_decides_rank_at_the_root_of_the_tolerance(name: str, threshold: float) -> None:
    for factor, rank in ((2.0, 2), (0.5, 1)):
        assert METHODS[name](np.diag([1.0, factor * threshold]), RankRule(1e-8, relative=False))[1] == rank


@EACH
def test_a_relative_rule_ignores_the_scale_and_an_absolute_one_does_not(name: str) -> None:
    A = np.diag([1.0, 1e-3])
    assert [METHODS[name](A * scale, RankRule(1e-8))[1] for scale in (1e-90, 1.0, 1e90)] == [2, 2, 2]
    assert METHODS[name](A * 1e-6, RankRule(1e-8, relative=False))[1] == (0 if name in LEAST_SQUARES else 1)


def test_a_rule_measures_against_the_size_of_the_matrix_or_against_one() -> None:
    A = np.array([[3.0, 0.0], [0.0, 4.0]])
    assert (RankRule().scale(A), RankRule(relative=False).scale(A), RankRule().scale(0.0 * A)) == (5.0, 1.0, 1.0)


@pytest.mark.parametrize("tolerance", [-1e-10, 1.0, float("nan"), float("inf")])
def test_a_tolerance_out_of_range_is_refused(tolerance: float) -> None:
    with pytest.raises(ConfigError, match=f"RankRule: tolerance: expected a number from 0 up to 1, got {tolerance}"):
        RankRule(tolerance)


@EACH
def test_every_method_agrees_with_the_default(name: str) -> None:
    random = np.random.default_rng(7)
    A = random.standard_normal((6, 4)) @ random.standard_normal((4, 9))
    assert METHODS[name](A, RankRule())[1] == 4
    np.testing.assert_allclose(METHODS[name](A, RankRule())[0], servoctl.pinv(A), rtol=0, atol=1e-12)
