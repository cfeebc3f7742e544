"""No torque leaves the limits, and a motor that loses its torque is named, whatever its drive reports."""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.core.constants import Torques
from hil.drives import DriveSettings
from hil.loop import nanoseconds
from hil.safety.torques import PoseHold, Source, TorqueSource
from hil.sensing.tracking import LONGEST, VISIBLE
from servoctl.engine.ccode import BoundCall
from servoctl.types import Array
from tests.hil.faults.carts.run import play as play_cart
from tests.hil.faults.carts.scenario import make
from tests.hil.rigs import RACK, Rig, lift, play

ANY = st.floats(allow_nan=True, allow_infinity=True)


def drive(limit: float = 12.0, rate: float = 400.0) -> DriveSettings:
    return DriveSettings(
        "u1",
        "main",
        "odrive",
        1,
        torque_limit=limit,
        torque_rate_limit=rate,
        speed_limit=6.0,
        position_limits=(-2.0, 2.0),
    )


class Limits:
    """Torques that may be sent, tick by tick."""

    def __init__(self, *drives: DriveSettings, period: float = 0.0025, carried: Any = None) -> None:
        m = len(drives)
        weightless = BoundCall(lambda: None, [np.zeros(1), *np.zeros((3, m))], [*np.zeros((2, m)), np.eye(m)])
        self.pose = PoseHold(SimpleNamespace(bound=lambda: weightless), drives, period)  # type: ignore[arg-type]
        self.source, self.now, self.period = TorqueSource(self.pose, drives, period, carried), 0, nanoseconds(period)

    def apply(self, wanted: Sequence[float], held: Sequence[float] | None = None) -> list[float]:
        """Those that are sent; `held`: the part of them that holds a machine that comes to rest."""
        self.now += self.period
        self.source.take(Source(Torques.LAW if held is None else Torques.STOP), steps=True)
        self.source.wanted[:], self.pose.held[:] = wanted, 0.0 if held is None else held
        sent: list[float] = self.source.limit(self.now).tolist()
        return sent


@given(
    st.lists(st.tuples(ANY, st.none() | ANY), min_size=1, max_size=30),
    st.floats(0.1, 100),
    st.floats(1, 1e4),
    st.floats(1e-4, 1e-2),
)
def test_torque_and_its_rate_stay_within_limits(
    asked: list[tuple[float, float | None]], limit: float, rate: float, period: float
) -> None:
    limits = Limits(drive(limit, rate), period=period)
    last = 0.0
    for torque, held in asked:
        (sent,) = limits.apply([torque], None if held is None else [held])
        assert math.isfinite(sent)
        assert abs(sent) <= limit
        assert abs(sent - last) <= rate * period * (1 + 1e-12)
        assert limits.source.clamped == [sent != torque]
        last = sent


def test_torques_within_the_limits_pass_unchanged() -> None:
    limits = Limits(drive())
    assert limits.apply([0.9]) == [0.9]
    assert limits.apply([1.8], [0.3]) == [1.8]
    assert limits.source.clamped == [False]


def test_braking_torques_are_scaled_together_and_what_holds_the_machine_comes_first() -> None:
    limits = Limits(drive(rate=1e6), drive(rate=1e6))
    assert limits.apply([20.0, -3.0], [4.0, 1.0]) == pytest.approx([12.0, 1.0 - 2.0])  # half of 16 and of -4
    assert limits.source.clamped == [True, True]


def test_one_drive_without_room_does_not_keep_the_others_from_braking() -> None:
    limits = Limits(drive(rate=1e6), drive(rate=1e6))
    for held in (11.0, 15.0):  # of 12
        assert limits.apply([20.0, -4.0], [held, 0.0]) == pytest.approx([12.0, -4.0])


def test_torques_of_a_stop_change_together() -> None:
    limits = Limits(drive(rate=400.0), drive(rate=40.0))
    assert limits.apply([-4.0, 0.4], [0.0, 0.0]) == pytest.approx([-1.0, 0.1])  # the first may change by 1 in a period


def test_after_the_drives_went_off_torque_grows_from_zero() -> None:
    limits = Limits(drive())
    for _ in range(20):
        limits.apply([12.0])
    limits.source.begin([0.0])
    assert limits.apply([12.0]) == [1.0]


def test_a_torque_soon_after_a_late_one_has_less_room_to_change() -> None:
    """Behind a late tick two commands go out within a fraction of a period: the rate holds between them too."""
    limits, sent = Limits(drive(rate=400.0)), []
    for now in (10_000_000, 12_500_000, 12_740_000, 20_000_000):
        limits.now = now - limits.period
        sent += limits.apply([10.0])
    assert sent == pytest.approx([1.0, 2.0, 2.0 + 400.0 * 0.00024, 3.0 + 400.0 * 0.00024])


@given(st.lists(st.floats(-7.0, 7.0), min_size=1, max_size=200), st.sampled_from([0.07, 0.5, 5.0]))
def test_torques_in_steps_of_the_wire_have_the_mean_of_those_that_are_wanted(asked: list[float], step: float) -> None:
    """What a frame does not carry is added to the next one: their sums differ by a step at most, within the limits."""

    def carried(torques: Array) -> Array:
        return step * np.trunc(torques / step)

    limits, sums = Limits(drive(rate=1e9), carried=carried), np.zeros(2)
    for torque in asked:
        (sent,) = limits.apply([torque])
        sums += torque, sent
        assert abs(sent) <= 12.0 and sent == pytest.approx(step * round(sent / step), abs=1e-9)
        assert abs(sums[0] - sums[1]) <= step * (1 + 1e-9)


WITHIN = 0.3
"""Time within which the motor is named [s]."""

FALSE = {"kind": "torque_constant", "factor": 0.0}
"""A motor without torque whose drive reports all of it."""


@pytest.mark.parametrize("seed", [3000014, 3000015])
def test_lost_samples_are_not_taken_for_lost_torque(seed: int) -> None:
    result = play_cart(make("one or two samples lost", "mit", "at speed", seed))
    assert result.ended_by in ("goes on", "stale") and result.problems == ()


CASES: dict[str, tuple[str | Rig, str, dict[str, Any]]] = {
    "cia402": ("V rack", "F", FALSE),
    "cia402, safe torque off": ("V rack", "F", {"kind": "no_torque"}),
    "mit": ("V rack mit", "F", FALSE),
    "moteus": ("V rack moteus", "F", FALSE),
    "odrive": ("V rack odrive", "F", {"kind": "no_torque"}),
    "robstride": ("V rack robstride", "F", FALSE),
    "light load, 5 % of the limit": (lift(RACK, "odrive", torque_limit=8000, rated_torque=160), "F", FALSE),
    "wrist, 1 % of the limit": ("AF", "joint5", FALSE),
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


def test_a_small_torque_that_drives_a_joint_is_missed_within_0_3_s_where_its_drive_reports_none() -> None:
    """At most 0.5 % of the limit in these 0.3 s, of which friction may take 5 %."""
    at = 0.6
    played = play("A", faults=[{"kind": "no_torque", "at": at, "drive": "joint1"}], duration=1.2)
    began = played["t"][played.rows_in("full")][0]
    first = next(event for event in played.events if event.kind.name == "TRACKING")
    assert first.subject == "joint1" and first.time / 1e9 - began < at + WITHIN


@pytest.mark.parametrize(("rig", "friction"), [("AF", 0.02), ("V rack odrive", 8)])
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
