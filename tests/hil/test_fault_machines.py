"""Random faults and ends on machines that fall, brake and differ, judged by the true drives and the true machine.

`python -m tests.hil.faults --count 5000 --seed 1` plays more of them.
"""

import pytest

from tests.hil import rigs
from tests.hil.faults.judge import play
from tests.hil.faults.scenarios import FAULTS, RIGS, Scenario, scenarios

SMALL = tuple(name for name in RIGS if name not in ("S", "S cia402", "AF", "two arms"))
SEED = 20261124


def drawn(names: tuple[str, ...], count: int) -> list[Scenario]:
    drives = {name: [drive.settings.name for drive in rigs._setup(rigs.RIGS[name], ()).drives] for name in names}
    return list(scenarios(count, SEED, drives))


def judged(chosen: list[Scenario]) -> dict[str, tuple[str, ...]]:
    """Scenario -> its problems, of those that have any."""
    verdicts = [play(scenario) for scenario in chosen]
    return {verdict.scenario.name: verdict.problems for verdict in verdicts if verdict.problems}


def test_random_faults_leave_no_drive_on_no_machine_moving_and_no_torque_over_its_limit() -> None:
    assert judged(drawn(SMALL, 4)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_random_faults_on_all_machines_end_as_they_must(part: int) -> None:
    """8 on every machine, 24 on those of few axes, which take a fifth of the time."""
    assert judged(drawn(tuple(RIGS), 8)[part::4]) == {}
    assert judged(drawn(SMALL, 32)[8 + part :: 4]) == {}


def test_the_scenarios_have_every_machine_and_every_kind_of_fault() -> None:
    many = drawn(tuple(name for name in RIGS if name not in ("AF", "two arms")), 1500)
    assert {scenario.rig for scenario in many} == set(RIGS) - {"AF", "two arms"}
    assert {fault["kind"] for scenario in many for fault in scenario.faults} == set(FAULTS)
    assert {len(scenario.faults) for scenario in many} == {0, 1, 2}
