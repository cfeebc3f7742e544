"""The rank-revealing pseudoinverse against Penrose's conditions, 50 digits, and rank by construction."""

from functools import cache
from typing import Any

import casadi as ca
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import servoctl
from servoctl.engine.decomposition import decompose, decompose_function, frobenius
from servoctl.engine.kernel import Kernel, inputs
from servoctl.types import Array

EPS = np.finfo(float).eps
TOLERANCE = 1e-10

SIZES = st.integers(1, 8)
FEW = settings(max_examples=60, derandomize=True)


@cache
def pinv_kernel(rows: int, n: int) -> Kernel:
    """servoctl.pinv, traced."""
    A = inputs({"A": (rows, n)})
    return Kernel.compile("pinv", A, {"P": servoctl.pinv(A["A"], TOLERANCE)})


@cache
def solve_kernel(rows: int, n: int) -> Kernel:
    """What a decomposition says, traced."""
    given = inputs({"A": (rows, n), "b": (rows,), "tolerance": (1,)})
    split = decompose(given["A"], given["tolerance"][0])
    outputs = {"x": split.solve(given["b"]), "residual": split.residual(given["b"]), "projector": split.row_projector()}
    scalars = {"rank": np.array([split.rank]), "pivot": np.array([split.pivot_min])}
    return Kernel.compile("solve", given, outputs | scalars)


def matrix(rows: int, n: int, singular_values: Array, seed: int) -> Array:
    """A matrix with these singular values and random singular vectors."""
    random = np.random.default_rng(seed)
    U = np.linalg.qr(random.standard_normal((rows, rows)))[0][:, : len(singular_values)]
    V = np.linalg.qr(random.standard_normal((n, n)))[0][:, : len(singular_values)]
    return (U * singular_values) @ V.T


@st.composite
def matrices(draw: Any, smallest: float = 1e-6) -> tuple[Array, int]:
    """A matrix up to 8x8 of any rank with graded singular values from 1 downwards, and its rank."""
    rows, n = draw(SIZES), draw(SIZES)
    rank = draw(st.integers(0, min(rows, n)))
    exponents = draw(st.lists(st.floats(np.log10(smallest), 0.0), min_size=rank, max_size=rank))
    values = np.array([10.0**x for x in exponents])
    values[:1] = 1.0
    return matrix(rows, n, values, draw(st.integers(0, 10_000))), rank


def pinv_of(engine: str, A: Array) -> Array:
    return servoctl.pinv(A, TOLERANCE) if engine == "numbers" else pinv_kernel(*A.shape)(A)[0]


def condition(A: Array, rank: int) -> float:
    values = np.linalg.svd(A, compute_uv=False)
    return float(values[0] / values[rank - 1]) if rank else 1.0


ENGINES = pytest.mark.parametrize("engine", ["numbers", "symbols"])


@ENGINES
@FEW
@given(matrices(smallest=1e-3))
def test_the_pseudoinverse_equals_that_of_numpy(engine: str, case: tuple[Array, int]) -> None:
    A, rank = case
    expected = np.linalg.pinv(A, rcond=1e-8) if rank else np.zeros(A.T.shape)
    difference = np.abs(pinv_of(engine, A) - expected).max()
    assert difference <= 100 * EPS * condition(A, rank) ** 2  # |dA^+| ~ |A^+|^2 |dA|


@FEW
@given(matrices())
def test_numbers_and_symbols_agree_on_rank_pivot_and_solution(case: tuple[Array, int]) -> None:
    A, rank = case
    b = np.random.default_rng(5).standard_normal(len(A))
    split = decompose(A, TOLERANCE)
    x, residual, projector, count, pivot = solve_kernel(*A.shape)(A, b, TOLERANCE)
    assert split.rank == count[0] == rank  # singular values lie above 1e-6, the tolerance at 1e-10
    assert split.pivot_min == pytest.approx(pivot[0], rel=1e-8, abs=0.0)  # rounding over the smallest pivot, 1e-7
    small = 1000 * EPS * condition(A, rank)
    np.testing.assert_allclose(projector, split.row_projector(), rtol=0, atol=small)
    np.testing.assert_allclose(residual, split.residual(b), rtol=0, atol=small * np.linalg.norm(b))
    np.testing.assert_allclose(x, split.solve(b), rtol=0, atol=small * condition(A, rank) * np.linalg.norm(b))


