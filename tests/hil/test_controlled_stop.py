"""A controlled stop brings every joint to rest, over the poses that it can reach, and `check` says how."""

import re
from math import radians

import numpy as np
import pytest

from hil.assembly.prepare import load, notes_on
from hil.assembly.stops import (
    describe_bounds,
    describe_drops,
    describe_silence,
    describe_stops,
    states_within_limits,
    stop_from,
)
from hil.safety.plan import Phase
from hil.sensing.motion import Prediction
from hil.sensing.tracking import DisturbanceObserver
from hil.session.notes import describe
from hil.session.start import Request, start
from servoctl.errors import ConfigError
from servoctl.types import State
from tests.faces import exit_code, on_drives
from tests.hil.rigs import RIGS, Played, Rig, gantry, play
from tests.shipped import ON_DRIVES

LEFT = 0.05
"""Share of the speed at the beginning of a stop that may be left at its end."""

LIGHT = 0.06
"""Share of the fastest joint's speed that the lightest joint may take on: steps of its torque on the wire, and the
delay of all torques, move it until the feedback takes that back."""


def speeds_in_the_stop(played: Played) -> np.ndarray:
    """True speeds from the tick that begins the stop to the one that ends it, shape (rows, n)."""
    rows = np.flatnonzero(played.rows_in("stopping"))
    return played.group("true_v")[rows[0] : rows[-1] + 1]


@pytest.mark.parametrize(
    ("rig", "stop_at", "duration"),
    [("AF", 0.3, None), ("AF", None, 0.7), ("S", 1.05, None), ("A", None, 0.7)],
)
def test_every_joint_comes_to_rest_and_none_speeds_up(rig: str, stop_at: float | None, duration: float | None) -> None:
    played = play(rig, stop_at=stop_at, duration=duration)
    speeds = np.abs(speeds_in_the_stop(played))
    assert played.exit_code == (0 if stop_at is None else 130)
    assert speeds[0].max() > 0.2
    assert speeds[-1].max() < LEFT * speeds[0].max()
    assert (speeds.max(axis=0) <= 1.1 * speeds[0] + LIGHT * speeds[0].max()).all()


def test_the_joints_beside_a_drive_in_a_fault_come_to_rest() -> None:
    """Its own drive brakes the second joint, and shakes the others as it does: those are not bounded on the way."""
    played = play("AF", faults=[{"kind": "drive_fault", "drive": "joint2", "at": 0.3}])
    speeds = np.abs(speeds_in_the_stop(played))
    assert speeds[0].max() > 1.5
    assert np.delete(speeds[-1], 1).max() < LEFT * speeds[0].max()


def test_joints_that_are_stopped_beyond_their_limits_come_to_rest() -> None:
    """Two joints move out at once: no torque that holds or brakes them is blocked there."""
    limits = ("hil.drives.1.position_limits=[-3, 0.233]", "hil.drives.2.position_limits=[1.474, 3]")
    played = play("AF", *limits)
    speeds = np.abs(speeds_in_the_stop(played))
    assert "position" in played.kinds
    assert speeds[0].max() > 0.5
    assert speeds[-1].max() < LEFT * speeds[0].max()
    assert (speeds.max(axis=0) <= 1.1 * speeds[0] + LIGHT * speeds[0].max()).all()


def test_an_axis_whose_samples_are_late_is_held_by_its_last_sound_pose() -> None:
    """It goes up at 0.3 m/s as its samples become 20 ms late: it is braked, and does not fall by a millimetre."""
    played = play("V rack", faults=[{"kind": "late", "drive": "F", "delay": 0.02, "at": 1.0}])
    height = played["true_q.x"][np.flatnonzero(played.rows_in("stopping"))[0] :]
    assert "stale" in played.kinds
    assert height.max() - height[0] < 0.05
    assert height.max() - height[-1] < 0.001


LINK = RIGS["L"].config
NO_BRAKE = "hil.drives.0.brake=false"
A_LITTLE = "references.up.waypoints.1.phi=5*deg"


