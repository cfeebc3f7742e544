"""The controlled stop of machines that fall and whose joints differ: every joint comes to rest, and none speeds up."""

import numpy as np
import pytest

from tests.hil.rigs import Played, play

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
