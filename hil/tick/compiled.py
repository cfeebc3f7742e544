"""The C of the tick, compiled once per machine: what differs between configs is in its tables."""

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from servoctl.engine.ccode import CSource

_FOLDER = Path(__file__).parent / "c"

SOCKETS = sys.platform == "linux" and sys.byteorder == "little"
"""Whether the tick in C may send and receive on sockets itself."""

HEAD = "#include <math.h>\n#include <string.h>\n"

HEAD_WITH_SOCKETS = (
    "#define _GNU_SOURCE /* recvmmsg, ppoll */\n"
    + HEAD
    + "".join(f"#include <{name}.h>\n" for name in ("errno", "poll", "sys/socket", "sys/uio", "time", "unistd"))
)


TICK = ("common.c", "frames.c", "window.c", "sense.c", "tick.c")  # the files of a tick from frames to frames, in order

HEADERS = ("tick.h", "log.h", *(("sockets.h", "stretch.h") if SOCKETS else ()))


def header() -> str:
    """Tables, state and functions in C."""
    return text(*HEADERS)


def source() -> str:
    """All of the C."""
    code = header() + text(*TICK, "log.c")
    return HEAD_WITH_SOCKETS + code + text("sockets.c", "stretch.c") if SOCKETS else HEAD + code


def text(*names: str) -> str:
    """C files of this package, one after the other."""
    return "\n".join((_FOLDER / name).read_text() for name in names)


@lru_cache
def library() -> tuple[Any, Any]:
    """cffi and the library.

    Raises:
        CompileError: There is no compiler, or it fails.
    """
    return CSource(source, [header()], lanes=0).opened()