def test_a_link_that_hangs_at_the_start_and_is_led_up_is_refused_without_a_brake() -> None:
    with pytest.raises(
        ConfigError, match=r"link\.yaml:\d+: hil\.drives: tau: without torque it falls from phi = 1\.\d+ rad"
    ):
        load(LINK, [NO_BRAKE], "vm")


def test_a_link_that_hangs_and_swings_a_little_needs_no_brake_except_where_a_hand_may_lift_it() -> None:
    sets = (NO_BRAKE, A_LITTLE)
    load(LINK, sets, "vm")
    with pytest.raises(ConfigError, match=r"tau: without torque it falls from phi = .* stage float"):
        start(Request(LINK, sets, stage="float", engine="vm"))


def test_a_link_that_was_led_up_is_held_in_a_stop() -> None:
    played = play("L", stop_at=1.6)
    stop = np.flatnonzero(played.rows_in("stopping"))
    assert played["true_q.phi"][stop[0]] == pytest.approx(radians(137), abs=0.01)
    assert np.abs(played["true_v.phi"][stop]).max() < 0.05
    holding = played["true_u.tau"][stop[-1]]
    assert holding == pytest.approx(played["true_u.tau"][stop[0]], rel=0.05) and abs(holding) > 1.0


@pytest.mark.parametrize("config", ["flexible_joint_drive", "two_mass_spring_drive", "two_arms_damiao", "scara_drive"])
def test_a_shipped_machine_that_swings_slowly_or_lies_still_needs_no_brake(config: str) -> None:
    load(config, [], "vm")


def test_a_machine_is_held_predicted_and_watched_at_poses_at_which_its_task_has_no_rows() -> None:
    """A tool turned over by half a turn, as by a hand, or as `check` samples the joint limits."""
    setup, q = load("arm_on_drives", engine="vm"), np.array([-2.7267, 1.3768, 0.6787, -2.7987, 1.3009, -2.8722])
    at = setup.loop.system.model.plain.matrices(State(0.0, q, np.zeros(6)))
    assert np.isnan(at.task.A).any()
    hold = setup.gravity_compensation(0.0, q).u
    np.testing.assert_allclose(at.B @ hold, -at.Q, rtol=1e-9, atol=1e-12)
    model, acceleration = setup.loop.system.model, np.arange(6.0)
    then, speeds = Prediction(model, engine="vm")(0.0, 0.002, q, np.zeros(6), hold)
    np.testing.assert_allclose([then - q, speeds], 0.0, atol=1e-9)
    missed = DisturbanceObserver(model, engine="vm")(0.0, q, acceleration)[0]
    np.testing.assert_allclose(at.B @ missed, at.M @ acceleration, rtol=1e-9)


def test_a_stop_by_the_model_is_that_of_the_emulated_machine() -> None:
    """At 2.7 rad/s, where the torque limit of the first hinge binds: rates of the task lead into it in both."""
    played, setup = play("S", stop_at=1.05), load(RIGS["S"].config, RIGS["S"].overrides, "vm")
    rows = np.flatnonzero(played.rows_in("stopping"))
    q, v = played.group("true_q"), played.group("true_v")
    stop = stop_from(setup, State(0.0, q[rows[0]], v[rows[0]]))
    assert stop.speeds[0] == pytest.approx(2.7, abs=0.02)
    moving = np.abs(v[rows, 0]) > 0.01 * 3.0  # of its speed limit, as for the model
    period = setup.settings.values.period
    assert stop.times[0] == pytest.approx(period * moving.sum(), abs=0.02)  # the steps of its speed on the wire
    assert stop.travels[0] == pytest.approx(np.ptp(q[rows, 0]), rel=0.03)


