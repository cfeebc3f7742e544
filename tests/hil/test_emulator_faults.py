"""The fault script: what it takes, and the effect of each kind on its layer."""

import math
import struct
from typing import Any

import numpy as np
import pytest
from emulation import MILLISECOND, TURN, Axes, Bench, bench, drive_settings, system_of, target

from hil.bus import BusError, Link
from hil.bus.load import BusRates
from hil.emulator.cia402 import CiA402
from hil.emulator.commands import CommandObserver
from hil.emulator.emulator import EmulatedRig, Emulator
from hil.emulator.fault_script import read_faults
from hil.frame import Frame
from hil.protocols.registry import twins
from servoctl.types import State

NODE = 1
ESTIMATES, HEARTBEAT, TORQUE = NODE << 5 | 0x09, NODE << 5 | 0x01, NODE << 5 | 0x0E


def with_fault(kind: str, protocol: str = "odrive", at: float = 0.05, drive: bool = False, **more: Any) -> Bench:
    """A bench whose one fault begins after 50 ms."""
    named = {"drive": "a"} if drive else {}
    fault = {"kind": kind, "at": at, "since": "power_on", **named, **more}
    unwatched = {"watchdog": 1e3} if protocol == "odrive" else {}
    return bench(drive_settings(protocol, node=NODE, **unwatched), faults=[fault])


def estimates(frames: list[Frame]) -> list[tuple[float, float, float]]:
    """Time [ms], position [rad], velocity [rad/s]."""
    found = []
    for frame in frames:
        if frame.id == ESTIMATES and len(frame.data) == 8:
            position, velocity = struct.unpack("<ff", frame.data)
            found.append((frame.time / MILLISECOND, position * TURN, velocity * TURN))
    return found


def enable(host: Bench, torque: float = 0.0) -> None:
    host.send(Frame(NODE << 5 | 0x18, b"\0"), Frame(NODE << 5 | 0x0B, struct.pack("<II", 1, 1)))
    host.send(Frame(TORQUE, struct.pack("<f4x", torque)), Frame(NODE << 5 | 0x07, struct.pack("<I4x", 8)))
    host.collect(2.0)


@pytest.mark.parametrize(
    ("entry", "key", "what"),
    [
        ({}, "kind", "missing"),
        ({"kind": "lots"}, "kind", "no such fault: 'lots' (did you mean 'lost'?)"),
        ({"kind": "lost", "at": -1}, "at", "expected a time >= 0 [s], got -1"),
        ({"kind": "lost", "for": 0}, "for", "expected a positive time [s], got 0"),
        ({"kind": "lost", "p": 1.5}, "p", "expected a share from 0 to 1, got 1.5"),
        ({"kind": "lost", "drive": "a"}, "drive", "a lost concerns no single drive (name a bus, or ids)"),
        ({"kind": "lost", "bus": "mian"}, "bus", "no such bus: 'mian' (did you mean 'main'?)"),
        ({"kind": "lost", "burts": 1}, "burts", "unknown key (did you mean 'burst'?)"),
        ({"kind": "lost", "direction": "up"}, "direction", "expected any, to_host or from_host, got 'up'"),
        ({"kind": "silent"}, "drive", "missing (which drive or sensor: a, b)"),
        ({"kind": "silent", "drive": "c"}, "drive", "no such drive: 'c' (known: a, b)"),
        ({"kind": "encoder_nan", "drive": "b"}, "drive",
         "b speaks cia402, where there is no encoder_nan (nodes that have it: a)"),
        ({"kind": "stall"}, "for", "missing (how long the loop stalls [s])"),
        ({"kind": "foreign_frames", "data": "xyz"}, "data",
         "expected up to 8 bytes, or with fd 12, 16, 20, 24, 32, 48 or 64, in hexadecimal, quoted, got 'xyz'"),
        ({"kind": "drive_fault", "drive": "a", "clear": 1}, "clear", "expected true or false, got 1"),
        ({"kind": "output", "value": "big"}, "value", "expected nan, inf or step, got 'big'"),
    ],
)  # fmt: skip
def test_problems_of_an_entry_are_reported(entry: dict[str, Any], key: str, what: str) -> None:
    faults, problems = read_faults([{"kind": "cut"}, entry], {"a": target("odrive"), "b": target("cia402")}, ["main"])
    assert [fault.kind for fault in faults] == ["cut"]
    assert [(problem.path, problem.what) for problem in problems if problem.path[1] == key] == [((1, key), what)]


