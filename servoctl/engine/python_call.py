"""A call of a compiled law that takes its state from Python's arrays and gives Python its inputs.

Design: the layers between Python and the law, not the law, take most of the time of a small law's call. Where CPython
and a C compiler are there, a function in C does what they do: copies the state, evaluates, copies the inputs.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from servoctl.engine.ccode import CSource, Entry
from servoctl.engine.templates import template
from servoctl.errors import CompileError
from servoctl.types import Array

LawCall = Callable[[float, Array, Array], Array | None]


def python_call(evaluate: Callable[[], object], t: Array, q: Array, v: Array, inputs: Array) -> LawCall | None:
    """A function (t, q, v) -> copy of the inputs, or None if its arguments are not a number and vectors of floats.

    Args:
        evaluate: Evaluates the law: reads t, q and v and writes the inputs.
        t: Time, shape (1,).
        q: Coordinates, shape (n,).
        v: Velocities, shape (n,).
        inputs: Control inputs, shape (m,).

    Returns:
        The function; None if the law does not run in C, or this machine cannot make it. It is not thread-safe.
    """
    entry: Entry | None = getattr(evaluate, "entry", None)
    library = None if entry is None else _library()
    if entry is None or library is None:
        return None
    addresses = [*entry, *(array.ctypes.data for array in (t, q, v)), len(q)]
    kept = (np.array(addresses, dtype=np.uintp).tobytes(), inputs.copy, evaluate, t, q, v, library)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    function: LawCall = make(int(library[0].cast("uintptr_t", library[1].servoctl_method())), kept, None)
    return function


@lru_cache
def _library() -> tuple[Any, Any] | None:
    if sys.implementation.name != "cpython":
        return None
    try:
        return CSource(lambda: template("python_call.c"), ["void *servoctl_method(void);"], lanes=0).opened()
    except CompileError:  # no compiler, or a linker that wants to know where Python's functions are
        return None