def test_check_says_from_which_speed_and_pose_each_drive_stops_and_what_cannot_stop_in_time() -> None:
    setup = load(RIGS["S"].config, RIGS["S"].overrides, "vm")
    lines = describe_stops(setup)
    for line, drive in zip(lines, setup.settings.drives, strict=False):
        said = re.match(
            rf"stop of {drive.name}: from ([\d.]+) (rad|m)/s at rest after [\d.]+ s and [\d.]+ (rad|m) at q1", line
        )
        assert said is not None, line
        assert float(said[1]) <= drive.speed_limit
        assert "; in the task from " in line
    assert lines[4:] == [
        "note: tau1: a controlled stop at its speed limits can take longer than stop_time, 0.5 s: what still moves "
        "then is left to the drives and brakes "
        "(a larger stop_time, torque_limit or torque_rate_limit, or a lower speed)"
    ]


def test_a_machine_that_cannot_stop_from_its_task_is_said_so_by_name() -> None:
    setup = load(RIGS["S"].config, [*RIGS["S"].overrides, "hil.safety.stop_time=0.2"], "vm")
    said = [line for line in describe_stops(setup) if "a controlled stop in the task" in line]
    assert len(said) == 1 and said[0].startswith("note: tau1, tau2, tau3, F4: ") and "stop_time, 0.2 s" in said[0]


@pytest.mark.parametrize("sets", [(), ("law.observer=auto",), ("estimation.kind=model",)])
def test_a_long_task_is_looked_through_to_its_end_whatever_the_law_remembers(sets: tuple[str, ...]) -> None:
    """With a period that was stretched to 0.1 s, an observer or an estimator drove the model out of all limits."""
    setup = load("two_mass_spring_drive", ["run.duration=300", *sets], "vm")
    assert not setup.task_end and setup.task_states[-1].t == pytest.approx(300.0)
    for state in setup.task_states:
        asked = 0.5 + 0.2 * np.cos(2 * state.t) * np.sin(2 * state.t) ** 4
        assert state.q[1] - state.q[0] == pytest.approx(asked, abs=1e-3)


def test_a_task_that_leads_beyond_a_limit_says_when_before_the_start_and_the_run_ends_then() -> None:
    low = ("run.duration=8", "hil.drives.F4.position_limits=[-0.15, -0.07]")
    said = [
        re.search(r"by the model F4 is beyond its position_limits, .* at t = ([\d.]+) s: a run ends there", note)
        for note in notes_on(load("scara_drive", low, "vm"))
    ]
    (when,) = [float(found[1]) for found in said if found]
    run = on_drives("scara_drive", *low, "hil.safety.zero_time=0.1").trajectory
    ended = run["task_time"].max()
    assert 0.0 <= when - ended < 8 / 32 and ended - np.sin(ended) == pytest.approx(3.0, abs=0.1)  # of z of the task


@pytest.mark.parametrize("rate", [200, 10])
def test_a_bound_that_a_stop_from_the_task_passes_is_named_and_the_machine_passes_it_so_far(rate: int) -> None:
    wall = f"bounds=[{{name: wall, holonomic: 'x1 + 0.02', rate: {rate}}}]"
    setup = load("two_mass_spring_drive", [wall], "vm")
    said = re.search(
        r"note: bound wall: a stop does not keep it, .* by up to ([\d.]+) m ", "".join(describe_bounds(setup))
    )
    hardest = min(setup.task_states, key=lambda state: state.q[0] + state.v[0] / setup.stop_rate)
    run = on_drives("two_mass_spring_drive", wall, duration=hardest.t).trajectory
    way = -0.02 - run["true_q.x1"][run["stage"] == Phase.STOPPING.number].min()
    assert (said is None) == (rate < setup.stop_rate) == (way < 1e-3)
    if said is not None:
        assert float(said[1]) == pytest.approx(way, abs=1e-3)  # the delay of the loop


