"""How many bits the recorder counts on each bus."""

import numpy as np

from hil.bus.fd_bits import least_fd_bits
from hil.bus.frame_bits import least_bits
from hil.recorder.frame_log import MOST, BusBits
from hil.recorder.memory import BRS, EXTENDED, FD, FRAME, REMOTE, SENT


def frame(seconds: float, bus: int, flags: int, length: int) -> bytes:
    return FRAME.pack(round(seconds * 1e9), 0x181, bus, flags, length, bytes(8))


def test_bits_are_counted_per_bus_and_window() -> None:
    bits = BusBits()
    bits.add(frame(0.001, 0, 0, 8) + frame(0.002, 0, SENT, 4) + frame(0.021, 1, EXTENDED, 8))
    bits.add(frame(0.05, 0, REMOTE, 8))
    said = bits.as_dict()
    assert said["window"] == 0.02
    assert said["bits"] == [[least_bits(8) + least_bits(4), 0, least_bits(0)], [0, least_bits(8, True), 0]]
    assert "data_bits" not in said  # no FD frame


def test_a_long_run_has_longer_windows_and_loses_no_bit() -> None:
    bits = BusBits()
    for second in range(1000):
        bits.add(frame(second, 0, 0, 8) * 3)
    said = bits.as_dict()
    assert len(said["bits"][0]) <= MOST and np.sum(said["bits"]) == 3000 * least_bits(8)
    assert said["window"] == 0.02 * 2**7


def test_bits_at_the_data_bit_rate_are_counted_apart() -> None:
    bits = BusBits()
    bits.add(frame(0.001, 0, FD | BRS, 64) + frame(0.002, 0, FD, 64) + frame(0.003, 0, FD | BRS | EXTENDED, 12))
    bits.add(frame(0.004, 0, 0, 8))
    switched, plain, long = least_fd_bits(64), least_fd_bits(64, switched=False), least_fd_bits(12, True)
    said = bits.as_dict()
    assert said["bits"] == [[switched.nominal + plain.nominal + long.nominal + least_bits(8)]]
    assert said["data_bits"] == [[switched.data + long.data]]
    assert (switched, plain, long) == ((30, 549), (579, 0), (49, 128))  # 17 + 13, 36 + 13; 5 + 8 s + 27 or 32
