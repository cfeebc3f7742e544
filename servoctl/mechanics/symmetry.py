"""Whether a mass matrix is symmetric: at one state on numbers or symbols, or for certain at every state.

    |M[i, j] - M[j, i]| <= tolerance trace|M|

Design: Cholesky reads the lower triangle alone, so a matrix that is not symmetric would give a wrong motion without an
error. Every evaluation therefore compares both triangles, unless symmetry is certain: both expressions are equal, or
their difference contains analytic operations only. An analytic function that is zero at random states is zero at all.
"""

from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.structured import Diagonal
from servoctl.engine.symbol import Symbol, where
from servoctl.types import Array

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