def test_no_joint_speeds_up_in_a_stop_from_any_pose_and_speed() -> None:
    """By the model, all joints at once; were Coriolis forces left out, the second hinge went from 1.8 to 3 rad/s."""
    setup, random = load(RIGS["S"].config, RIGS["S"].overrides, "vm"), np.random.default_rng(1)
    limits = np.array([drive.speed_limit for drive in setup.settings.drives])
    for pose in states_within_limits(setup)[1:17]:
        stop = stop_from(setup, State(0.0, pose.q, limits * random.uniform(-1.0, 1.0, 4)))
        assert np.isfinite(stop.times).all()
        # torques that change within a period act on what moves by then: 1 % of the limit
        assert (stop.largest <= 1.1 * np.abs(stop.speeds) + 0.01 * limits).all()


@pytest.mark.parametrize("name", ["V rack mit", "V rack odrive", "V rack robstride"])
def test_check_says_how_far_an_axis_falls_until_its_brake_is_closed_and_the_machine_falls_so_far(name: str) -> None:
    setup = load(RIGS[name].config, RIGS[name].overrides, "vm")
    (said,) = [line for line in describe(setup) if line.startswith("F: at each end it falls by")]
    # 9.81 m/s^2 for 0.1 s
    assert "falls by 0.049 m until its brake is closed (brake_time 0.1 s, at x = " in said
    assert "it then has 0.98 m/s, and goes on until the brake has stopped it" in said
    played = play(name, duration=0.1)
    off = int(np.argmax((played["true_on.F"] == 0) & (played["t"] > played["t"][played.rows_in("stopping")][0])))
    height = played["true_q.x"][off] - played["true_q.x"]
    closed = off + int(np.argmax(played["true_brake.F"][off:] == 1))
    # the brake holds twice the torque limit of 560 N against 40 kg, a fifth of it more every 5 ms from 80 ms on
    speed, fall, full = 9.81 * 0.08, 9.81 * 0.08**2 / 2, 2 * 560 / 40
    for share in (0.2, 0.4, 0.6, 0.8):
        acceleration = 9.81 - share * full
        speed, fall = speed + acceleration * 0.005, fall + speed * 0.005 + acceleration * 0.005**2 / 2
    assert height[closed] == pytest.approx(fall, abs=0.001) and fall < 0.049
    assert height[-1] == pytest.approx(fall + speed**2 / 2 / (full - 9.81), abs=0.002)


def test_check_says_no_fall_where_the_drive_holds_its_torque_meanwhile() -> None:
    assert not describe_drops(load(RIGS["V rack"].config, RIGS["V rack"].overrides, "vm"))


def test_motors_that_carry_an_axis_together_fall_as_it_falls_without_those_that_let_go() -> None:
    """7.5 m/s^2 for 0.1 s where both let go; what one carries was taken for the weight of an axis of its own."""
    for rig, drops in ((gantry("odrive", "odrive"), 2), (gantry("cia402", "odrive"), 0)):
        setup = load(rig.config, rig.overrides, "vm")
        said, silence = describe_drops(setup), describe_silence(setup)[:drops]
        assert ["goes on by at most 0.037 m" in line for line in silence] == [True] * drops
        assert ["falls by 0.037 m" in line and "has 0.75 m/s" in line for line in said] == [True] * drops
        played = play(rig, stage=Phase.ZERO, duration=0.1)
        moved = played["true_q.x"][played.rows_in("over")][-1] - played["true_q.x"][played.rows_in("stopping")][0]
        assert played.exit_code == 0
        assert -0.0375 < moved < -0.03 if drops else abs(moved) < 0.001


@pytest.mark.parametrize("brakes", [(True, True), (False, True)])
def test_a_watchdog_is_tested_where_the_brake_of_another_motor_holds_the_axis(brakes: tuple[bool, bool]) -> None:
    rig = gantry("cia402", "moteus", brakes=brakes)
    left_out = load(rig.config, rig.overrides, "vm").watchdog_tests[1].left_out
    assert left_out.startswith("" if brakes[0] else "its test would let the axis move by 0.054 m")
    assert bool(left_out) is not brakes[0]
    if not left_out:
        assert play(rig, stage=Phase.ZERO, duration=0.1).exit_code == 0


