"""What is said before a run begins, about a task that does not begin, and about a start that fails."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from hil.assembly.prepare import load, notes_on
from hil.assembly.setup import RigSetup
from hil.drives.base import DriveError, HandshakeStep, Steps
from hil.frame import Frame
from hil.loop.clock import VirtualClock, World
from hil.protocols.registry import build
from hil.rig.handshake import Handshake
from hil.safety import EventKind, stages
from hil.safety.plan import Phase
from hil.session.notes import preflight
from hil.session.start import Request, start
from servoctl.errors import ConfigError
from tests.faces import on_drives, on_rig
from tests.hil.emulation import drive_settings, served
from tests.hil.interfaces import keys_of
from tests.hil.opaque_code import PLANT
from tests.hil.rigs import lift, play
from tests.hil.test_bad_rigs import BELT, BUS, ROBOTS, changed
from tests.hil.test_real_drives import rig_of
from tests.hil.wall_clock import write_config


def test_virtual_time_has_no_use_for_real_time_rights() -> None:
    for asked, said in (({"require_rt": True}, 1), ({"cpu": 0}, 1), ({}, 0)):
        begun = start(Request(BELT, engine="vm", **asked))
        assert begun.notes.count("time is virtual: --require-rt and --cpu have no effect") == said


def test_a_reference_that_ends_in_motion_or_jumps_by_a_turn_is_named_before_drives_follow_it(tmp_path: Path) -> None:
    t = np.linspace(0.0, 3.0, 151)
    ways = {
        "short": 0.1 * t**2,
        "turn": (t**2 + math.pi / 2) % (2 * math.pi) - math.pi,
        "rest": 0.1 * (1 - np.cos(np.pi * t)),
    }
    said = {
        "short": ["ends at t = 3 s with the rate 0.6"],
        "turn": ["ends at t = 3 s", "(an angle that jumps by a turn: un"],
    }
    for name, way in ways.items():
        (tmp_path / f"{name}.csv").write_text(
            "t,x\n" + "\n".join(f"{a:.6g},{b:.9g}" for a, b in zip(t, way, strict=True))
        )
        sets = (
            f"references.{name}.file={tmp_path / name}.csv",
            f"task.distance.holonomic=x2 - x1 - l - {name}_x + {way[0]}",
        )
        notes = [note for note in notes_on(load(BELT, sets, "vm")) if "references" in note]
        assert len(notes) == len(said.get(name, []))
        assert all(words in note for words, note in zip(said.get(name, []), notes, strict=True))


def test_a_duration_beyond_that_of_the_config_is_looked_through_to_its_end() -> None:
    for duration, stage, leads_out in ((40.0, None, True), (40.0, "zero", False), (20.0, "full", False)):
        notes = start(Request("scara_drive", duration=duration, stage=stage, engine="vm")).notes
        assert any("F4 is beyond its position_limits" in note for note in notes) == leads_out


def test_the_task_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    through, usual = [], RigSetup._later_states
    monkeypatch.setattr(RigSetup, "_later_states", lambda setup: through.append(setup) or usual(setup))
    preflight(start(Request(BELT, engine="vm")).setup, Phase.FULL, ())
    assert len(through) == 1


def test_a_loop_that_the_parameters_of_the_emulated_machine_open_is_named() -> None:
    notes = notes_on(load("coordinated_robots", ["hil.emulation.parameters.L=3.01"], "vm"))
    said = "hil.emulation.parameters: the simulated plant violates its constraint loop.0 by -0.01 at the start; "
    assert [said in note for note in notes].count(True) == 1


def test_a_start_so_near_a_limit_that_the_test_of_the_drives_may_pass_it_is_named_and_the_run_ends_there() -> None:
    edge = "hil.drives.F.position_limits=[0, 0.3]"
    said = "F starts 0 m from a limit, and stage zero moves it by up to 0.001 m: the run may end there (start farther"
    assert any(said in note for note in notes_on(load(BELT, [edge], "vm")))
    (position,) = [str(event) for event in on_drives(BELT, edge).events if event.kind is EventKind.POSITION]
    beyond = re.search(r"position limits \((-[\de.-]+), limits 0 to 0.3 m\)", position)
    assert beyond is not None and -1e-3 < float(beyond[1]) < 0.0


def test_a_step_of_torque_that_holds_a_row_off_is_named_whole_because_torques_are_rounded_towards_zero() -> None:
    """Steps of 2 * 50 / 1000 N: 0.1/40/2^2 = 0.625 mm, of which 0.5 mm ask for 0.08 N."""
    slack = ("task.height.holonomic=x - 0.0005", "law.correction={baumgarte: {alpha: 2, beta: 2}}")
    sets = ("plant.parameters.weight=0", "hil.safety.engage_tolerance=0.0006", *slack)
    played = play(lift(50.0, rated_torque=2), *sets, duration=0.3)
    said = "task height: a step of the torque of F, 0.1 N, holds it off by up to 0.000625 m"
    assert any(said in note for note in notes_on(played.run.setup))
    rows = played.rows_in("full")
    assert played.exit_code == 0 and not played["sent.F"][rows].any()
    assert abs(played["violation.height"][rows][-1]) > 0.0004


SWAYING = """
import numpy as np
from plants.two_mass_spring import TwoMassSpring


