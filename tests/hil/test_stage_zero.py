"""Phase zero: low torque, and what each drive must show before the task."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hil.assembly.prepare import load
from hil.assembly.setup import QUARTER
from hil.core.constants import Torques
from hil.drives.settings import DriveSettings
from hil.emulator.emulator import Emulator
from hil.loop import Reading, nanoseconds
from hil.safety import EventKind, Reaction
from hil.safety.plan import Phase
from hil.safety.proof import ProofPlan, State, TorqueProof
from hil.safety.torques import PoseHold, Source, TorqueSource
from hil.sensing.motion import Hold
from hil.session.start import Request, start
from servoctl.engine.ccode import BoundCall
from tests.hil.by_drivers import compare
from tests.hil.mismatch import ACCUSED, Machine, machines, tried
from tests.hil.rigs import RACK, RIGS, STAGES, Played, Rig, lift, play


def zero(rig: str | Rig, *sets: str, **factors: float) -> Played:
    """A run of stage zero in which drives make so many times the torque that they are commanded."""
    faults = [{"kind": "torque_constant", "drive": d, "factor": f, "since": "power_on"} for d, f in factors.items()]
    return play(rig, *sets, faults=faults, stage=Phase.ZERO, duration=0.3)


def moved(played: Played, last: str = "stopping") -> np.ndarray:
    """Largest motion of each coordinate up to the end of a stage."""
    rows = np.isin(played["stage"], [STAGES.index(name) for name in ("enabling", "zero", "stopping", last)])
    true = played.group("true_q")
    return np.asarray(np.abs(true - true[0])[rows].max(axis=0))


def named(played: Played) -> list[tuple[str, str]]:
    kinds = {EventKind.UNPROVED, EventKind.BACKWARDS, *ACCUSED}
    return [(event.kind.name.lower(), event.subject) for event in played.events if event.kind in kinds]


@pytest.mark.parametrize("name", ["V screw", "V rack", "V rack moteus", "V rack robstride", "V rack mit"])
def test_a_vertical_axis_of_the_wrong_polarity_is_named_and_held_within_5_mm(name: str) -> None:
    played = zero(name, F=-1.0)
    assert named(played) == [("reversed", "F")] and played.exit_code == 3
    holds = name in ("V screw", "V rack")  # the other protocols make no torque while the brake closes
    assert moved(played, "over" if holds else "stopping") < 0.005


@pytest.mark.parametrize("name", ["V screw", "V rack moteus", "V rack robstride", "V rack mit"])
@pytest.mark.parametrize("wrong", ["sign", "encoder"])
def test_a_vertical_axis_whose_positions_count_the_wrong_way_is_named_and_held_within_12_mm(
    name: str, wrong: str
) -> None:
    """By its samples it moves like one of too much torque; with that mended, gravity would drive it away."""
    sets = ('hil.emulation.drives={"F": {"sign": -1}}',) if wrong == "sign" else ()
    faults = [] if sets else [{"kind": "encoder_flip", "drive": "F", "since": "power_on"}]
    played = play(name, *sets, faults=faults, stage=Phase.ZERO, duration=0.3)
    assert named(played) == [("response", "F"), ("backwards", "F")] and played.exit_code == 3
    said = next(event.detail for event in played.events if event.kind is EventKind.BACKWARDS)
    assert ("sign is wrong" if wrong == "sign" else "its encoder is wrong") in said
    holds = name in ("V screw", "V rack moteus")  # the others make no torque while the brake closes
    assert moved(played, "over" if holds else "stopping") < 0.012


@pytest.mark.parametrize("factor", [-3.0, 2.0, 5.0])
@pytest.mark.parametrize("name", ["V rack", "V rack mit"])
def test_positions_that_count_the_right_way_are_not_accused_where_torque_is_wrong(name: str, factor: float) -> None:
    late = "hil.emulation.current_lag=0.002", "hil.emulation.parameters={m: 50, weight: 353}"
    assert "backwards" not in zero(name, *late, F=factor).kinds


def test_a_load_that_pulls_faster_than_gravity_by_the_model_turns_no_torque_round_for_long() -> None:
    """Twice the weight of the model at the same mass; the reversed torque drove the axis down by 1.1 m."""
    played = zero("V rack", "hil.emulation.parameters.weight=785")
    assert played.kinds[:2] == ["reversed", "unsteady"] and moved(played, "over") < 0.2


def test_the_brake_closes_where_what_is_sent_for_a_wrong_drive_does_not_stop_its_axis() -> None:
    """Twice the gear: twice the motion, four times the torque by it, and half the weight; it fell by 0.145 m."""
    played = zero("V rack mit", 'hil.emulation.drives={"F": {"gear": 100}}')
    (drive,) = played.run.setup.drives
    falls = 9.81 * (drive.settings.brake_time + 0.02) ** 2 / 2  # without torque, until the brake is closed
    assert named(played) == [("response", "F")] and moved(played, "over") < falls + 0.04


@pytest.mark.parametrize("protocol", ["cia402", "odrive", "mit", "moteus", "robstride"])
def test_a_vertical_axis_has_its_torque_as_soon_as_its_brake_opens_in_a_slow_loop_too(protocol: str) -> None:
    """In one period of 10 ms without torque it would reach 0.1 m/s, and the run would end."""
    slow = "period=0.01", "safety.stale=0.03", "safety.lost=0.1", "safety.drive_watchdog=0.1"
    played = zero(lift(RACK, protocol), *(f"hil.{each}" for each in slow))
    assert (played.kinds, played.exit_code) == ([], 0) and moved(played, "zero").max() < 0.0015


@pytest.mark.parametrize("joint", [1, 2, 5])
def test_a_joint_of_the_wrong_polarity_is_named_and_held_within_20_mrad(joint: int) -> None:
    played = zero("A", **{f"joint{joint}": -1.0})
    assert named(played) == [("reversed", f"joint{joint}")] and played.exit_code == 3
    assert played.kinds == ["reversed"]  # no word of drives that were not on yet
    assert moved(played, "over").max() < 0.02


@pytest.mark.parametrize(
    ("joint", "share", "limit"), [("joint2", 0.5, 0.1), ("joint2", 0.7, 0.05), ("joint3", 0.7, 0.15)]
)
def test_a_weak_joint_is_named_and_stopped_not_the_wrist_that_it_throws(joint: str, share: float, limit: float) -> None:
    """The wrist was braked; the shoulder went on with half of its torque and fell by 2.3 rad, at up to 5 rad/s."""
    played = zero("A", **{joint: share})
    first = next(event for event in played.events if event.kind.reaction >= Reaction.STOP)
    assert (first.kind, first.subject, played.exit_code) == (EventKind.UNSTEADY, joint, 3)
    assert "joint4 has moved by" in first.detail and "of the torque sent to it would" in first.detail
    assert moved(played, "over").max() < limit


@pytest.mark.parametrize(("share", "limit"), [(0.3, 0.3), (0.5, 0.15), (0.75, 0.05)])
def test_a_weak_wrist_gets_more_torque_until_its_brake_is_closed(share: float, limit: float) -> None:
    """With the torque that holds it by the model it fell by 0.34, 0.26 and 0.11 rad."""
    played = zero("A", joint4=share)
    assert [event.kind for event in played.events if event.kind.reaction >= Reaction.STOP] == [EventKind.UNSTEADY]
    assert moved(played, "over").max() < limit
    held = abs(played.run.setup.hold.u[3])
    assert 1.1 * held < np.nanmax(np.abs(played["sent.joint4"])) < 2.1 * held


@pytest.mark.parametrize("joint", [1, 2, 3])
def test_a_joint_whose_brake_does_not_open_is_not_proved_by_the_motion_of_the_others(joint: int) -> None:
    stuck = [{"kind": "brake_stuck", "drive": f"joint{joint}", "since": "power_on"}]
    assert named(play("A", faults=stuck, stage=Phase.ZERO, duration=0.3)) == [("unproved", f"joint{joint}")]


@pytest.mark.parametrize(
    ("rig", "drive"), [("S", "tau1"), ("S", "tau3"), ("S", "F4"), ("two arms", "u1"), ("two arms", "u5")]
)
def test_a_drive_of_the_wrong_polarity_is_named_where_its_axis_carries_nothing_or_others_move_it_too(
    rig: str, drive: str
) -> None:
    """Speeds of the SCARA are coarse; those of the two arms hardly change."""
    played = zero(rig, **{drive: -1.0})
    assert named(played) == [("reversed", drive)] and played.exit_code == 3
    assert moved(played).max() < 0.02


@pytest.mark.parametrize("drive", ["u3", "u4"])
def test_one_of_redundant_motors_that_drives_the_machine_away_is_named_before_ramp(drive: str) -> None:
    """Speeds of three steps show nothing tick by tick; the whole motion does, or a push with twice its torque."""
    push = {"kind": "push", "drive": drive, "torque": 1.2, "at": 0.28, "since": "power_on", "for": 2.0}
    alone, pushed, harder = (
        zero("two arms", **{drive: -1.0}),
        *(play("two arms", faults=[push | more], stage=Phase.ZERO, duration=0.5) for more in ({}, {"torque": 1.8})),
    )
    for played in (alone, pushed):
        first = next(event for event in played.events if event.kind.reaction >= Reaction.STOP)
        assert (first.kind, first.subject, played.exit_code) == (EventKind.UNSTEADY, drive, 3)
        share, _, last = first.detail.partition("; ")[2].partition(" of the torque sent to it acts: ")
        assert -1.1 < float(share) < -0.9 and last == "its polarity is wrong, or it is pushed"
    assert moved(alone, "over").max() < 0.02
    assert not any("polarity" in event.detail for event in harder.events)


@pytest.mark.parametrize("name", ["A", "S", "L", "V rack", "mixed"])
def test_sound_drives_are_proved_by_a_motion_of_a_few_steps(name: str) -> None:
    played = zero(name)
    assert named(played) == []
    proof = [axis.as_dict() for axis in played.run.stages.test.proof.axes]
    assert all(axis["state"] == "proved" and 0.8 < axis["response"] < 1.2 for axis in proof)  # noise of the speeds
    assert moved(played).max() < 0.012  # of a wrist joint, whose brake opens later than its neighbours'


@pytest.mark.parametrize(
    ("name", "filter_time"),
    [("A", None), ("S", None), ("V rack mit", None), ("mixed", None), ("two arms", 0.003), ("two arms", 0.05)],
)
def test_sound_drives_pass_where_speeds_are_filtered_from_positions(name: str, filter_time: float | None) -> None:
    """A fast filter and one that is slower than the bring-up do not turn a motor round either."""
    played = zero(name, "hil.velocity=filter", *([f"hil.velocity_filter={filter_time}"] if filter_time else []))
    assert {kind for kind, _ in named(played)} <= {"unproved"} and played.exit_code == 0


@pytest.mark.parametrize(
    ("rig", "drive", "filter_time"),
    [("mixed", "b", 0.004), ("L", "tau", 0.01), ("V rack", "F", 0.02), ("mixed", "b", 0.02)],
)
def test_filtered_speeds_show_the_whole_torque_and_one_that_is_five_times_too_large(
    rig: str, drive: str, filter_time: float
) -> None:
    sets = ("hil.velocity=filter", f"hil.velocity_filter={filter_time}")
    sound, strong = zero(rig, *sets), zero(rig, *sets, **{drive: 5.0})
    responses = [axis.response for axis in sound.run.stages.test.proof.axes]
    assert named(sound) == [] and responses == pytest.approx([1.0] * len(responses), abs=0.1)
    assert named(strong) == [("response", drive)] and strong.exit_code == 3


def test_a_filter_that_hides_the_motion_of_the_test_proves_nothing() -> None:
    played = zero("mixed", "hil.velocity=filter", "hil.velocity_filter=0.04")
    assert {kind for kind, _ in named(played)} == {"unproved"} and played.exit_code == 0
    assert all(axis.state is State.UNPROVED for axis in played.run.stages.test.proof.axes)
    assert any("so slow that it hides the motion" in str(event) for event in played.events)


@pytest.mark.parametrize("speeds", ["drive", "filter"])
def test_a_vertical_axis_with_a_weak_motor_is_braked_at_once(speeds: str) -> None:
    played = zero("V rack", f"hil.velocity={speeds}", F=0.3)
    (drive,) = played.run.setup.drives
    falls = 9.81 * drive.settings.brake_time  # [m/s] without any torque, until the brake is closed
    assert played.exit_code == 3 and np.abs(played.group("true_v")).max() < falls


@pytest.fixture(scope="module")
def strangers() -> list[Machine]:
    return list(machines(4, seed=2, noise=False))


@pytest.mark.parametrize("number", range(4))
def test_sound_drives_of_machines_that_differ_from_their_models_are_not_accused(
    strangers: list[Machine], number: int
) -> None:
    assert ACCUSED.isdisjoint(event.kind for event in tried(strangers[number]).events)


@pytest.mark.parametrize(
    ("config", "true", "sets"),
    [
        ("coordinated_robots", "coulomb_friction: 0.84, viscous_friction: 0.2, parameters: {g: 12.25}", ()),
        ("coordinated_robots", "coulomb_friction: 0.24, viscous_friction: 0.2, parameters: {g: 7.35}", ()),
        (
            "two_arms_damiao",
            "coulomb_friction: 1.2, current_lag: 0.004, encoder_noise: 0.0001",
            ("hil.prediction=true",),
        ),
        ("two_mass_spring_drive", "encoder_noise: 0.0005, parameters: {m1: 1.25}", ("hil.velocity=filter",)),
        ("scara_robstride", "encoder_noise: 0.0005, parameters: {m4: 1.9}", ("hil.velocity=filter",)),
    ],
)
def test_friction_of_redundant_motors_and_noise_of_encoders_accuse_no_sound_drive(
    config: str, true: str, sets: tuple[str, ...]
) -> None:
    machine = Machine(config, (f"hil.emulation={{{true}}}", *sets))
    assert ACCUSED.isdisjoint(event.kind for event in tried(machine).events)


@pytest.mark.parametrize("friction", [0.2, 0.4])
def test_the_noise_of_an_encoder_does_not_contradict_its_speeds(friction: float) -> None:
    true = f"hil.emulation={{encoder_noise: 0.001, coulomb_friction: {friction}}}"
    assert named(zero(Rig("flexible_joint_drive", (true, "run.seed=0")))) == []


@pytest.mark.parametrize(("rig", "drive"), [("V rack", "F"), ("A", "joint2"), ("S", "tau1")])
def test_a_motor_of_the_wrong_polarity_is_named_by_filtered_speeds_too(rig: str, drive: str) -> None:
    played = zero(rig, "hil.velocity=filter", **{drive: -1.0})
    assert named(played) == [("reversed", drive)] and moved(played).max() < 0.01


@pytest.mark.parametrize(("lag", "mass", "friction"), [(0.001, 0.75, 1.0), (0.005, 1.0, 0.0)])
def test_torques_that_act_late_on_a_lighter_machine_are_not_taken_for_too_much_torque(
    lag: float, mass: float, friction: float
) -> None:
    true = f"hil.emulation={{current_lag: {lag}, viscous_friction: {friction}, parameters: {{m1: {mass}, k: 9.5}}}}"
    assert named(zero(Rig("two_mass_spring_drive", (true,)))) == []


def test_a_motor_without_torque_and_one_with_too_much_are_named_as_the_brake_opens() -> None:
    nothing, much = zero("V rack", F=0.0), zero("V rack", F=3.0)
    assert named(nothing) == [("torqueless", "F")] and named(much) == [("response", "F")]
    assert moved(much) < 0.005


def tried_on_axes(
    inertia: np.ndarray,
    polarity: list[float],
    period: float,
    late: float = 0.0,
    old: int = 0,
    friction: float = 0.0,
    begin: int = 14,
) -> list[tuple[EventKind, int]]:
    """The test of motors whose forces act so many periods after their tick; speeds are rounded.

    Args:
        inertia: Of the axes, which push each other.
        polarity: Force that acts, as a share of the one sent.
        old: Age of the samples of the first axis [period]; those of the others are new.
        friction: Dry friction of the last axis, which the model knows; it is smooth below 1 cm/s.
        begin: Tick in which the first round begins.
    """
    m = len(inertia)
    limits: dict[str, Any] = {"torque_limit": 60, "torque_rate_limit": 1e9, "speed_limit": 1.5}
    drives = [DriveSettings(f"F{i}", "main", "mit", 1, position_limits=(-10, 10), **limits) for i in range(m)]
    quarter, one, nothing = max(QUARTER, 4 * period), np.ones(m), np.zeros(m)
    dry = np.append(nothing[1:], friction)
    plan = ProofPlan(dry, 1e-6 * one, 5e-4 * one, 0.02 * one, 1e-3 * one, quarter, ["m"] * m)
    proof = TorqueProof(plan, drives, period)
    proof.begin(Hold(nothing, nothing, inertia), nothing)
    weightless = BoundCall(lambda: None, [np.zeros(m)] * 4, [np.zeros(m), np.zeros(m), inertia.copy()])
    pose = PoseHold(SimpleNamespace(bound=lambda: weightless), drives, period)  # type: ignore[arg-type]
    source = TorqueSource(pose, drives, period)
    source.test(proof)
    y, v, ages = nothing, nothing, np.append(old * period, nothing[1:])
    sent, speeds, findings = [nothing] * 8, [nothing] * 8, []
    while not proof.over and not findings:
        speeds.append(np.round(v / 5e-4) * 5e-4)
        measured = np.append(speeds[-1 - old][:1], speeds[-1][1:])
        findings = proof.judge(period, y, measured, ages, nothing)
        if len(sent) == begin:
            proof.start()
        pose.take(Reading(nothing, nothing, nothing, True, 0.0, y, v), [True] * m, [True] * m)  # type: ignore[arg-type]
        source.find(Source(Torques.HOLD, tests=not proof.over), nothing, period)
        sent.append(source.limit(len(sent) * nanoseconds(period)))
        ticks, part = int(late), late % 1
        for force, dt in ((sent[-2 - ticks], part * period), (sent[-1 - ticks], (1 - part) * period)):
            for _ in range(20):
                acceleration = np.linalg.solve(inertia, polarity * force - dry * np.tanh(v / 0.01))
                y, v = y + dt / 20 * v + acceleration * (dt / 20) ** 2 / 2, v + acceleration * dt / 20
    return [(finding.kind, finding.drive) for finding in findings]


@pytest.mark.parametrize("period", [0.001, 0.005, 0.02])
@pytest.mark.parametrize("late", [0.0, 0.7, 1.0, 1.6, 2.0])
def test_a_force_that_acts_late_is_not_taken_for_one_of_the_wrong_polarity(period: float, late: float) -> None:
    assert tried_on_axes(np.eye(1), [1.0], period, late) == [(EventKind.PROVED, 0)]
    assert tried_on_axes(np.eye(1), [-1.0], period, late) == [(EventKind.REVERSED, 0)]


@pytest.mark.parametrize("begin", range(14, 18))
def test_a_force_that_acts_a_few_milliseconds_late_is_never_called_reversed(begin: int) -> None:
    """Its axis goes on against a torque that a round reverses; some spans of ticks are judged in every fourth tick."""
    for late in (4.5, 6.0):
        assert tried_on_axes(np.eye(1), [1.0], 0.001, late, begin=begin) == [(EventKind.PROVED, 0)]
        assert tried_on_axes(np.eye(1), [-1.0], 0.001, late, begin=begin) == [(EventKind.REVERSED, 0)]


@pytest.mark.parametrize(("push", "old", "friction"), [(1.0, 1, 0.0), (0.6, 0, 0.2), (-0.6, 0, 0.2)])
def test_an_axis_that_another_pushes_is_judged_by_its_own_torque(push: float, old: int, friction: float) -> None:
    """Not by samples that are older there, nor by friction that keeps it from going with the other."""
    inertia = np.array([[10.0, push], [push, 0.11]])
    sound = tried_on_axes(inertia, [1.0, 1.0], 0.0025, 1.0, old, friction)
    assert sound == [(EventKind.PROVED, 0), (EventKind.PROVED, 1)]
    assert tried_on_axes(inertia, [1.0, -1.0], 0.0025, 1.0, old, friction) == [(EventKind.REVERSED, 1)]


def test_torques_in_stage_zero_are_those_that_hold_the_pose_and_little_more() -> None:
    played = zero("A", joint3=-1.0)
    setup = load("arm_on_drives", engine="vm")
    held = np.abs(setup.gravity_compensation(0.0, setup.start.q).u)
    limits = np.array([drive.torque_limit for drive in setup.settings.drives])
    early = np.isin(played["stage"], [STAGES.index(name) for name in ("enabling", "zero")])
    assert (np.abs(played.group("sent"))[early] <= 1.3 * held + 0.05 * limits + 1e-9).all()


def test_a_joint_that_does_not_move_under_the_torque_of_the_test_is_not_proved_and_this_is_said() -> None:
    fault = [{"kind": "blocked", "drive": "tau", "since": "power_on"}]
    played = play("L", "hil.safety.tracking=0.9", faults=fault, stage=Phase.ZERO, duration=0.3)
    assert named(played) == [("unproved", "tau")] and played.exit_code == 0
    assert any("it does not move visibly under" in str(event) for event in played.events)


@pytest.mark.parametrize(("rig", "drive", "friction"), [("S", "tau1", 1.5), ("S", "tau3", 0.12), ("AF", "joint1", 3.5)])
def test_an_axis_that_friction_keeps_from_being_proved_is_stopped_at_once_if_its_polarity_is_wrong(
    rig: str, drive: str, friction: float
) -> None:
    wrong = [{"kind": "torque_constant", "drive": drive, "factor": -1.0, "since": "power_on"}]
    sets = f"hil.emulation.coulomb_friction={friction}", "hil.safety.tracking=0.3"
    played, coordinate = play(rig, *sets, faults=wrong, duration=0.5), int(drive[-1]) - 1
    assert ("unproved", drive) in named(played) and named(played)[-1] == ("reversed", drive) and played.exit_code == 3
    rows = played["t"] >= played["t"][played.rows_in("zero")][0]
    assert np.ptp(played.group("true_q")[rows, coordinate]) < 0.02


def test_friction_that_keeps_an_axis_from_being_proved_does_not_stop_a_sound_one() -> None:
    played = play("S", "hil.emulation.coulomb_friction=0.15", "hil.safety.tracking=0.3", duration=0.5)
    assert named(played) == [("unproved", "tau3")] and played.exit_code == 0


@pytest.mark.parametrize("friction", [0.245, 0.544])
def test_friction_that_gives_way_in_the_first_quarter_of_a_round_turns_no_torque_round(friction: float) -> None:
    """A joint that is called reversed is driven by twice the torque that holds it, to 6 rad/s and more."""
    begun = start(Request("arm_on_drives", (f"hil.emulation.coulomb_friction={friction}",), "ramp", 0.05))
    ended = begun.run(None, lambda event: None)
    assert ended.exit_code == 0 and not [event for event in ended.events if event.kind is EventKind.REVERSED]
    speeds = [ended.trajectory[f"true_v.joint{joint}"] for joint in range(1, 7)]
    assert np.abs(speeds).max() < 0.3  # joint5, which friction holds, is tried with more torque


def test_an_unproved_axis_that_moves_against_its_torque_is_stopped_by_both_ticks_alike() -> None:
    wrong = "hil.faults=[{kind: torque_constant, drive: tau3, factor: -1, since: power_on}]"
    sets = (*RIGS["S"].overrides, wrong, "hil.emulation.coulomb_friction=0.15")
    c = compare("scara_drive", *sets, duration=0.3)
    assert c["ticks"] > 100
    assert any(event.kind is EventKind.REVERSED for event in c["events"])


def test_the_start_prints_the_limits_of_stage_zero_and_the_summary_has_the_proof() -> None:
    rig = RIGS["L"]
    begun = start(Request(rig.config, tuple(rig.overrides), stage="zero", duration=0.2, engine="vm"))
    assert any(note.startswith("stage zero: torques of at most tau 2 N m") for note in begun.notes)
    trajectory = begun.run(None, lambda event: None).trajectory
    assert trajectory.metadata["drives"]["tau"]["proof"]["state"] == "proved"


@pytest.mark.parametrize("protocol", ["moteus", "robstride", "mit"])
def test_an_axis_that_would_fall_is_not_let_go_to_test_its_watchdog(protocol: str) -> None:
    played = play(lift(RACK, protocol), stage=Phase.ZERO, duration=0.1)
    assert moved(played) < 0.001
    rig = lift(RACK, protocol)
    notes = start(Request(rig.config, rig.overrides, stage="zero", armed=True, engine="vm")).notes
    assert any("the watchdog of F: its test would let the axis move by 0.071 m" in note for note in notes)
    energy = 40 * begun_limit(rig) ** 2 / 2
    assert any(f"the supply absorbs what braking gives back: {energy:.3g} J" in note for note in notes)


def begun_limit(rig: Rig) -> float:
    return load(rig.config, list(rig.overrides), "vm").settings.drives[0].speed_limit


def test_a_push_that_looks_like_the_wrong_polarity_gets_no_torque_on_top_once_it_is_a_runaway() -> None:
    """The drive would keep the torque of its last order, which then acts with the push, until its brake is closed."""
    push = [{"kind": "push", "drive": "joint4", "torque": 3.0, "at": 1.12, "since": "power_on", "for": 0.02}]
    played = play("A", faults=push, stage=Phase.ZERO, duration=0.3)
    assert named(played)[0] == ("reversed", "joint4") and played.exit_code == 3
    assert moved(played, "over")[3] < 1.0  # 2.0 by that torque
    assert np.abs(played.group("true_v")[:, 3]).max() < 12.0  # 24


def test_an_axis_that_is_let_go_and_falls_ends_the_test_of_its_watchdog() -> None:
    """The model has no weight there, so the axis counts as one that stays."""
    slides = [
        {"actuator": name, "bus": "main", "protocol": "robstride", "motor": "rs-02", "node": node, "gear": 40,
         "torque_limit": 40, "torque_rate_limit": 4000, "speed_limit": 0.9, "position_limits": [-1, 1], "brake": True}
        for node, name in enumerate("abc", 1)
    ]  # fmt: skip
    rig = Rig(RIGS["mixed"].config, (f"hil.drives={json.dumps(slides)}",))
    push = [{"kind": "push", "drive": "b", "torque": -20, "since": "power_on"}]
    played = play(rig, faults=push, stage=Phase.ZERO, duration=0.1)
    assert played.exit_code == 3 and not played.rows_in("enabling").any()
    assert "moves while watchdogs are tested: by -0.00" in str(played.events[0]) and played.events[0].subject == "b"


@pytest.mark.parametrize(
    ("config", "drives"),
    [
        ("two_arms_damiao", ("u1", "u2")),
        ("scara_robstride", ("tau1", "tau2")),
        ("coordinated_robots_moteus", ("u1", "u2")),
    ],
)
def test_no_drive_is_enabled_to_test_its_watchdog_where_the_encoders_contradict_the_start_pose(
    config: str, drives: tuple[str, str]
) -> None:
    """Its torque would hold another pose than that of the machine."""
    enabled = []

    def begin(emulator: Emulator) -> None:
        motors = [emulator.drives[name].motor for name in drives]
        emulator.wires["main"].taps.append(lambda frame, sender: enabled.append(any(each.enabled for each in motors)))

    sets = [f"hil.emulation.drives.{name}.offset=0.1" for name in drives]
    played = play(Rig(config), *sets, stage=Phase.ZERO, duration=0.1, begin=begin)
    assert played.exit_code == 3 and len(enabled) > 10 and not any(enabled)
    contradict = [event.subject for event in played.events if event.kind is EventKind.START_POSE]
    assert contradict == list(drives)
