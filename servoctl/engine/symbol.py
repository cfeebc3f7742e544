"""`Symbol`: the scalar that replaces numbers when a user's NumPy function is traced.

Design: it wraps one CasADi SX scalar, because a raw SX silently becomes NaN when NumPy or `math` asks for a float.
Symbols are kept in object arrays, for which NumPy calls the operators and the methods below by the ufunc's name. What
needs a number (`float`, `int`, `bool`, an index) raises `TraceError` with the line of the user's code.
"""

import linecache
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from servoctl.errors import TraceError
from servoctl.types import Array

_OUR_FOLDER = str(Path(__file__).parent)
_NUMPY_FOLDER = str(Path(np.__file__).parent)
_SX_BINARY, _SX_UNARY = ca.SX.binary, ca.SX.unary


def user_location() -> str | None:
    """`file:line: source` of the innermost frame that is neither in this package nor in NumPy."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_OUR_FOLDER, _NUMPY_FOLDER, "<")):
            source = linecache.getline(name, frame.f_lineno).strip()
            return f"{name}:{frame.f_lineno}" + (f" `{source}`" if source else "")
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _refuse(wanted: str, hint: str) -> Callable[["Symbol"], Any]:
    def method(self: "Symbol") -> Any:
        raise TraceError(f"{wanted} of a symbol is not known ({hint})", user_location())

    return method


def _binary(code: int, swapped: bool = False, condition: bool = False) -> Callable[["Symbol", Any], Any]:
    """The operation of a CasADi operation code; `SX.binary` takes a tenth of the time of CasADi's own operators."""

    def method(self: "Symbol", other: Any) -> Any:
        kind = Condition if condition else Symbol
        if isinstance(other, Symbol):
            right = other.sx
        elif isinstance(other, (int, float, np.integer, np.floating, np.bool_)):
            right = ca.SX(float(other))
        else:
            return NotImplemented
        return kind(_SX_BINARY(code, right, self.sx) if swapped else _SX_BINARY(code, self.sx, right))

    return method


def _keeping_nan(code: int) -> Callable[["Symbol", Any], Any]:
    """As NumPy's `maximum` and `minimum`: NaN if one of the two is; those of C give the other one."""
    plain = _binary(code)

    def method(self: "Symbol", other: Any) -> Any:
        result = plain(self, other)
        if not isinstance(result, Symbol):
            return result
        for value in (self.sx, other.sx if isinstance(other, Symbol) else ca.SX(float(other))):
            if not value.is_constant():
                number = _SX_BINARY(ca.OP_LE, _SX_UNARY(ca.OP_FABS, value), math.inf)  # CasADi takes x != x for false
                result = Symbol(result.sx + _SX_BINARY(ca.OP_IF_ELSE_ZERO, _SX_UNARY(ca.OP_NOT, number), value))
            elif math.isnan(float(value)):
                result = Symbol(value)
        return result

    return method


def _unary(code: int) -> Callable[["Symbol"], "Symbol"]:
    def method(self: "Symbol") -> "Symbol":
        return Symbol(_SX_UNARY(code, self.sx))

    return method


def _scaled(factor: float) -> Callable[["Symbol"], "Symbol"]:
    def method(self: "Symbol") -> "Symbol":
        return Symbol(self.sx * factor)

    return method


SPARSE = 8
"""A matrix of which fewer than one in so many entries is not zero is put together from these alone: without that,
`check` of a swarm of 50 robots takes 10 s, not 5."""