class Swaying(TwoMassSpring):
    def force(self, q, v, t):
        return super().force(q, v, t) + np.array([0.1 * np.sin(t), 0.0])
"""


def test_a_plant_that_depends_on_the_time_is_named_because_law_and_machine_have_clocks_of_their_own(
    tmp_path: Path,
) -> None:
    (tmp_path / "swaying.py").write_text(SWAYING)
    sways = f"plant.class={tmp_path / 'swaying.py'}:Swaying"
    (note,) = notes_on(load(BELT, (sways,), "vm"))
    assert "plant: its equations depend on the time: the law takes that of the task, which stands still before" in note


def test_multicast_that_may_leave_the_machine_says_how_to_keep_it(tmp_path: Path) -> None:
    bus = "interface: udp_multicast, channel: 239.74.163.91, port: 43391, bitrate: 1000000"
    begun = start(Request(changed(tmp_path, BELT, [(BUS, bus)]), engine="vm"))
    begun.close()
    assert (
        "main: packets may leave this machine, so drives there count as real (set hop_limit: 0 to keep them here)"
        in begun.notes
    )


def test_shadow_lists_the_drives_that_send_nothing(tmp_path: Path) -> None:
    for config, silent in ((ROBOTS, "u1, u2, u3, u4, u5, u6: "), (BELT, "")):
        path = changed(tmp_path, config, [(BUS, "interface: virtual, channel: unheard, bitrate: 1000000")])
        begun = start(Request(path, engine="vm"))
        begun.close()
        said = (
            "send only when they are started and asked: shadow hears them only if another master does it; "
            "--calibrate --armed does it too, and enables nothing"
        )
        assert [note for note in begun.notes if said in note] == ([silent + said] if silent else [])


def test_faults_of_drives_in_another_process_happen_there_or_are_refused(tmp_path: Path) -> None:
    with keys_of("virtual") as keys:
        config = write_config(tmp_path / "cart.yaml", "odrive", keys, 0.5)
        with served(rig_of(config)):
            for fault, happens in (
                ("{kind: stall, at: 1, for: 0.01}", False),
                ("{kind: reboot, at: 1, drive: F}", True),
            ):
                request = Request(config, (f"hil.faults=[{fault}]",), engine="vm")
                if not happens:
                    with pytest.raises(ConfigError, match="stall: only on emulated wires in lock-step"):
                        start(request)
                    continue
                begun = start(request)
                begun.close()
                assert begun.notes[-1].startswith("hil.faults: happen in the emulator only")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that waits a tenth of a second, in place of five, for small task errors."""
    monkeypatch.setattr(stages, "ENGAGE_TIME", 0.1)


