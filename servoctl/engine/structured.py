"""The structure of matrices: `Diagonal`, places of entries, parts between zeros, and symmetry.

Design: `Diagonal` is a small value that NumPy takes as the dense matrix (`__array__`), so code that knows nothing about
structure works unchanged. Entries are numbers or symbols. Compiled functions give only the entries of a matrix that are
not zero as expressions; their places are a mask.

Design: Cholesky reads the lower triangle alone, so a mass matrix that is not symmetric would give a wrong motion
without an error. Every evaluation therefore compares both triangles, `|M[i, j] - M[j, i]| <= tolerance trace|M|`,
unless symmetry is certain: both expressions are equal, or their difference contains analytic operations only. An
analytic function that is zero at random states is zero at all.
"""

from typing import Any

import casadi as ca
import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from servoctl.engine.symbol import Symbol, where
from servoctl.types import Array


class Diagonal(NDArrayOperatorsMixin):
    """A diagonal matrix.

    Args:
        entries: Its diagonal, shape (n,): numbers, or symbols while a plant is traced.

    Raises:
        ValueError: The entries are not a vector.
    """

    def __init__(self, entries: Any) -> None:
        self.values = np.asarray(entries)  # the diagonal, shape (n,)
        if self.values.ndim != 1:
            raise ValueError(f"Diagonal: expected the diagonal as a vector, got shape {self.values.shape}")
        self.shape = (len(self.values), len(self.values))

    @property
    def T(self) -> "Diagonal":
        """The transposed matrix."""
        return self

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        dense = filled(np.eye(len(self)) > 0.0, self.values)
        return dense if dtype is None else dense.astype(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        dense = [np.asarray(x) if isinstance(x, Diagonal) else x for x in inputs]
        return getattr(ufunc, method)(*dense, **options)

    def __getattr__(self, name: str) -> Any:
        """Everything else that an array has, from the dense matrix."""
        if name.startswith("_") or name in ("shape", "values"):
            raise AttributeError(name)  # as while a copy is being made
        return getattr(np.asarray(self), name)

    def __getitem__(self, index: Any) -> Any:
        return np.asarray(self)[index]

    def __matmul__(self, x: Any) -> Array:
        x = np.asarray(x)
        product: Array = self.values * x if x.ndim == 1 else np.asarray(self) @ x
        return product


def is_zero(value: Any) -> bool:
    """Whether an entry is zero: as a number, or as an expression, whatever its symbols are."""
    return bool(value.sx.is_zero()) if isinstance(value, Symbol) else bool(value == 0.0)


def entries(matrix: Array | Diagonal) -> Array:
    """All entries of an array, or the diagonal of a `Diagonal`, in one vector."""
    return matrix.values if isinstance(matrix, Diagonal) else np.ravel(matrix)


def places_of(matrix: Any) -> Array:
    """Where the entries of a matrix may differ from zero, as numbers or as expressions: a mask of its shape."""
    if isinstance(matrix, Diagonal):
        return np.asarray(np.eye(len(matrix)), dtype=float) > 0.0
    dense = np.asarray(matrix)
    return np.array([not is_zero(x) for x in dense.flat], dtype=bool).reshape(dense.shape)


def filled(places: Array, values: Array) -> Array:
    """The matrix with these entries at the places of a mask, and zeros elsewhere."""
    # numpy.zeros makes object arrays while a plant is traced
    dense: Array = np.full(places.shape, 0.0).astype(object if values.dtype == object else float)
    dense[places] = values
    return dense


def smallest_eigenvalue(M: Array | Diagonal) -> float:
    """The smallest eigenvalue of a symmetric matrix of finite numbers; 0 for no rows."""
    if isinstance(M, Diagonal):
        return float(M.values.min(initial=np.inf)) if len(M) else 0.0
    return float(np.linalg.eigvalsh(M / 2 + M.T / 2)[0]) if len(M) else 0.0


def diagonal_parts(M: Array) -> list[Array]:
    """The indices of each block of a square matrix that has zeros between its blocks."""
    rows, columns = np.nonzero(places_of(M))
    count, label = components(rows, columns, len(M))
    return [np.flatnonzero(label == part) for part in range(count)]


def components(one: Array, other: Array, size: int) -> tuple[int, Array]:
    """Number of connected components of a graph, and the component of each node, shape (size,).

    SciPy has this too, but its import takes a tenth of the time to start a command.

    Args:
        one, other: The nodes that each edge connects, shape (edges,).
        size: Number of nodes.
    """
    label = np.arange(size)
    while True:
        least = np.minimum(label[one], label[other])
        following = label.copy()
        np.minimum.at(following, one, least)
        np.minimum.at(following, other, least)
        following = following[following]  # a label leads to the one that its own node has
        if np.array_equal(following, label):
            first = label == np.arange(size)  # not numpy.unique, whose first call imports what a trace has replaced
            return int(first.sum()), (np.cumsum(first) - 1)[label]
        label = following


def blocks(A: Array) -> list[tuple[Array, Array]]:
    """Rows and columns of each part of a matrix between which all entries are zero; zero rows and columns are left out.

    Args:
        A: Numbers and symbols, shape (r, n).
    """
    rows, columns = np.nonzero(places_of(A))
    count, label = components(rows, len(A) + columns, sum(A.shape))
    order = np.argsort(label, kind="stable")
    members = np.split(order, np.searchsorted(label[order], np.arange(1, count)))
    parts = [(part[part < len(A)], part[part >= len(A)] - len(A)) for part in members]
    return [(one, other) for one, other in parts if len(one) and len(other)]


SYMMETRIC = 1e-9
"""Two mirrored entries are equal if they differ by less than this times the sum of the diagonal's magnitudes."""

_DEPTH = 20  # depth to which two expressions are compared

_NAMES = "INPUT OUTPUT CONST ASSIGN ADD SUB MUL DIV NEG INV SQ TWICE SIN COS TAN SINH COSH TANH ATAN EXP EXPM1"
_ANALYTIC = {getattr(ca, f"OP_{name}") for name in _NAMES.split()}


def asymmetry(M: Array | Diagonal, limit: float | None = None) -> tuple[int, int] | None:
    """Row and column of the mirrored entries that differ most, in a matrix of finite numbers; None: it is symmetric.

    Args:
        limit: They may differ by this much; None: by `SYMMETRIC` times the sum of the diagonal's magnitudes.
    """
    if isinstance(M, Diagonal):
        return None
    M = np.asarray(M)
    difference = np.abs(M - M.T)
    if not difference.max(initial=0.0) > (SYMMETRIC * np.abs(np.diag(M)).sum() if limit is None else limit):
        return None
    i, j = np.unravel_index(int(np.argmax(difference)), difference.shape)
    return int(i), int(j)


def is_symmetric(M: Array) -> Any:
    """Whether a matrix is symmetric: 1 or 0, or a symbol."""
    scale: Any = 0.0
    for entry in np.diag(M):
        scale = scale + abs(entry)
    result: Any = 1.0
    for upper, lower in _pairs(M):
        result = where(abs(upper - lower) <= SYMMETRIC * scale, result, 0.0)
    return result


def certainly_symmetric(M: Array | Diagonal) -> bool:
    """Whether a matrix of symbols that is symmetric at random states is symmetric at every state."""
    if isinstance(M, Diagonal):
        return True
    M = np.asarray(M)
    differences = [upper - lower for upper, lower in _pairs(M)]
    symbolic = [difference.sx for difference in differences if isinstance(difference, Symbol)]
    if len(symbolic) < len(differences):
        return False
    together = ca.vertcat(ca.SX(0, 1), *symbolic)
    function = ca.Function("differences", ca.symvar(together), [together])
    return all(function.instruction_id(i) in _ANALYTIC for i in range(function.n_instructions()))


def _pairs(M: Array) -> list[tuple[Any, Any]]:
    """Mirrored entries that are not the same expression."""
    n = len(M)
    pairs = [(M[i, j], M[j, i]) for i in range(n) for j in range(i + 1, n)]
    return [(upper, lower) for upper, lower in pairs if not _same(upper, lower)]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Symbol) and isinstance(other, Symbol):
        return one is other or bool(ca.is_equal(one.sx, other.sx, _DEPTH))
    return not isinstance(one, Symbol) and not isinstance(other, Symbol) and bool(one == other)
