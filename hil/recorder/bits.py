"""How many bits each bus carried over time, for the picture of the bus load.

Design: windows are as short as the length of the run allows: when there are too many, pairs of them are merged.
"""

from typing import Any

import numpy as np

from hil.bus.frame_bits import least_bits
from hil.loop.clock import SECOND
from hil.recorder.memory import EXTENDED, FIELDS, REMOTE
from servoctl.types import Array

MOST = 600
"""Largest number of windows."""


class BusBits:
    """Bits per bus and time window, counted without stuff bits."""

    def __init__(self) -> None:
        self._window = SECOND // 50
        self._bits = np.zeros((0, 0), dtype=np.int64)

    def add(self, data: bytes) -> None:
        """Counts frames, given as consecutive `memory.FRAME` records."""
        frames = np.frombuffer(data, FIELDS)
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
        """`window`: length of the windows [s]; `bits`: bits in each window of the run, for each bus in order."""
        return {"window": self._window / SECOND, "bits": self._bits.tolist()}

    def _merge(self) -> None:
        self._window *= 2
        even = np.pad(self._bits, ((0, 0), (0, self._bits.shape[1] % 2)))
        self._bits = even[:, ::2] + even[:, 1::2]

    def _reserve(self, buses: int, windows: int) -> None:
        bits: Array = self._bits
        missing = ((0, max(0, buses - bits.shape[0])), (0, max(0, windows - bits.shape[1])))
        self._bits = np.pad(bits, missing)