def test_all_problems_are_reported_at_once() -> None:
    entries = [{"kind": "lost", "p": 2, "burst": 0}, {"kind": "nothing"}, {"kind": "late", "delay": "x y"}]
    _, problems = read_faults(entries, {"a": target("mit")}, ["main"])
    assert [problem.path for problem in problems] == [
        (0, "p"), (0, "burst"), (1, "kind"), (2, "drive"), (2, "delay")
    ]  # fmt: skip


def test_one_mistake_is_one_problem() -> None:
    _, problems = read_faults([{"kind": "stall", "for": 0}], {}, ["main"])
    assert [problem.what for problem in problems] == ["expected a positive time [s], got 0"]


def test_times_and_ids_may_be_expressions() -> None:
    (fault,), problems = read_faults([{"kind": "delay", "at": "2*pi", "delay": "5*ms"}], {}, ["main"])
    assert not problems
    assert (fault.at, fault.parameters["delay"]) == (pytest.approx(2 * math.pi), pytest.approx(0.005))


def test_no_frame_arrives_while_all_are_lost() -> None:
    host = with_fault("lost", id=ESTIMATES, **{"for": 0.1})
    times = [t for t, _, _ in estimates(host.collect(300.0))]
    assert not [t for t in times if 50.0 < t < 150.0]
    assert len([t for t in times if t > 150.5]) == 74 or len([t for t in times if t > 150.5]) == 75


def test_frames_are_lost_in_bursts_and_in_one_direction() -> None:
    host = with_fault("lost", p=0.05, burst=4, direction="to_host", id=ESTIMATES)
    counts = np.diff([round(t / 2) for t, _, _ in estimates(host.collect(4000.0))])
    gaps = counts[counts > 1] - 1
    assert len(gaps) > 20
    assert min(gaps) == 4  # or more, where one burst follows the other
    enable(host, 1.0)
    assert host.emulator.drive("a").motor.torque() == 1.0  # from_host frames get through


def test_delayed_frames_come_late_and_in_order() -> None:
    host = with_fault("delay", delay=0.004, jitter=0.003, id=ESTIMATES)
    frames = [f for f in host.collect(400.0) if f.id == ESTIMATES]
    late = [f.time / MILLISECOND % 2.0 for f in frames if f.time < 50 * MILLISECOND]
    assert max(late) < 0.5
    times = [f.time for f in frames]
    assert times == sorted(times)
    assert len([t for t in times if 50 * MILLISECOND < t < 54 * MILLISECOND]) <= 1
    positions = [f for f in frames if f.time > 60 * MILLISECOND]
    assert len(positions) > 150


def test_duplicated_frames_arrive_again() -> None:
    host = with_fault("duplicate", n=2, age=0.01, id=HEARTBEAT)
    times = [f.time / MILLISECOND for f in host.collect(190.0) if f.id == HEARTBEAT]
    assert len(times) == 1 + 3
    assert np.diff(times[1:]) == pytest.approx([10.0, 10.0])


def test_corrupted_frames_cost_time_and_count_errors() -> None:
    host = with_fault("corruption", p=0.05)
    wire = host.emulator.wires["main"]
    frames = estimates(host.collect(1000.0))
    assert len(frames) >= 499
    assert 10 < wire.errors < 60
    assert host.bus.station.rec > 0 or host.emulator.nodes["a"].station.tec > 0


def test_a_cut_cable_fills_the_queue_until_it_is_repaired() -> None:
    host = with_fault("cut", **{"for": 0.1})
    host.collect(60.0)
    with pytest.raises(BusError, match="no buffer space"):
        for _ in range(12):
            host.send(Frame(TORQUE, bytes(8)))
    assert not estimates(host.collect(80.0))
    assert host.bus.station.link is Link.PASSIVE  # never off: nobody hears it
    assert estimates(host.collect(50.0))
    assert host.bus.station.queue == type(host.bus.station.queue)()


