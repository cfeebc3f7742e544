"""Every fault, on every protocol, at standstill and at speed, leads to the required reaction in time and to no other.

The requirements are rules of safety (tests/hil/faults/carts/expected.py). The states of the emulated drives and the
observer on the wire decide, not what the loop believes.
"""

import signal
from dataclasses import replace
from functools import cache
from itertools import combinations
from operator import itemgetter

import pytest

import tests.hil.faults.carts.run as faults_run
from hil.emulator.emulator import HostFaults
from hil.safety import EventKind, Reaction
from hil.safety.events import Origin
from tests.hil.by_drivers import TICKS
from tests.hil.faults.carts.expected import AT_ONCE, TASK, expected
from tests.hil.faults.carts.run import Host, play, play_on
from tests.hil.faults.carts.scenario import PERIOD, PROTOCOLS, ROWS, Scenario, machine, make, rows, scenarios

ESTIMATED = [
    ("samples lost", "odrive", "at speed"),
    ("one or two samples lost", "odrive", "at speed"),
    ("encoder jumps", "odrive", "at speed"),
    ("encoder's sign flips", "odrive", "at speed"),
    ("law says NaN", "odrive", "at speed"),
    ("loop stalls", "odrive", "at speed"),
    ("drive fault", "odrive", "at speed"),
]


@pytest.mark.parametrize(("row", "protocol", "motion"), ESTIMATED)
def test_an_estimator_in_the_loop_changes_no_reaction(row: str, protocol: str, motion: str) -> None:
    assert machine(protocol, motion, estimation=True).loop.system.estimator is not None
    assert play(replace(make(row, protocol, motion, 1), estimation=True)).problems == ()


def test_random_losses_are_stale_exactly_when_a_drive_was_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    lossy = make("frames lost now and then", "mit", "standstill", 1066)  # two of b's exchanges in a row are lost
    calm = make("frames lost now and then", "mit", "standstill", 4)
    played = [play(each) for each in (lossy, calm)]
    assert [(result.ended_by, result.problems) for result in played] == [("stale", ()), ("goes on", ())]
    monkeypatch.setattr(faults_run, "STALE", 0.0091)
    assert play(lossy).problems == ("b was heard 8.33 ms before",)
    monkeypatch.setattr(faults_run, "STALE", 0.0015)  # one of its exchanges was lost: 6.6 ms
    assert any("was not heard for 6.6" in problem for problem in play(calm).problems)


@pytest.mark.parametrize("boot", [0.0095, 0.0207, 0.05])
def test_a_drive_that_is_back_while_the_others_stop_stays_off(boot: float) -> None:
    """A command of torque would enable a moteus: none goes to a drive that was silent for long."""
    scenario = make("drive reboots", "moteus", "at speed", 102000611)
    restarts = replace(scenario, faults=({**scenario.faults[0], "for": boot},))
    assert not play(restarts).problems


@pytest.mark.parametrize("row", ["drive fault", "SIGINT"])
def test_a_signal_that_no_scenario_sends_ends_the_table(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped_by_hand(self: Host) -> int:
        signal.raise_signal(signal.SIGTERM)
        return 0

    monkeypatch.setattr(Host, "stall", stopped_by_hand)
    with pytest.raises(KeyboardInterrupt):
        play(make(row, "odrive", "at speed", 1))


PARTS = {"at speed": 2, "standstill": 2, "floating": 1}
"""Motion -> number of tests that share its scenarios."""


@cache
def matrix() -> list[tuple[Scenario, str]]:
    """All pairs of row, protocol, motion and tick: each row on each protocol, its motions by turns.

    C decides the ticks of these protocols; so does Python, as for a protocol without a table, on one of them per row.
    """
    names = list(dict.fromkeys(row for row, _, _ in rows()))
    played = []
    for scenario in scenarios(len(rows()), seed=20261120):
        motions = [motion for row, protocol, motion in rows() if (row, protocol) == (scenario.row, scenario.protocol)]
        turn = names.index(scenario.row) + PROTOCOLS.index(scenario.protocol)
        of_one = ROWS.get(scenario.row, ((), PROTOCOLS))[1] != PROTOCOLS
        if of_one or motions[turn % len(motions)] == scenario.motion:
            in_c = motions.index(scenario.motion) if of_one else turn % len(PROTOCOLS)
            played.append((scenario, TICKS[min(1, in_c)]))
    return played


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("motion", "part"),
    [
        pytest.param(motion, part, marks=() if motion == "floating" else pytest.mark.slow)
        for motion, parts in PARTS.items()
        for part in range(parts)
    ],
)
def test_every_fault_has_its_reaction_on_every_protocol_in_every_motion(protocol: str, motion: str, part: int) -> None:
    on_one = [(each, tick) for each, tick in matrix() if (each.protocol, each.motion) == (protocol, motion)]
    for scenario, tick in on_one[part :: PARTS[motion]]:
        result = play(scenario, tick, "auto")
        assert (scenario.name, tick, result.problems) == (scenario.name, tick, ())


