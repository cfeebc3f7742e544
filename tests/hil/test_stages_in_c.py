"""In every stage a run whose ticks C decides is that whose ticks Python decides, to the bit; faults too.

The torques of both come from one function: what may differ is who reads the frames, and when a stage or a reaction
begins.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from hil.assembly.emulation import POWER_UP, environment_of, make_emulator
from hil.assembly.prepare import load
from hil.assembly.setup import RigSetup
from hil.loop import SECOND, Tick, nanoseconds
from hil.loop.tick import TickTimes
from hil.safety import EventKind
from hil.safety.plan import Phase
from hil.session.run import HilRun, RunResult
from tests.faces import on_rig
from tests.hil.by_drivers import compared, left_by
from tests.hil.emulation import SHORT
from tests.hil.opaque_code import CRANK, PLANT, TERM, Awkward, Grumpy
from tests.hil.rigs import RIGS, Rig, renewed

ROBOTS = Rig("coordinated_robots", ("hil.safety.zero_time=0.1", "hil.safety.ramp_time=0.1", "hil.emulation.after=0.1"))
MACHINES = {
    **RIGS,
    "robots": ROBOTS,
    "robots, estimated": Rig(ROBOTS.config, (*ROBOTS.overrides, "estimation.kind=model")),
    # their limits bind in a stop
    "weak robots": Rig(
        ROBOTS.config, (*ROBOTS.overrides, *(f"hil.drives.u{i}.torque_limit={8 + i / 8}" for i in range(1, 7)))
    ),
    "tight robots": Rig(
        ROBOTS.config, (*ROBOTS.overrides, *(f"hil.drives.u{i}.torque_limit=8.2" for i in range(1, 7)))
    ),
}


class Counted(HilRun):
    """A run that counts the ticks that C has decided, by the name of their stage."""

    decided: Counter[str]
    limited: int = 0  # ticks of the stop that C decided, in which a limit changed a torque

    def _log(self, tick: Tick, times: TickTimes) -> None:
        super()._log(tick, times)
        in_c, mode = self.rig.in_c, self.stages.mode.value
        self.decided[mode] += in_c.decided
        self.limited += in_c.decided and mode == "stopping" and any(self.stages.torques.clamped)


@cache
def _setup(machine: str) -> RigSetup:
    return load(MACHINES[machine].config, MACHINES[machine].overrides, "auto")


class Played:
    """Runs of a machine, of which the last is kept.

    Args:
        faults: Entries of `hil.faults`.
        duration: Time in the last stage [s].
        stop_at: When the operator asks for the stop, since the loop began [s]; None: never.
    """

    run: Counted

    def __init__(
        self,
        machine: str,
        stage: Phase,
        faults: Sequence[Mapping[str, Any]] = (),
        duration: float = 0.2,
        stop_at: float | None = None,
    ) -> None:
        self.setup, self.stage, self.faults = _setup(machine), stage, faults
        self.duration, self.stop_at = duration, stop_at

    def __call__(self) -> RunResult:
        setup = renewed(self.setup, self.faults, seed=5)
        emulator = make_emulator(setup, "vm")
        self.run = run = Counted(setup, environment_of(setup, emulator), self.stage, self.duration)
        run.decided = Counter()
        if self.stop_at is not None:
            emulator.world.after(nanoseconds(self.stop_at), lambda: run.operator.request_stop("Ctrl-C"))
        return run.run(None, lambda event: None)


def both(machine: str, stage: Phase, *faults: Mapping[str, Any], **more: Any) -> tuple[dict[str, Any], Counted]:
    """What both runs leave, after a comparison, and that in C."""
    play = Played(machine, stage, faults, **more)
    return compared(play), play.run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "stage", "name"),
    [
        ("robots", Phase.ZERO, "zero"),
        ("V rack mit", Phase.ZERO, "zero"),
        ("robots, estimated", Phase.RAMP, "ramp"),
        ("robots", Phase.FLOAT, "float"),
        ("V rack moteus", Phase.FULL, "stopping"),
        ("robots, estimated", Phase.FULL, "stopping"),
    ],
)
def test_each_stage_is_equal_to_the_bit(machine: str, stage: Phase, name: str) -> None:
    """Drives that answer SYNC, commands, or nothing; with gravity and brakes; with an encoder node."""
    left, counted = both(machine, stage, duration=0.6 if stage is Phase.ZERO else 0.2)
    assert left["code"] == 0 and counted.decided[name] > 5


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "phase"), [("V rack mit", "zero"), ("L", "ramp"), ("robots", "full")])
def test_the_stop_that_the_operator_asks_for_is_equal_to_the_bit_in_each_stage(machine: str, phase: str) -> None:
    left, counted = both(machine, Phase.FULL, stop_at=_phases(machine)[phase] + 0.051)
    assert left["code"] == 130 and left["counts"]["interrupted"] == 1 and counted.decided["stopping"] > 1


@pytest.mark.slow
def test_a_stop_whose_torques_the_limits_scale_is_equal_to_the_bit() -> None:
    """Some torques stay within their limits: those are changed too, with the same share."""
    _, counted = both("weak robots", Phase.FULL, duration=0.8)
    assert counted.limited > 5


@pytest.mark.slow
def test_a_limit_of_whole_steps_ends_no_stop_and_saturates_no_drive() -> None:
    """8.2 N m are 328 steps, but 1000 * (8.2 / 50) / 0.5 is 327.99999999999994, and the way back 8.200000000000001."""
    push = {"kind": "push", "drive": "u1", "torque": 8.0, "at": 0.1, "since": "engaged"}
    left = left_by("c", Played("tight robots", Phase.FULL, [push], duration=0.3))
    assert left["counts"].keys() == {"stage", "proved", "tracking"}
    assert abs(np.frombuffer(left["columns"]["sent.u3"])).max() == pytest.approx(8.2, abs=1e-12)


@cache
def _phases(machine: str) -> dict[str, float]:
    """Name of a phase of a run without faults -> when it begins, since the loop began [s]."""
    left = left_by("c", Played(machine, Phase.FULL))
    begins = {event.detail: event.time / SECOND for event in left["events"] if event.kind is EventKind.STAGE}
    return {**begins, "standing": begins.get("braking", np.nan) - 0.025}  # the last ticks of the stop


FAULTS = [
    ("drive fault", "V rack mit", "ramp", {"kind": "drive_fault"}),
    ("encoder jump", "robots", "full", {"kind": "encoder_jump", "delta": 0.3}),
    ("no torque", "V rack mit", "zero", {"kind": "no_torque"}),
    ("wrong length", "robots", "standing", {"kind": "wrong_length", "length": 3}),
    ("stall", "V rack mit", "enabling", {"kind": "stall", "for": 0.03}),
    ("host's bus-off", "V rack robstride", "zero", {"kind": "bus_off"}),
    ("frames lost", "V rack moteus", "stopping", {"kind": "lost", "for": 0.005}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "phase", "fault"), [each[1:] for each in FAULTS], ids=[each[0] for each in FAULTS])
def test_a_fault_in_each_stage_has_its_reaction_at_the_same_instant(machine: str, phase: str, fault: Any) -> None:
    """It comes within a tick: frames of the same tick arrive before it and after it."""
    values, whole = dict(fault), ("stall", "bus_off", "lost", "cut")
    if fault["kind"] not in whole:
        values["drive"] = _setup(machine).drives[0].settings.name
    both(machine, Phase.FULL, {**values, "at": _phases(machine)[phase] + POWER_UP + 0.0113, "since": "power_on"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "factor", "when"),
    [("V rack mit", -1.0, 0.0), ("A", -0.3, 0.5), ("robots", 0.2, 0.2)],
)
def test_what_the_test_of_the_drives_finds_is_found_at_the_same_instant(
    machine: str, factor: float, when: float
) -> None:
    """A motor that makes another torque from the start, or after a share of stage zero."""
    begins = _phases(machine)
    at = POWER_UP + ((1 - when) * begins["zero"] + when * begins["ramp"] if when else 0.0)
    fault = {"kind": "torque_constant", "factor": factor, "drive": _setup(machine).drives[-1].settings.name}
    both(machine, Phase.FULL, {**fault, "at": at, "since": "power_on"})


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