@ENGINES
@FEW
@given(matrices(smallest=1e-3), st.integers(0, 1000))
def test_the_solution_is_the_shortest_least_squares_one(engine: str, case: tuple[Array, int], seed: int) -> None:
    A, rank = case
    b = np.random.default_rng(seed).standard_normal(len(A))
    split = decompose(A, TOLERANCE)
    x = split.solve(b) if engine == "numbers" else solve_kernel(*A.shape)(A, b, TOLERANCE)[0]
    expected = np.linalg.lstsq(A, b, rcond=1e-8)[0] if rank else np.zeros(A.shape[1])
    np.testing.assert_allclose(x, expected, rtol=0, atol=1000 * EPS * condition(A, rank) ** 2 * np.linalg.norm(b))


@ENGINES
@pytest.mark.parametrize("digits", [4, 8])
@pytest.mark.parametrize(("rows", "n"), [(3, 3), (3, 6), (6, 3), (5, 6)])
def test_an_ill_conditioned_pseudoinverse_agrees_with_fifty_digits(engine: str, digits: int, rows: int, n: int) -> None:
    A = matrix(rows, n, np.logspace(0, -digits, min(rows, n)), seed=rows + n)
    with mpmath.workdps(50):
        exact = mpmath.matrix(A.tolist())
        gram = (exact * exact.T) ** -1 if rows <= n else (exact.T * exact) ** -1  # full rank, and 50 digits to spare
        expected = exact.T * gram if rows <= n else gram * exact.T
        expected = np.array(expected.tolist(), dtype=float)
    error = np.linalg.norm(pinv_of(engine, A) - expected, 2)
    assert error <= 20 * EPS * 10.0**digits * np.linalg.norm(expected, 2)


@pytest.mark.parametrize(("factor", "rank"), [(12.0, 2), (0.08, 1)])
def test_a_direction_counts_when_its_pivot_exceeds_the_tolerance(factor: float, rank: int) -> None:
    A = np.diag([1.0, factor * 1e-6])
    assert decompose(A, 1e-6).rank == solve_kernel(2, 2)(A, np.ones(2), 1e-6)[3][0] == rank


def test_a_pivot_equal_to_the_tolerance_does_not_count() -> None:
    A = np.diag([1.0, 2.0**-20])  # powers of two: no rounding anywhere
    assert decompose(A, 2.0**-20, scale=1.0).rank == 1
    count = decompose_function(2, 2)(A, 2.0**-20)[3]
    assert float(count) == 1.0


def test_with_a_given_scale_pure_round_off_has_rank_zero() -> None:
    A = np.full((2, 3), 1e-17)
    assert decompose(A, TOLERANCE).rank == 1
    assert decompose(A, TOLERANCE, scale=1.0).rank == 0
    assert decompose(A, TOLERANCE, scale=1.0).solve(np.ones(2)).tolist() == [0.0, 0.0, 0.0]


@ENGINES
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 2), (4, 4)])
def test_the_pseudoinverse_of_zero_is_zero(engine: str, shape: tuple[int, int]) -> None:
    assert not pinv_of(engine, np.zeros(shape)).any()
    x, residual, projector, count, pivot = solve_kernel(*shape)(np.zeros(shape), np.ones(shape[0]), TOLERANCE)
    assert not x.any() and not projector.any() and residual.tolist() == [1.0] * shape[0]
    assert (count[0], pivot[0]) == (0.0, 0.0)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_an_empty_matrix_has_an_empty_pseudoinverse(shape: tuple[int, int]) -> None:
    assert servoctl.pinv(np.zeros(shape)).shape == shape[::-1]
    split = decompose(np.zeros(shape), TOLERANCE)
    assert (split.rank, split.pivot_min) == (0, 0.0)
    assert split.solve(np.ones(shape[0])).tolist() == [0.0] * shape[1]
    assert split.residual(np.ones(shape[0])).tolist() == [1.0] * shape[0]