def test_the_watchdogs_of_a_closed_chain_are_tested_while_its_brakes_hold_it() -> None:
    """Each brake opens for 10 ms and takes 100 ms to close: three that were still open let the chain fall by 8 mrad."""
    played = play(Rig("coordinated_robots_moteus"), stage=Phase.ZERO, duration=0.05)
    setup = played.run.setup
    assert played.exit_code == 0 and not any(test.left_out for test in setup.watchdog_tests)
    np.testing.assert_allclose(played.group("true_q")[0], setup.start.q, atol=1e-4)


def test_a_start_on_drives_says_once_how_far_an_axis_falls_and_says_it_where_they_make_torque() -> None:
    rig = RIGS["V rack odrive"]
    for stage, armed, times in ((None, False, 1), ("zero", True, 1), ("shadow", False, 0)):
        notes = start(Request(rig.config, tuple(rig.overrides), stage, armed=armed, engine="vm")).notes
        said = [note for note in notes if "F: at each end it falls by 0.049 m until its brake is closed" in note]
        assert len(said) == times


def after_a_cut(rig: str | Rig, at: float, closing: float = 0.0) -> float:
    """Largest way of the true machine from a cut of the bus until its drive is off, and so long after [m]."""
    played = play(rig, faults=[{"kind": "cut", "at": at}], duration=1.5)
    t = played["t"]
    first = int(np.searchsorted(t, t[played.rows_in("full")][0] + at))
    off = first + int(np.argmax(played["true_on.F"][first:] == 0))
    until = int(np.searchsorted(t, t[off] + closing))
    height = played["true_q.x"][first : until + 1]
    return float(np.abs(height - height[0]).max())


def test_check_says_how_far_an_axis_goes_on_when_its_bus_is_cut_and_the_machine_goes_no_farther() -> None:
    """V is fastest after 1.05 s, at 0.3 m/s: 15 mm in 50 ms, and 21 mm down a ramp of 2.1 m/s^2."""
    rig = RIGS["V rack"]
    for sets, most in ((), 0.037), (("hil.safety.drive_watchdog=30*ms",), 0.03):
        shorter = Rig(rig.config, (*rig.overrides, *sets))
        said, note = describe_silence(load(shorter.config, shorter.overrides, "vm"))
        far = re.search(r"goes on by at most ([\d.]+) m: ", said)
        assert far is not None and float(far[1]) == most and note.startswith("note: F: more than 0.02 m")
        assert 0.85 * most < after_a_cut(shorter, 1.05) < most
    slow = Rig(rig.config, (*rig.overrides, "hil.safety.drive_watchdog=30*ms", "run.duration=0.55"))
    (said,) = describe_silence(load(slow.config, slow.overrides, "vm"))
    assert "goes on by at most 0.019 m" in said  # at 0.23 m/s


def test_check_says_how_far_an_axis_falls_when_its_bus_is_cut_and_its_drive_lets_go() -> None:
    rig = RIGS["V rack odrive"]
    said = describe_silence(load(rig.config, rig.overrides, "vm"))[0]
    assert "goes on by at most 0.049 m" in said  # 9.81 m/s^2 for 0.1 s, from rest
    assert after_a_cut(rig, 0.002, closing=0.1) == pytest.approx(0.049, abs=0.002)  # one row later
    assert after_a_cut(rig, 1.05, closing=0.1) < 0.049


@pytest.mark.parametrize("config", sorted(ON_DRIVES))
def test_every_shipped_config_on_drives_passes_check(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("check", config) == 0, capsys.readouterr().err
    assert "stop of" in capsys.readouterr().out


def test_a_pose_is_named_without_its_rounding() -> None:
    """The object of two robots stays level: theta3 was 3.223e-18 rad."""
    drops = describe_drops(load("coordinated_robots_moteus", engine="vm"))
    assert len(drops) == 6 and all("theta3 = 0 rad" in said for said in drops), drops
