"""The C of a tick as one library: its constants, its structs and their arrays."""

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hil.bus.base import PATIENCE
from hil.core import constants
from hil.core.constants import Measured, Torques
from hil.drives.settings import FIRST_GAUGE
from hil.frame import BRS, ERROR, EXTENDED, FD, REMOTE, SENT
from hil.loop import timing
from servoctl.engine.ccode import CSource
from servoctl.engine.ops import template

_FOLDER = Path(__file__).parent / "c"

SOCKETS = sys.platform == "linux" and sys.byteorder == "little"
"""Whether the tick in C may send and receive on sockets itself; `c/linux.h` has the numbers of x86, ARM and RISC-V."""

TICK = "common.c", "frames.c", "window.c", "sense.c", "test.c", "hold.c", "tick.c"
"""The files of a tick from frames to frames, in order."""

HEADERS = ("tick.h", "log.h", *(("sockets.h", "stretch.h") if SOCKETS else ()))


SHARED: dict[str, int] = {
    **{each.name: each.value for each in Torques},
    **{f"OF_{each.name}": each.value for each in Measured},
    **{name: getattr(constants, name) for name in ("ARRIVES", "BETWEEN", "LOST", "NOT_FRICTION", "OTHER")},
    **{name: getattr(constants, name) for name in ("UNPROVED", "AGAINST", "GIVEN_BACK", "UNKNOWN")},
    **{"SENT": SENT, "EXTENDED": EXTENDED, "REMOTE": REMOTE, "ERROR_FRAME": ERROR, "FD": FD, "BRS": BRS},
    "KIND": EXTENDED | REMOTE | ERROR | FD,  # flags that a message of a table has
    **{name: getattr(constants, name) for name in ("RING_HEAD", "RING_LOST", "RING_TAIL")},
    **{"FIRST_GAUGE": FIRST_GAUGE.value, "PATIENCE": PATIENCE},
    **{"WINDOWS": constants.COMES_WITHIN, "BITS": timing.BITS, "HEAD_COUNTS": timing.HEAD},
}
"""Constants in C: name -> value."""

ARRAYS = "/* STATE and RESULTS of hil.core.library */"  # where they are declared in `c/tick.h`
DTYPES = {"double": float, "long long": np.int64, "int": np.int32}
BLOCKS = {"double": ("doubles", "numbers", "kept_numbers"), "long long": ("integers", "times", "kept_times")}
"""Kind -> members of the struct: length of the block of the state, the block, and the block before the tick."""
STATE = {
    "double": {
        "n": "q v law_q law_v moved half_moved quick_moved",
        "m": "sent made least most where half_sent quick_sent before_u before_d carried previous integral anchor rest "
        "path path_speed loop_speed away away_speed ahead ahead_speed",
        "channels": "position velocity torque next_torque accepted_position accepted_velocity accepted_torque travel "
        "rates before scale_start scale_moved scale_path wrapped added",
        "1": "window_elapsed half_elapsed quick_elapsed fastest",
        "windows": "last last_allowed",  # of the last windows, the oldest first
        "gauges": "gauges",  # temperatures, supply and load of each node, in the order of `GAUGES`
    },
    "long long": {
        "1": "now sync sync_before asked asked_before limits_time due began written beyond lacking windows "
        "samples round_tick",
        "m": "alive followed still",
        "channels": "sample_time accepted_time seen still_since scale_since scale_beyond",
        "2 m": "arrivals",  # of short windows, then of long ones
    },
}
"""Kind -> size -> arrays that are kept until a tick is complete: of each kind one block. Times are in ns."""
RESULTS = {
    "double": {
        "m": "torques raw allowed silences wanted limited held learned scaled unsent aim aim_speed bias at_release "
        "next_path next_speed goals test pushed test_noise speed_step turns most_travel changes impulses means spreads",
        "channels": "ages displacements slack expected",
        "m m": "test_inertia projector",  # row by row
    },
    "int": {"m": "clamped next_still"},
}
"""Kind -> size -> arrays with the results of a tick."""


def header() -> str:
    """Constants, tables, state and functions in C."""
    members = [(kind, names) for table in (STATE, RESULTS) for kind, each in table.items() for names in each.values()]
    declared = "\n  ".join(f"{kind} {', '.join(f'*{name}' for name in names.split())};" for kind, names in members)
    constants = ", ".join(f"{name} = {value}" for name, value in SHARED.items())
    return f"enum {{ {constants} }};\n" + text(*HEADERS).replace(ARRAYS, declared)


def source() -> str:
    """All of the C."""
    code = template("libc.h") + header() + text(*TICK, "log.c")
    return code + text("linux.h", "sockets.c", "stretch.c") if SOCKETS else code


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
