"""The decomposition of a large matrix whose rows touch few neighbouring columns, on numbers, block after block.

    A^T = Q R

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
    """Elimination of one block of rows of A."""

    # block, beyond: the rows of A that it eliminates, and those after them that it changes, as places in the order
    block: slice
    beyond: slice
    columns: Array  # columns of A that it takes in
    carried: int  # number of rows of R that earlier steps left over
    shape: tuple[int, int]  # of the small matrix, a part of A^T
    # at, entries: where in that matrix, row after row, entries of A go, and which entries these are
    at: Array
    entries: Array


@dataclass(frozen=True)
class Plan:
    """The steps for all matrices with entries at the same places."""

    rows: Array  # order of the rows of A
    width: int  # largest number of columns of A that a step works on
    steps: tuple[Step, ...]  # in order


class BandedDecomposition:
    """The factors of a matrix A of full row rank, shape (r, n), with small factors Q and R of each step."""

    def __init__(self, plan: Plan, factors: list[Array], triangles: list[Array], n: int) -> None:
        self._plan, self._factors, self._triangles, self._n = plan, factors, triangles, n
        self._inverses = [np.linalg.inv(R[:, : len(R)]) for R in triangles]
        self._rank = len(plan.rows)

    @property
    def smallest(self) -> float:
        """A lower bound of the smallest singular value of A."""
        inverse = self._forward(np.eye(self._rank))
        return 1.0 / float(np.sqrt(np.sum(inverse * inverse)))

    def factors(self) -> tuple[Array, Array, Array]:
        """Z, U and R as `Decomposition` has them: `A[rows] = R^T Q^T`, from the last row to the first."""
        order = self._plan.rows[::-1]
        R, U = np.zeros((2, self._rank, self._rank))
        for step, triangle in zip(self._plan.steps, self._triangles, strict=True):
            R[step.block, step.block.start : step.block.start + triangle.shape[1]] = triangle
        U[order, np.arange(self._rank)] = 1.0
        return self._spread(np.eye(self._rank)).T[::-1], U, R.T[::-1, ::-1]

    def _forward(self, b: Array) -> Array:
        """R^-T b; b is overwritten."""
        for step, R, inverse in zip(self._plan.steps, self._triangles, self._inverses, strict=True):
            b[step.block] = inverse.T @ b[step.block]
            b[step.beyond] -= R[:, len(R) :].T @ b[step.block]
        return b

    def _spread(self, y: Array) -> Array:
        """Q y."""
        w, carried = np.zeros((self._n, *y.shape[1:])), np.empty((0, *y.shape[1:]))
        for step, Q in zip(reversed(self._plan.steps), reversed(self._factors), strict=True):
            parts = Q @ np.concatenate([y[step.block], carried])
            w[step.columns], carried = parts[step.carried :], parts[: step.carried]
        return w


def decompose_banded(A: Sparse, tolerance: float) -> BandedDecomposition | None:
    """The decomposition of A in bands; None where it is not narrow, or its rank may be lower than its number of rows.

    Args:
        A: Finite numbers, shape (r, n).
        tolerance: A direction counts if its pivot exceeds this.
    """
    plan = plan_of(A.shape, A.rows.tobytes(), A.columns.tobytes())
    if plan is None:
        return None
    values = A.values
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
    split = BandedDecomposition(plan, factors, triangles, A.shape[1])
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
