"""Each event of weight is noticed within its time, once, and the reaction to it never falls."""

from collections.abc import Sequence
from typing import Any

import pytest

from hil.bus import Health, Link
from hil.drives import Condition, Drive, DriveSettings, Feedback, Sample
from hil.frame import Frame
from hil.loop import Tick
from hil.safety import EventKind, Monitor, Reaction, SafetyBounds
from hil.safety.plan import Phase
from hil.safety.rules import rules_of
from servoctl.config.hil import Safety

PERIOD = 0.0025


class Silent(Drive):
    """A drive that does what a test says."""

    feedback = Feedback.CYCLIC
    identities = frozenset[int]()
    heartbeat = 0.1

    def accept(self, frame: Frame) -> None: ...

    @staticmethod
    def traffic(settings: Any, period: float) -> list[Any]:
        return []

    def command(self, torque: float) -> Frame:
        return Frame(1)

    def quantum(self) -> tuple[float, float, float]:
        return 1e-4, 1e-4, 1e-4

    def alive_frames(self) -> Sequence[Frame]:
        return ()

    def _nothing(self, *_: Any) -> Any:
        yield from ()

    problems = reserved_ids = staticmethod(_nothing)  # type: ignore[assignment]
    identify = configure = test_watchdog = enable = reset = _nothing

    def disable_frames(self) -> Sequence[Frame]:
        return ()

    def quick_stop_frames(self, torque: float) -> Sequence[Frame]:
        return ()


def settings(name: str = "u1") -> DriveSettings:
    return DriveSettings(
        name, "main", "odrive", 1, torque_limit=12, torque_rate_limit=400, speed_limit=6, position_limits=(-2, 2)
    )


@pytest.fixture
def drive() -> Silent:
    found = Silent(settings(), PERIOD)
    found.condition, found.sample = Condition.ENABLED, Sample(0, 0, 0, 0)
    return found


def monitor(drive: Silent, period: float = PERIOD, **safety: Any) -> Monitor:
    limits = SafetyBounds(period, Safety.model_validate(safety))
    return Monitor([drive], [], limits, rules_of([drive], [], limits, ["rad"]))


def judge(
    watched: Monitor, now: int = 0, position: float = 0.0, speed: float = 0.0, age: float = 0.0, silence: float = 0.0
) -> None:
    measured = {"position": [position], "speed": [speed], "age": [age], "silence": [silence]}
    watched.judge(now, measured, Phase.FULL)


def kinds(watched: Monitor) -> list[EventKind]:
    return [event.kind for event in watched.events]


@pytest.mark.parametrize(
    "age, found, worst",
    [
        (3.7, [], Reaction.NOTE),
        (3.8, [EventKind.MISSED], Reaction.NOTE),
        (7.4, [EventKind.MISSED], Reaction.NOTE),
        (7.5, [EventKind.MISSED, EventKind.STALE], Reaction.STOP),
        (24.9, [EventKind.MISSED, EventKind.STALE], Reaction.STOP),
        (25.0, [EventKind.MISSED, EventKind.STALE, EventKind.LOST], Reaction.STOP),
    ],
)
def test_the_age_of_a_sample_decides(drive: Silent, age: float, found: list[EventKind], worst: Reaction) -> None:
    watched = monitor(drive)
    judge(watched, age=age / 1e3)
    assert kinds(watched) == found
    assert watched.worst is worst


def test_thresholds_given_in_seconds_hold_where_they_are_longer(drive: Silent) -> None:
    watched = monitor(drive, period=0.001)
    judge(watched, age=0.0049)
    assert EventKind.STALE not in kinds(watched)
    judge(watched, age=0.005)
    assert EventKind.STALE in kinds(watched)


def test_an_event_is_told_once_and_counted_always(drive: Silent) -> None:
    watched = monitor(drive)
    drive.fault = "over-current (0x2310)"
    for now in range(5):
        watched.drives(now, [drive])
    assert [str(event) for event in watched.events] == ["u1: the drive reports a fault (over-current (0x2310))"]
    assert watched.counts == {EventKind.DRIVE_FAULT: 5}


@pytest.mark.parametrize("condition", [c for c in Condition if c is not Condition.ENABLED])
def test_a_drive_that_is_not_enabled_any_more(drive: Silent, condition: Condition) -> None:
    watched = monitor(drive)
    drive.condition = condition
    watched.drives(0, ())
    assert kinds(watched) == []
    watched.drives(0, [drive])
    assert kinds(watched) == [EventKind.DRIVE_STATE]


def test_a_drive_at_its_own_limit_and_another_master(drive: Silent) -> None:
    drive.saturated = True
    for working, found in ((False, []), (True, [EventKind.SATURATED])):
        watched = monitor(drive)
        watched.drives(0, [drive] if working else ())
        assert kinds(watched) == found
        assert watched.worst < Reaction.STOP
    drive.foreign = "somebody else commands this drive"
    watched.drives(1, ())
    assert kinds(watched) == [EventKind.SATURATED, EventKind.FOREIGN]
    assert watched.worst is Reaction.STOP


