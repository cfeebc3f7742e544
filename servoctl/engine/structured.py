"""Matrices that state which of their entries can differ from zero: `Diagonal` and, in general, `Sparse`.

Design: each is a small value that NumPy takes as the dense matrix (`__array__`), so code that knows nothing about
structure works unchanged. Code for large machines reads `rows`, `columns` and `values`. Entries are numbers or symbols.
"""

from collections.abc import Sequence
from typing import Any

import casadi as ca
import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from servoctl.engine.symbol import Symbol, from_sx, to_sx
from servoctl.errors import PlantError
from servoctl.types import Array


class Sparse(NDArrayOperatorsMixin):
    """A matrix that is zero outside the listed places."""

    def __init__(self, shape: tuple[int, int], rows: Array, columns: Array, values: Array) -> None:
        # shape: rows and columns
        # values: the entries, shape (entries,)
        self.shape, self.values = shape, values
        # rows, columns: place of each entry, shape (entries,); no place is listed twice
        self.rows, self.columns = np.asarray(rows, dtype=int), np.asarray(columns, dtype=int)

    @classmethod
    def of(cls, matrix: Any) -> "Sparse":
        """A matrix without the entries that are zero as numbers or as expressions; a `Sparse` stays as it is."""
        if isinstance(matrix, Sparse):
            return matrix
        dense = np.asarray(matrix)
        kept = np.array([not is_zero(x) for x in dense.flat], dtype=bool).reshape(dense.shape)
        rows, columns = np.nonzero(kept)
        return cls((dense.shape[0], dense.shape[1]), rows, columns, dense[kept])

    @classmethod
    def stack(cls, parts: "Sequence[Array | Sparse]", columns: int) -> "Sparse":
        """Matrices with this number of columns, one below the other."""
        pieces, first = [], 0
        for part in map(cls.of, parts):
            pieces.append((part.rows + first, part.columns, part.values))
            first += part.shape[0]
        rows, places, values = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
        return cls((first, columns), rows, places, values)

    @classmethod
    def at(cls, shape: Sequence[int], rows: Sequence[int], columns: Sequence[int]) -> "Sparse":
        """The matrix with ones at these places."""
        return cls(
            (shape[0], shape[1]), np.array(rows, dtype=int), np.array(columns, dtype=int), np.full(len(rows), 1.0)
        )

    def places(self) -> list[list[int]]:
        """The arguments of `at`."""
        return [list(self.shape), self.rows.tolist(), self.columns.tolist()]

    def with_values(self, values: Array) -> "Sparse":
        """The matrix with other entries at the same places."""
        return Sparse(self.shape, self.rows, self.columns, values)

    def entries_of(self, matrix: "Array | Sparse") -> Array:
        """The entries of another matrix at the places of this one.

        Raises:
            PlantError: It has entries elsewhere.
        """
        if not isinstance(matrix, Sparse):
            values: Array = np.asarray(matrix)[self.rows, self.columns]
            if values.size == np.size(matrix) or np.count_nonzero(values) == np.count_nonzero(matrix):
                return values
        elif self.same_places(matrix):
            return matrix.values
        raise PlantError("the structure of M, B or A depends on the state (return the same structure at every state)")

    def same_places(self, other: "Sparse") -> bool:
        """Whether another matrix lists the same places in the same order."""
        same = self.shape == other.shape and np.array_equal(self.rows, other.rows)
        return same and np.array_equal(self.columns, other.columns)

    @property
    def is_diagonal(self) -> bool:
        """Whether it lists exactly the entries of the diagonal, from the first to the last."""
        every = np.arange(self.shape[0])
        return self.shape[0] == self.shape[1] and all(np.array_equal(x, every) for x in (self.rows, self.columns))

    @property
    def T(self) -> "Sparse":
        """The transposed matrix."""
        return Sparse((self.shape[1], self.shape[0]), self.columns, self.rows, self.values)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        values = np.asarray(self.values)
        # not numpy.zeros, which makes object arrays while a plant is traced
        dense: Array = np.full(self.shape, 0.0).astype(object if values.dtype == object else float)
        dense[self.rows, self.columns] = values
        return dense if dtype is None else dense.astype(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        dense = [np.asarray(x) if isinstance(x, Sparse) else x for x in inputs]
        return getattr(ufunc, method)(*dense, **options)

    def __getattr__(self, name: str) -> Any:
        """Everything else that an array has, from the dense matrix."""
        if name.startswith("_") or name in ("shape", "rows", "columns", "values"):
            raise AttributeError(name)  # as while a copy is being made
        return getattr(np.asarray(self), name)

    def __getitem__(self, index: Any) -> Any:
        return np.asarray(self)[index]

    def __matmul__(self, x: Any) -> Array:
        x = np.asarray(x)
        if x.ndim != 1:
            product: Array = np.asarray(self) @ x
            return product
        result: Array = np.zeros(self.shape[0], dtype=object if object in (x.dtype, self.values.dtype) else float)
        np.add.at(result, self.rows, self.values * x[self.columns])
        return result


class Diagonal(Sparse):
    """A diagonal matrix.

    Args:
        entries: Its diagonal, shape (n,): numbers, or symbols while a plant is traced.

    Raises:
        ValueError: The entries are not a vector.
    """

    def __init__(self, entries: Any) -> None:
        values = np.asarray(entries)
        if values.ndim != 1:
            raise ValueError(f"Diagonal: expected the diagonal as a vector, got shape {values.shape}")
        n = len(values)
        super().__init__((n, n), np.arange(n), np.arange(n), values)


def is_zero(value: Any) -> bool:
    """Whether an entry is zero: as a number, or as an expression, whatever its symbols are."""
    return bool(value.sx.is_zero()) if isinstance(value, Symbol) else bool(value == 0.0)


def entries(matrix: "Array | Sparse") -> Array:
    """All entries of an array, or the listed entries of a sparse matrix, in one vector."""
    return matrix.values if isinstance(matrix, Sparse) else np.ravel(matrix)


def entries_of(matrix: Any) -> Array:
    """What a compiled function takes or gives of a matrix: all of an array, the listed entries of a `Sparse`."""
    values: Array = matrix.values if isinstance(matrix, Sparse) else matrix
    return values


def with_entries(form: Any, values: Array) -> Any:
    """The matrix with these `entries_of`, in the form of another."""
    return form.with_values(values) if isinstance(form, Sparse) else values


def smallest_eigenvalue(M: "Array | Sparse") -> float:
    """The smallest eigenvalue of a symmetric matrix of finite numbers; 0 for no rows."""
    if isinstance(M, Sparse) and M.is_diagonal:
        return float(M.values.min(initial=np.inf)) if len(M) else 0.0
    places, dense = diagonal_parts(M) if isinstance(M, Sparse) else [np.arange(len(M))], np.asarray(M)
    parts = [dense[np.ix_(place, place)] for place in places if len(place)]
    return min((float(np.linalg.eigvalsh(part / 2 + part.T / 2)[0]) for part in parts), default=0.0)


def diagonal_parts(M: "Array | Sparse") -> list[Array]:
    """The indices of each block of a square matrix that has zeros between its blocks."""
    places = Sparse.of(M)
    count, label = components(places.rows, places.columns, len(M))
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
    filled = np.array([not is_zero(entry) for entry in A.flat], dtype=bool).reshape(A.shape)
    rows, columns = np.nonzero(filled)
    count, label = components(rows, len(A) + columns, sum(A.shape))
    order = np.argsort(label, kind="stable")
    members = np.split(order, np.searchsorted(label[order], np.arange(1, count)))
    parts = [(part[part < len(A)], part[part >= len(A)] - len(A)) for part in members]
    return [(one, other) for one, other in parts if len(one) and len(other)]


def sparse_jacobian(expressions: Array, variables: Array) -> Sparse:
    """Partial derivatives of a vector of symbols: the structural nonzeros of (len(expressions), len(variables))."""
    shape = (len(expressions), len(variables))
    if 0 in shape:
        return Sparse(shape, np.arange(0), np.arange(0), np.zeros(0))
    found = ca.jacobian(to_sx(expressions), to_sx(variables))
    rows, columns = found.sparsity().get_triplet()
    values = from_sx(ca.vertcat(*found.nonzeros()), (len(rows),)) if rows else np.zeros(0)
    return Sparse(shape, np.array(rows, dtype=int), np.array(columns, dtype=int), values)
