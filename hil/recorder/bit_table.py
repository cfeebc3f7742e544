"""How many bits recorded frames take on the wire, for many frames at once."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hil.bus.fd_bits import least_fd_bits, worst_fd_bits
from hil.bus.frame_bits import least_bits, worst_bits
from hil.bus.rates import PhaseBits
from hil.frame import CLASSIC_SIZE, FD_SIZES
from hil.recorder.memory import BRS, EXTENDED, FD, REMOTE
from servoctl.types import Array

_NO_YES = (False, True)


class BitTable:
    """Bits of frames by size, length of the id, and kind.

    Args:
        classic: (bytes, extended) -> bits of a classic frame.
        fd: (bytes, extended, switched) -> bits of an FD frame.
    """

    def __init__(self, classic: Callable[[int, bool], int], fd: Callable[[int, bool, bool], PhaseBits]) -> None:
        sizes = range(FD_SIZES[-1] + 1)
        of_classic = [[(classic(min(size, CLASSIC_SIZE), long), 0) for size in sizes] for long in _NO_YES]
        of_fd = [[[fd(size, long, switched) for size in sizes] for long in _NO_YES] for switched in _NO_YES]
        self._table = np.array([of_classic, *of_fd], dtype=np.int64)

    def __call__(self, frames: Any) -> Array:
        """Bits at the nominal and at the data bit rate, shape (frames, 2).

        Args:
            frames: Records of `memory.FIELDS`.
        """
        flags = frames["flags"]
        size = np.where(flags & REMOTE, 0, np.minimum(frames["length"], FD_SIZES[-1]))
        kind = np.where(flags & FD, np.where(flags & BRS, 2, 1), 0)
        bits: Array = self._table[kind, (flags & EXTENDED != 0).astype(int), size]
        return bits


LEAST = BitTable(least_bits, least_fd_bits)
"""Without stuff bits."""

WORST = BitTable(worst_bits, worst_fd_bits)
"""With the most stuff bits there can be."""
