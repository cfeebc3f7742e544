"""MIT frames: golden frames, round trips against exact arithmetic, and what must never be sent."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.codecs import mit
from hil.drives.mit_options import tables

RANGES = mit.Ranges(12.5, 45.0, 18.0, 500.0, 5.0)
TABLES = sorted(tables())


def fields(data: bytes, ranges: mit.Ranges) -> list[Fraction]:
    """Position, velocity, kp, kd and torque of a command, by the definition of the frame, in exact arithmetic."""
    bits = "".join(f"{byte:08b}" for byte in data)
    widths, values = (16, 12, 12, 12, 12), []
    ends = [(-ranges.position, ranges.position), (-ranges.velocity, ranges.velocity)]
    ends += [(0.0, ranges.kp), (0.0, ranges.kd), (-ranges.torque, ranges.torque)]
    for width, (low, high) in zip(widths, ends, strict=True):
        number, bits = int(bits[:width], 2), bits[width:]
        values.append(Fraction(low) + number * (Fraction(high) - Fraction(low)) / (2**width - 1))
    assert bits == ""
    return values


def test_golden_frames() -> None:
    assert mit.torque_command(RANGES, 0.0).hex() == "7fff7ff0000007ff"
    assert mit.torque_command(RANGES, 2.0).hex() == "7fff7ff0000008e3"
    assert [mit.special(code).hex() for code in (mit.ENABLE, mit.DISABLE, mit.CLEAR_FAULT)] == [
        "fffffffffffffffc",
        "fffffffffffffffd",
        "fffffffffffffffb",
    ]


@given(st.sampled_from(TABLES), st.floats(-1, 1))
def test_a_torque_command_has_no_gains_and_never_looks_like_a_special_command(motor: str, share: float) -> None:
    ranges = tables()[motor]
    torque = share * ranges.torque
    data = mit.torque_command(ranges, torque)
    position, velocity, kp, kd, sent = fields(data, ranges)
    step = 2 * ranges.torque / 4095
    assert (kp, kd) == (0, 0)
    for value, half_step in ((position, ranges.position / 65535), (velocity, ranges.velocity / 4095)):
        assert abs(value) <= half_step * (1 + 1e-9)
    assert abs(sent - Fraction(torque)) <= step * (1 + 1e-9)
    assert abs(sent) <= max(abs(torque), step / 2) * (1 + 1e-9)
    assert sent * Fraction(torque) >= 0
    assert mit.carried(ranges, torque) == pytest.approx(float(sent), rel=1e-12, abs=1e-12)
    assert not data.startswith(b"\xff" * 6)


@pytest.mark.parametrize("torque", [math.nan, math.inf, -math.inf, 18.001, -19.0])
def test_a_torque_out_of_range_or_not_finite_is_refused(torque: float) -> None:
    with pytest.raises(ValueError, match="not finite and within"):
        mit.torque_command(RANGES, torque)


@given(st.integers(0, 255), st.integers(0, 65535), st.integers(0, 4095), st.integers(0, 4095), st.sampled_from([0, 2]))
def test_a_reply_is_decoded(first: int, p: int, v: int, t: int, more: int) -> None:
    data = bytes([first]) + (p << 24 | v << 12 | t).to_bytes(5, "big") + bytes(more)
    reply = mit.reply(data, RANGES)
    assert reply is not None and reply.first == first and len(reply.rest) == more
    exact = [Fraction(-25, 2) + Fraction(25 * p, 65535), Fraction(90 * v, 4095) - 45, Fraction(36 * t, 4095) - 18]
    assert [reply.position, reply.velocity, reply.torque] == pytest.approx([float(each) for each in exact], abs=1e-12)


@given(st.binary(max_size=8).filter(lambda data: len(data) not in (6, 8)))
def test_a_reply_of_a_wrong_length_is_invalid(data: bytes) -> None:
    assert mit.reply(data, RANGES) is None