def test_bus_off_silences_the_host_and_a_restart_ends_it() -> None:
    host = with_fault("bus_off", restart=0.02)
    host.collect(51.0)
    with pytest.raises(BusError, match="bus-off"):
        host.send(Frame(TORQUE, bytes(8)))
    assert host.bus.health.link is Link.OFF
    host.collect(30.0)
    host.send(Frame(TORQUE, bytes(8)))
    assert host.bus.health.link is Link.OFF  # latched until an operator says otherwise


def test_a_fault_that_acts_twice_at_once_ends_with_the_last() -> None:
    entry = {"kind": "silent", "drive": "a", "since": "power_on"}
    faults = [entry | {"at": 0.05, "for": 0.1}, entry | {"at": 0.1, "for": 0.1}]
    host = bench(drive_settings("odrive", node=NODE, watchdog=1e3), faults=faults)
    times = [t for t, _, _ in estimates(host.collect(300.0))]
    assert not [t for t in times if 50.5 < t < 199.5]
    assert len([t for t in times if t > 200.5]) > 40


def test_a_drive_that_is_off_the_bus_is_silent() -> None:
    host = with_fault("bus_off", drive=True, restart=0.1)
    times = [t for t, _, _ in estimates(host.collect(300.0))]
    assert not [t for t in times if 50.5 < t < 150.0]
    assert [t for t in times if t > 155.0]


def test_a_babbling_station_takes_its_configured_share_of_the_bus() -> None:
    host = with_fault("babble", load=0.6)
    host.collect(50.0)
    wire = host.emulator.wires["main"]
    since, busy = host.now, wire.busy
    host.collect(200.0)
    # on top of 6 % of the drive's own
    assert wire.load(since, busy) == pytest.approx(0.66, abs=0.03)


def test_a_wrong_length_reaches_the_host() -> None:
    host = with_fault("wrong_length", drive=True, length=5)
    frames = [f for f in host.collect(100.0) if f.id == ESTIMATES]
    assert {len(f.data) for f in frames if f.time > 51 * MILLISECOND} == {5}


def test_foreign_frames_come_from_another_station() -> None:
    host = with_fault("foreign_frames", id=0x7E1, data="0102", period=0.01)
    frames = [f for f in host.collect(149.0) if f.id == 0x7E1]
    assert [f.data for f in frames] == 10 * [b"\x01\x02"]


def test_a_second_node_of_the_same_id_disturbs_the_first() -> None:
    host = with_fault("id_clash", drive=True)
    host.collect(60.0)
    assert host.emulator.wires["main"].errors >= 31
    host = with_fault("id_clash", drive=True, collide=False)
    assert len(estimates(host.collect(100.0))) > 60


def test_a_drive_fault_shows_at_once() -> None:
    host = with_fault("drive_fault", drive=True, code=0x4000)
    frames = host.collect(60.0)
    errors = [f for f in frames if f.id == NODE << 5 | 0x03 and struct.unpack("<II", f.data)[0]]
    assert struct.unpack("<II", errors[0].data) == (0x4000, 0x4000)
    assert errors[0].time < 50.5 * MILLISECOND


def test_a_402_fault_sends_an_emergency_and_can_clear_itself() -> None:
    host = with_fault("drive_fault", "cia402", drive=True, clear=True, **{"for": 0.05})
    emergencies = [struct.unpack_from("<HB", f.data) for f in host.collect(150.0) if f.id == 0x80 + NODE]
    assert emergencies == [(0x2310, 1), (0, 0)]