@pytest.mark.usefixtures("impatient")
def test_the_reason_that_delays_a_task_is_reported_with_the_measurable_step() -> None:
    begun = start(Request("scara_drive", ("hil.safety.engage_tolerance=1e-5",), duration=0.1, engine="vm"))
    ended = begun.run(None, lambda event: None)
    assert ended.exit_code == 4
    details = {event.subject: event.detail for event in ended.events if event.kind is EventKind.NOT_ENGAGED}
    assert set(details) == {"x", "y", "heading", "z"}
    resolved = begun.setup.plan(begun.stage, None).resolved
    for name, detail in details.items():
        violation, rate = resolved[name]
        assert detail.startswith("error ")
        assert f"measured in steps of {violation:.2g}; rate " in detail
        assert (
            f"measured in steps of {rate:.2g}; tolerance 1e-05; the tolerance is finer than the measurement" in detail
        )
        assert detail.endswith(f"set engage_tolerance to {max(violation, rate):.2g} or more, or use finer encoders")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("equation", "rate"), [("0.02*sin(2*t)", 0.04), ("0.02*(1-cos(2*t))", 0.0), ("0.02*sin(0.2*t)", 0.004)]
)
def test_a_task_that_starts_in_motion_is_named_before_the_start_and_does_not_begin(equation: str, rate: float) -> None:
    """A machine at rest has the rate d/dt of the equation at t = 0, and 5 mm/s are tolerated."""
    sets = (f"task.distance.holonomic=x2 - x1 - l - {equation}",)
    begun = start(Request("two_mass_spring_drive", sets, duration=0.05, engine="vm"))
    said = [note for note in begun.notes if "stage full does not begin" in note]
    ended = begun.run(None, lambda event: None)
    if rate < 0.005:
        assert (said, ended.exit_code) == ([], 0)
        return
    (note,) = said
    assert "task.distance: starts with 0.04 m/s, and the machine at rest" in note
    assert ended.exit_code == 4
    (event,) = [event for event in ended.events if event.kind is EventKind.NOT_ENGAGED]
    assert "rate 0.04" in event.detail
    assert event.detail.endswith(
        "let it start at rest, as 1 - cos(t) does, or set hil.safety.engage_tolerance above its rate"
    )


def test_the_steps_of_a_row_are_those_of_its_encoders() -> None:
    """x2 - x1 - l, each measured in 2^14 steps a turn behind 50 rad/m; ODrives give speeds by themselves, in floats."""
    prepared = load("two_mass_spring_drive", (), "vm")
    values, found = prepared.settings.values, prepared.plan(Phase.FULL, None).resolved
    quanta = [node.quantum()[:2] for node in prepared.nodes]
    assert quanta[0][0] <= 2 * math.pi / 2**14 / 50 * 1.001
    assert list(found) == ["distance"]
    assert found["distance"][0] == pytest.approx(sum(position for position, _ in quanta), rel=1e-6)
    if values.velocity != "filter":
        assert found["distance"][1] == pytest.approx(sum(speed for _, speed in quanta), rel=1e-6)
    else:
        assert found["distance"][1] == pytest.approx(sum(2 * p for p, _ in quanta) / values.period, rel=1e-6)


def waiting() -> Steps:
    yield HandshakeStep([], lambda: False, 0.5, "NMT state operational, and TPDO2 after SYNC")


@pytest.mark.parametrize(
    ("protocol", "frames", "explanation"),
    [
        (
            "cia402",
            [(0x701, "7f"), (0x081, "0050010000000000"), (0x081, "0000000000000000")],
            "; its last emergency: device hardware error (0x5000), its NMT state: pre-operational",
        ),
        ("cia402", [], ""),
        ("odrive", [(0x021, "0100000001000000")], "; its axis state: IDLE, its errors: INITIALIZING (0x1)"),
        ("mit", [], ""),
    ],
)
def test_a_time_out_at_start_names_what_the_drive_said_last(
    protocol: str, frames: list[tuple[int, str]], explanation: str
) -> None:
    options = {"motor": "ak80-9_v2"} if protocol == "mit" else drive_settings(protocol).options
    drive = build(drive_settings(protocol, options=options), 0.0025)
    for identity, data in frames:
        drive.accept(Frame(identity, bytes.fromhex(data), time=1))
    world = World()
    handshake = Handshake({drive: waiting()}, lambda bus, frame: None, VirtualClock(world), 5.0)
    handshake.advance()
    world.advance(600_000_000)
    with pytest.raises(DriveError) as refused:
        handshake.advance()
    assert str(refused.value) == f"a: NMT state operational, and TPDO2 after SYNC within 0.5 s{explanation}"


