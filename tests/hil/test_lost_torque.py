"""A motor that loses its torque is named, whatever its drive reports; friction and loads are not taken for that."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hil.core.constants import AGAINST, ARRIVES, BETWEEN, LOST, NOT_FRICTION, OTHER, UNPROVED
from hil.sensing.arrival import LONGEST, VISIBLE, arrivals
from tests.hil.faults.carts.run import play as play_cart
from tests.hil.faults.carts.scenario import make
from tests.hil.rigs import RACK, Rig, lift, play

WITHIN = 0.3
"""Time within which the motor is named [s]."""

FALSE = {"kind": "torque_constant", "factor": 0.0}
"""A motor without torque whose drive reports all of it."""


def judged(*windows: Sequence[float], share: float = 1.0, other: float = 0.0) -> tuple[list[int], bool]:
    """States of a motor after windows of (d, u, speed), and whether it is named; `other`: d of a second motor."""
    states, named, seen = [ARRIVES, ARRIVES], False, []
    for d, u, speed in windows:
        more = [share] * 2, [speed, 0.0], [0.1, 0.1], [0.1, 0.1], [9.0, 9.0], [0.01, 0.01], [5.0, 5.0], 3
        states, lost = arrivals(states, [d, other], [u, 0.0], *more)
        seen.append(states[0])
        named |= lost == 0
    return seen, named


def test_a_motor_is_named_when_the_motion_gains_the_energy_of_a_torque_that_arrived_before() -> None:
    assert judged((0, 5, 1), (-3, 5, 1), (-5, 5, -1), (-6, 6, -2)) == (
        [ARRIVES, BETWEEN, NOT_FRICTION, NOT_FRICTION],
        True,
    )
    rises_on = [(0, 5, 1), (-5, 5, 1), (-5, 5, -1), (-5, 5, -2)]
    assert judged(*rises_on) == ([ARRIVES, LOST, NOT_FRICTION, NOT_FRICTION], True)


def test_a_motor_is_named_when_more_is_missing_than_friction_may_take() -> None:
    assert judged((0, 5, 1), (-6, 6, 1), (-7, 7, 1))[1]
    assert not judged((0, 5, 1), (-4, 4, 1), (-4, 4, 1))[1]


def test_friction_a_blocked_joint_and_a_load_as_large_as_the_torque_name_no_motor() -> None:
    assert not judged(*[(-5, 5, 1)] * 9)[1]  # friction takes energy
    assert not judged(*[(-5, 5, 0)] * 9)[1]  # it stands
    assert judged((-5, 5, 1), (-5, 5, 1), (-5, 5, 1), (-5, 5, 1), (-5, 5, -1), (-5, 5, -1))[0][-1] == OTHER  # lowered
    assert not judged((-3.5, 5, 1), (-3, 5, -1), (-5, 5, -1), (-5, 5, -1))[1]  # it came slowly
    assert not judged((-0.09, 0.09, -1), (-0.09, 0.09, -1))[1]  # too small to be seen
    assert not judged((-5, 0, -1), (-5, 1, -1), (-5, 5, -1), (-5, 5, -1))[1]  # the law meets a load that came at once


def test_a_small_load_that_stays_while_the_torque_stays_names_no_motor() -> None:
    """A slide that runs down a slight slope at constant speed, after it was accelerated."""
    states, bounds = [NOT_FRICTION], ([1.0], [1.0], [0.01], [0.01], [9.0], [0.01], [5.0], 3)
    for d, u, named in ((0.1, -0.1, None), (0.1, -0.12, None), (0.2, -0.2, 0)):
        assert arrivals(states, [d], [u], *bounds, ([-0.1], [0.1]))[1] == named


def test_a_motor_is_named_if_its_drive_reports_none_of_what_the_motion_lacks_though_friction_may_take_it() -> None:
    bounds = [1.0], [1.0], [0.1], [0.1], [9.0], [0.01], [5.0], 3, ([5.0], [-5.0])
    for reported, named in ((True, 0), (False, None)):
        states, lost = arrivals([BETWEEN], [-5.0], [5.0], *bounds, [reported])
        assert lost is None and arrivals(states, [-5.0], [5.0], *bounds, [reported])[1] == named


def test_a_motor_that_is_not_proved_is_named_if_it_moves_against_its_torque_and_proved_if_it_moves_with_it() -> None:
    bounds = [1.0], [0.1], [6.0], [9.0], [0.01], [99.0], 3

    def after(state: int, d: float, u: float, speed: float) -> tuple[list[int], int | None]:
        shares, *more = bounds
        return arrivals([state], [d], [u], shares, [speed], *more)

    assert after(UNPROVED, -9.0, 5.0, -1.0) == ([AGAINST], None) and after(AGAINST, -9.0, 5.0, -1.0)[1] == 0
    assert after(UNPROVED, -5.0, 5.0, 0.0) == after(AGAINST, -5.0, 5.0, 0.0) == ([UNPROVED], None)  # it sticks
    assert after(UNPROVED, -3.0, 5.0, 1.0) == ([UNPROVED], None)  # friction takes 60 %
    assert after(UNPROVED, -2.0, 5.0, 1.0) == ([ARRIVES], None)


@pytest.mark.parametrize("seed", [3000014, 3000015])
def test_lost_samples_are_not_taken_for_lost_torque(seed: int) -> None:
    result = play_cart(make("one or two samples lost", "mit", "at speed", seed))
    assert result.ended_by in ("goes on", "stale") and result.problems == ()


def test_one_of_redundant_motors_is_named_only_if_it_explains_the_disturbance_alone() -> None:
    lost = [(-2.5, 5, -1)] * 2
    assert judged(*lost, share=0.5, other=2.5)[1]  # d = -p u, and what it moves in the other
    assert not judged(*lost, share=0.5, other=4.0)[1]


CASES: dict[str, tuple[str | Rig, str, dict[str, Any]]] = {
    "cia402": ("V rack", "F", FALSE),
    "cia402, safe torque off": ("V rack", "F", {"kind": "no_torque"}),
    "mit": ("V rack mit", "F", FALSE),
    "moteus": ("V rack moteus", "F", FALSE),
    "odrive": ("V rack odrive", "F", {"kind": "no_torque"}),
    "robstride": ("V rack robstride", "F", FALSE),
    "light load, 5 % of the limit": (lift(RACK, "odrive", torque_limit=8000, rated_torque=160), "F", FALSE),
    "wrist, 1 % of the limit": ("AF", "joint5", FALSE),
    "elbow": ("AF", "joint3", FALSE),
    "hinge": ("S", "tau2", FALSE),
    "slide": ("scara_drive", "F4", {"kind": "no_torque"}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_motor_without_torque_is_named_within_0_3_s(case: str) -> None:
    rig, drive, fault = CASES[case]
    rig = Rig(rig) if rig == "scara_drive" else rig
    at = 0.3
    played = play(rig, faults=[{"at": at, "drive": drive, **fault}], duration=0.8)
    began = played["t"][played.rows_in("full")][0]
    first = next(event for event in played.events if event.kind.name == "TRACKING")
    assert first.subject == drive and first.time / 1e9 - began < at + WITHIN
    assert "safe torque off" in first.detail


@pytest.mark.parametrize("at", [0.1, 0.6])
def test_a_small_torque_that_drives_a_joint_is_missed_within_0_3_s_where_its_drive_reports_none(at: float) -> None:
    """At most 0.5 % of the limit in these 0.3 s for the second one, of which friction may take 5 %."""
    played = play("A", faults=[{"kind": "no_torque", "at": at, "drive": "joint1"}], duration=1.2)
    began = played["t"][played.rows_in("full")][0]
    first = next(event for event in played.events if event.kind.name == "TRACKING")
    assert first.subject == "joint1" and first.time / 1e9 - began < at + WITHIN


@pytest.mark.parametrize(("rig", "friction"), [("AF", 0.02), ("S cia402", 0.05), ("V rack odrive", 8)])
def test_friction_as_large_as_the_torque_of_light_joints_stops_nothing(rig: str, friction: float) -> None:
    sets = (f"hil.emulation.coulomb_friction={friction}", "hil.safety.tracking=0.1")
    assert "tracking" not in play(rig, *sets, duration=1.0).kinds


def test_a_joint_that_needs_no_torque_has_none_to_lose() -> None:
    """The flange of the arm turns about its own axis, and hardly at all."""
    played = play("A", faults=[{"kind": "no_torque", "at": 0.3, "drive": "joint6"}], duration=0.8)
    assert played.exit_code == 0
    assert np.abs(played["u.joint6"][played.rows_in("full")]).max() < VISIBLE * 6  # its limit [N m]


def test_the_time_in_which_a_motion_must_gain_energy_covers_what_is_promised() -> None:
    assert LONGEST >= WITHIN
