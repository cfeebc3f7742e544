"""The C of the tick, compiled once per machine: what differs between configs is in its tables."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from servoctl.engine.ccode import CSource

_FOLDER = Path(__file__).parent / "c"


def header() -> str:
    """Tables, state and functions in C."""
    return (_FOLDER / "tick.h").read_text()


@lru_cache
def library() -> tuple[Any, Any]:
    """cffi and the library.

    Raises:
        CompileError: There is no compiler, or it fails.
    """
    head = "#include <math.h>\n#include <string.h>\n"
    return CSource(lambda: head + header() + (_FOLDER / "tick.c").read_text(), [header()]).opened()