def test_a_silent_heartbeat(drive: Silent) -> None:
    watched = monitor(drive)
    judge(watched, silence=0.25)
    assert kinds(watched) == []
    judge(watched, silence=0.250_000_001)
    assert kinds(watched) == [EventKind.HEARTBEAT]
    assert watched.worst is Reaction.STOP


def test_position_speed_and_runaway(drive: Silent) -> None:
    watched = monitor(drive)
    judge(watched, 0, 2.0, 6.1)
    assert kinds(watched) == []
    judge(watched, 1, 2.01, 6.1)
    assert kinds(watched) == [EventKind.POSITION, EventKind.SPEED]
    judge(watched, 2, 0.0, -7.3)
    assert kinds(watched)[2:] == [EventKind.RUNAWAY]


def test_one_fast_sample_is_no_overspeed(drive: Silent) -> None:
    watched = monitor(drive)
    for speed in (6.1, 5.9, 6.1, 5.9):
        judge(watched, 0, 0.0, speed)
    assert kinds(watched) == []


def test_numbers_that_are_missing_are_no_news(drive: Silent) -> None:
    watched = monitor(drive)
    judge(watched, 0, float("nan"), float("nan"))
    assert kinds(watched) == []


@pytest.mark.parametrize("reaction, kind", [("warn", EventKind.CLAMPED), ("stop", EventKind.CLAMPED_STOP)])
def test_clamped_for_more_than_half_of_half_a_second(drive: Silent, reaction: str, kind: EventKind) -> None:
    watched = monitor(drive, clamped=reaction)
    for i in range(200):
        watched.torques(i, [i % 2 == 0])
    assert kinds(watched) == []
    watched.torques(200, [True])
    watched.torques(201, [True])
    assert kinds(watched) == [kind]


@pytest.mark.parametrize(
    "link, kind",
    [
        (Link.WARNING, EventKind.BUS_WARNING),
        (Link.PASSIVE, EventKind.BUS_PASSIVE),
        (Link.OFF, EventKind.BUS),
        (Link.DOWN, EventKind.BUS),
    ],
)
def test_buses(drive: Silent, link: Link, kind: EventKind) -> None:
    watched = monitor(drive)
    watched.buses(0, {"main": Health(link, "no acknowledgement"), "other": Health(link, f"{link.value} by errors")})
    assert [(event.kind, event.subject, event.detail) for event in watched.events] == [
        (kind, "main", f"{link.value}: no acknowledgement"),
        (kind, "other", f"{link.value} by errors"),
    ]


def ticks(skips: list[int]) -> list[Tick]:
    found, deadline = [], 0
    for number, skipped in enumerate(skips):
        deadline += (1 + skipped) * 2_500_000
        found.append(Tick(number, deadline, deadline, 2_500_000, skipped))
    return found


def test_six_late_ticks_in_a_row_stop(drive: Silent) -> None:
    watched = monitor(drive)
    for tick in ticks([1] * 5 + [0] + [1] * 5):
        watched.lateness(tick)
    assert EventKind.OVERRUNS not in kinds(watched)
    for tick in ticks([1] * 6):
        watched.lateness(tick)
    assert EventKind.OVERRUNS in kinds(watched)


def test_a_twentieth_of_a_second_lost_stops(drive: Silent) -> None:
    watched = monitor(drive)
    for tick in ticks(([1] + [0] * 23) * 40):
        watched.lateness(tick)
    assert EventKind.OVERRUNS not in kinds(watched)
    watched = monitor(drive)
    for tick in ticks(([1] + [0] * 15) * 40):
        watched.lateness(tick)
    assert EventKind.OVERRUNS in kinds(watched)


def test_events_are_in_the_order_of_their_causes(drive: Silent) -> None:
    """A fault is seen within a tick, what follows from it is told as of the tick's beginning."""
    watched = monitor(drive)
    watched.report(1000, EventKind.DRIVE_FAULT, "u1")
    watched.report(400, EventKind.STAGE, "", "stopping")
    watched.report(1500, EventKind.STAGE, "", "over")
    assert [event.time for event in watched.events] == [1000, 1000, 1500]


def test_the_exit_code_is_that_of_the_first_event_of_weight(drive: Silent) -> None:
    watched = monitor(drive)
    assert watched.exit_code == 0
    watched.report(0, EventKind.SATURATED, "u1")
    assert watched.exit_code == 0
    watched.report(1, EventKind.TASK)
    watched.report(2, EventKind.LOST, "u1")
    assert watched.exit_code == 4
    watched.report(3, EventKind.NOT_CONFIRMED, "u1")
    assert watched.exit_code == 3


def test_positions_and_speeds_are_reported_with_their_units(drive: Silent) -> None:
    watched = monitor(drive)
    judge(watched, 0, 2.5, 13.0)
    details = [event.detail for event in watched.events]
    assert details[0] == "2.5, limits -2 to 2 rad" and details[1] == "13, limit 6 rad/s"
