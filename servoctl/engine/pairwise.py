"""Sums over all pairs of many bodies: `result_i = sum over j != i of f(q_i, q_j, v_i, v_j)`.

Design: f of one pair is the user's own function. On symbols it is traced once, and the sum is one function that is
called: a double loop in C, CasADi's `map` on the virtual machine. Its derivative along a direction is the same loop
over the derivative of f. On numbers f is called once with the arrays of all pairs.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.symbol import from_sx, is_symbolic, symbols, to_sx
from servoctl.engine.trace import paused
from servoctl.errors import TaskError
from servoctl.types import Array

OPPOSITE = 1e-9
"""Largest relative size of f(q_i, q_j) + f(q_j, q_i) that counts as zero."""

ADVICE = "write f with NumPy functions that act entry by entry, and sums over axis 0, as numpy.sum(d * d, axis=0)"


@dataclass(frozen=True)
class Pairs:
    """What the C code needs to write the double loop.

    Attributes:
        one: CasADi function (body i, body j, shared) -> the contribution of j to i.
        bodies: Number of bodies.
        opposite: Whether the contribution of i to j is the opposite.
    """

    one: Any
    bodies: int
    opposite: bool


PAIRS: dict[str, Pairs] = {}
"""Name of a CasADi function (bodies, shared) -> sums, and its pair."""

_held: list[tuple[Any, list[tuple[Any, Any]]]] = []


def pairwise(f: Callable[..., Any], q: Array, v: Array | None = None, antisymmetric: bool = False) -> Array:
    """The sum of f over all other bodies, for each body, shape (N, k).

    Args:
        f: (q_i, q_j), or (q_i, q_j, v_i, v_j) if v is given -> what body j adds to body i, shape (k,). On numbers it is
            called with all pairs at once, shape (d, pairs) -> (k, pairs).
        q: One row per body, shape (N, d).
        v: A second row per body, shape (N, e), such as velocities; None: f does not take it.
        antisymmetric: Whether f(q_i, q_j) = -f(q_j, q_i), as for forces of action and reaction: each pair is then
            evaluated once. It is checked.

    Raises:
        TaskError: q or v has not one row per body, f returns another shape, or f is not antisymmetric.
    """
    q = np.asarray(q)
    parts = [q] if v is None else [q, np.asarray(v)]
    if any(part.ndim != 2 or len(part) != len(q) for part in parts):
        shapes = " and ".join(str(part.shape) for part in parts)
        raise TaskError(f"pairwise: expected one row per body, as in q.reshape(-1, 2), got {shapes}")
    return _on_symbols(f, parts, antisymmetric) if is_symbolic(*parts) else _on_numbers(f, parts, antisymmetric)


def _on_numbers(f: Callable[..., Any], parts: list[Array], antisymmetric: bool) -> Array:
    N = len(parts[0])
    first, second = np.triu_indices(N, k=1)
    if not antisymmetric:
        first, second = np.concatenate([first, second]), np.concatenate([second, first])

    def of(i: Array, j: Array) -> Array:
        value = np.asarray(f(*(part[at].T for part in parts for at in (i, j))))
        if value.ndim != 2 or value.shape[1] != len(i):
            raise TaskError(
                f"pairwise: f returned shape {value.shape} for {len(i)} pairs, expected (k, pairs) ({ADVICE})"
            )
        return value

    if N < 2:  # the function still says how many numbers a pair has
        return np.zeros((N, len(of(np.zeros(1, dtype=int), np.zeros(1, dtype=int)))))
    values = of(first, second)
    if antisymmetric:
        _require_opposite(values[:, :1], of(second[:1], first[:1]))
    return np.stack([_sums(row, first, second, N, antisymmetric) for row in values], axis=1)


def _sums(row: Array, first: Array, second: Array, N: int, antisymmetric: bool) -> Array:
    sums: Array = np.bincount(first, weights=row, minlength=N)
    return sums - np.bincount(second, weights=row, minlength=N) if antisymmetric else sums


def _require_opposite(one: Array, other: Array) -> None:
    if not np.abs(one + other).max(initial=0.0) <= OPPOSITE * np.abs(one).max(initial=0.0):
        raise TaskError("pairwise: f(q_i, q_j) is not -f(q_j, q_i) (leave antisymmetric out)")


def _on_symbols(f: Callable[..., Any], parts: list[Array], antisymmetric: bool) -> Array:
    N, widths = len(parts[0]), [part.shape[1] for part in parts]
    body, other = (symbols(name, sum(widths)) for name in ("body", "other"))
    ends = np.cumsum([0, *widths])
    pieces = [each[a:b] for a, b in itertools.pairwise(ends) for each in (body, other)]
    value = np.asarray(f(*pieces), dtype=object)
    if value.ndim != 1:
        raise TaskError(f"pairwise: f returned shape {value.shape} for one pair, expected (k,) ({ADVICE})")
    result, own = to_sx(value), to_sx(np.concatenate([body, other]))
    used = [i for i in range(len(body)) if ca.depends_on(result, to_sx(np.array([body[i], other[i]])))]
    known = {one.__hash__() for one in ca.symvar(own)}
    shared = ca.vertcat(ca.SX(0, 1), *(one for one in ca.symvar(result) if one.__hash__() not in known))
    given = [to_sx(body[used]), to_sx(other[used]), shared]
    name = hashlib.sha256(ca.Function("one", given, [result]).serialize().encode()).hexdigest()[:24]
    one = ca.Function(f"pair_{name}", given, [ca.densify(result)])
    with paused():
        if antisymmetric:
            _check_opposite(one)
        summed = _summed(one, N, antisymmetric)
    bodies = np.concatenate(parts, axis=1)[:, used].ravel()
    called = summed(to_sx(bodies), shared)
    return from_sx(_fresh(called, to_sx(bodies)), (len(value) * N,)).reshape(N, -1)


def _check_opposite(one: Any) -> None:
    random = np.random.default_rng(0)
    for _ in range(3):
        x, y, p = (random.uniform(0.5, 2.0, one.nnz_in(i)) for i in range(3))
        _require_opposite(np.asarray(one(x, y, p)), np.asarray(one(y, x, p)))


def _summed(one: Any, N: int, opposite: bool) -> Any:
    """CasADi function (bodies one after the other, shared) -> sums, body after body."""
    name, w, k = f"pairwise_{N}_{int(opposite)}_{one.name()}", one.nnz_in(0), one.nnz_out(0)
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    x, shared = ca.MX.sym("x", N * w), ca.MX.sym("shared", one.nnz_in(2))
    first, second = np.triu_indices(N, k=1)
    if not opposite:
        first, second = np.concatenate([first, second]), np.concatenate([second, first])
    sums = ca.MX.zeros(k, N)
    if len(first) and w:
        columns = ca.reshape(x, w, N)
        every = one.map(f"every_{name}", "serial", len(first), [2], []) if len(first) > 1 else one
        values = every(columns[:, first.tolist()], columns[:, second.tolist()], shared)
        sums = ca.mtimes(values, _incidence(first, second, N, opposite))
    function = ca.Function(name, [x, shared], [ca.densify(ca.vec(sums))], {"never_inline": True})
    PAIRS[name], _FUNCTIONS[name] = Pairs(one, N, opposite), function
    return function


_FUNCTIONS: dict[str, Any] = {}


def _incidence(first: Array, second: Array, N: int, opposite: bool) -> Any:
    """Adds the values of the pairs to their first body, and takes them from the second, shape (pairs, N)."""
    pairs = np.arange(len(first)).tolist()
    added = ca.DM.triplet(pairs, first.tolist(), ca.DM.ones(len(first)), len(first), N)
    if not opposite:
        return added
    return added - ca.DM.triplet(pairs, second.tolist(), ca.DM.ones(len(first)), len(first), N)


def derivative_of(name: str) -> str | None:
    """The name of the sum whose derivative along a direction a function is; None if it is not one."""
    base = name.removeprefix("fwd1_")
    return base if name != base and base in PAIRS else None


def derived_pair(pairs: Pairs) -> Any:
    """CasADi function (i, j, their rates, shared, its rate) -> derivative of the contribution of j to i."""
    one = pairs.one
    i, j, shared = one.sx_in()
    rates = [ca.SX.sym(f"rate{k}", each.numel()) for k, each in enumerate((i, j, shared))]
    value = ca.jtimes(one.call([i, j, shared], True, False)[0], ca.vertcat(i, j, shared), ca.vertcat(*rates))
    inputs = [i, j, rates[0], rates[1], shared, rates[2]]
    return ca.Function(f"rate_{one.name()}", inputs, [ca.densify(value)])


def has_pairs(expressions: Array) -> bool:
    """Whether a vector of symbols contains such a sum."""
    sx = to_sx(expressions)
    function = ca.Function("expressions", [ca.vertcat(ca.SX(0, 1), *ca.symvar(sx))], [sx])
    return any(each.name() in PAIRS for each in function.find_functions())


@contextmanager
def held_pairs(variables: Array) -> Iterator[list[tuple[Any, Any]]]:
    """Inside this block, sums that do not depend on the variables are fresh symbols, in the list with what they are.

    CasADi would form a derivative of such a sum that is zero, without knowing it, so that structure would be lost.
    """
    found: list[tuple[Any, Any]] = []
    _held.append((to_sx(variables), found))
    try:
        yield found
    finally:
        _held.pop()


def _fresh(called: Any, bodies: Any) -> Any:
    if not _held or ca.depends_on(bodies, _held[-1][0]):
        return called
    symbol = ca.SX.sym("sum", called.numel())
    _held[-1][1].append((symbol, called))
    return symbol
