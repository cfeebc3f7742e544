"""The pseudoinverse of a large matrix whose rows touch few neighbouring columns, on numbers, by block after block.

    A^T = Q R,   A^+ = Q R^-T,   A^+ A = Q Q^T

Rows and columns are put in an order in which the entries lie close to the diagonal. QR then takes some rows of A at a
time together with what earlier blocks left over, so a step is small and Q stays a product of small factors.

Design: rows are taken in a fixed order, without pivots, so this serves full row rank alone. It is certain where
`1 / |R^-1|_F`, a lower bound of the smallest singular value, exceeds the tolerance: a pivot of any order of the rows is
at least that singular value, so the pivoted decomposition would count every direction too. Elsewhere the caller takes
that one. Unlike `A A^T`, QR does not square the condition number.

Source: Bjorck 1996, section 6.3, for QR of banded matrices in blocks; the rank test is ours.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from servoctl.engine.structured import Sparse
from servoctl.types import Array

BLOCK = 24  # rows of A that are eliminated at a time
SAFE = 2.0  # the bound must exceed the tolerance by this factor, far more than its rounding errors


@dataclass(frozen=True)
class Step:
    """Elimination of one block of rows of A.

    Attributes:
        block, beyond: The rows of A that it eliminates, and those after them that it changes, as places in the order.
        columns: Columns of A that it takes in.
        carried: Number of rows of R that earlier steps left over.
        shape: Of the small matrix, a part of A^T.
        at, entries: Where in that matrix, row after row, entries of A go, and which entries these are.
    """

    block: slice
    beyond: slice
    columns: Array
    carried: int
    shape: tuple[int, int]
    at: Array
    entries: Array


@dataclass(frozen=True)
class Plan:
    """The steps for all matrices with entries at the same places."""

    rows: Array  # order of the rows of A
    width: int  # largest number of columns of A that a step works on
    steps: tuple[Step, ...]  # in order


class BandedDecomposition:
    """The factors of a matrix A of full row rank, shape (r, n); see `decomposition.Decomposition` for the methods."""

    def __init__(self, plan: Plan, factors: list[Array], triangles: list[Array], n: int, scale: float) -> None:
        """Keeps small factors Q and R of each step, of `A / scale`."""
        self._plan, self._factors, self._triangles, self._n, self._scale = plan, factors, triangles, n, scale
        self._inverses = [np.linalg.inv(R[:, : len(R)]) for R in triangles]
        self.rank = len(plan.rows)

    @property
    def smallest(self) -> float:
        """A lower bound of the smallest singular value of `A / scale`."""
        inverse = self._forward(np.eye(self.rank))
        return 1.0 / float(np.sqrt(np.sum(inverse * inverse)))

    def dense(self) -> tuple[Array, Array, Array]:
        """Z, U and R as `Decomposition` has them: `A[rows] = R^T Q^T`, from the last row to the first."""
        order = self._plan.rows[::-1]
        R = np.zeros((self.rank, self.rank))
        for step, triangle in zip(self._plan.steps, self._triangles, strict=True):
            R[step.block, step.block.start : step.block.start + triangle.shape[1]] = triangle
        U = np.zeros((self.rank, self.rank))
        U[order, np.arange(self.rank)] = 1.0
        Z = self._spread(np.eye(self.rank)).T[::-1]
        return Z, U, R.T[::-1, ::-1]

    def solve(self, b: Array) -> Array:
        """A^+ b, shape (n,) or (n, columns)."""
        rest: Array = self._spread(self._forward(np.asarray(b, dtype=float)[self._plan.rows])) / self._scale
        return rest

    def project(self, w: Array) -> Array:
        """w - A^+ A w for w of shape (n,) or (n, columns)."""
        w = np.asarray(w, dtype=float)
        rest: Array = w - self._spread(self._gathered(w))
        return rest

    def residual(self, b: Array) -> Array:
        """(I - A A^+) b, which is zero at full row rank."""
        return np.zeros_like(b, dtype=float)

    def _forward(self, b: Array) -> Array:
        """R^-T b; b is overwritten."""
        for step, R, inverse in zip(self._plan.steps, self._triangles, self._inverses, strict=True):
            b[step.block] = inverse.T @ b[step.block]
            b[step.beyond] -= R[:, len(R) :].T @ b[step.block]
        return b

    def _gathered(self, w: Array) -> Array:
        """Q^T w."""
        y, carried = np.empty((self.rank, *w.shape[1:])), np.empty((0, *w.shape[1:]))
        for step, Q in zip(self._plan.steps, self._factors, strict=True):
            parts = Q.T @ np.concatenate([carried, w[step.columns]])
            size = step.block.stop - step.block.start
            y[step.block], carried = parts[:size], parts[size:]
        return y

    def _spread(self, y: Array) -> Array:
        """Q y."""
        w, carried = np.zeros((self._n, *y.shape[1:])), np.empty((0, *y.shape[1:]))
        for step, Q in zip(reversed(self._plan.steps), reversed(self._factors), strict=True):
            parts = Q @ np.concatenate([y[step.block], carried])
            w[step.columns], carried = parts[step.carried :], parts[: step.carried]
        return w


def decompose_banded(A: Sparse, tolerance: float, scale: float) -> BandedDecomposition | None:
    """The decomposition of A in bands; None where it is not narrow, or its rank may be lower than its number of rows.

    Args:
        A: Finite numbers, shape (r, n).
        tolerance: A direction counts if its pivot exceeds this times the scale.
        scale: Positive number.
    """
    plan = plan_of(A.shape, A.rows.tobytes(), A.columns.tobytes())
    if plan is None:
        return None
    values = np.asarray(A.values, dtype=float) / scale
    factors, triangles, rest = [], [], np.zeros((0, 0))
    for step in plan.steps:
        part = np.zeros(step.shape)
        part[: step.carried, : rest.shape[1]] = rest
        part.reshape(-1)[step.at] = values[step.entries]
        Q, R = np.linalg.qr(part)
        size = step.block.stop - step.block.start
        if not np.all(np.diag(R[:size]) != 0.0):
            return None
        factors.append(Q)
        triangles.append(R[:size])
        rest = R[size:, size:]
    split = BandedDecomposition(plan, factors, triangles, A.shape[1], scale)
    return split if split.smallest > SAFE * tolerance else None


@lru_cache(maxsize=16)
def plan_of(shape: tuple[int, int], rows: bytes, columns: bytes) -> Plan | None:
    """The steps for a matrix of this shape with entries at these places; None where bands would not pay.

    Args:
        shape: (r, n).
        rows, columns: Places of the entries, as the bytes of two arrays of integers.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    r, n = shape
    i, j = np.frombuffer(rows, dtype=int), np.frombuffer(columns, dtype=int)
    pattern = csr_array((np.ones(len(i)), (i, j)), shape=shape)
    order = np.asarray(reverse_cuthill_mckee((pattern @ pattern.T).tocsr(), symmetric_mode=True), dtype=int)
    place = np.empty(r, dtype=int)
    place[order] = np.arange(r)
    i = place[i]
    first, last = np.full(n, r), np.full(n, -1)
    np.minimum.at(first, j, i)
    np.maximum.at(last, j, i)
    steps: list[Step] = []
    carried, reached = 0, 0
    for start in range(0, r, BLOCK):
        stop = min(start + BLOCK, r)
        taken = np.flatnonzero((start <= first) & (first < stop))
        reached = max(reached, stop, int(last[taken].max(initial=-1)) + 1)
        height, width = carried + len(taken), reached - start
        if height < stop - start or width > n // 2:
            return None
        row = np.full(n, -1)
        row[taken] = np.arange(carried, height)
        used = np.flatnonzero(row[j] >= 0)
        at = row[j[used]] * width + i[used] - start
        steps.append(Step(slice(start, stop), slice(stop, reached), taken, carried, (height, width), at, used))
        carried = min(height, width) - (stop - start)
    return Plan(order, max(step.shape[1] for step in steps), tuple(steps)) if steps else None
