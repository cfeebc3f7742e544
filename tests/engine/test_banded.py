"""The decomposition in bands against the pseudoinverse, and that it never counts a direction that pivots would not."""

import numpy as np
import pytest

from servoctl.engine.banded import BandedDecomposition, decompose_banded
from servoctl.engine.decomposition import decompose, decompose_rows
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
    return decompose_banded(Sparse.of(A), tolerance, float(np.linalg.norm(A)))


@pytest.mark.parametrize(("rows", "touched"), [(61, 3), (70, 2), (100, 5), (121, 8)])
def test_bands_solve_and_project_like_the_pseudoinverse(rows: int, touched: int) -> None:
    A, random = scattered(rows, touched), np.random.default_rng(1)
    b, w, W = random.standard_normal(rows), random.standard_normal(A.shape[1]), random.standard_normal((A.shape[1], 3))
    split, inverse = banded(A), np.linalg.pinv(A)
    assert split is not None
    assert split.rank == rows
    np.testing.assert_allclose(split.solve(b), inverse @ b, atol=1e-13 * np.abs(inverse).max() * rows)
    np.testing.assert_allclose(split.project(w), w - inverse @ (A @ w), atol=1e-13)
    np.testing.assert_allclose(split.project(W), W - inverse @ (A @ W), atol=1e-13)
    assert not split.residual(b).any()
    smallest = np.linalg.svd(A)[1][-1] / np.linalg.norm(A)
    assert 0.0 < split.smallest <= smallest * (1.0 + 1e-12)


def test_equal_rows_are_left_to_pivots() -> None:
    A = scattered(60, 4)
    A[7] = 2.0 * A[31]
    assert banded(A) is None
    assert decompose_rows(Sparse.of(A), TOLERANCE).rank == 59


def test_a_row_of_zeros_is_left_to_pivots() -> None:
    A = scattered(60, 4)
    A[7] = 0.0
    assert decompose_rows(Sparse.of(A), TOLERANCE).rank == 59


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
        assert decompose_rows(Sparse.of(A), TOLERANCE).rank == decompose(A, TOLERANCE).rank


def test_a_full_matrix_is_left_to_pivots() -> None:
    A = np.random.default_rng(0).standard_normal((40, 60))
    assert banded(A) is None
    np.testing.assert_allclose(decompose_rows(Sparse.of(A), TOLERANCE).solve(A[:, 0]), np.linalg.pinv(A) @ A[:, 0])
