"""The Moore-Penrose inverse by five published methods and by the framework's own, under one rule for the rank.

    svd            A = U S V^T,  A^+ = V S^+ U^T
    varga          A = U G,  G^T = V^T G2^T (two QR factorisations),  A^+ = V^T G2^-1 U^T
    greville       A^+ grows row by row
    householder    least squares of [[I, A^T], [A, 0]] [x; lambda] = [0; b] by Householder QR, b every unit vector
    gram_schmidt   the same by modified Gram-Schmidt
    cod            what servoctl itself uses (engine.decomposition)

Design: these are for study and comparison; laws and simulations use `cod`, which runs on symbols too. Every method
takes the matrix divided by the rule's scale and counts its own pivots by the rule. The two least-squares methods see
a small singular value s as a pivot near s^2, so that they decide rank as if the tolerance were its square root.

Source: de Falco, Pennestri, Vita, 2 and 4.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr

from servoctl.engine.decomposition import decompose, frobenius
from servoctl.engine.linalg import solve_lower, solve_upper
from servoctl.errors import ConfigError
from servoctl.types import Array


@dataclass(frozen=True)
class RankRule:
    """Which directions of a matrix count: those whose pivot is strictly greater than the tolerance times a scale.

    A pivot is what a method divides by: a singular value, a diagonal entry of a triangle, the length of a remainder.

    Attributes:
        tolerance: From 0 up to 1; where the rule is absolute, in the units of the matrix.
        relative: Whether the scale is |A|_F, as everywhere in servoctl; else it is 1, as published.

    Raises:
        ConfigError: The tolerance is out of its range.

    Source: de Falco, Pennestri, Vita, 4, for the absolute rule.
    """

    tolerance: float = 1e-10
    relative: bool = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.tolerance < 1.0:
            raise ConfigError(f"RankRule: tolerance: expected a number from 0 up to 1, got {self.tolerance}")

    def scale(self, A: Array) -> float:
        """What the pivots of A are measured against; never 0."""
        return float(frobenius(A)) or 1.0 if self.relative else 1.0


Method = Callable[[Array, RankRule], tuple[Array, int]]
"""(A, rule) -> (A^+, rank), for a finite A of shape (r, n) with at least one row and one column."""


def svd(A: Array, rule: RankRule) -> tuple[Array, int]:
    """A^+ = V S^+ U^T, where S^+ has shape (n, r) and inverts the singular values that count.

    Source: de Falco, Pennestri, Vita, (15)-(16), where S^+ is printed with the shape of S.
    """
    scale = rule.scale(A)
    U, s, Vt = np.linalg.svd(A / scale, full_matrices=False)
    rank = _leading(s, rule)
    return (Vt[:rank].T / s[:rank]) @ U[:, :rank].T / scale, rank


def varga(A: Array, rule: RankRule) -> tuple[Array, int]:
    """A = U [G1; 0] and G1^T = V^T [G2^T; 0] give A^+ = V^T [[G2^-1, 0], [0, 0]] U^T.

    Columns are pivoted in the first factorisation (ours): without that G1 may have dependent rows, and no
    diagonal that tells the rank.

    Source: de Falco, Pennestri, Vita, (17)-(18).
    """
    scale = rule.scale(A)
    U, R, order = qr(A / scale, mode="economic", pivoting=True)
    rank = _leading(np.diag(R), rule)
    G1 = np.empty((rank, A.shape[1]))
    G1[:, order] = R[:rank]
    V, triangle = np.linalg.qr(G1.T)  # V^T and G2^T of the source
    return V @ solve_lower(triangle.T, U[:, :rank].T) / scale, rank


def greville(A: Array, rule: RankRule) -> tuple[Array, int]:
    """Adds one row a at a time to the matrix P = A_{i-1} whose inverse is known, and its column to the inverse:

        d = a P^+,   c = a - d P,   A_i^+ = [P^+ - b^T d | b^T]
        b = c / (c c^T)                      where c counts
        b = d (P^+)^T / (1 + d d^T)          where it does not

    The first row, which has no P, follows the same formulas.

    Source: de Falco, Pennestri, Vita, 2.5; the last b is printed with P^+ for (P^+)^T, whose shape does not even fit
    unless P is square, and which is wrong then too.
    """
    scale = rule.scale(A)
    rows = A / scale
    inverse, rank = np.zeros((A.shape[1], 0)), 0
    for i, a in enumerate(rows):
        d = a @ inverse
        c = a - d @ rows[:i]
        square = c @ c
        if np.sqrt(square) > rule.tolerance:
            b, rank = c / square, rank + 1
        else:
            b = inverse @ d / (1.0 + d @ d)
        inverse = np.column_stack([inverse - np.outer(b, d), b])
    return inverse / scale, rank


def householder(A: Array, rule: RankRule) -> tuple[Array, int]:
    """Column i of A^+ is x in the least-squares solution of the system (14) for the i-th unit vector.

    By Householder QR with column pivoting. Where A is rank deficient lambda is not unique, but x is, so that the
    basic solution will do.

    Source: de Falco, Pennestri, Vita, 2.2, (13)-(14). The system (12) that is printed for more rows than columns is
    singular where rank is lost and squares the condition number; (14) serves every shape.
    """
    scale, n = rule.scale(A), A.shape[1]
    K, right = _augmented(A / scale)
    Q, R, order = qr(K, pivoting=True)
    counted = _leading(np.diag(R), rule)
    solution = np.zeros(right.shape)
    solution[order[:counted]] = solve_upper(R[:counted, :counted].T, Q[:, :counted].T @ right)
    return solution[:n] / scale, max(counted - n, 0)


def gram_schmidt(A: Array, rule: RankRule) -> tuple[Array, int]:
    """The same least-squares solution by modified Gram-Schmidt, the largest remaining column first.

    The right-hand sides are orthogonalised along with the columns (the usual remedy, not in the source): products
    with the finished Q, which is orthogonal only to rounding times the condition number, would lose digits.

    Source: de Falco, Pennestri, Vita, 2.2, (13)-(14).
    """
    scale, n = rule.scale(A), A.shape[1]
    K, right = _augmented(A / scale)
    size, counted = len(K), 0
    rest, R, order = np.hstack([K, right]), np.zeros((size, size + right.shape[1])), np.arange(size)
    for j in range(size):
        columns = rest[:, j:size]
        largest = j + int(np.argmax(np.einsum("ij,ij->j", columns, columns)))
        for swapped in (rest.T, R.T, order):
            swapped[[j, largest]] = swapped[[largest, j]]
        pivot = np.sqrt(rest[:, j] @ rest[:, j])
        if not pivot > rule.tolerance:
            break
        counted = j + 1
        direction = rest[:, j] / pivot
        R[j, j], R[j, counted:] = pivot, direction @ rest[:, counted:]
        rest[:, counted:] -= np.outer(direction, R[j, counted:])
    solution = np.zeros(right.shape)
    solution[order[:counted]] = solve_upper(R[:counted, :counted].T, R[:counted, size:])
    return solution[:n] / scale, max(counted - n, 0)


def cod(A: Array, rule: RankRule) -> tuple[Array, int]:
    """The framework's own: the row-pivoted complete orthogonal decomposition of `engine.decomposition`."""
    split = decompose(A, rule.tolerance, rule.scale(A))
    return split.pseudoinverse(), split.rank


METHODS: dict[str, Method] = {
    "svd": svd,
    "varga": varga,
    "greville": greville,
    "householder": householder,
    "gram_schmidt": gram_schmidt,
    "cod": cod,
}
"""Name -> method: the published five in their order, then the framework's own."""


def _leading(pivots: Array, rule: RankRule) -> int:
    """How many pivots from the first on count."""
    return int(np.argmin(np.append(np.abs(pivots) > rule.tolerance, False)))


def _augmented(A: Array) -> tuple[Array, Array]:
    """[[I, A^T], [A, 0]], of rank n + rank A, and the right-hand sides [0; b] for b every unit vector."""
    r, n = A.shape
    K = np.block([[np.eye(n), A.T], [A, np.zeros((r, r))]])
    return K, np.vstack([np.zeros((n, r)), np.eye(r)])
