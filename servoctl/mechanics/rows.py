"""Rows of constraints at one state, on numbers or on symbols."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from servoctl.engine.structured import Sparse
from servoctl.types import Array


@dataclass(frozen=True)
class Rows:
    """Constraints at one state: `A q'' = b`."""

    A: Any  # shape (r, n); `Sparse` while it is an expression in many coordinates
    b: Array  # shape (r,)
    violation: Array  # phi or psi, shape (r,); NaN for a row without one
    violation_rate: Array  # phi_q v + phi_t, shape (r,); NaN for a row without one
    # second and higher time derivatives of the violation in which no input appears, shape (r, h), 0 for rows with
    # fewer; None: there are none. Only differentiated rows (`laws.input_output`) have them
    higher: Array | None = None

    def dense(self) -> "Rows":
        """The same rows, with A as an array."""
        return self if isinstance(self.A, np.ndarray) else replace(self, A=np.asarray(self.A))

    @classmethod
    def stack(cls, parts: "list[Rows]", n: int) -> "Rows":
        """The rows of several constraints on n coordinates, in order."""
        empty = cls(np.zeros((0, n)), np.zeros(0), np.zeros(0), np.zeros(0))
        every = [empty, *parts]
        sparse = any(isinstance(rows.A, Sparse) for rows in every)
        width = max(0 if rows.higher is None else rows.higher.shape[1] for rows in every)
        higher = [np.zeros((len(rows.b), width), dtype=object if width else float) for rows in every]
        for padded, rows in zip(higher, every, strict=True):
            if rows.higher is not None:
                padded[:, : rows.higher.shape[1]] = rows.higher
        return cls(
            Sparse.stack([rows.A for rows in every], n) if sparse else np.concatenate([rows.A for rows in every]),
            np.concatenate([rows.b for rows in every]),
            np.concatenate([rows.violation for rows in every]),
            np.concatenate([rows.violation_rate for rows in every]),
            np.concatenate(higher),
        )


class InputRows(NamedTuple):
    """Rows on the inputs at one state: `T u = rhs`, or `T u >= rhs`."""

    T: Array  # shape (k, m)
    rhs: Array  # shape (k,)
    size: Any  # pivots of T count relative to this times |L^-1 B|_F
