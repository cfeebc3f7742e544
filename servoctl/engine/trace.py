"""Runs a user's NumPy function on symbols, and reports where and why that fails.

Design: while a function is traced, NumPy's constructors give object arrays and its branching functions dispatch, so
that ordinary code (`M = np.zeros((n, n)); M[0, 0] = ...`) can hold symbols. NumPy is changed only during the call,
under a lock. A function counts as traced only after its values equal NumPy's (`mismatch`).
"""

import dis
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

from servoctl.engine.symbol import ELEMENTWISE, Symbol, clip, inv, is_symbolic, solve, where
from servoctl.errors import ServoctlError, TraceError
from servoctl.types import Array

_LOCK = threading.RLock()
_tracer: int | None = None  # the thread that traces; for all others the replacements do what NumPy does
_ENGINE = str(Path(__file__).parent)
_NUMPY = str(Path(np.__file__).parent)


def _objects(constructor: Callable[..., Any]) -> Callable[..., Any]:
    """A NumPy constructor whose arrays of floats become arrays of objects, in Python code of the thread that traces.

    Another thread may pass its arrays to generated C at the same time, which needs floats in memory. So does C code
    that calls the constructor, such as a random generator.
    """

    @wraps(constructor)  # tracing may be nested
    def construct(*args: Any, **options: Any) -> Any:
        array = constructor(*args, **options)
        if array.dtype.kind != "f" or threading.get_ident() != _tracer:
            return array
        caller = sys._getframe(1)
        return array.astype(object) if _calls(caller.f_code, caller.f_lasti, constructor.__name__) else array

    return construct


@lru_cache(maxsize=1024)
def _calls(code: CodeType, at: int, name: str) -> bool:
    """Whether an instruction of Python code calls a function of this name: what C code calls is not named there."""
    begins = [(line, column) for line, _, column, _ in code.co_positions()]  # of the expression of each code unit
    named = [step.offset for step in dis.get_instructions(code) if step.argval == name]
    return any(begins[offset // 2] == begins[at // 2] for offset in named)


def _norm(numeric: Callable[..., Any]) -> Callable[..., Any]:
    """`numpy.linalg.norm` that also takes vectors of symbols."""

    def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
        if ord in (None, 2) and is_symbolic(x) and (axis is not None or np.ndim(x) == 1):
            array = np.asarray(x)
            return np.sqrt(np.sum(array * array, axis=axis, keepdims=keepdims))
        return numeric(x, ord, axis, keepdims)

    return norm


class _Dispatch:
    """A NumPy function that also takes symbols; its attributes, such as `maximum.reduce`, are NumPy's."""

    def __init__(self, symbolic: Callable[..., Any], numeric: Callable[..., Any]) -> None:
        self._symbolic, self._numeric = symbolic, numeric

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._symbolic(*args) if not options and _holds_objects(*args) else self._numeric(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._numeric, name)


def _holds_objects(*values: Any) -> bool:
    """Whether a symbol or an object array is among the values; NumPy has no `sin` for floats in object arrays."""
    return any(isinstance(value, Symbol) or np.asarray(value).dtype == object for value in values)


_CONSTRUCTORS = ("zeros", "ones", "empty", "full", "eye", "identity", "zeros_like", "ones_like", "full_like")


@contextmanager
def tracing() -> Iterator[None]:
    """Inside this block, NumPy's constructors and branching functions accept symbols, in this thread."""
    global _tracer
    dispatched: dict[str, Callable[..., Any]] = {**ELEMENTWISE, "clip": clip, "where": where}
    solvers: dict[str, Callable[..., Any]] = {"solve": solve, "inv": inv}
    with _LOCK:
        outer, _tracer = _tracer, threading.get_ident()
        kept: list[tuple[Any, str, Any]] = []

        def replace(owner: Any, name: str, value: Any) -> None:
            kept.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)

        try:
            for name in _CONSTRUCTORS:
                replace(np, name, _objects(getattr(np, name)))
            for name, symbolic in dispatched.items():
                replace(np, name, _Dispatch(symbolic, getattr(np, name)))
            replace(np.linalg, "norm", _norm(np.linalg.norm))
            for name, symbolic in solvers.items():
                replace(np.linalg, name, _Dispatch(symbolic, getattr(np.linalg, name)))
            yield
        finally:
            for owner, name, value in reversed(kept):
                setattr(owner, name, value)
            _tracer = outer


def _location(error: BaseException) -> str | None:
    """`file:line source` of the innermost frame of the error that is neither in this package nor in NumPy."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((_ENGINE, _NUMPY))]
    return f"{frames[-1].filename}:{frames[-1].lineno} `{frames[-1].line}`" if frames else None


def read_only(argument: Any) -> Any:
    """The argument; an array becomes a read-only view."""
    if not isinstance(argument, np.ndarray):
        return argument
    view = argument.view()
    view.flags.writeable = False
    return view


def trace(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's value on symbols.

    Args:
        function: Plain NumPy code, which cannot change its arguments.
        arguments: Symbols, arrays of them, or numbers.

    Raises:
        TraceError: The code does something that symbols cannot follow; the message has the reason and the line.
    """
    with tracing():
        try:
            return function(*map(read_only, arguments))
        except (KeyboardInterrupt, ServoctlError):
            raise
        except BaseException as error:  # user code may raise anything when it meets a symbol
            raise TraceError(
                f"{type(error).__name__}: {error} (symbols cannot follow this)", _location(error)
            ) from error


def mismatch(numeric: Any, symbolic: Any, scale: float | Array, tolerance: float = 1e-10) -> float | None:
    """Largest difference of two evaluations, relative to the scale; None if it is within the tolerance.

    The difference is infinite if the shapes differ, or an entry is finite in only one of the two.

    Args:
        numeric: NumPy's own value.
        symbolic: The traced function's value, same shape.
        scale: Largest magnitude that such values have; one number, or one that broadcasts to each value.
        tolerance: Relative difference that counts as equal.
    """
    expected, actual = np.asarray(numeric, dtype=float), np.asarray(symbolic, dtype=float)
    if expected.shape != actual.shape:
        return float("inf")
    finite: Array = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(actual)):
        return float("inf")
    if not finite.any():
        return None
    difference = float((np.abs(expected - actual, where=finite, out=np.zeros(expected.shape)) / scale).max())
    return None if difference <= tolerance else difference
