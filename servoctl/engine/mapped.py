"""One function of many like things: a loop in C, CasADi's `map` or `fold` on the virtual machine.

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

from servoctl.engine.symbol import Symbol, from_sx, is_symbolic, symbols, to_sx
from servoctl.types import Array

Table = Sequence[Array] | Array
"""Numbers and symbols of many things, shape (things, entries)."""

FEW = 16
"""Up to so many things are written out where they need not be one function."""

_DEPTH = 5
"""Depth to which two arguments are compared."""


@dataclass(frozen=True)
class Mapped:
    """What the C code needs to write the loop.

    Attributes:
        one: CasADi function (shared, own arguments of each table) -> results of one thing; of a fold: (values before,
            shared, own arguments) -> values after.
        count: Number of things.
        folded: Whether each call takes the results of the one before.
    """

    one: Any
    count: int
    folded: bool = False

    @property
    def first(self) -> int:
        """Index of the first input with own arguments."""
        return 2 if self.folded else 1


MAPPED: dict[str, Mapped] = {}
"""Name of a CasADi function that maps or folds another -> what it maps."""


def for_each(function: Callable[..., Array], *arguments: Table) -> Array:
    """The results of a function for each of many things, shape (things, results), on symbols or numbers.

    Args:
        function: (arguments of each table) -> results, vectors. It is called once, on placeholders.
        arguments: Tables of numbers and symbols, shape (things, entries). One that a call returned as a whole is passed
            on in C without a copy.
    """
    if _numbers(arguments):
        return np.array(
            [function(*(np.asarray(row, dtype=float) for row in rows)) for rows in zip(*arguments, strict=True)]
        )
    columns = Arguments(arguments)
    one = _one(columns.given, function(*columns.placeholders))
    found = _mapped(one, columns.things)(*columns.values)
    return from_sx(found, (columns.things * one.nnz_out(0),)).reshape(columns.things, -1)


def for_many(function: Callable[..., Array], *arguments: Table) -> Array:
    """`for_each`, written out for few things or for numbers."""
    if len(arguments[0]) <= FEW:
        return np.array([function(*rows) for rows in zip(*arguments, strict=True)], dtype=object)
    return for_each(function, *arguments)


def fold(function: Callable[..., Array], start: Array, *arguments: Table) -> Array:
    """The values after the last of many things, shape (values,); written out for few things or for numbers.

    Args:
        function: (values before a thing, its arguments by table) -> values after it, vectors.
        start: Values before the first, shape (values,).
        arguments: As of `for_each`.
    """
    if len(arguments[0]) <= FEW or _numbers([start[None], *arguments]):
        values = start
        for rows in zip(*arguments, strict=True):
            values = function(values, *rows)
        return values
    columns, before = Arguments(arguments), symbols("before", len(start))
    one = _one([to_sx(before), *columns.given], function(before, *columns.placeholders))
    return from_sx(_folded(one, columns.things)(to_sx(start), *columns.values), (len(start),))


def _numbers(tables: Sequence[Table]) -> bool:
    """Whether no table has a symbol."""
    return not any(is_symbolic(np.asarray(row)) for table in tables for row in table)


def _one(given: list[Any], results: Array) -> Any:
    """The CasADi function of one thing, named by its content."""
    dense = ca.densify(ca.cse(to_sx(results)))
    name = hashlib.sha256(ca.Function("one", given, [dense]).serialize().encode()).hexdigest()[:24]
    return ca.Function(f"one_{name}", given, [dense], {"never_inline": True})


class Arguments:
    """Tables of arguments of many like things, and the placeholders of one thing.

    Attributes:
        things: Number of things.
        placeholders: Table -> arguments of one thing: symbols, and numbers that are the same for all.
        given: Inputs of the function of one thing: what is the same expression for all, then what differs, by table.
        values: What they stand for: the first once, the others for each thing, one after the other.
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        """Sorts numbers and symbols; each table has the shape (things, entries)."""
        self.things = len(tables[0])
        self.placeholders: list[Array] = []
        shared: list[Array] = [symbols("shared", 0)]
        values: list[Array] = [np.zeros(0)]
        given, own_values = [], []
        for number, rows in enumerate(tables):
            table = np.array([[_number(x) for x in row] for row in rows], dtype=object)
            first = table[0]
            differs = np.array([any(not _same(row[j], x) for row in table) for j, x in enumerate(first)], dtype=bool)
            once = ~differs & np.array([isinstance(x, Symbol) for x in first], dtype=bool)
            of_all, own = symbols(f"shared{number}", int(once.sum())), symbols(f"own{number}", int(differs.sum()))
            placeholders: Array = first.copy()
            placeholders[once], placeholders[differs] = of_all, own
            self.placeholders.append(placeholders)
            shared.append(of_all)
            values.append(first[once])
            given.append(to_sx(own))
            own_values.append(to_sx(table[:, differs].ravel()))
        self.given = [to_sx(np.concatenate(shared)), *given]
        self.values = [to_sx(np.concatenate(values)), *own_values]


def _mapped(one: Any, count: int) -> Any:
    """CasADi function (shared, own arguments of all, one thing after the other) -> results in that order."""
    name = f"map_{count}_{one.name()}"
    sizes = [one.nnz_in(i) for i in range(1, one.n_in())]
    shared, own = ca.MX.sym("shared", one.nnz_in(0)), [ca.MX.sym("own", size * count) for size in sizes]
    every = one.map(f"every_{name}", "serial", count, [0], []) if count > 1 else one
    results = every(shared, *(ca.reshape(each, size, count) for each, size in zip(own, sizes, strict=True)))
    MAPPED[name] = Mapped(one, count)
    return ca.Function(name, [shared, *own], [ca.vec(results)], {"never_inline": True})


def _folded(one: Any, count: int) -> Any:
    """CasADi function (values, shared, own arguments of all, one thing after the other) -> values after the last."""
    name = f"fold_{count}_{one.name()}"
    values, shared = ca.MX.sym("values", one.nnz_in(0)), ca.MX.sym("shared", one.nnz_in(1))
    sizes = [one.nnz_in(i) for i in range(2, one.n_in())]
    own = [ca.MX.sym("own", size * count) for size in sizes]
    rows = (ca.reshape(each, size, count) for each, size in zip(own, sizes, strict=True))
    result = one.fold(count)(values, ca.repmat(shared, 1, count), *rows)
    MAPPED[name] = Mapped(one, count, folded=True)
    return ca.Function(name, [values, shared, *own], [result], {"never_inline": True})


def width_of_rows(name: str, index: int) -> int:
    """Arguments of one thing in an input of a function; 1 for a function of other things."""
    mapped = MAPPED.get(name)
    return 1 if mapped is None or index < mapped.first else max(1, mapped.one.nnz_in(index))


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
