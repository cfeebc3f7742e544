"""Reductions to independent accelerations give the motion of least constraint, whatever their basis."""

import numpy as np
import pytest

from servoctl.bench.pseudoinverse_methods import REDUCTIONS, RankRule

EACH = pytest.mark.parametrize("name", REDUCTIONS)


def rows(random: np.random.Generator, r: int, n: int, rank: int) -> np.ndarray:
    return random.standard_normal((r, rank)) @ random.standard_normal((rank, n))


@EACH
@pytest.mark.parametrize(("r", "n", "rank"), [(3, 6, 3), (5, 6, 3), (4, 4, 4), (7, 5, 2), (2, 6, 0)])
def test_the_step_solves_the_saddle_point_equations(name: str, r: int, n: int, rank: int) -> None:
    random = np.random.default_rng(3)
    A = rows(random, r, n, rank)
    W = random.standard_normal((n, n))
    M = W @ W.T + np.eye(n)
    b = A @ random.standard_normal(n)
    reduction = REDUCTIONS[name](A, RankRule(1e-10))
    d = reduction.solve(M, b)
    # [[M, A^T], [A, 0]] [d; lambda] = [0; b], by least squares because lambda is not unique
    K = np.block([[M, A.T], [A, np.zeros((r, r))]])
    expected = np.linalg.lstsq(K, np.concatenate([np.zeros(n), b]), rcond=1e-12)[0][:n]
    assert reduction.rank == rank
    np.testing.assert_allclose(d, expected, atol=1e-9 * max(1.0, np.abs(expected).max()))


@EACH
def test_the_basis_spans_the_null_space(name: str) -> None:
    A = rows(np.random.default_rng(4), 5, 8, 4)
    reduction = REDUCTIONS[name](A, RankRule(1e-10))
    assert reduction.S.shape == (8, 4)
    assert np.linalg.matrix_rank(reduction.S) == 4
    np.testing.assert_allclose(A @ reduction.S, 0.0, atol=1e-12)
    np.testing.assert_allclose(A @ reduction.G @ A, A, atol=1e-12)


@EACH
def test_the_rank_follows_the_rule(name: str) -> None:
    A = np.diag([1.0, 1e-6])
    assert REDUCTIONS[name](A, RankRule(1e-5)).rank == 1
    assert REDUCTIONS[name](A, RankRule(1e-7)).rank == 2
