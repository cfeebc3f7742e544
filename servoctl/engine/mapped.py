"""One function of many like things: a loop in C, CasADi's `map` on the virtual machine.

Design: expressions that differ only in the symbols that they contain become one function and a list of its arguments.
Arguments that are the same number everywhere stay numbers in it, so products with 0 and 1 vanish; arguments that are
the same expression everywhere are passed once.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.symbol import Symbol, from_sx, symbols, to_sx
from servoctl.types import Array

_DEPTH = 5
"""Depth to which two arguments are compared."""


@dataclass(frozen=True)
class Mapped:
    """What the C code needs to write the loop.

    Attributes:
        one: CasADi function (shared, own) -> results of one thing.
        count: Number of things.
    """

    one: Any
    count: int


MAPPED: dict[str, Mapped] = {}
"""Name of a CasADi function that maps another -> what it maps."""


def for_each(function: Callable[[Array], Array], arguments: Sequence[Array]) -> Array:
    """The results of a function for each vector of arguments, shape (things, results), on symbols.

    Args:
        function: Arguments -> results, two vectors. It is called once, on placeholders.
        arguments: Numbers and symbols for each thing, shape (things, entries).
    """
    table = np.array([[_number(x) for x in row] for row in arguments], dtype=object)
    first = table[0]
    differs = np.array([any(not _same(row[j], x) for row in table) for j, x in enumerate(first)], dtype=bool)
    constant = np.array([not isinstance(x, Symbol) for x in first], dtype=bool) & ~differs
    once = ~differs & ~constant
    placeholders = first.copy()
    shared, own = symbols("shared", int(once.sum())), symbols("own", int(differs.sum()))
    placeholders[once], placeholders[differs] = shared, own
    results = ca.cse(to_sx(function(placeholders)))
    one = ca.Function("one", [to_sx(shared), to_sx(own)], [ca.densify(results)])
    name = hashlib.sha256(one.serialize().encode()).hexdigest()[:24]
    one = ca.Function(f"one_{name}", [to_sx(shared), to_sx(own)], [ca.densify(results)], {"never_inline": True})
    found = _mapped(one, len(table))(to_sx(first[once]), to_sx(table[:, differs].ravel()))
    return from_sx(found, (len(table) * one.nnz_out(0),)).reshape(len(table), -1)


def _mapped(one: Any, count: int) -> Any:
    """CasADi function (shared, own arguments of all, one thing after the other) -> results in that order."""
    name = f"map_{count}_{one.name()}"
    shared, own = ca.MX.sym("shared", one.nnz_in(0)), ca.MX.sym("own", one.nnz_in(1) * count)
    every = one.map(f"every_{name}", "serial", count, [0], []) if count > 1 else one
    results = every(shared, ca.reshape(own, one.nnz_in(1), count))
    MAPPED[name] = Mapped(one, count)
    return ca.Function(name, [shared, own], [ca.vec(results)], {"never_inline": True})


def _number(value: Any) -> Any:
    """A constant expression as its number; other values as they are."""
    if isinstance(value, Symbol):
        return float(value.sx) if value.sx.is_constant() else value
    return float(value)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Symbol) and isinstance(other, Symbol):
        return one is other or bool(ca.is_equal(one.sx, other.sx, _DEPTH))
    if isinstance(one, Symbol) or isinstance(other, Symbol):
        return False
    return bool(one == other or (one != one and other != other))