def test_a_reboot_resets_everything_and_sends_the_boot_message() -> None:
    host = with_fault("reboot", "cia402", drive=True, **{"for": 0.2})
    node = host.emulator.nodes["a"]
    assert isinstance(node, CiA402)
    host.collect(10.0)
    node.write((0x1017, 0), 10)
    frames = host.collect(400.0)
    assert [f.data for f in frames if f.id == 0x700 + NODE and f.time > 51 * MILLISECOND] == [b"\0"]
    assert [f.time // MILLISECOND for f in frames if f.data == b"\0"] == [250]
    assert node.values[0x1017, 0] == 0


def test_drives_that_refuse_to_enable_stay_disabled() -> None:
    host = with_fault("refuse_enable", drive=True, at=0.0)
    host.collect(1.0)
    enable(host, 1.0)
    assert not host.emulator.drive("a").motor.enabled


def test_a_drive_in_the_wrong_mode_reports_it_and_makes_no_torque() -> None:
    host = with_fault("wrong_mode", "cia402", drive=True, at=0.0)
    host.collect(1.0)
    node = host.emulator.nodes["a"]
    assert isinstance(node, CiA402)
    assert not node.write((0x6060, 0), 10)
    assert node.values[0x6061, 0] != 10


def test_sdo_is_refused_with_the_code_of_the_script() -> None:
    host = with_fault("sdo_abort", "cia402", drive=True, at=0.0, index=0x6060, code=0x0800_0020)
    host.collect(1.0)
    answers = host.ask(Frame(0x600 + NODE, bytes.fromhex("2f6060000a000000")))
    assert [f.data.hex() for f in answers if f.id == 0x580 + NODE] == ["8060600020000008"]
    answers = host.ask(Frame(0x600 + NODE, bytes.fromhex("2b40600006000000")))
    assert [f.data[0] for f in answers if f.id == 0x580 + NODE] == [0x60]


def test_a_silent_drive_sends_nothing_and_goes_on_listening() -> None:
    host = with_fault("silent", drive=True)
    host.collect(51.0)
    assert host.collect(100.0) == []
    enable(host, 1.0)
    assert host.emulator.drive("a").motor.torque() == 1.0


def test_a_late_drive_answers_late() -> None:
    host = with_fault("late", "mit", drive=True, delay=0.003)
    asked = Frame(NODE, bytes.fromhex("7fff7ff0000007ff"))
    (before,) = host.ask(asked, 60.0)
    since = host.now
    (after,) = host.ask(asked, 10.0)
    assert before.time < MILLISECOND
    assert 3 * MILLISECOND < after.time - since < 3.4 * MILLISECOND


def test_the_heartbeat_of_a_drive_stops_alone() -> None:
    host = with_fault("heartbeat_loss", drive=True)
    frames = [f for f in host.collect(500.0) if f.time > 51 * MILLISECOND]
    assert not [f for f in frames if f.id == HEARTBEAT]
    assert estimates(frames)


def test_the_heartbeat_of_the_master_stops_reaching_the_drive() -> None:
    host = with_fault("heartbeat_loss", "cia402", drive=True, of="master")
    node = host.emulator.nodes["a"]
    assert isinstance(node, CiA402)
    host.collect(1.0)
    node.write((0x1016, 1), 127 << 16 | 20)
    emergencies = []
    for _ in range(20):
        frames = host.ask(Frame(0x77F, b"\x05"), 5.0)
        emergencies += [f for f in frames if f.id == 0x80 + NODE]
    assert [struct.unpack_from("<H", f.data)[0] for f in emergencies] == [0x8130]
    assert 65 * MILLISECOND < emergencies[0].time < 72 * MILLISECOND


@pytest.mark.parametrize(
    ("kind", "parameters", "expected"),
    [
        ("encoder_jump", {"delta": 0.1}, -0.5 - 0.1 * 2.0),
        ("encoder_flip", {}, 0.5),
        ("encoder_wrap", {"range": 0.6}, 0.1),
        ("encoder_nan", {}, math.nan),
    ],
)
def test_encoder_faults_change_its_reading(kind: str, parameters: dict[str, float], expected: float) -> None:
    host = with_fault(kind, drive=True, **parameters, **{"for": 0.1})
    seen = estimates(host.collect(300.0))
    during = [position for t, position, _ in seen if 51.0 < t < 149.0]
    assert during == pytest.approx(len(during) * [expected], abs=1e-6, nan_ok=True)
    rest = [position for t, position, _ in seen if t < 49.0 or t > 151.0]
    assert rest == pytest.approx(len(rest) * [-0.5], abs=1e-6)


def test_an_encoder_can_be_stuck_or_drift() -> None:
    host = with_fault("encoder_stuck", drive=True)
    host.collect(1.0)
    enable(host, 1.0)
    seen = [position for t, position, _ in estimates(host.collect(300.0)) if t > 53.0]
    assert len(set(seen)) == 1
    assert abs(host.emulator.state[0][0] - 0.5) > 0.01
    host = with_fault("encoder_drift", drive=True, rate=0.5)
    seen = [(t, position) for t, position, _ in estimates(host.collect(300.0)) if t > 53.0]
    slope = (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0]) * 1000
    assert slope == pytest.approx(-0.5 * 2.0, rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "protocol", "factor", "made"),
    [("derating", "odrive", 0.1, 0.1 * 5.0), ("torque_constant", "odrive", 0.5, 1.0)],
)
def test_actuator_faults_change_its_torque(kind: str, protocol: str, factor: float, made: float) -> None:
    # the limit of 10 N at the joint is 5 N m at the motor
    host = with_fault(kind, protocol, drive=True, factor=factor, **{"for": 0.1})
    host.collect(1.0)
    enable(host, 2.0)
    host.collect(60.0)
    motor = host.emulator.drive("a").motor
    assert motor.joint_torque() == pytest.approx(-2.0 * made)  # gear 2, sign -1
    assert motor.torque() == pytest.approx(2.0 if kind == "torque_constant" else made)  # what the drive measures
    assert motor.saturated is (kind == "derating")
    host.collect(100.0)
    assert motor.joint_torque() == pytest.approx(-2.0 * 2.0)


