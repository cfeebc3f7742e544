"""MIT frames: another implementation, round trips in exact arithmetic, and what must never be sent."""

from fractions import Fraction
from typing import Any

import pytest
from emulation import bare_drive
from hypothesis import given
from hypothesis import strategies as st

from hil.codecs import mit
from hil.drives.linear_ranges import Ranges, tables
from hil.drives.mit import MitDrive

RANGES = Ranges(12.5, 45.0, 18.0, 500.0, 5.0)
TABLES = sorted(tables())


def driver(ranges: Ranges) -> MitDrive:
    options = {"ranges": ranges._asdict(), "status": "cubemars"}
    drive = bare_drive("mit", options=options, torque_limit=ranges.torque, speed_limit=0.5 * ranges.velocity)
    assert isinstance(drive, MitDrive)
    return drive


def fields(data: bytes, ranges: Ranges) -> list[Fraction]:
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


def their_motor(ranges: Ranges) -> Any:
    """A motor of the package `damiao-motor`, which shares no code with this one; its gains end at 500 and 5."""
    motors = pytest.importorskip("damiao_motor.core.motor", reason="the package reads and writes the same frames")
    ends = {f"{name}_{end}": sign * most for name, most in zip("pvt", ranges[:3], strict=True)
            for end, sign in (("min", -1.0), ("max", 1.0))}  # fmt: skip
    return motors.DaMiaoMotor(1, 17, None, motor_type="4310", **ends)


WORDS, SHORTS = st.integers(0, 65535), st.integers(0, 4095)


@given(WORDS, SHORTS, SHORTS, SHORTS, SHORTS)
def test_fields_of_a_command_are_where_another_implementation_writes_them(
    position: int, velocity: int, stiffness: int, damping: int, torque: int
) -> None:
    data, fields, numbers = bytes(8), mit.FIELDS, (position, velocity, stiffness, damping, torque)
    names = ("position", "velocity", "stiffness", "damping", "torque")
    places = [getattr(fields, f"command_{name}") for name in names]
    lows, spans = (-12.5, -45.0, 0.0, 0.0, -18.0), (25.0, 90.0, 500.0, 5.0, 36.0)
    for place, number in zip(places, numbers, strict=True):
        data = place.written(data, number)
    # half a step more, as they round down
    p, v, kp, kd, t = (
        low + min(number + 0.5, place.mask) * span / place.mask
        for low, span, number, place in zip(lows, spans, numbers, places, strict=True)
    )
    assert their_motor(RANGES).encode_cmd_msg(p, v, t, kp, kd) == data


@given(st.integers(0, 15), st.integers(0, 15), WORDS, SHORTS, SHORTS)
def test_fields_of_a_reply_are_where_another_implementation_reads_them(
    node: int, status: int, position: int, velocity: int, torque: int
) -> None:
    data, fields = bytes([node | status << 4, *bytes(5), 31, 32]), mit.FIELDS
    for place, number in ((fields.position, position), (fields.velocity, velocity), (fields.torque, torque)):
        data = place.written(data, number)
    theirs = their_motor(RANGES).decode_sensor_feedback(data)
    assert [theirs["can_id"], theirs["status_code"], theirs["t_mos"], theirs["t_rotor"]] == [node, status, 31, 32]
    assert [mit.ELECTRONICS.read(data), mit.ROTOR.read(data)] == [31, 32]
    ours = [-12.5 + position * 25 / 65535, -45 + velocity * 90 / 4095, -18 + torque * 36 / 4095]
    assert [theirs["pos"], theirs["vel"], theirs["torq"]] == pytest.approx(ours, abs=1e-12)


@given(st.sampled_from(TABLES), st.floats(-1, 1))
def test_a_torque_command_has_no_gains_and_never_looks_like_a_special_command(motor: str, share: float) -> None:
    ranges = tables()[motor]
    torque = share * ranges.torque
    drive = driver(ranges)
    data = drive.command(torque).data
    position, velocity, kp, kd, sent = fields(data, ranges)
    step = 2 * ranges.torque / 4095
    assert (kp, kd) == (0, 0)
    for value, half_step in ((position, ranges.position / 65535), (velocity, ranges.velocity / 4095)):
        assert abs(value) <= half_step * (1 + 1e-9)
    assert abs(sent - Fraction(torque)) <= step * (1 + 1e-9)
    assert abs(sent) <= max(abs(torque), step / 2) * (1 + 1e-9)
    assert sent * Fraction(torque) >= 0
    assert drive.carried(torque) == pytest.approx(float(sent), rel=1e-12, abs=1e-12)
    assert not data.startswith(b"\xff" * 6)


@given(st.floats(-18, 18))
def test_the_damping_of_a_quick_stop_leaves_the_torque_as_it_is(torque: float) -> None:
    drive = driver(RANGES)
    (frame,) = drive.quick_stop_frames(torque)
    kp, kd, sent = fields(frame.data, RANGES)[2:]
    assert kp == 0 and sent == fields(drive.command(torque).data, RANGES)[4]
    assert abs(kd * Fraction(22.5)) + abs(Fraction(torque)) <= 18 * (1 + 1e-9)
    assert drive.torque_bytes(frame) == (None if kd else drive.torque_bytes(drive.command(torque)))
