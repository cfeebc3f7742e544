"""The MIT protocol: fields, driver and emulated drive against another implementation and exact arithmetic.

A Damiao's registers are read back and compared, and an emulated one answers as its owner's own program expects. What
driver and drive say to each other is in `conversations.txt`.
"""

import math
import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import can
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
from hil.session.start import Request, start
from servoctl.errors import ConfigError
from tests.faces import on_drives
from tests.hil.command_observer import observed
from tests.hil.drive_host import Host
from tests.hil.emulation import MILLISECOND, Axes, Bench, bare_drive, bench, drive_settings
from tests.hil.interfaces import BITRATE, EACH, keys_of
from tests.hil.test_emulator_process import serving
from tests.hil.wall_clock import wait_until

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


HOST = 0x14
OPTIONS = {"motor": "dm4310", "status": "damiao", "host": HOST, "drive_watchdog": True}


def test_requests_and_answers_are_the_bytes_of_the_maker() -> None:
    assert mit.read_register(1, mit.TMAX).hex() == "0100331700000000"
    assert mit.read_register(0x203, mit.TIMEOUT).hex() == "0302330900000000"
    answer = bytes.fromhex("03003317") + struct.pack("<f", 10.0)
    assert mit.register_value(answer, 3) == (mit.TMAX, 10.0)
    assert mit.register_value(bytes.fromhex("01005509e8030000"), 1) == (mit.TIMEOUT, 1000.0)  # 50 ms
    assert mit.register_value(answer, 4) is None
    # replies to commands: enabled, or at rest near the same position
    assert mit.register_value(bytes.fromhex("13003317") + bytes(4), 3) is None
    assert mit.register_value(bytes.fromhex("0300337ff7ff1919"), 3) is None


FLOAT, COUNT = struct.Struct("<f").pack, struct.Struct("<I").pack


def emulated(options: dict[str, object] | None = None) -> Bench:
    host = bench(drive_settings("mit", node=NODE, options=OPTIONS, watchdog=0.02, torque_limit=15.0), options=options)
    host.collect(1.0)
    return host


def ask(host: Bench, payload: str) -> list[tuple[int, str]]:
    return [(frame.id, frame.data.hex()) for frame in host.ask(Frame(0x7FF, bytes.fromhex(payload)))]


def test_an_emulated_drive_answers_about_its_registers() -> None:
    host = emulated()
    assert ask(host, "0400331700000000") == [(HOST, "04003317" + FLOAT(10.0).hex())]
    assert ask(host, "0400330900000000") == [(HOST, "04003309" + COUNT(400).hex())]  # 20 ms
    assert ask(host, "0500331700000000") == []  # another drive's
    assert ask(host, "0400332800000000") == []  # there is no register 40
    assert ask(host, "040055170000c040") == []  # none can be written
    assert ask(host, "0400331700000000") == [(HOST, "04003317" + FLOAT(10.0).hex())]
    ((identity, reply),) = ask(host, "0400cc0000000000")
    assert (identity, reply[:2], len(reply)) == (HOST, "04", 16)


def test_its_range_scales_torques_and_its_time_out_stops_it() -> None:
    host = emulated({"registers": {23: 20.0, 9: 80}})  # TMAX [N m], TIMEOUT 4 ms
    drive = host.node
    host.ask(ENABLE)
    host.ask(Frame(NODE, bytes.fromhex("7fff7ff000000c00")), 1.0)
    assert drive.motor.torque() == pytest.approx(-20.0 + 0xC00 * 40.0 / 4095)
    host.collect(5.0)
    assert not drive.motor.enabled


def test_a_drive_in_another_mode_makes_no_torque_of_these_commands() -> None:
    host = emulated({"registers": {10: 2}})
    drive = host.node
    host.ask(ENABLE)
    assert len(host.ask(Frame(NODE, bytes.fromhex("7fff7ff000000c00")), 1.0)) == 1
    assert drive.motor.enabled and drive.motor.torque() == 0.0


DRIVE = "bus: main, gear: 2, torque_limit: 5, torque_rate_limit: 1000, speed_limit: 1, position_limits: [-0.3, 0.3]"
BUS = "hil.buses={main: {interface: emulated, fd: true, data_bitrate: 5000000}}"
ENCODER = "coordinate: x2, bus: main, protocol: odrive, fd: true, node: 7, gear: 50, offset: 0.5, speed_limit: 0.5"


def belt(*overrides: str) -> Request:
    """The belt of the shipped config with a Damiao and an ODrive encoder on an FD bus."""
    drive = f"{{actuator: F, protocol: mit, status: damiao, motor: dm4310, node: 1, drive_watchdog: true, {DRIVE}}}"
    rig = (BUS, f"hil.drives=[{drive}]", f"hil.sensors=[{{{ENCODER}}}]")
    return Request("two_mass_spring_drive", (*rig, *overrides), duration=0.1, engine="vm")


def fallen(torque: float) -> float:
    """How far a braked axis under 5 N falls while its watchdog of 50 ms is tested with a torque [m]."""
    settings = drive_settings("mit", node=NODE, options=OPTIONS, watchdog=0.05, torque_limit=15.0, brake=True)
    host = Host(settings, plant=Axes(weight=5.0))
    host.order(f"test_watchdog {torque}")
    host.bench.collect(120.0)
    assert not host.node.motor.enabled
    return 0.5 - float(host.bench.emulator.state[0][0])