def test_shadow_says_why_it_hears_nothing() -> None:
    setup = load("coordinated_robots", engine="vm")
    done = on_rig(setup, None, Phase.SHADOW, 0.3)
    (lost,) = [event for event in done.events if event.kind is EventKind.LOST]
    assert "these nodes send only when they are started and asked" in lost.detail
    assert "--calibrate, which enables nothing" in lost.detail


def test_an_encoder_node_that_nobody_asks_is_named_beside_drives_that_send_by_themselves() -> None:
    encoder = "{coordinate: x2, bus: main, protocol: cia402, node: 5, gear: 50, offset: 0.5, counts_per_turn: 16384}"
    result = on_drives("two_mass_spring_drive", f"hil.sensors=[{encoder}]", stage="shadow")
    (lost,) = [event for event in result.events if event.kind is EventKind.LOST]
    assert lost.subject == "x2" and "these nodes send only when they are started and asked" in lost.detail


def test_the_pre_flight_list_says_what_is_tested_and_what_only_the_machine_shows(tmp_path: Path) -> None:
    patch = tmp_path / "calibration.yaml"
    patch.write_text("hil: {drives: [{actuator: u1, sign: 1}]}\n")
    ready = start(Request("coordinated_robots", (patch,), "zero", armed=True, engine="vm"))
    text = "\n".join(ready.notes)
    tested, _, only = text.partition("not tested, only the machine can show it:")
    assert "pre-flight list for --stage zero" in tested
    assert "[x] by the model: to hold a pose of the task takes at most 61 % of torque_limit (u3)" in tested
    assert "[x] by the model: a controlled stop from the task takes at most 0." in tested
    assert "the watchdog of u1, u2, u3, u4, u5, u6 runs out once after 50 ms of silence" in tested
    assert "[ ] the emergency stop cuts the power" in only
    assert "[ ] signs and zeros: calibration.yaml is laid over" in only
    assert "[ ] u1, u2, u3, u4, u5, u6: each node moves its own axis: two whose nodes are swapped look sound" in only
    assert "the brakes of u1, u2, u3, u4, u5, u6 hold the machine" in only


def test_the_pre_flight_list_has_the_start_tolerances_of_encoder_nodes_too() -> None:
    setup = load(BELT, ("hil.safety.start_tolerance=null", "hil.sensors.0.gear=200"), engine="vm")
    (line,) = [line for line in preflight(setup, Phase.ZERO, ()) if "start pose" in line]
    assert line.endswith("the encoders show the start pose within 0.0141 to 0.02")


def test_nobody_reads_a_pre_flight_list_where_nothing_is_armed_or_enabled() -> None:
    for request in (
        Request("two_mass_spring_drive", stage="zero", engine="vm"),
        Request("two_mass_spring_drive", stage="shadow", armed=True, engine="vm"),
    ):
        assert not any("pre-flight" in note for note in start(request).notes)


def test_drives_whose_settings_cannot_be_read_back_are_on_the_list() -> None:
    ready = start(Request("scara_drive", stage="zero", armed=True, engine="vm"))
    only = "\n".join(ready.notes).partition("not tested, only the machine can show it:")[2]
    assert "cannot be read back" in only.partition("tau1: ")[2].splitlines()[0]
    assert "tau1, tau2, tau3, F4: no watchdog that is tested" in only


@pytest.mark.parametrize(
    ("error", "at_rest", "words"),
    [
        ((0.001, 0.2), (0.001, 0.2), "the task starts in motion"),
        ((0.001, 0.2), (0.001, 0.0), "the machine does not come to rest: check torque constant and gear"),
        ((0.1, 0.0), (0.1, 0.0), "the machine is held off the start of the task: check initial.q"),
    ],
)
def test_a_task_that_does_not_begin_says_whether_the_machine_or_the_task_moves(
    error: tuple[float, float], at_rest: tuple[float, float], words: str
) -> None:
    begun = start(Request("two_mass_spring_drive", engine="vm"))
    plan = begun.setup.plan(begun.stage, None)
    begun.close()
    assert words in plan.why_not_engaged("distance", error, at_rest)


def test_a_plant_without_derivatives_hides_what_the_period_does_to_free_motions() -> None:
    said = "law: not known whether the period makes what the task leaves free grow: no derivatives"
    assert any(said in note for note in notes_on(load(BELT, (PLANT, "plant.parameters.host=0"), "vm")))
