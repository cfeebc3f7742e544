"""Ticks in C call back a law, a plant or a sensing that does not run in C: the same run, the same exceptions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from hil.assembly.emulation import make_emulator
from hil.assembly.prepare import load
from hil.loop import nanoseconds
from hil.safety import EventKind
from hil.session.run import RunResult
from tests.faces import on_rig
from tests.hil.by_drivers import compared
from tests.hil.emulation import SHORT
from tests.hil.opaque_code import CRANK, PLANT, TERM, Awkward, Grumpy


def compare(engine: str, *sets: str, engaged: Callable[[], Any] = lambda: None) -> dict[str, Any]:
    """What the run leaves in C, after a comparison with that in Python."""

    def play() -> RunResult:
        setup = load("two_mass_spring_drive", [*SHORT, "hil.period=0.0025", *sets], engine)
        emulator = make_emulator(setup, "vm")
        return on_rig(setup, emulator, duration=0.15, engaged=partial(emulator.world.after, 50_300_000, engaged))

    return compared(play)


@pytest.mark.parametrize(
    ("engine", "sets"),
    [
        ("numpy", ()),
        ("auto", (PLANT,)),
        ("auto", (TERM,)),
        ("auto", (CRANK,)),
    ],
    ids=["numpy", "opaque plant", "opaque law", "motor that acts by the pose"],
)
def test_on_every_engine_c_decides_the_ticks_of_the_same_run(engine: str, sets: tuple[str, ...]) -> None:
    left = compare(engine, *sets)
    assert left["code"] == 0 and left["ticks"] > 150 and left["given_back"] == {}


FAILURES = {
    "a law": (Grumpy, LookupError("a term that fails")),
    "a plant that ends the program": (Awkward, SystemExit(0)),
}


@pytest.mark.parametrize("what", FAILURES)
def test_what_the_users_code_raises_ends_the_run_at_the_tick_where_it_does_in_python(what: str) -> None:
    kind, failure = FAILURES[what]
    fail = partial(kind.failures.append, failure)
    left = compare("vm", PLANT, "hil.emulation.parameters.host=0", TERM, engaged=fail)
    assert left["code"] == 3 and left["ticks"] > 24 and not kind.failures
    (event,) = [event for event in left["events"] if event.kind is EventKind.EXCEPTION]
    assert type(failure).__name__ in event.detail and "of opaque_code.py" in event.detail


def test_an_exception_while_c_holds_the_pose_ends_the_run_at_once() -> None:
    """In stage zero the law comes first in C, then what holds the pose."""
    kept: list[int] = []

    def fail() -> None:
        Awkward.failures.extend([ArithmeticError("a pose that fails"), None])
        kept.append(emulator.clock.now())

    setup = load("two_mass_spring_drive", [PLANT, "hil.emulation.parameters.host=0"], "vm")
    emulator = make_emulator(setup, "vm")
    emulator.world.after(nanoseconds(0.8203), fail)  # in stage zero, while the drives are tested
    ended = on_rig(setup, emulator, duration=0.15)
    (event,) = [event for event in ended.events if event.kind is EventKind.EXCEPTION]
    assert "ArithmeticError: a pose that fails (line " in event.detail and ended.exit_code == 3
    assert not Awkward.failures and 0 <= event.time - kept[0] < 2_000_000  # two periods
    assert not emulator.drives["F"].motor.enabled


def test_an_emulated_machine_that_goes_on_failing_ends_the_run_once_and_leaves_a_whole_summary() -> None:
    sets = [*SHORT, "plant.parameters.host=0", PLANT, "hil.emulation.parameters.host=1"]
    setup = load("two_mass_spring_drive", sets, "vm")
    emulator = make_emulator(setup, "vm")
    fail = partial(Awkward.failures.extend, 100_000 * [ArithmeticError("a machine that fails")])
    ended = on_rig(setup, emulator, duration=0.15, engaged=lambda: emulator.world.after(50_300_000, fail))
    assert Awkward.failures
    Awkward.failures.clear()
    (event,) = [event for event in ended.events if event.kind is EventKind.EXCEPTION]
    assert "ArithmeticError: a machine that fails (line " in event.detail and ended.exit_code == 3
    facts = ended.trajectory.metadata
    assert facts["status"] == "stopped" and facts["steps"] > 250 and facts["drives"]["F"]
