"""How many bits the recorder counts on each bus."""

import numpy as np

from hil.bus.frame_bits import least_bits
from hil.recorder.frame_log import MOST, BusBits
from hil.recorder.memory import EXTENDED, FRAME, REMOTE, SENT


def frame(seconds: float, bus: int, flags: int, length: int) -> bytes:
    return FRAME.pack(round(seconds * 1e9), 0x181, bus, flags, length, bytes(8))


def test_bits_are_counted_per_bus_and_window() -> None:
    bits = BusBits()
    bits.add(frame(0.001, 0, 0, 8) + frame(0.002, 0, SENT, 4) + frame(0.021, 1, EXTENDED, 8))
    bits.add(frame(0.05, 0, REMOTE, 8))
    said = bits.as_dict()
    assert said["window"] == 0.02
    assert said["bits"] == [[least_bits(8) + least_bits(4), 0, least_bits(0)], [0, least_bits(8, True), 0]]


def test_a_long_run_has_longer_windows_and_loses_no_bit() -> None:
    bits = BusBits()
    for second in range(1000):
        bits.add(frame(second, 0, 0, 8) * 3)
    said = bits.as_dict()
    assert len(said["bits"][0]) <= MOST and np.sum(said["bits"]) == 3000 * least_bits(8)
    assert said["window"] == 0.02 * 2**7
