"""Complex arrays for derivatives by complex steps: `f(x + i h x') = f(x) + i h f'(x) x'` for a very small h.

Design: NumPy's complex functions take the wrong branch outside their real domain (`log` of a negative number is finite)
and are slow (a complex square root takes ten times a real one). So the real part goes through NumPy's real function and
the imaginary part through its derivative. Sums and products are NumPy's complex ones. A function without a derivative
here is an error, because `conjugate` and the like lose the imaginary part in silence.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from servoctl.engine.trace import replaced
from servoctl.errors import TraceError
from servoctl.types import Array

_ZEROS = np.zeros  # NumPy's own, also while it is replaced

_LINEAR = {np.add, np.subtract, np.multiply, np.negative, np.positive, np.matmul}
_COMPARE = {np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal, np.isfinite, np.isnan}

_SLOPES: dict[Any, Callable[[Array, Array], Any]] = {
    np.sqrt: lambda x, f: 0.5 / f,
    np.square: lambda x, f: 2.0 * x,
    np.reciprocal: lambda x, f: -f * f,
    np.absolute: lambda x, f: np.sign(x),
    np.fabs: lambda x, f: np.sign(x),
    np.sign: lambda x, f: 0.0 * x,
    np.exp: lambda x, f: f,
    np.expm1: lambda x, f: f + 1.0,
    np.log: lambda x, f: 1.0 / x,
    np.log1p: lambda x, f: 1.0 / (1.0 + x),
    np.sin: lambda x, f: np.cos(x),
    np.cos: lambda x, f: -np.sin(x),
    np.tan: lambda x, f: 1.0 + f * f,
    np.arcsin: lambda x, f: 1.0 / np.sqrt(1.0 - x * x),
    np.arccos: lambda x, f: -1.0 / np.sqrt(1.0 - x * x),
    np.arctan: lambda x, f: 1.0 / (1.0 + x * x),
    np.sinh: lambda x, f: np.cosh(x),
    np.cosh: lambda x, f: np.sinh(x),
    np.tanh: lambda x, f: 1.0 - f * f,
}
"""Function of one number -> its derivative from x and f(x)."""


def _refused(array: Array) -> Array:
    raise TraceError("a real part loses the derivative of a complex step", None)


class AnalyticArray(np.ndarray):
    """A complex array whose imaginary part is a derivative times h."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, AnalyticArray) else x for x in inputs]
        if ufunc is np.add and method == "reduce" and out is None and set(options) <= {"axis", "dtype"}:
            return _kept(_sum(plain[0], options.get("axis", 0)))
        if ufunc in _LINEAR:
            if out is not None:
                options["out"] = tuple(x.view(np.ndarray) if isinstance(x, AnalyticArray) else x for x in out)
            return _kept(getattr(ufunc, method)(*plain, **options))
        if method == "__call__" and out is None and not options:
            if ufunc in _COMPARE:
                return ufunc(*map(np.real, plain))
            if ufunc in _SLOPES:
                return _joined(ufunc(plain[0].real), lambda f: _SLOPES[ufunc](plain[0].real, f) * plain[0].imag)
            if ufunc in _OF_TWO:
                return _OF_TWO[ufunc](*plain)
        raise TraceError(f"numpy.{ufunc.__name__} has no derivative by a complex step", None)

    real = imag = property(_refused)


def analytic(array: Array) -> AnalyticArray:
    """A numeric array as a complex one that keeps its derivative."""
    return np.asarray(array, dtype=complex).view(AnalyticArray)


@contextmanager
def complex_steps() -> Iterator[None]:
    """Inside this block, NumPy's constructors make such arrays, and a lost imaginary part is an error."""
    with warnings.catch_warnings(), replaced(_made, {}):
        warnings.simplefilter("error", np.exceptions.ComplexWarning)
        yield


def _made(name: str, array: Array) -> AnalyticArray:
    """What a constructor gives in place of an array of floats; a large array of zeros is not copied."""
    return _ZEROS(array.shape, dtype=complex).view(AnalyticArray) if name.startswith("zeros") else analytic(array)


def _kept(result: Any) -> Any:
    return analytic(result) if isinstance(result, np.ndarray) and result.dtype.kind == "c" else result


def _sum(array: Array, axis: Any) -> Any:
    """The sum over an axis. Where it is not the last one, NumPy is five times slower than with a copy made for it."""
    if isinstance(axis, int) and array.ndim > 1 and axis % array.ndim < array.ndim - 1:
        return np.add.reduce(np.ascontiguousarray(np.moveaxis(array, axis, -1)), axis=-1)
    return np.add.reduce(array, axis=axis)


def _joined(value: Any, slope: Callable[[Any], Any]) -> Any:
    """value + i slope(value)."""
    result = np.array(value, dtype=complex)
    result.imag = slope(value)
    return result.view(AnalyticArray)


def _divide(a: Any, b: Any) -> Any:
    return _joined(np.real(a) / np.real(b), lambda f: (np.imag(a) - f * np.imag(b)) / np.real(b))


def _power(a: Any, b: Any) -> Any:
    x, y = np.real(a), np.real(b)

    def slope(f: Any) -> Any:
        by_base = y * x ** (y - 1.0) * np.imag(a)
        return by_base if not np.any(np.imag(b)) else by_base + f * np.log(x) * np.imag(b)

    return _joined(x**y, slope)


def _arctan2(a: Any, b: Any) -> Any:
    y, x = np.real(a), np.real(b)
    return _joined(np.arctan2(y, x), lambda f: (x * np.imag(a) - y * np.imag(b)) / (x * x + y * y))


def _hypot(a: Any, b: Any) -> Any:
    x, y = np.real(a), np.real(b)
    return _joined(np.hypot(x, y), lambda f: (x * np.imag(a) + y * np.imag(b)) / f)


def _maximum(a: Any, b: Any) -> Any:
    return _kept(np.where(np.real(a) >= np.real(b), a, b))


def _minimum(a: Any, b: Any) -> Any:
    return _kept(np.where(np.real(a) <= np.real(b), a, b))


_OF_TWO: dict[Any, Callable[[Any, Any], Any]] = {
    np.divide: _divide,
    np.power: _power,
    np.arctan2: _arctan2,
    np.hypot: _hypot,
    np.maximum: _maximum,
    np.minimum: _minimum,
}
