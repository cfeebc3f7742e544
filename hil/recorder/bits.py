"""How many bits were on each bus over time, from the frames that pass the recorder: for the picture of the bus load.

Design: windows are as short as the run allows: whenever there are too many, each two become one.
"""

from typing import Any

import numpy as np

from hil.bus.frame_bits import least_bits
from hil.loop.clock import SECOND
from hil.recorder.memory import EXTENDED, FRAME, REMOTE
from servoctl.types import Array

MOST = 600
"""Windows of a run."""

RECORD = np.dtype(
    {
        "names": ["time", "bus", "flags", "length"],
        "formats": ["<i8", "u1", "u1", "u1"],
        "offsets": [0, 12, 13, 14],
        "itemsize": FRAME.size,
    }
)
"""What of a `FRAME` counts."""


class BusBits:
    """Bits per bus and window."""

    def __init__(self) -> None:
        self._window = SECOND // 50
        self._bits = np.zeros((0, 0), dtype=np.int64)

    def add(self, data: bytes) -> None:
        """Counts frames, `memory.FRAME` one after the other, without their stuff bits."""
        frames = np.frombuffer(data, RECORD)
        if not len(frames):
            return
        payload = np.where(frames["flags"] & REMOTE, 0, frames["length"].astype(np.int64))
        bits = np.where(frames["flags"] & EXTENDED, least_bits(0, True), least_bits(0)) + 8 * payload
        time = np.maximum(frames["time"], 0)
        while int(time.max()) // self._window >= MOST:
            self._merge()
        window, bus = time // self._window, frames["bus"]
        self._reserve(int(bus.max()) + 1, int(window.max()) + 1)
        np.add.at(self._bits, (bus, window), bits)

    def as_dict(self) -> dict[str, Any]:
        """`window` [s], from the start of the run on, and `bits` of each, by bus in the order of the config."""
        return {"window": self._window / SECOND, "bits": self._bits.tolist()}

    def _merge(self) -> None:
        self._window *= 2
        even = np.pad(self._bits, ((0, 0), (0, self._bits.shape[1] % 2)))
        self._bits = even[:, ::2] + even[:, 1::2]

    def _reserve(self, buses: int, windows: int) -> None:
        have: Array = self._bits
        more = ((0, max(0, buses - have.shape[0])), (0, max(0, windows - have.shape[1])))
        self._bits = np.pad(have, more)
