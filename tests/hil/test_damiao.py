"""Damiao: registers are read back and compared, and an emulated drive answers as its owner's own program expects."""

import struct
from pathlib import Path

import can
import pytest

from hil.codecs import mit as codec
from hil.frame import Frame
from hil.session.start import Request, start
from tests.faces import on_drives
from tests.hil.command_observer import observed
from tests.hil.drive_host import Host
from tests.hil.emulation import Axes, Bench, bench, drive_settings
from tests.hil.interfaces import BITRATE, EACH, keys_of
from tests.hil.test_emulator_process import serving
from tests.hil.wall_clock import wait_until

NODE, HOST = 4, 0x14
OPTIONS = {"motor": "dm4310", "status": "damiao", "host": HOST, "drive_watchdog": True}
ENABLE = Frame(NODE, b"\xff" * 7 + b"\xfc")


def test_requests_and_answers_are_the_bytes_of_the_maker() -> None:
    assert codec.read_register(1, codec.TMAX).hex() == "0100331700000000"
    assert codec.read_register(0x203, codec.TIMEOUT).hex() == "0302330900000000"
    answer = bytes.fromhex("03003317") + struct.pack("<f", 10.0)
    assert codec.register_value(answer, 3) == (codec.TMAX, 10.0)
    assert codec.register_value(bytes.fromhex("01005509e8030000"), 1) == (codec.TIMEOUT, 1000.0)  # 50 ms
    assert codec.register_value(answer, 4) is None
    # replies to commands: enabled, or at rest near the same position
    assert codec.register_value(bytes.fromhex("13003317") + bytes(4), 3) is None
    assert codec.register_value(bytes.fromhex("0300337ff7ff1919"), 3) is None


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