class Symbol:
    """A scalar expression."""

    __slots__ = ("sx",)

    def __init__(self, sx: Any) -> None:
        self.sx = sx  # the CasADi SX, shape 1x1

    def __repr__(self) -> str:
        return f"Symbol({self.sx})"

    __add__, __radd__ = _binary(ca.OP_ADD), _binary(ca.OP_ADD, swapped=True)
    __sub__, __rsub__ = _binary(ca.OP_SUB), _binary(ca.OP_SUB, swapped=True)
    __mul__, __rmul__ = _binary(ca.OP_MUL), _binary(ca.OP_MUL, swapped=True)
    __truediv__, __rtruediv__ = _binary(ca.OP_DIV), _binary(ca.OP_DIV, swapped=True)
    __pow__, __rpow__ = _binary(ca.OP_POW), _binary(ca.OP_POW, swapped=True)
    __lt__, __gt__ = _binary(ca.OP_LT, condition=True), _binary(ca.OP_LT, swapped=True, condition=True)
    __le__, __ge__ = _binary(ca.OP_LE, condition=True), _binary(ca.OP_LE, swapped=True, condition=True)
    __eq__, __ne__ = _binary(ca.OP_EQ, condition=True), _binary(ca.OP_NE, condition=True)
    __and__, __or__ = _binary(ca.OP_AND, condition=True), _binary(ca.OP_OR, condition=True)
    __hash__ = None  # type: ignore[assignment]

    def __invert__(self) -> "Condition":
        return Condition(_SX_UNARY(ca.OP_NOT, self.sx))

    __neg__, __abs__ = _unary(ca.OP_NEG), _unary(ca.OP_FABS)

    def __pos__(self) -> "Symbol":
        return self

    __float__ = _refuse(
        "the value", "keep symbols in arrays made by numpy.zeros or numpy.array, and use numpy.sin, not math.sin"
    )
    __int__ = _refuse("the integer value", "an index or a count cannot depend on the state")
    __index__ = _refuse("the integer value", "an index or a count cannot depend on the state")
    __complex__ = _refuse("the value", "symbols are real")
    __bool__ = _refuse(
        "the truth", "use servoctl.where or servoctl.clip instead of `if`, `and`, `max`; compare arrays entry by entry"
    )

    arctan2, hypot = _binary(ca.OP_ATAN2), _binary(ca.OP_HYPOT)
    fmax, fmin = _binary(ca.OP_FMAX), _binary(ca.OP_FMIN)
    maximum, minimum = _keeping_nan(ca.OP_FMAX), _keeping_nan(ca.OP_FMIN)
    sin, cos, tan = _unary(ca.OP_SIN), _unary(ca.OP_COS), _unary(ca.OP_TAN)
    arcsin, arccos, arctan = _unary(ca.OP_ASIN), _unary(ca.OP_ACOS), _unary(ca.OP_ATAN)
    sinh, cosh, tanh = _unary(ca.OP_SINH), _unary(ca.OP_COSH), _unary(ca.OP_TANH)
    arcsinh, arccosh, arctanh = _unary(ca.OP_ASINH), _unary(ca.OP_ACOSH), _unary(ca.OP_ATANH)
    exp, log, sqrt = _unary(ca.OP_EXP), _unary(ca.OP_LOG), _unary(ca.OP_SQRT)
    expm1, log1p = _unary(ca.OP_EXPM1), _unary(ca.OP_LOG1P)
    sign, fabs = _unary(ca.OP_SIGN), _unary(ca.OP_FABS)
    floor, ceil = _unary(ca.OP_FLOOR), _unary(ca.OP_CEIL)
    deg2rad = radians = _scaled(np.pi / 180.0)
    rad2deg = degrees = _scaled(180.0 / np.pi)
    conjugate = __pos__

    def log10(self) -> "Symbol":
        return Symbol(ca.log10(self.sx))


def _of_conditions(operation: Callable[[Symbol, Any], Any]) -> Callable[["Condition", Any], Any]:
    """The operation with a number or a symbol; with a condition it is refused."""
    refused = _refuse("a sum or a difference of conditions", "NumPy's depends on their types; use servoctl.where")

    def method(self: "Condition", other: Any) -> Any:
        return refused(self) if isinstance(other, (Condition, bool, np.bool_)) else operation(self, other)

    return method


class Condition(Symbol):
    """1 where a comparison holds, else 0. True + True is True in NumPy and 2 in Python, and - of them an error or 0."""

    __slots__ = ()
    __add__, __radd__ = _of_conditions(Symbol.__add__), _of_conditions(Symbol.__radd__)
    __sub__, __rsub__ = _of_conditions(Symbol.__sub__), _of_conditions(Symbol.__rsub__)
    __neg__ = _refuse("minus", "NumPy has none of a comparison; use servoctl.where")

    def __mul__(self, other: Any) -> Any:
        product = Symbol.__mul__(self, other)
        return Condition(product.sx) if isinstance(other, Condition) else product


def is_symbolic(*values: Any) -> bool:
    """Whether any of the scalars or arrays holds a `Symbol`."""
    for value in values:
        if isinstance(value, Symbol):
            return True
        if isinstance(value, np.ndarray) and value.dtype == object and any(isinstance(x, Symbol) for x in value.flat):
            return True
    return False


def plain(array: Any) -> Array:
    """The array; as floats if no symbol is in it."""
    found = np.asarray(array)
    return found if is_symbolic(found) else found.astype(float)


def is_false(condition: Any) -> bool:
    """Whether a condition is false for certain; one of symbols may be true."""
    return not isinstance(condition, Symbol) and not condition


def to_sx(value: Any) -> Any:
    """A scalar, vector or matrix of symbols and numbers as one dense CasADi SX."""
    array = np.asarray(value, dtype=object)
    columns = array.reshape(-1, 1) if array.ndim < 2 else array
    if columns.size == 0:
        return ca.SX(*columns.shape)
    items = [item.sx if isinstance(item, Symbol) else float(item) for item in columns.flatten(order="F")]
    places = [i for i, item in enumerate(items) if item.__class__ is not float or item != 0.0]
    if len(places) < len(items) // SPARSE:
        pattern = ca.Sparsity.triplet(len(items), 1, places, [0] * len(places))
        return ca.reshape(ca.densify(ca.SX(pattern, ca.vertcat(*(items[i] for i in places)))), *columns.shape)
    column = _dense(ca.vertcat(*items))
    return column if columns.shape[1] == 1 else ca.reshape(column, *columns.shape)


