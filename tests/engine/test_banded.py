"""The decomposition in bands against the pseudoinverse, and that it never counts a direction that pivots would not."""

import numpy as np
import pytest

from servoctl.engine.banded import BandedDecomposition, decompose_banded
from servoctl.engine.decomposition import decompose, decomposition_call
from servoctl.engine.structured import Sparse
from servoctl.types import Array

TOLERANCE = 1e-6


def scattered(rows: int, touched: int, seed: int = 0) -> Array:
    """A matrix whose rows touch few neighbouring columns, with rows and columns in random order."""
    random = np.random.default_rng(seed)
    A = np.zeros((rows, rows + touched))
    for i in range(rows):
        A[i, i : i + touched] = random.standard_normal(touched)
        A[i, i] += np.sign(A[i, i]) * 3.0
    return A[random.permutation(rows)][:, random.permutation(A.shape[1])]


def banded(A: Array, tolerance: float = TOLERANCE) -> BandedDecomposition | None:
    """The decomposition in bands, on the scale |A|_F."""
    return decompose_banded(Sparse.of_numbers(A / np.linalg.norm(A)), tolerance)


def rank(A: Array) -> int:
    """The rank that the operation finds, by bands or by pivots."""
    return int(decomposition_call(*A.shape)(A / np.linalg.norm(A), TOLERANCE)[3])


@pytest.mark.parametrize(("rows", "touched"), [(61, 3), (70, 2), (100, 5), (121, 8)])
def test_bands_give_the_factors_of_the_pseudoinverse(rows: int, touched: int) -> None:
    A = scattered(rows, touched)
    split, inverse = banded(A), np.linalg.pinv(A)
    assert split is not None
    Z, U, R = split.factors()
    assert not np.tril(R, -1).any()
    np.testing.assert_allclose(Z @ Z.T, np.eye(rows), atol=1e-13)
    np.testing.assert_allclose(U.T @ U, np.eye(rows), atol=0.0)
    np.testing.assert_allclose(U @ R @ Z, A / np.linalg.norm(A), atol=1e-15)
    found = Z.T @ np.linalg.solve(R, U.T) / np.linalg.norm(A)
    np.testing.assert_allclose(found, inverse, atol=1e-13 * np.abs(inverse).max() * rows)
    assert rank(A) == rows
    smallest = np.linalg.svd(A)[1][-1] / np.linalg.norm(A)
    assert 0.0 < split.smallest <= smallest * (1.0 + 1e-12)


def test_equal_rows_are_left_to_pivots() -> None:
    A = scattered(60, 4)
    A[7] = 2.0 * A[31]
    assert banded(A) is None
    assert rank(A) == 59


def test_a_row_of_zeros_is_left_to_pivots() -> None:
    A = scattered(60, 4)
    A[7] = 0.0
    assert rank(A) == 59


def test_large_entries_on_the_diagonal_do_not_hide_that_rank_is_lost() -> None:
    """Every row has a part of length 1 that earlier rows do not have, but the smallest singular value is near 2^-60."""
    A = np.eye(60) - 2.0 * np.eye(60, k=-1)
    assert np.abs(np.diag(np.linalg.qr(A.T)[1])).min() > 0.99
    assert banded(A) is None


@pytest.mark.parametrize("size", [1e-9, 1e-7, 9e-7, 1.1e-6, 1e-5, 1e-3])
def test_bands_count_only_what_pivots_count(size: float) -> None:
    for seed in range(5):
        A = scattered(40, 3, seed)
        A[11] = A[12] + size * np.linalg.norm(A) * A[11]
        if banded(A) is not None:
            assert decompose(A, TOLERANCE).rank == 40
            assert size > 1e-7
        assert rank(A) == decompose(A, TOLERANCE).rank


def test_a_full_matrix_is_left_to_pivots() -> None:
    A = np.random.default_rng(0).standard_normal((40, 60))
    assert banded(A) is None
    assert rank(A) == 40
