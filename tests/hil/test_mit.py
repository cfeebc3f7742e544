"""The MIT protocol: fields, driver and emulated drive against another implementation and exact arithmetic.

What driver and drive say to each other is in `conversations.txt`.
"""

import math
import struct
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.codecs import mit
from hil.drives.base import Condition
from hil.drives.linear_ranges import Ranges, tables
from hil.drives.mit import MitDrive
from hil.drives.settings import SensorSettings
from hil.emulator.impedance import ranges_of
from hil.frame import Frame
from hil.protocols.registry import build
from servoctl.errors import ConfigError
from tests.hil.drive_host import Host
from tests.hil.emulation import MILLISECOND, Bench, bare_drive, bench, drive_settings

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


AK80 = {"motor": "ak80-9"}  # 12.5 rad, 50 rad/s, 18 N m


def reply(position: int = 0x9999) -> bytes:
    return bytes([1]) + (position << 24 | 0x7FF8E3).to_bytes(5, "big")


def test_late_replies_to_older_commands_do_not_prove_that_a_motor_is_off() -> None:
    """Its frames have no status: replies that wait in a queue look like answers to the command to disable."""
    host = Host(drive_settings("mit", options=AK80))
    host.order("identify, configure, enable 0")
    drive, began = host.drive, host.clock.now()
    drive.disable_frames()
    for k in range(102):
        drive.accept(Frame(0, reply(), time=began + k * MILLISECOND))
        assert k >= 60 or (drive.condition is Condition.ENABLED and not drive.confirmed_off)
    assert drive.confirmed_off and drive.condition is Condition.DISABLED


def test_a_position_is_followed_over_the_ends_of_its_range() -> None:
    drive = bare_drive("mit", options=AK80)
    span, step, angle = 25.0, 1.7, 0.0
    for count in [*range(40), *range(40, -40, -1)]:
        angle = count * step
        wrapped = (angle + 12.5) % span / span
        drive.accept(Frame(0, reply(round(wrapped * 65535))))
        assert drive.sample.position == pytest.approx(angle, abs=span / 65535)
    assert angle < -60


def test_every_table_of_ranges_is_complete() -> None:
    assert len(tables()) > 15
    for name, ranges in tables().items():
        assert all(value > 0 for value in ranges), name
    assert tables()["rs-01"].position == pytest.approx(4 * math.pi)


def test_mit_has_no_encoder_nodes() -> None:
    with pytest.raises(ConfigError, match="mit has no encoder nodes: it measures only in reply to commands"):
        build(SensorSettings("x2", "main", "mit", 3, options=AK80), 0.002)


NODE = 4
ENABLE, DISABLE = (Frame(NODE, b"\xff" * 7 + bytes([code])) for code in (0xFC, 0xFD))
ENDS = RANGES._asdict()


def host_of(**options: object) -> Bench:
    settings = drive_settings("mit", node=NODE, options={"ranges": ENDS} | options, watchdog=0.02, torque_limit=30.0)
    host = bench(settings)
    host.collect(1.0)
    return host


def torque_frame(number: int) -> Frame:
    """Zeros of position and speed, no gains, and twelve bits of torque."""
    return Frame(NODE, bytes.fromhex("7fff7ff00000") + struct.pack(">H", number))


def pack(value: float, low: float, high: float, bits: int) -> int:
    """As `float_to_uint` of the makers' examples."""
    return min(2**bits - 1, max(0, int((value - low) * (2**bits - 1) / (high - low))))


def test_it_sends_nothing_without_a_command() -> None:
    assert host_of().collect(500.0) == []


def test_each_command_is_answered_once_with_the_id_of_the_host() -> None:
    host = host_of(host=0x11)
    for frame in (ENABLE, torque_frame(0x8E3), torque_frame(0x7FF), DISABLE):
        answers = host.ask(frame)
        assert [(a.id, len(a.data), a.data[0]) for a in answers] == [(0x11, 6, NODE)]


def test_a_command_of_all_ones_is_a_special_frame() -> None:
    # seven bytes of ones and FD, as a command: that is why drivers must never send it
    host = host_of()
    host.ask(ENABLE)
    host.ask(Frame(NODE, b"\xff" * 7 + b"\xfd"))
    assert not host.node.motor.enabled


def test_the_position_goes_on_at_the_other_end_of_its_range() -> None:
    host = host_of(ranges=ENDS | {"position": 0.4})
    (answer,) = host.ask(torque_frame(0x7FF))  # the motor stands at -0.5 rad
    assert int.from_bytes(answer.data[1:3], "big") / 0xFFFF * 0.8 - 0.4 == pytest.approx(0.3, abs=2e-5)


def test_ranges_come_from_the_options_or_from_the_table_of_motors() -> None:
    assert ranges_of({"ranges": ENDS | {"position": "4*pi"}}).position == pytest.approx(4 * math.pi)
    assert ranges_of({"motor": "ak80-64"}).torque == 144.0
    assert ranges_of({"motor": "rs-03"}).position == pytest.approx(4 * math.pi)
    assert ranges_of({}).torque == 18.0


@pytest.mark.parametrize(
    ("status", "before", "enabled", "faulty"),
    [("none", (NODE, None), (NODE, None), (NODE, None)), ("cubemars", (NODE, 0), (NODE, 0), (NODE, 2)),
     ("damiao", (NODE, 25), (NODE | 0x10, 25), (NODE | 0x20, 25))],
)  # fmt: skip
def test_the_status_is_in_the_byte_of_its_maker(
    status: str, before: tuple[int, int | None], enabled: tuple[int, int | None], faulty: tuple[int, int | None]
) -> None:
    host = host_of(status=status)
    seen = []
    for event in ("before", "enabled", "faulty"):
        if event == "enabled":
            host.ask(ENABLE)
        elif event == "faulty":
            host.node.trip(2)
        (answer,) = host.ask(torque_frame(0x7FF))
        seen.append((answer.data[0], answer.data[7] if len(answer.data) == 8 else None))
    assert seen == [before, enabled, faulty]
    host.ask(ENABLE)
    assert not host.node.motor.enabled
    host.ask(Frame(NODE, b"\xff" * 7 + b"\xfb"))
    host.ask(ENABLE)
    assert host.node.motor.enabled


def test_gains_pull_to_the_commanded_position() -> None:
    host = host_of()
    host.ask(ENABLE)
    bits = pack(1.0, -12.5, 12.5, 16) << 48 | pack(0.0, -45.0, 45.0, 12) << 36 | 0x7FF
    bits |= pack(20.0, 0.0, 500.0, 12) << 24 | pack(4.0, 0.0, 5.0, 12) << 12
    frame = Frame(NODE, bits.to_bytes(8, "big"))
    for _ in range(600):
        host.ask(frame, 5.0)
    # motor = -(x - 0.25) * 2
    assert -(host.emulator.state[0][0] - 0.25) * 2.0 == pytest.approx(1.0, abs=0.02)


def test_set_zero_moves_the_origin() -> None:
    host = host_of()
    host.ask(Frame(NODE, b"\xff" * 7 + b"\xfe"))
    (answer,) = host.ask(torque_frame(0x7FF))
    assert int.from_bytes(answer.data[1:3], "big") in (0x7FFF, 0x8000)
