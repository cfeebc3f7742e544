"""Random frames in a running loop: none raises, an invalid one changes no torque, and each is counted.

Random faults and ends on machines that fall, brake and differ, judged by the true drives and the true machine:
`python -m tests.hil.faults --count 5000 --seed 1` plays more of them.
"""

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hil.assembly.emulation import environment_of, make_emulator
from hil.assembly.setup import RigSetup
from hil.emulator.emulator import Emulator
from hil.frame import Frame
from hil.loop import nanoseconds
from hil.protocols.registry import build
from hil.safety import EventKind
from hil.safety.plan import Phase
from hil.session.run import HilRun, RunResult
from tests.hil import rigs
from tests.hil.command_observer import CommandObserver
from tests.hil.faults.carts.run import SETTLING
from tests.hil.faults.carts.scenario import PROTOCOLS, machine
from tests.hil.faults.judge import play
from tests.hil.faults.scenarios import FAULTS, RIGS, Scenario, scenarios
from tests.hil.fuzz import frames
from tests.hil.rigs import renewed

EVERY = 400_000
"""Interval between two random frames [ns]."""

UNKNOWN = [0x3A5, 0x5C1, 0x7E5]


def played(protocol: str, disturb: Callable[[Emulator], None]) -> tuple[RunResult, HilRun, CommandObserver, RigSetup]:
    prepared = renewed(machine(protocol, "at speed"), ())
    emulator = make_emulator(prepared, "vm")
    observer = CommandObserver(emulator, prepared.settings.drives)
    place = replace(environment_of(prepared, emulator), engaged=lambda: disturb(emulator))
    run = HilRun(prepared, place, Phase.FULL)
    return run.run(None, lambda event: None), run, observer, prepared


def repeat(emulator: Emulator, action: Callable[[], None]) -> None:
    def again() -> None:
        action()
        emulator.world.after(EVERY, again)

    emulator.world.after(EVERY, again)


def refused(protocol: str, count: int) -> list[Frame]:
    """Frames with ids of these nodes that a fresh one of each refuses: of the ids that only one takes."""
    settings = machine(protocol, "at speed").settings
    nodes = [build(each, settings.values.period) for each in (*settings.drives, *settings.sensors)]
    seeds = [
        Frame(identity, bytes(size))
        for node in nodes
        for identity in sorted(node.identities)
        if sum(identity in other.identities for other in nodes) == 1
        for size in (0, 3, 8)
    ]
    found = []
    for frame in frames(seeds, count):
        (node,) = (node for node in nodes if frame.id in node.identities)
        before = node.rejected
        if not frame.error:  # the bus keeps those for itself
            node.accept(frame)
        if node.rejected > before:
            found.append(frame)
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_frames_that_are_not_valid_move_no_torque_and_are_counted(protocol: str) -> None:
    generator, bad = random.Random(7), refused(protocol, 4000)
    sent = {"bad": 0, "unknown": 0}

    def disturb(emulator: Emulator) -> None:
        host = emulator.buses["main"].station

        def inject() -> None:
            if generator.random() < 0.7:
                frame, kind = generator.choice(bad), "bad"
            else:
                frame, kind = Frame(generator.choice(UNKNOWN), generator.randbytes(generator.randrange(9))), "unknown"
            host.receive(frame.at(emulator.world.now))  # beside the wire: no other frame comes later for it
            sent[kind] += 1

        repeat(emulator, inject)

    alone, quiet, _, _ = played(protocol, lambda emulator: None)
    among, run, _, prepared = played(protocol, disturb)
    assert (alone.exit_code, among.exit_code) == (0, 0)
    assert sent["bad"] > 500 and sent["unknown"] > 200
    for name, column in alone.trajectory.columns.items():
        np.testing.assert_array_equal(column, among.trajectory.columns[name], err_msg=name)
    counted = sum(node.rejected for node in prepared.nodes)
    # the last frame may lie in the inbox still
    assert sent["bad"] - 2 <= counted <= sent["bad"]
    assert sent["unknown"] - 2 <= run.dispatch.unknown - quiet.dispatch.unknown <= sent["unknown"]
    assert EventKind.REJECTED in {event.kind for event in among.events}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_random_frames_of_a_station_raise_nothing_and_change_no_torque(protocol: str, seed: int) -> None:
    generator = random.Random(f"{protocol}/{seed}")
    settings = machine(protocol, "at speed").settings
    nodes = [build(each, settings.values.period) for each in (*settings.drives, *settings.sensors)]
    known = sorted({identity for node in nodes for identity in node.identities})

    def disturb(emulator: Emulator) -> None:
        station = emulator.wires["main"].attach(lambda frame: None, frozenset(), capacity=2)

        def talk() -> None:
            identity = generator.choice(known) if generator.random() < 0.5 else generator.randrange(0x800)
            station.send(Frame(identity, generator.randbytes(generator.randrange(9))))

        repeat(emulator, talk)

    ended, _, observer, _ = played(protocol, disturb)
    emulator = observer.emulator
    emulator.clock.sleep_until(emulator.clock.now() + nanoseconds(SETTLING))
    assert EventKind.EXCEPTION not in {event.kind for event in ended.events}
    assert observer.report() == []
    assert not [name for name in "ab" if emulator.drives[name].motor.enabled]
    assert np.isfinite(ended.trajectory.columns["u.a"]).all() and np.isfinite(ended.trajectory.columns["u.b"]).all()


SMALL = tuple(name for name in RIGS if name not in ("S", "S cia402", "AF", "two arms"))
SEED = 20261124


def drawn(names: tuple[str, ...], count: int) -> list[Scenario]:
    drives = {name: rigs._setup(rigs.RIGS[name], ()).settings.drives for name in names}
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
    """8 on all machines, 24 on those of few axes, which take a fifth of the time."""
    assert judged(drawn(tuple(RIGS), 8)[part::4]) == {}
    assert judged(drawn(SMALL, 32)[8 + part :: 4]) == {}


def test_the_scenarios_have_every_machine_and_every_kind_of_fault() -> None:
    many = drawn(tuple(name for name in RIGS if name not in ("AF", "two arms")), 1500)
    assert {scenario.rig for scenario in many} == set(RIGS) - {"AF", "two arms"}
    assert {fault["kind"] for scenario in many for fault in scenario.faults} == set(FAULTS)
    assert {len(scenario.faults) for scenario in many} == {0, 1, 2}
