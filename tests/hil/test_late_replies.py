"""A reply later than a period is dated by the SYNC or command that it answers, as far as the motion tells."""

import numpy as np
import pytest

from hil.safety import EventKind
from hil.safety.plan import Phase
from tests.hil.by_drivers import compare
from tests.hil.rigs import Played, play

PERIOD = 0.002
"""Of the vertical axis [s]."""
AT = 0.3
"""When the fault begins [s]."""


def ages(played: Played, after: float) -> np.ndarray:
    """Ages of the samples from a time after the fault began on [s]."""
    full = played.rows_in("full")
    later = full & (played["t"] > played["t"][full][0] + AT + after)
    return np.asarray(played["age.F"][later])


@pytest.mark.parametrize("periods", [1.3, 2.1])
def test_a_reply_that_is_late_by_more_than_a_period_is_as_old_as_it_is(periods: float) -> None:
    late = {"kind": "delay", "delay": periods * PERIOD, "direction": "to_host", "at": AT}
    seen = ages(play("V screw", faults=[late], duration=0.7), 5 * PERIOD)
    assert len(seen) > 150 and seen == pytest.approx(periods * PERIOD, abs=0.1 * PERIOD)  # and the frame on the wire


def test_a_sample_that_waits_behind_heartbeats_is_dated_by_its_sync() -> None:
    played = play("A", duration=0.3)
    full = played.rows_in("full")
    for axis in range(1, 5):
        age, speed = played[f"age.joint{axis}"][full], played[f"true_v.joint{axis}"][full]
        assert np.ptp(age) > 5e-5  # in some ticks heartbeats go first, of 65 us each
        moves = np.abs(speed) > 0.5 * np.abs(speed).max()
        error = (played[f"q.joint{axis}"] - played[f"true_q.joint{axis}"])[full][moves] / speed[moves] - age[moves]
        even = np.sort(error)[:-1]  # the SYNC itself takes 0.05 ms; once it waits for a heartbeat too
        assert np.ptp(even) < 2e-5 and even == pytest.approx(5e-5, abs=2e-5) and error.max() < 1.2e-4


REPLYING = ["V rack mit", "V rack moteus", "V rack robstride"]  # protocols whose drives answer each command


@pytest.mark.parametrize(("rig", "periods"), [*zip(REPLYING, (0.9, 1.3, 1.8), strict=True), (REPLYING[0], 1.8)])
def test_a_late_reply_to_a_command_is_never_dated_too_young(rig: str, periods: float) -> None:
    late = {"kind": "delay", "delay": periods * PERIOD, "direction": "to_host", "at": AT}
    played = play(rig, faults=[late], duration=0.7)
    seen = ages(played, 5 * PERIOD)
    assert played.exit_code == 0 and len(seen) > 150
    assert (seen > periods * PERIOD).all() and (seen <= 2.01 * PERIOD).all()
    full = played.rows_in("full")
    full &= played["t"] > played["t"][full][0] + AT + 30 * PERIOD  # ticks that waited for the first ones are even again
    error = np.abs(played["q.x"] - played["true_q.x"])[full]
    assert (error < 0.25 * PERIOD * np.abs(played["true_v.x"])[full] + 1e-5).all()  # a period too young: 1.0


@pytest.mark.parametrize("rig", ["V screw", "V rack odrive", *REPLYING])
@pytest.mark.parametrize(("late", "refused"), [(0.004, False), (0.015, True), (0.06, True)])
def test_samples_that_are_late_from_the_start_are_refused_before_a_drive_is_enabled(
    rig: str, late: float, refused: bool
) -> None:
    """In the loop they come at the pace of the questions, so that each looks like the answer to the last one."""
    held = {"kind": "late", "drive": "F", "delay": late, "since": "power_on", "at": 0.0}
    played = play(rig, faults=[held], stage=Phase.ZERO)
    assert (played.exit_code, played.unconfirmed) == (3 if refused else 0, ())
    assert played.emulator.drives["F"].motor.has_worked is not refused
    if refused:
        (said,) = [str(event) for event in played.events if event.kind is EventKind.HANDSHAKE]
        after = float(said.partition("an answer comes ")[2].split()[0]) / 1000
        assert late < after < late + PERIOD and "at most 6 ms is allowed" in said


def test_a_master_that_asks_for_samples_from_the_bring_up_on_does_not_hold_it_up() -> None:
    """The pause that times the first sample waits for silence, which never comes."""
    sync = {"kind": "foreign_frames", "id": 0x80, "data": "", "period": 0.003, "since": "power_on", "at": 0.15}
    played = play("V screw", faults=[sync], stage=Phase.ZERO)
    assert (played.exit_code, played.unconfirmed) == (3, ()) and played.events[0].kind is EventKind.FOREIGN
    assert not played.emulator.drives["F"].motor.has_worked


@pytest.mark.parametrize(("rig", "oldest"), [("V screw", 0.1), *((rig, 1.0) for rig in REPLYING)])
def test_a_lost_reply_makes_the_next_one_no_older(rig: str, oldest: float) -> None:
    """Samples of a SYNC are as old as their frame takes, replies to a command up to a period."""
    lost = {"kind": "lost", "p": 1.0, "direction": "to_host", "at": AT, "for": PERIOD}
    played = play(rig, faults=[lost], duration=0.7)
    seen = ages(played, 3 * PERIOD) / PERIOD
    assert ((seen > -0.1) & (seen < oldest)).all() and played.exit_code == 0


def test_replies_that_are_stale_when_they_come_stop_the_machine() -> None:
    late = {"kind": "delay", "delay": 3.2 * PERIOD, "direction": "to_host", "at": AT}
    played = play("V screw", faults=[late], duration=0.7)
    assert "stale" in played.kinds and played.exit_code == 3


def test_the_tick_in_c_goes_on_through_late_replies() -> None:
    late = ("hil.faults=[{kind: delay, at: 0.05, for: 0.05, delay: 0.005, direction: to_host}]",)
    assert compare("coordinated_robots_moteus", *late, duration=0.15)["ticks"] > 10