def from_sx(sx: Any, shape: tuple[int, ...] | None = None) -> Array:
    """A CasADi SX as an object array of symbols; a vector unless `shape` says otherwise.

    Args:
        sx: Any SX.
        shape: Shape of the result; None: (size,) for a column, else the SX's own two dimensions.
    """
    dense = _dense(sx)
    flat = np.empty(dense.numel(), dtype=object)
    flat[:] = [Symbol(item) for item in dense.nonzeros()]
    matrix = flat.reshape(dense.shape, order="F")
    if shape is not None:
        return matrix.reshape(shape, order="F")
    return flat if dense.shape[1] == 1 else matrix


def solve(A: Any, b: Any) -> Array:
    """`numpy.linalg.solve` on symbols, shape of b."""
    sides = np.asarray(b, dtype=object)
    return from_sx(ca.solve(to_sx(A), to_sx(sides)), sides.shape)


def inv(A: Any) -> Array:
    """`numpy.linalg.inv` on symbols."""
    return from_sx(ca.inv(to_sx(A)), np.shape(A))


def _dense(sx: Any) -> Any:
    """An SX with an entry everywhere; `densify` alone looks for the type of its argument, which takes longer."""
    return sx if isinstance(sx, ca.SX) and sx.is_dense() else ca.densify(sx)


def symbols(name: str, *shape: int) -> Array:
    """Fresh symbols in an array of the given shape, at most two dimensions."""
    return from_sx(ca.SX.sym(name, *(shape or (1,))), shape or (1,))


def _elementwise(symbolic: Callable[..., Any], numeric: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numbers, symbols or arrays of either, broadcast like NumPy's."""

    def function(*values: Any) -> Any:
        arrays = [np.asarray(value) for value in values]
        if all(array.dtype != object for array in arrays):
            return numeric(*values)
        arrays = list(np.broadcast_arrays(*[array.astype(object) for array in arrays]))
        result: Array = np.empty(arrays[0].size, dtype=object)
        for i, items in enumerate(zip(*(array.flat for array in arrays), strict=True)):
            known = not is_symbolic(*items)
            result[i] = float(numeric(*map(float, items))) if known else Symbol(symbolic(*map(_sx, items)))
        return result.reshape(arrays[0].shape) if arrays[0].ndim else result[0]

    return function


def _sx(value: Any) -> Any:
    return value.sx if isinstance(value, Symbol) else value


def _method(name: str) -> Callable[..., Any]:
    """A ufunc that calls the method of the same name, for arrays that mix numbers and symbols."""

    def symbolic(*items: Any) -> Any:
        first, *others = [item if isinstance(item, ca.SX) else ca.SX(item) for item in items]
        return getattr(Symbol(first), name)(*map(Symbol, others)).sx

    return _elementwise(symbolic, getattr(np, name))


_NAMES = [name for name in vars(Symbol) if not name.startswith("_") and name not in ("sx", "conjugate")]

ELEMENTWISE: dict[str, Callable[..., Any]] = {name: _method(name) for name in _NAMES}
"""NumPy's name -> the function of numbers, symbols or arrays of either."""

maximum, minimum, sign = ELEMENTWISE["maximum"], ELEMENTWISE["minimum"], ELEMENTWISE["sign"]
fmax, fmin = ELEMENTWISE["fmax"], ELEMENTWISE["fmin"]  # for sizes and pivots: a sixth of the operations
_where = _elementwise(ca.if_else, np.where)


def where(condition: Any, yes: Any, no: Any) -> Any:
    """`yes` where the condition holds, else `no`; numbers, symbols or arrays of either, broadcast."""
    return _where(condition, yes, no)


above = _elementwise(lambda a, b: a > b, np.greater)
"""a > b, entry by entry; numbers, symbols or arrays of either, broadcast."""

at_least = _elementwise(lambda a, b: a >= b, np.greater_equal)
"""a >= b, entry by entry; numbers, symbols or arrays of either, broadcast."""


def clip(value: Any, lower: Any, upper: Any) -> Any:
    """The value limited to `lower` and `upper`, NaN if one is NaN; numbers, symbols or arrays of either, broadcast."""
    return minimum(maximum(value, lower), upper)


def _within(value: Any, lower: Any, upper: Any) -> Any:
    """`within` of CasADi scalars."""
    return ca.if_else(ca.fabs(value) <= math.inf, ca.fmin(ca.fmax(value, lower), upper), math.nan)


within = _elementwise(_within, np.clip)
"""`clip` for limits that are not NaN: a third of the operations."""