def test_the_matrix_has_all_pairs_of_row_protocol_motion_and_tick() -> None:
    every = [(row, protocol, motion, tick) for row, protocol, motion in rows() for tick in TICKS]
    played = [(each.row, each.protocol, each.motion, tick) for each, tick in matrix()]
    for pair in combinations(range(4), 2):
        assert {itemgetter(*pair)(each) for each in played} == {itemgetter(*pair)(each) for each in every}


def test_every_kind_of_fault_is_in_the_table() -> None:
    from hil.emulator.faults import KINDS

    made = {fault["kind"] for row, protocol, motion in rows() for fault in make(row, protocol, motion, 0).faults}
    assert made == set(KINDS) - {"brake_stuck", "brake_worn"}  # the carts have no brakes


def test_every_row_has_an_expectation_on_every_protocol() -> None:
    kinds = {kind.name.lower() for kind in EventKind}
    for row, protocol, motion in rows():
        wanted = expected(make(row, protocol, motion, 0))
        assert wanted.endings and wanted.endings <= kinds | {"goes on"}
    assert {protocol for _, protocols in ROWS.values() for protocol in protocols} == set(PROTOCOLS)


def test_the_expectations_name_the_events_of_the_loop() -> None:
    stops = [kind for kind in EventKind if kind.reaction >= Reaction.STOP]
    assert {kind.name.lower() for kind in stops if kind.reaction is Reaction.DISABLE} == AT_ONCE
    assert {kind.name.lower() for kind in stops if kind.origin is Origin.TASK} == TASK


def test_equal_seeds_give_equal_runs() -> None:
    scenario = make("frames lost now and then", "cia402", "at speed", 5)
    assert scenario == make("frames lost now and then", "cia402", "at speed", 5)
    scenario = make("encoder jumps", "odrive", "at speed", 5)
    first, second = play(scenario), play(scenario)
    assert (first.ended_by, first.reaction, first.off) == (second.ended_by, second.reaction, second.off)


def test_a_reaction_that_comes_too_late_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.hil.faults.carts.run.expected", lambda scenario: replace(expected(scenario), within=1e-6)
    )
    result = play(make("law says NaN", "odrive", "at speed", 1))
    assert result.ended_by == "non_finite"
    assert [problem for problem in result.problems if "at most" in problem]


def test_a_loop_without_a_stop_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in EventKind:
        monkeypatch.setattr(kind, "reaction", Reaction.NOTE)
    assert play(make("drive fault", "odrive", "at speed", 1)).problems == ("goes on, expected drive_fault",)


def test_drives_that_switch_off_too_late_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults_run, "expected", lambda scenario: replace(expected(scenario), off=1e-6))
    problems = play(make("drive fault", "odrive", "at speed", 1)).problems
    assert [problem for problem in problems if "all drives off" in problem]


def test_a_tick_in_c_that_reacts_otherwise_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = make("drive fault", "odrive", "at speed", 1)
    result = play(scenario)
    later = replace(result, off=(result.off or 0.0) + PERIOD)
    monkeypatch.setattr(faults_run, "play", lambda scenario, tick, engine: result if tick == "python" else later)
    python, c = play_on(TICKS, scenario)
    assert python.problems == ()
    (problem,) = c.problems
    assert "the tick in C ended by drive_fault, that in Python by drive_fault; off after" in problem


def test_the_engine_of_the_law_makes_no_difference_between_the_ticks() -> None:
    """Torques that differ by rounding have other stuff bits, and here a drive would go off 0.25 ms later."""
    python, c = play_on(TICKS, make("host's cable off for a moment", "odrive", "standstill", 20261183783509))
    assert (python, c.problems, c.ticks_in_c > 0) == (c, (), True)


def test_a_division_by_zero_in_a_tick_gives_its_status_and_never_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are errors in this test, and would end the run as an exception."""
    monkeypatch.setattr(HostFaults, "tamper", lambda self, u: 0.0 * u / 0.0 if self.tampers else u)
    result = play(make("law says NaN", "odrive", "at speed", 1))
    assert (result.ended_by, result.problems) == ("non_finite", ())