def test_another_range_table_makes_another_torque_than_the_drive_reports() -> None:
    host = with_fault("torque_table", "mit", drive=True, at=0.0, factor=2.0)
    host.collect(1.0)
    host.ask(Frame(NODE, b"\xff" * 7 + b"\xfc"))
    (answer,) = host.ask(Frame(NODE, bytes.fromhex("7fff7ff0000008e3")))
    assert host.emulator.drive("a").motor.torque() == pytest.approx(2 * (-18.0 + 0x8E3 * 36.0 / 4095))
    assert int.from_bytes(answer.data[4:6], "big") & 0xFFF in (0x7FF, 0x8E2, 0x8E3)


def test_the_loop_can_ask_for_faults_of_the_host() -> None:
    host = with_fault("stall", **{"for": 0.03})
    assert host.emulator.host_faults.stall() == 0
    host.collect(51.0)
    assert (host.emulator.host_faults.stall(), host.emulator.host_faults.stall()) == (30 * MILLISECOND, 0)
    u = np.array([1.0, -2.0])
    for value, expected in (("nan", [math.nan] * 2), ("inf", [math.inf] * 2), ("step", [4.0, 1.0])):
        host = with_fault("output", value=value, step=3.0, **{"for": 0.02})
        assert host.emulator.host_faults.tamper(u) is u
        host.collect(60.0)
        assert np.array_equal(host.emulator.host_faults.tamper(u), expected, equal_nan=True)
        host.collect(20.0)
        assert host.emulator.host_faults.tamper(u) is u


def test_the_time_stamps_of_frames_can_step() -> None:
    host = with_fault("clock_step", step=5.0)
    frames = host.collect(100.0)
    assert max(f.time for f in frames) > 5_000 * MILLISECOND
    assert host.now == 100 * MILLISECOND


def test_faults_since_engaged_wait_for_it() -> None:
    host = with_fault("silent", drive=True, since="engaged")
    assert estimates(host.collect(200.0))[-1][0] > 190.0
    host.emulator.engaged()
    assert estimates(host.collect(200.0))[-1][0] < 251.0


def scene(seed: int) -> list[tuple[int, str]]:
    """A run with everything random in it."""
    faults = [
        {"kind": "lost", "at": 0.02, "p": 0.2, "since": "power_on"},
        {"kind": "delay", "at": 0.05, "jitter": 0.002, "since": "power_on"},
        {"kind": "corruption", "at": 0.1, "p": 0.1, "since": "power_on"},
        {"kind": "wrong_length", "at": 0.15, "p": 0.3, "drive": "a", "since": "power_on"},
    ]
    drives = [drive_settings("odrive", name=name, node=node, watchdog=1e3) for name, node in (("a", 1), ("b", 2))]
    host = bench(*drives, faults=faults, seed=seed, noise=1e-3)
    host.collect(1.0)
    enable(host, 0.5)
    return [(frame.time, str(frame)) for frame in host.collect(400.0)]


