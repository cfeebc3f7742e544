"""The fault script: what it takes, and the effect of each kind on its layer."""

import math
import struct
from typing import Any

import numpy as np
import pytest
import yaml

from hil.drives import Drive, SensorSettings
from hil.emulator.emulator import Emulator
from hil.emulator.fault_script import read_faults
from hil.frame import Frame
from hil.protocols.registry import build, emulations
from hil.safety.plan import Phase
from tests.hil.command_observer import CommandObserver, MitReader
from tests.hil.emulation import MILLISECOND, TURN, Bench, bench, drive_settings
from tests.hil.rigs import RIGS, _setup, play
from tests.refused import table

NODE = 1
ESTIMATES, HEARTBEAT, TORQUE = NODE << 5 | 0x09, NODE << 5 | 0x01, NODE << 5 | 0x0E


def with_fault(kind: str, drive: bool = False, **more: Any) -> Bench:
    """An ODrive whose one fault begins after 50 ms."""
    fault = {"kind": kind, "at": 0.05, "since": "power_on", **({"drive": "a"} if drive else {}), **more}
    return bench(drive_settings("odrive", node=NODE, watchdog=1e3), faults=[fault])


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


SENSOR = SensorSettings("x2", "main", "odrive", 7)
DAMIAO = {"status": "damiao"}
NODES = [
    drive_settings("odrive"), drive_settings("cia402", "b", brake=True), drive_settings("mit", "slow", options=DAMIAO),
    drive_settings("mit", "fast", options=DAMIAO, fd=True),
    drive_settings("mit", "cube", options={"status": "cubemars"}), SENSOR,
]  # fmt: skip


@pytest.mark.parametrize(("entry", "said"), [(words[0], said) for _, words, said in table("faults")])
def test_every_mistake_in_a_fault_is_named_with_its_key(entry: str, said: list[str]) -> None:
    read, problems = read_faults(
        [{"kind": "stall", "for": 1}, yaml.safe_load(f"{{{entry}}}")], NODES, emulations(NODES),
        {"main": False, "swift": True},
    )  # fmt: skip
    found = [f"{'.'.join(map(str, problem.path[1:]))}: {problem.what}" for problem in problems]
    assert {problem.path[0] for problem in problems} <= {1} and len(read) == (1 if said else 2)
    assert len(found) == len(said) and all(map(str.startswith, found, said)), found


def test_times_and_ids_may_be_expressions() -> None:
    (fault,), problems = read_faults([{"kind": "delay", "at": "2*pi", "delay": "5*ms"}], [], {}, {"main": False})
    assert not problems
    assert (fault.at, fault.parameters["delay"]) == (pytest.approx(2 * math.pi), pytest.approx(0.005))


def test_frames_are_lost_in_bursts_and_in_one_direction() -> None:
    host = with_fault("lost", p=0.05, burst=4, direction="to_host", id=ESTIMATES)
    counts = np.diff([round(t / 2) for t, _, _ in estimates(host.collect(4000.0))])
    gaps = counts[counts > 1] - 1
    assert len(gaps) > 20
    assert min(gaps) == 4  # or more, where one burst follows the other
    enable(host, 1.0)
    assert host.node.motor.torque() == 1.0  # from_host frames get through


def test_a_disturbance_of_an_id_takes_no_other_id_of_29_bits() -> None:
    settings = drive_settings("moteus", node=9)
    drive = build(settings, 0.002)
    assert isinstance(drive, Drive)
    (asked,) = drive.routine_frames()[:1]
    assert asked.extended
    lost = {"kind": "lost", "since": "power_on"}
    assert not bench(settings, faults=[lost | {"id": asked.id}]).ask(asked)
    assert bench(settings, faults=[lost | {"id": asked.id & 0x7FF}]).ask(asked)


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


def test_a_fault_that_acts_twice_at_once_ends_with_the_last() -> None:
    entry = {"kind": "silent", "drive": "a", "since": "power_on"}
    faults = [entry | {"at": 0.05, "for": 0.1}, entry | {"at": 0.1, "for": 0.1}]
    host = bench(drive_settings("odrive", node=NODE, watchdog=1e3), faults=faults)
    times = [t for t, _, _ in estimates(host.collect(300.0))]
    assert not [t for t in times if 50.5 < t < 199.5]
    assert len([t for t in times if t > 200.5]) > 40


