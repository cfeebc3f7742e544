"""How many bits the recorder counts on each bus."""

import numpy as np

from hil.bus.load import frame_bits
from hil.frame import BRS, EXTENDED, FD, REMOTE, SENT
from hil.recorder.files import MOST, BusBits
from hil.recorder.memory import FRAME


def frame(seconds: float, bus: int, flags: int, length: int) -> bytes:
    return FRAME.pack(round(seconds * 1e9), 0x181, bus, flags, length, bytes(8))


def test_bits_are_counted_per_bus_and_window() -> None:
    bits = BusBits()
    bits.add(frame(0.001, 0, 0, 8) + frame(0.002, 0, SENT, 4) + frame(0.021, 1, EXTENDED, 8))
    bits.add(frame(0.05, 0, REMOTE, 8))
    said = bits.as_dict()
    assert said["window"] == 0.02
    assert said["bits"] == [[135 + 95, 0, 55], [0, 160, 0]]
    assert "data_bits" not in said  # no FD frame


def test_a_long_run_has_longer_windows_and_loses_no_bit() -> None:
    bits = BusBits()
    for second in range(1000):
        bits.add(frame(second, 0, 0, 8) * 3)
    said = bits.as_dict()
    assert len(said["bits"][0]) <= MOST and np.sum(said["bits"]) == 3000 * 135
    assert said["window"] == 0.02 * 2**7


def test_bits_at_the_data_bit_rate_are_counted_apart() -> None:
    bits = BusBits()
    bits.add(frame(0.001, 0, FD | BRS, 64) + frame(0.002, 0, FD, 64) + frame(0.003, 0, FD | BRS | EXTENDED, 12))
    bits.add(frame(0.004, 0, 0, 8))
    switched, plain = frame_bits(64, False, True, True), frame_bits(64, False, True)
    long = frame_bits(12, True, True, True)
    said = bits.as_dict()
    assert said["bits"] == [[switched.nominal + plain.nominal + long.nominal + 135]]
    assert said["data_bits"] == [[switched.data + long.data]]
    assert plain == (sum(switched), 0)