def test_equal_seeds_give_equal_logs_and_other_seeds_do_not() -> None:
    assert scene(1) == scene(1)
    assert scene(1) != scene(2)


def seen(host: Bench) -> list[str]:
    observer: CommandObserver = host.emulator.observer
    return [violation.what for violation in observer.report()]


def test_the_observer_accepts_correct_commands() -> None:
    host = bench(drive_settings("odrive", node=NODE, watchdog=1e3))
    enable(host, 0.0)
    for k in range(50):
        host.send(Frame(TORQUE, struct.pack("<f4x", 0.05 * k)))
        host.collect(2.0)
    host.send(Frame(NODE << 5 | 0x07, struct.pack("<I4x", 1)))
    host.collect(200.0)
    assert seen(host) == []
    assert host.emulator.observer.findings.commands == 51


@pytest.mark.parametrize(
    ("protocol", "frames", "what"),
    [
        ("odrive", [Frame(TORQUE, struct.pack("<f4x", math.nan))], "not a finite number"),
        ("odrive", [Frame(TORQUE, struct.pack("<f4x", 5.1))], "a torque of -10.2, the limit is 10"),
        ("odrive", [Frame(TORQUE, struct.pack("<f4x", u)) for u in (0.1, 4.9)], "a step of torque"),
        ("odrive", [Frame(NODE << 5 | 0x0D, bytes(8))], "a setpoint that is no torque"),
        ("cia402", [Frame(0x201, struct.pack("<Hh", 0x0F, 1300))], "a torque of -10.4, the limit is 10"),
        ("cia402", [Frame(0x201, b"\x0f\x00")], "an RPDO1 of 2 bytes"),
        ("mit", [Frame(NODE, bytes.fromhex("7fff7ff000000fff"))], "a torque of -36, the limit is 10"),
        ("mit", [Frame(NODE, bytes.fromhex("7fff7ff0010007ff"))], "a stiffness that is not zero"),
    ],
)  # fmt: skip
def test_the_observer_reports_commands_that_must_not_be_sent(protocol: str, frames: list[Frame], what: str) -> None:
    host = bench(drive_settings(protocol, node=NODE, torque_rate_limit=1e4 if protocol != "odrive" else 1e3))
    host.collect(100.0)
    for frame in frames:
        host.ask(frame)
    assert any(what in violation for violation in seen(host)), seen(host)


@pytest.mark.parametrize("number", [0x7FF, 0x800])
def test_the_observer_takes_the_smallest_torque_of_a_frame_without_zero_for_none(number: int) -> None:
    host = bench(drive_settings("mit", node=NODE, torque_rate_limit=500.0))
    host.send(Frame(NODE, bytes(6 * [0xFF] + [0xFF, 0xFC])))
    for torque in (*range(0x7FF, 0x7FF + 250, 50), number):  # up by 0.9 N m every 2 ms, and down at once
        host.collect(2.0)
        host.send(Frame(NODE, bytes.fromhex("7fff7ff00000") + torque.to_bytes(2, "big")))
    host.collect(20.0)
    assert seen(host) == []


def test_the_observer_sees_a_torque_after_a_disable_unless_an_enable_follows() -> None:
    for enabled_again in (False, True):
        host = bench(drive_settings("odrive", node=NODE, watchdog=1e3))
        host.collect(1.0)
        enable(host, 0.1)
        host.send(Frame(NODE << 5 | 0x07, struct.pack("<I4x", 1)))
        host.collect(1.0)
        host.ask(Frame(TORQUE, struct.pack("<f4x", 0.1)))
        if enabled_again:
            host.send(Frame(NODE << 5 | 0x07, struct.pack("<I4x", 8)))
        host.collect(150.0)
        assert seen(host) == ([] if enabled_again else ["a torque after the drive was disabled"])


