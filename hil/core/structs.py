"""Structs of C with the arrays that Python shares, and the calls that C makes back to Python."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hil.core.compiled import DTYPES, arrays_of, library
from servoctl.engine.ccode import BoundCall
from servoctl.types import Array


class Calls:
    """Calls of C on the arrays of a compiled function; one that does not run in C is called back.

    No exception can pass through C: results are then NaN, `failed` is set, and `raise_failure` raises it afterwards.
    """

    def __init__(self) -> None:
        self.ffi, self.functions = library()  # cffi of the functions, and the functions in C
        self.failed: Any = self.ffi.new("int *")  # whether a call has raised since the last `raise_failure`
        self._failure: BaseException | None = None

    def function(self, call: BoundCall) -> Any:
        """A `tick_function` that makes a call; the caller keeps it alive."""
        if call.address is not None:
            return self.ffi.cast("tick_function", call.address)
        return self.ffi.callback("tick_function", lambda *_: self._evaluate(call))

    def _evaluate(self, call: BoundCall) -> None:
        if not self.attempt(call.evaluate):
            for array in call.results:
                array.fill(np.nan)

    def attempt(self, action: Callable[[], object]) -> bool:
        """Does something within C; returns whether it raised nothing."""
        try:
            action()
        except BaseException as error:  # Ctrl-C and SystemExit too
            self._failure = self._failure or error
            self.failed[0] = True
            return False
        return True

    def raise_failure(self) -> None:
        """Raises the first exception of a call since the last time, if there was one."""
        if self._failure is not None:
            error, self._failure, self.failed[0] = self._failure, None, False
            raise error


class Struct:
    """A struct of C with its arrays.

    Args:
        kind: Its name in C.
        sizes: Size -> number, for the sizes of its arrays in the header.
        calls: What makes its calls.
    """

    def __init__(self, kind: str, sizes: Mapping[str, int], calls: Calls) -> None:
        self.kind, self.calls, self.ffi, self.functions = kind, calls, calls.ffi, calls.functions
        self.c: Any = self.ffi.new(f"{kind} *")  # the struct in C
        self.arrays: dict[str, Array] = {}  # name -> array of the struct
        self._kept: list[Any] = []
        for member in arrays_of(kind):
            self.share(member.name, np.zeros(sizes[member.size], dtype=DTYPES[member.kind]))

    def share(self, name: str, array: Array) -> None:
        """Takes an array for one of the struct's, which is kept alive until another takes its place."""
        (kind,) = [kind for kind, dtype in DTYPES.items() if array.dtype == dtype]
        self.arrays[name] = array
        setattr(self.c, name, self.ffi.cast(f"{kind} *", array.ctypes.data))

    def pointer(self, kind: str, array: Array) -> Any:
        """Address of an array, which is kept alive."""
        self._kept.append(array)
        return self.ffi.cast(f"{kind} *", array.ctypes.data)

    def numbers(self, values: Sequence[float] | Array) -> Any:
        """Address of these numbers."""
        return self.pointer("double", np.array(values, dtype=float))

    def string(self, text: str) -> Any:
        """Address of a text."""
        made = self.ffi.new("char[]", text.encode())
        self._kept.append(made)
        return made

    def array(self, kind: str, count: int) -> Any:
        """An array of structs."""
        made = self.ffi.new(f"{kind}[]", max(1, count))
        self._kept.append(made)
        return made

    def raise_failure(self) -> None:
        """Raises what a call raised within C since the last time."""
        self.calls.raise_failure()

    def connect(self, target: Any, call: BoundCall) -> None:
        """Writes a `tick_call` on the arrays of a call, which is kept alive."""
        for name, arrays in (("arguments", call.arguments), ("results", call.results)):
            pointers = self.array("double *", len(arrays))
            for i, array in enumerate(arrays):
                pointers[i] = self.pointer("double", array)
            setattr(target, name, pointers)
        target.function = function = self.calls.function(call)
        self._kept += [call, function]
