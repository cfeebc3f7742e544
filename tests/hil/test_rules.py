"""A rule runs in every tick, whoever does it."""

from typing import Any

import numpy as np
import pytest

from hil.assembly import prepare
from hil.assembly.settings import HilSettings
from hil.safety import EventKind, Reaction
from hil.safety.plan import Phase
from hil.safety.rules import Rule, rules_of
from tests.hil.by_drivers import compare
from tests.hil.rigs import RACK, lift, play

LIMIT = 0.1
"""Speed that the first joint of the shipped pair of arms passes in its first 0.2 s [rad/s]."""


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of this test: the first joint is slow for all but two ticks in a row."""

    def rules(*arguments: Any) -> tuple[Rule, ...]:
        mine = Rule(EventKind.SPEED, "made up", "speed", 0, -LIMIT, LIMIT, "{:.4f}".format, 3)
        return (*rules_of(*arguments), mine)

    monkeypatch.setattr(prepare, "rules_of", rules)


@pytest.mark.usefixtures("made_up")
def test_a_rule_that_is_added_fires_in_ordinary_ticks_in_c_at_the_right_tick() -> None:
    left = compare("coordinated_robots", duration=0.4)
    assert left["code"] == EventKind.SPEED.origin.value and left["ticks"] > 20
    assert list(left["given_back"]) == [EventKind.SPEED.meaning]
    speeds, stages = (np.frombuffer(left["columns"][name]) for name in ("speed.u1", "stage"))
    first, second, third = np.flatnonzero(np.abs(speeds) > LIMIT)[:3]
    full, stopping = (list(Phase).index(phase) for phase in (Phase.FULL, Phase.STOPPING))
    assert (second, third) == (first + 1, first + 2) and stages[[first, second, third]].tolist() == [
        full, full, stopping
    ]  # fmt: skip
    event = next(event for event in left["events"] if event.subject == "made up")
    assert event.detail == f"{speeds[third]:.4f}"


def test_rejected_samples_do_not_renew_the_age_so_an_axis_without_an_encoder_is_stale_and_then_lost() -> None:
    fault = "hil.faults=[{kind: encoder_jump, drive: u3, at: 0.05, delta: 0.5}]"
    c = compare("coordinated_robots", fault, duration=0.4)
    first = {(event.kind, event.subject): event.time for event in reversed(c["events"])}
    rejected, lost = first[EventKind.IMPLAUSIBLE, "u3"], first[EventKind.LOST, "u3"]
    assert first[EventKind.ENCODER, "u3"] < first[EventKind.STALE, "u3"] < lost
    # lost from ten periods of 2.5 ms on; the last good sample is one period older than the first that was rejected
    assert lost - rejected <= 10 * 2_500_000


def test_a_drive_that_reports_no_torque_is_named_within_0_3_s_even_where_loads_may_be_as_large() -> None:
    sets = ("hil.safety.tracking=2", "hil.faults=[{kind: no_torque, drive: u3, at: 0.1}]")
    c = compare("coordinated_robots", *sets, duration=0.6)
    begins = next(event.time for event in c["events"] if event.detail == "full")
    event = next(event for event in c["events"] if event.kind is EventKind.TRACKING)
    assert event.subject == "u3" and "it reports" in event.detail and "safe torque off" in event.detail
    assert event.time - begins <= 0.4e9


def test_an_axis_that_runs_into_an_unstated_speed_limit_of_its_drive_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HilSettings, "real_buses", {"main"})
    sets = ("hil.emulation.drives.F.vel_limit=2", "hil.safety.stop_time=0.501")
    played = play(lift(RACK, "odrive"), *sets, duration=2)
    (note,) = [note for note in prepare.notes_on(played.run.setup) if "vel_limit is not stated" in note]
    event = next(event for event in played.events if event.kind is EventKind.FADES)
    assert note.startswith("F: ") and event.detail.endswith(note[3:])
    assert event.time < next(each.time for each in played.events if each.kind.reaction >= Reaction.STOP)