def test_jumps_of_an_encoder_add_up_and_each_ends_alone() -> None:
    jump = {"kind": "encoder_jump", "drive": "a", "since": "power_on"}
    faults = [jump | {"at": 0.05, "for": 0.1, "delta": 0.1}, jump | {"at": 0.1, "for": 0.1, "delta": 0.2}]
    host = bench(drive_settings("odrive", node=NODE, watchdog=1e3), faults=faults)
    seen = []
    for _ in range(5):
        host.collect(45.0)
        seen.append(host.node.encoder.jump)
    assert seen == pytest.approx([0.0, 0.1, 0.3, 0.2, 0.0])


def test_a_babbling_station_takes_its_configured_share_of_the_bus() -> None:
    host = with_fault("babble", load=0.6)
    host.collect(50.0)
    wire = host.emulator.wires["main"]
    since, busy = host.now, wire.busy
    host.collect(200.0)
    # on top of 6 % of the drive's own
    assert (wire.busy - busy) / (host.now - since) == pytest.approx(0.66, abs=0.03)


def test_a_second_node_of_the_same_id_disturbs_the_first() -> None:
    host = with_fault("id_clash", drive=True)
    host.collect(60.0)
    assert host.emulator.wires["main"].errors >= 31
    host = with_fault("id_clash", drive=True, collide=False)
    assert len(estimates(host.collect(100.0))) > 60


@pytest.mark.parametrize(("protocol", "node"), [("robstride", 3), ("moteus", 9)])
def test_a_second_node_of_an_id_of_29_bits_disturbs_the_first(protocol: str, node: int) -> None:
    settings = drive_settings(protocol, node=node)
    drive = build(settings, 0.002)
    assert isinstance(drive, Drive)
    clash = {"kind": "id_clash", "drive": "a", "since": "power_on"}
    host = bench(settings, faults=[clash])
    host.ask(drive.routine_frames()[0], 20.0)
    assert host.emulator.wires["main"].errors >= 31
    host = bench(settings, faults=[clash | {"collide": False}])
    first, second = host.ask(drive.routine_frames()[0])
    assert first.extended and (second.id, second.extended) == (first.id, True)


@pytest.mark.parametrize("protocol", ["odrive", "cia402"])
def test_a_lost_heartbeat_of_the_master_takes_no_frame_of_29_bits(protocol: str) -> None:
    value, mask = bench(drive_settings(protocol, node=3)).node.heartbeat_ids()
    assert value & mask == value and not [bit for bit in range(11, 29) if not mask >> bit & 1]


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
    return [violation.what for violation in host.observer.report()]


def test_the_observer_accepts_correct_commands() -> None:
    host = bench(drive_settings("odrive", node=NODE, watchdog=1e3))
    enable(host, 0.0)
    for k in range(50):
        host.send(Frame(TORQUE, struct.pack("<f4x", 0.05 * k)))
        host.collect(2.0)
    host.send(Frame(NODE << 5 | 0x07, struct.pack("<I4x", 1)))
    host.collect(200.0)
    assert seen(host) == []
    assert host.observer.findings.commands == 51


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
    wire.stations[-1].connected = False
    for wait, torque in ((between, 0x7FF), (30.0, 0x7FF + 569)):
        host.send(Frame(NODE, bytes.fromhex("7fff7ff00000") + torque.to_bytes(2, "big")))
        host.collect(wait)
    wire.stations[-1].connected = True
    wire.refresh()
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
    assert [(v.drive, v.what) for v in host.observer.report()] == [
        (name, "a torque after the drive was disabled") for name in "ab"
    ]


def test_a_reader_of_a_protocol_that_reads_no_command_of_a_drive_that_worked_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MitReader, "takes", lambda self, number: False)
    drives, observers = _setup(RIGS["V rack mit"], ()).settings.drives, list[CommandObserver]()

    def begin(emulator: Emulator) -> None:
        observers.append(CommandObserver(emulator, drives))

    play("V rack mit", stage=Phase.ZERO, duration=0.1, begin=begin)
    assert [(v.drive, v.what) for v in observers[0].report()] == [
        ("F", "nothing, though the drive was enabled: its reader reads no command")
    ]
