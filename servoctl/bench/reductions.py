"""Three reductions to independent accelerations, next to the pseudoinverses: coordinate partitioning, QR and SVD.

    A d = b,   d = G b + S z,   A S = 0,   (S^T M S) z = -S^T M G b

d is the acceleration that the constraints add to the free motion; of all d that satisfy them it has the least d^T M d,
which is the principle of Gauss. The reductions differ in S, a basis of the null space of A, and in G, which solves the
rows that count.

    coordinates    rows and columns are pivoted: A = [Ad Ai], S = [-Ad^-1 Ai; I], G = [Ad^-1; 0]
    qr             A^T = [Q1 Q2] [R; 0], S = Q2, G = Q1 R^-T
    svd            A = U1 S1 V1^T, S = V2, G = V1 S1^-1 U1^T

Source: de Falco, Pennestri, Vita, table 1, which compares them for teaching and prints no formulas or figures.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import qr

from servoctl.bench.pseudoinverse_methods import RankRule
from servoctl.types import Array


class Reduction(NamedTuple):
    """A null space of A, and a solution of its rows.

    Attributes:
        S: Basis of the null space, shape (n, n - rank).
        G: G b solves A d = b where the rows agree, shape (n, r).
        rank: Number of rows that count.
    """

    S: Array
    G: Array
    rank: int

    def solve(self, M: Array, b: Array) -> Array:
        """The d with A d = b and the least d^T M d, shape (n,)."""
        particular = self.G @ b
        weighted = self.S.T @ M
        step: Array = particular - self.S @ np.linalg.solve(weighted @ self.S, weighted @ particular)
        return step


def by_coordinates(A: Array, rule: RankRule) -> Reduction:
    """Gauss-Jordan elimination with complete pivoting; dependent coordinates are those of the pivots."""
    r, n = A.shape
    scale = rule.scale(A)
    reduced = np.hstack([A / scale, np.eye(r) / scale])  # the right part becomes the inverse of the rows that count
    columns, rank = np.arange(n), 0
    while rank < min(r, n):
        rest = np.abs(reduced[rank:, columns[rank:]])
        row, column = divmod(int(np.argmax(rest)), rest.shape[1])
        if not rest[row, column] > rule.tolerance:
            break
        reduced[[rank, rank + row]] = reduced[[rank + row, rank]]
        columns[[rank, rank + column]] = columns[[rank + column, rank]]
        reduced[rank] /= reduced[rank, columns[rank]]
        others = np.arange(r) != rank
        reduced[others] -= np.outer(reduced[others, columns[rank]], reduced[rank])
        rank += 1
    dependent, independent = columns[:rank], columns[rank:]
    S, G = np.zeros((n, n - rank)), np.zeros((n, r))
    S[dependent] = -reduced[:rank, independent]
    S[independent] = np.eye(n - rank)
    G[dependent] = reduced[:rank, n:]
    return Reduction(S, G, rank)


def by_qr(A: Array, rule: RankRule) -> Reduction:
    """Householder QR of A^T; its columns are pivoted, which tells the rank."""
    scale = rule.scale(A)
    Q, R, order = qr(A.T / scale, pivoting=True)
    rank = int(np.sum(np.abs(np.diag(R)) > rule.tolerance))
    G = np.zeros((A.shape[1], A.shape[0]))
    G[:, order[:rank]] = np.linalg.solve(R[:rank, :rank], Q[:, :rank].T).T / scale
    return Reduction(Q[:, rank:], G, rank)


def by_svd(A: Array, rule: RankRule) -> Reduction:
    """Singular value decomposition of A."""
    scale = rule.scale(A)
    U, s, Vt = np.linalg.svd(A / scale)
    rank = int(np.sum(s > rule.tolerance))
    return Reduction(Vt[rank:].T, (Vt[:rank].T / s[:rank]) @ U[:, :rank].T / scale, rank)


REDUCTIONS: dict[str, Callable[[Array, RankRule], Reduction]] = {
    "reduction: coordinates": by_coordinates,
    "reduction: qr": by_qr,
    "reduction: svd": by_svd,
}
"""Name -> reduction, in the order of the source."""
