"""How many bits recorded frames take on the wire in the worst case, for many frames at once."""

from typing import Any

import numpy as np

from hil.bus.frame_bits import frame_bits
from hil.frame import CLASSIC_SIZE, FD_SIZES
from hil.recorder.memory import BRS, EXTENDED, FD, REMOTE
from servoctl.types import Array

_NO_YES = (False, True)
_SIZES = range(FD_SIZES[-1] + 1)
_CLASSIC = [[frame_bits(min(size, CLASSIC_SIZE), long) for size in _SIZES] for long in _NO_YES]
_FD = [[[frame_bits(size, long, True, switched) for size in _SIZES] for long in _NO_YES] for switched in _NO_YES]
_TABLE = np.array([_CLASSIC, *_FD], dtype=np.int64)


def recorded_bits(frames: Any) -> Array:
    """Bits at the nominal and at the data bit rate, shape (frames, 2).

    Args:
        frames: Records of `memory.FIELDS`.
    """
    flags = frames["flags"]
    size = np.where(flags & REMOTE, 0, np.minimum(frames["length"], FD_SIZES[-1]))
    kind = np.where(flags & FD, np.where(flags & BRS, 2, 1), 0)
    bits: Array = _TABLE[kind, (flags & EXTENDED != 0).astype(int), size]
    return bits
