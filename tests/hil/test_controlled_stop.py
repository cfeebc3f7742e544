"""Whether a machine falls is judged over the poses that it can reach; in a stop every joint comes to rest."""

from math import radians

import numpy as np
import pytest

from hil.assembly.prepare import load
from hil.sensing.motion import Prediction
from hil.sensing.tracking import DisturbanceObserver
from hil.session.start import Request, start
from servoctl.errors import ConfigError
from servoctl.types import State
from tests.hil.rigs import RIGS, Played, play

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
