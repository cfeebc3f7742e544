"""One function along the branches of a tree, from the root outwards or from the tips inwards: a loop in C.

    outward   y[i] = f(y[parent of i], x[i])               y of the root is given
    inward    y[i] = z[i] + sum of f(y[k], x[k]) over all k whose parent is i

Design: the function is called once, on placeholders. Arguments that are the same for all bodies are no columns of their
own, see `engine.mapped`. On the virtual machine the steps are written out, one after the other, so derivatives are
those of straight-line code.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca

from servoctl.engine.mapped import Arguments, Table
from servoctl.engine.symbol import from_sx, symbols, to_sx
from servoctl.types import Array

ROOT = -1
"""Parent of a body at the root."""


@dataclass(frozen=True)
class Recursion:
    """What the C code needs to write the loop.

    Attributes:
        one: CasADi function (values of a body, shared arguments, own arguments of each table) -> values.
        parents: Parent of each body, before it in the order, or `ROOT`.
        inwards: From the tips to the root.
    """

    one: Any
    parents: tuple[int, ...]
    inwards: bool


RECURSIONS: dict[str, Recursion] = {}
"""Name of a CasADi function that goes along a tree -> what it does there."""


def outward(
    function: Callable[..., Array], parents: Sequence[int], root: Array, *arguments: Sequence[Array] | Array
) -> Array:
    """The values of all bodies from those of the root, shape (bodies, values), on symbols.

    Args:
        function: (values of the parent, arguments of the body by table) -> values of the body.
        parents: Parent of each body, before it in the order, or `ROOT`.
        root: Values of the root, shape (values,).
        arguments: Tables of numbers and symbols, shape (bodies, entries), see `mapped.for_each`.
    """
    return _recursion(function, parents, root, arguments, inwards=False)


def inward(
    function: Callable[..., Array], parents: Sequence[int], start: Array, *arguments: Sequence[Array] | Array
) -> Array:
    """The values of all bodies with what those that they carry add, shape (bodies, values), on symbols.

    Args:
        function: (values of a body, its arguments by table) -> what it adds to its parent.
        parents: As of `outward`.
        start: Values of each body alone, shape (bodies, values).
        arguments: As of `outward`.
    """
    return _recursion(function, parents, start, arguments, inwards=True)


def _recursion(
    function: Callable[..., Array],
    parents: Sequence[int],
    start: Array,
    arguments: Sequence[Table],
    inwards: bool,
) -> Array:
    columns, k = Arguments(arguments), start.shape[-1]
    values = symbols("values", k)
    results = ca.densify(ca.cse(to_sx(function(values, *columns.placeholders))))
    given = [to_sx(values), *columns.given]
    name = hashlib.sha256(ca.Function("one", given, [results]).serialize().encode()).hexdigest()[:24]
    recursion = Recursion(ca.Function(f"one_{name}", given, [results]), tuple(parents), inwards)
    found = _function(recursion)(to_sx(start.ravel()), *columns.values)
    return from_sx(found, (len(parents) * k,)).reshape(len(parents), k)


def _function(recursion: Recursion) -> Any:
    """CasADi function (start, shared, own arguments, one body after the other) -> values in that order."""
    one, parents = recursion.one, recursion.parents
    k, widths = one.numel_in(0), [one.numel_in(i) for i in range(2, one.n_in())]
    start = ca.SX.sym("start", k * (len(parents) if recursion.inwards else 1))
    shared, own = ca.SX.sym("shared", one.numel_in(1)), [ca.SX.sym("own", w * len(parents)) for w in widths]
    values: list[Any] = [start[k * i : k * (i + 1)] if recursion.inwards else None for i in range(len(parents))]
    for i in reversed(range(len(parents))) if recursion.inwards else range(len(parents)):
        of_body = [x[w * i : w * (i + 1)] for x, w in zip(own, widths, strict=True)]
        parent = parents[i]
        if not recursion.inwards:
            values[i] = one(start if parent == ROOT else values[parent], shared, *of_body)
        elif parent != ROOT:
            values[parent] = values[parent] + one(values[i], shared, *of_body)
    along = hashlib.sha256(repr(parents).encode()).hexdigest()[:12]
    name = f"{'inward' if recursion.inwards else 'outward'}_{along}_{one.name()}"
    RECURSIONS[name] = recursion
    return ca.Function(name, [start, shared, *own], [ca.densify(ca.vertcat(*values))], {"never_inline": True})