@pytest.mark.parametrize(("between", "found"), [(1.1, []), (0.9, ["0.0009 s"])])
def test_the_observer_counts_the_time_between_commands_from_where_the_loop_hands_them_over(
    between: float, found: list[str]
) -> None:
    """At 10,000 N m/s a step of 10 N m takes 1 ms, however long a cable that is off holds the first command up."""
    host = bench(drive_settings("mit", node=NODE, torque_rate_limit=1e4))
    host.send(Frame(NODE, bytes(6 * [0xFF] + [0xFF, 0xFC])))
    host.collect(20.0)
    wire = host.emulator.wires["main"]
    wire.connect(wire.stations[-1], False)
    for wait, torque in ((between, 0x7FF), (30.0, 0x7FF + 569)):
        host.send(Frame(NODE, bytes.fromhex("7fff7ff00000") + torque.to_bytes(2, "big")))
        host.collect(wait)
    wire.connect(wire.stations[-1], True)
    host.collect(20.0)
    assert [each.partition(",")[0].rpartition(" in ")[2] for each in seen(host)] == found


def test_the_observer_takes_a_reset_of_all_nodes_for_all_drives() -> None:
    host = bench(drive_settings("cia402", node=1), drive_settings("cia402", name="b", node=2))
    for word, torque in ((0x0F, 0), (0x0F, 10)):
        host.send(*(Frame(0x200 + node, struct.pack("<Hh", word, torque)) for node in (1, 2)))
        host.collect(5.0)
    host.ask(Frame(0, bytes([129, 0])))
    host.send(*(Frame(0x200 + node, struct.pack("<Hh", 0x07, 10)) for node in (1, 2)))
    host.collect(200.0)
    assert [(v.drive, v.what) for v in host.emulator.observer.report()] == [
        (name, "a torque after the drive was disabled") for name in "ab"
    ]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"kind": "babble", "size": 12}, ("size", "12 bytes, a classic frame has at most 8")),
        ({"kind": "babble", "size": 9}, ("size", "expected a number of bytes from 0 to 8, or of an FD frame 12, 16, ")),
        ({"kind": "babble", "fd": True, "bus": "main"}, ("fd", "true, but bus 'main' is classic (name another bus")),
        ({"kind": "foreign_frames", "data": "00" * 64}, ("data", "64 bytes, a classic frame has at most 8")),
        ({"kind": "wrong_length", "length": 16, "drive": "a"}, ("length", "16 bytes, a classic frame has at most 8")),
    ],
)
def test_payloads_and_frames_of_fd_need_a_bus_that_carries_them(entry: dict[str, Any], said: tuple[str, str]) -> None:
    options = {"status": "damiao"}
    nodes = {"a": target("mit", options=options), "b": target("mit", options=options, fd=True)}
    _, (problem, *others) = read_faults([entry], nodes, ["main", "fast"], ["fast"])
    assert not others and problem.path == (0, said[0]) and problem.what.startswith(said[1])
    fine = {**entry, "bus": "fast", "fd": True} if "drive" not in entry else {**entry, "drive": "b"}
    assert bool(read_faults([fine], nodes, ["main", "fast"], ["fast"])[1]) is (entry.get("size") == 9)


def test_fd_frames_of_a_stranger_and_of_a_wrong_length_are_on_the_wire() -> None:
    settings = drive_settings("mit", options={"status": "damiao"}, fd=True, brs=True)
    entries = [
        {"kind": "foreign_frames", "data": "a5" * 48, "fd": True, "period": 0.002, "since": "power_on"},
        {"kind": "wrong_length", "drive": "a", "length": 12, "since": "power_on"},
    ]
    faults, problems = read_faults(entries, {"a": target("mit", options=settings.options, fd=True)}, ["main"], ["main"])
    assert not problems
    start = State(0.0, np.array([0.5, 0.0]), np.zeros(2))
    rig = EmulatedRig(system_of(Axes(), start), start, 0.002, [settings], twins([settings]), faults=faults, engine="vm")
    host = Bench(Emulator.build(rig, {"main": BusRates(1_000_000, 5_000_000, True)}))
    seen = host.ask(Frame(1, bytes.fromhex("7fff7ff0000007ff"), fd=True, brs=True), 4.0)
    assert {(frame.id, len(frame.data), frame.fd, frame.brs) for frame in seen} == {
        (0x7F0, 48, True, True), (0, 12, True, True)
    }  # fmt: skip
