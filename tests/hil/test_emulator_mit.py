"""The emulated MIT drive against the golden frames and the arithmetic of its bit fields."""

import math
import struct

import pytest
from emulation import Bench, bench, drive_settings

from hil.emulator.mit import Mit
from hil.emulator.readers import ranges_of
from hil.frame import Frame

NODE = 4
ENABLE, DISABLE = (Frame(NODE, b"\xff" * 7 + bytes([code])) for code in (0xFC, 0xFD))
RANGES = {"position": 12.5, "velocity": 45.0, "torque": 18.0, "kp": 500, "kd": 5}


def host_of(**options: object) -> Bench:
    settings = drive_settings("mit", node=NODE, options={"ranges": RANGES} | options, watchdog=0.02, torque_limit=30.0)
    host = bench(settings)
    host.collect(1.0)
    return host


def drive_of(host: Bench) -> Mit:
    node = host.emulator.nodes["a"]
    assert isinstance(node, Mit)
    return node


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
    assert not drive_of(host).motor.enabled


def test_the_position_goes_on_at_the_other_end_of_its_range() -> None:
    host = host_of(ranges=RANGES | {"position": 0.4})
    (answer,) = host.ask(torque_frame(0x7FF))  # the motor stands at -0.5 rad
    assert int.from_bytes(answer.data[1:3], "big") / 0xFFFF * 0.8 - 0.4 == pytest.approx(0.3, abs=2e-5)


def test_ranges_come_from_the_options_or_from_the_table_of_motors() -> None:
    assert ranges_of({"ranges": RANGES | {"position": "4*pi"}})["position"] == pytest.approx(4 * math.pi)
    assert ranges_of({"motor": "ak80-64"})["torque"] == 144.0
    assert ranges_of({"motor": "rs-03"})["position"] == pytest.approx(4 * math.pi)
    assert ranges_of({})["torque"] == 18.0


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
            drive_of(host).trip(2)
        (answer,) = host.ask(torque_frame(0x7FF))
        seen.append((answer.data[0], answer.data[7] if len(answer.data) == 8 else None))
    assert seen == [before, enabled, faulty]
    host.ask(ENABLE)
    assert not drive_of(host).motor.enabled
    host.ask(Frame(NODE, b"\xff" * 7 + b"\xfb"))
    host.ask(ENABLE)
    assert drive_of(host).motor.enabled


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