@ENGINES
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 2), (3, 3)])
def test_the_pseudoinverse_of_a_matrix_that_is_not_finite_is_nan(
    engine: str, bad: float, shape: tuple[int, int]
) -> None:
    A = np.arange(1.0, 1.0 + shape[0] * shape[1]).reshape(shape)
    A[-1, 0] = bad
    assert np.isnan(pinv_of(engine, A)).all()


@pytest.mark.parametrize(("rows", "n"), [(1, 1), (2, 3), (3, 2), (3, 3)])
def test_derivatives_stay_finite_where_rank_is_lost(rows: int, n: int) -> None:
    A = ca.SX.sym("A", rows, n)
    Z, U, R, _, _ = decompose_function(rows, n)(A, TOLERANCE)
    slope = ca.Function("slope", [A], [ca.jacobian(ca.vertcat(ca.vec(Z), ca.vec(U), ca.vec(R)), ca.vec(A))])
    dependent = np.ones((rows, n))
    for at in (np.zeros((rows, n)), dependent, np.diag(np.ones(max(rows, n)))[:rows, :n]):
        assert np.isfinite(slope(at).full()).all()
    kernel = pinv_kernel(rows, n).function
    pinv_slope = ca.Function("pinv_slope", [A], [ca.jacobian(kernel(A), ca.vec(A))])
    for at in (np.zeros((rows, n)), dependent):
        assert np.isfinite(pinv_slope(at).full()).all()


def test_the_derivative_of_the_pseudoinverse_is_the_formula_of_golub_and_pereyra() -> None:
    random = np.random.default_rng(3)
    A, dA = random.standard_normal((2, 2, 3))
    symbol = ca.SX.sym("A", 2, 3)
    P = servoctl.pinv(A)
    slope = ca.Function("slope", [symbol], [ca.jacobian(pinv_kernel(2, 3).function(symbol), ca.vec(symbol))])
    along = (slope(A).full() @ dA.ravel(order="F")).reshape((3, 2), order="F")
    expected = -P @ dA @ P + (np.eye(3) - P @ A) @ dA.T @ P.T @ P  # full row rank: the third term is zero
    np.testing.assert_allclose(along, expected, rtol=1e-12)


def test_the_size_of_a_matrix_has_a_finite_slope_at_zero() -> None:
    A = inputs({"A": (2, 2)})
    size = Kernel.compile("size", A, {"size": np.array([frobenius(A["A"])])})
    assert size(np.array([[3.0, 0.0], [0.0, 4.0]]))[0].tolist() == [5.0]
    assert np.isfinite(size.function.jacobian()(np.zeros((2, 2)), 0.0).full()).all()
    assert frobenius(np.zeros((0, 2))) == 0.0


@pytest.mark.parametrize("rows", [6, 25])  # 25: a decomposition of more than 20 rows is a call into LAPACK
def test_a_derivative_of_a_long_function_equals_the_one_that_is_written_out(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    weights = np.random.default_rng(0).standard_normal((rows, rows + 2))

    def derivative() -> Array:
        of = inputs({"t": (1,), "x": (rows + 2,)})
        split = decompose(weights * np.cos(of["x"] + of["t"]), TOLERANCE)
        kernel = Kernel.compile("solution", of, {"now": 1.0 * of["t"], "y": split.solve(of["x"][:rows])})
        return kernel.derivative("x", "y", slice(1, 4))(0.3, np.linspace(-1.0, 1.0, rows + 2))[0]

    written = derivative()
    monkeypatch.setattr("servoctl.engine.kernel.WRITTEN_OUT", 0)
    assert written.shape == (3, rows + 2)
    np.testing.assert_allclose(derivative(), written, rtol=1e-11, atol=1e-12)  # sums in another order