def test_the_watchdog_test_holds_an_axis_whose_brake_opens() -> None:
    """Without torque it falls freely for watchdog and brake; with the holding torque for the brake's 100 ms alone."""
    acceleration, time = 5.0 / 2.0, 0.152
    speed, fall = acceleration * (time - 0.02), acceleration * (time - 0.02) ** 2 / 2
    for share in (0.2, 0.4, 0.6, 0.8):  # in its last 20 ms the torque of the brake rises, to twice the torque limit
        slower = (share * 2 * 15.0 - 5.0) / 2.0
        speed, fall = speed - slower * 0.005, fall + speed * 0.005 - slower * 0.005**2 / 2
    fall += speed**2 / 2 / ((2 * 15.0 - 5.0) / 2.0)
    assert fallen(0.0) == pytest.approx(fall, rel=0.03)
    assert fallen(5.0) < 1.3 * acceleration * 0.1**2 / 2


def test_a_drive_with_another_range_is_refused_before_it_is_enabled(tmp_path: Path) -> None:
    fault = "hil.faults=[{kind: torque_table, drive: F, factor: 1.2, since: power_on}]"
    ended = start(belt(fault)).run(tmp_path / "run", lambda event: None)
    assert ended.exit_code == 3
    said = "TMAX (register 23) is 12 N m, the range of torque in the config is 10 N m"
    assert [said in event.detail for event in ended.events] == [True]


@pytest.mark.parametrize("fd", [False, True], ids=["classic", "fd"])
@pytest.mark.parametrize("interface", [EACH[0], EACH[2]])  # it takes its own echoes on udp_multicast for answers
def test_the_owners_program_drives_an_emulated_drive(interface: str, fd: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`damiao-motor` reads registers, enables, commands a torque, and sees its commands run out."""
    pytest.importorskip("damiao_motor")
    from damiao_motor import DaMiaoController
    from damiao_motor.core.motor import REGISTER_TABLE

    settings = drive_settings("mit", node=NODE, options=OPTIONS, watchdog=0.2, torque_limit=15.0, fd=fd, brs=fd)
    with keys_of(interface) as keys:
        keys |= {"fd": True, "data_bitrate": 5 * BITRATE} if fd else {}
        rest = {key: keys[key] for key in ("port", "hop_limit") if key in keys}
        if fd:
            rest |= {"protocol": can.CanProtocol.CAN_FD} if interface == "virtual" else {"fd": True}
        with serving(keys, settings) as server:
            theirs = can.Bus(interface=interface, channel=keys["channel"], ignore_config=True, **rest)
            monkeypatch.setattr(can.interface, "Bus", lambda channel, bustype: theirs)
            controller = DaMiaoController(keys["channel"], interface)
            motor = controller.add_motor(NODE, HOST, "4310")
            try:
                assert [motor.get_register(each, timeout=10.0) for each in (7, 8, 9, 10)] == [HOST, NODE, 4000, 1]
                assert [motor.get_register(each, timeout=10.0) for each in (21, 22, 23)] == [12.5, 30.0, 10.0]
                motor.ensure_control_mode("MIT")
                every = motor.read_all_registers(timeout=10.0)
                assert len(every) == len(REGISTER_TABLE)
                assert not [value for value in every.values() if isinstance(value, str)]
                motor.request_motor_feedback()
                wait_until(lambda: motor.state.get("status") == "DISABLED")
                motor.enable()
                wait_until(lambda: motor.state.get("status") == "ENABLED")
                began = motor.state["pos"]
                wait_until(
                    lambda: abs(motor.state["torq"] - 1.0) < 0.01 and motor.state["pos"] > began + 0.01,
                    each=lambda: motor.send_cmd_mit(feedforward_torque=1.0),
                )
                assert server.emulator.drives["a"].motor.enabled
                wait_until(lambda: not server.emulator.drives["a"].motor.enabled)  # nobody commands any more
                motor.request_motor_feedback()
                wait_until(lambda: motor.state["status"] == "LOST_COMM")
                motor.clear_error()
                wait_until(lambda: motor.state["status"] == "DISABLED")
            finally:
                controller.shutdown()


def test_six_drives_keep_up_with_1_khz_on_one_emulated_fd_bus() -> None:
    """12,000 frames/s at 1 and 5 Mbit/s: no sample is missing, and all of a tick come within its period."""
    short = ("hil.safety.zero_time=0.02", "hil.safety.ramp_time=0.05")
    with observed() as observers:
        ended = on_drives("two_arms_damiao", *short, duration=0.1, engine="auto")
    summary, columns = ended.trajectory.summary(), ended.trajectory.columns
    task = columns["stage"] == 5
    assert (ended.exit_code, summary["status"], observers[0].report()) == (0, "done", [])
    assert (columns["t"][task][1:] - columns["t"][task][:-1]) == pytest.approx(0.001, abs=1e-12)
    assert max(columns[f"age.u{i}"][task].max() for i in range(1, 7)) < 0.001
    assert summary["bus"]["main"]["refused"] == 0 and summary["emulator"]["bus_load"]["main"] < 0.7
    assert max(abs(columns[f"violation.{row}"][task]).max() for row in ("object_x", "object_y", "level")) < 2e-3
