"""In every stage, ticks in C leave the same run, to the bit, as those in Python; faults too."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from hil.assembly.emulation import POWER_UP, environment_of, make_emulator
from hil.assembly.prepare import load
from hil.assembly.setup import RigSetup
from hil.loop import SECOND, Reading, Tick, nanoseconds
from hil.loop.tick import TickTimes
from hil.recorder import InMemory
from hil.safety import EventKind
from hil.safety.plan import Stage
from hil.session.run import HilRun
from servoctl.types import Array
from tests.faces import column_bytes
from tests.hil.rigs import RIGS, Rig, renewed

ROBOTS = Rig("coordinated_robots", ("hil.safety.zero_time=0.1", "hil.safety.ramp_time=0.1", "hil.emulation.after=0.1"))
ESTIMATED = {"robots, estimated": Rig(ROBOTS.config, (*ROBOTS.overrides, "estimation.kind=model"))}
LIMITED = {
    f"{word} robots": Rig(
        ROBOTS.config, (*ROBOTS.overrides, *(f"hil.drives.u{i}.{key}={value + i / 8}" for i in range(1, 7)))
    )
    for word, key, value in (("weak", "torque_limit", 8.0), ("slow", "torque_rate_limit", 100.0))
}
LIMITED["tight robots"] = Rig(
    ROBOTS.config, (*ROBOTS.overrides, *(f"hil.drives.u{i}.torque_limit=8.2" for i in range(1, 7)))
)
"""Machines whose torques, or their changes, have limits that bind in a stop."""
MACHINES = {"robots": ROBOTS, **{name: RIGS[name] for name in ("V rack mit", "V rack moteus", "V rack odrive", "L")}}
"""Machines whose drives answer SYNC, commands, or nothing; with gravity and brakes; with an encoder node."""


class Counted(HilRun):
    """A run that counts the ticks whose torques C has encoded, and decided, by the name of their stage."""

    acts: Counter[str]
    decided: Counter[str]
    limited: int = 0  # ticks of the stop that C decided, in which a limit changed a torque

    def _log(self, tick: Tick, reading: Reading, sent: Array, times: TickTimes) -> None:
        super()._log(tick, reading, sent, times)
        in_c, mode = self.rig.in_c, self.stages.mode.value
        if in_c is not None:
            self.acts[mode] += in_c.acts
            self.decided[mode] += in_c.decided
            self.limited += in_c.decided and mode == "stopping" and any(in_c.clamped)


@cache
def _setup(machine: str, tick: str) -> RigSetup:
    rig = (RIGS | MACHINES | ESTIMATED | LIMITED)[machine]
    return load(rig.config, [*rig.overrides, f"hil.tick={tick}"], "auto")


def run(
    machine: str,
    tick: str,
    stage: Stage,
    faults: Sequence[Mapping[str, Any]] = (),
    duration: float = 0.2,
    stop_at: float | None = None,
) -> tuple[dict[str, Any], Counted]:
    """What a run leaves, and the run.

    Args:
        faults: Entries of `hil.faults`.
        duration: Time in the last stage [s].
        stop_at: When the operator asks for the stop, since the loop began [s]; None: never.
    """
    setup = renewed(_setup(machine, tick), faults, seed=5)
    emulator, evaluated = make_emulator(setup, "vm"), setup.loop.evaluations
    counted = Counted(setup, environment_of(setup, emulator), stage, duration)
    counted.acts, counted.decided = Counter(), Counter()
    if stop_at is not None:
        stop = lambda: counted.operator.request_stop("Ctrl-C")  # noqa: E731
        emulator.world.after(nanoseconds(stop_at), stop)
    ended = counted.run(None, lambda event: None)
    assert isinstance(counted.recorder, InMemory)
    facts = ended.trajectory.metadata
    left = {
        "events": ended.events, "code": ended.exit_code, "counts": facts["counts"], "frames": counted.recorder.frames,
        "columns": column_bytes(ended.trajectory), "timing": facts["timing"],
        "evaluations": facts["evaluations"] - evaluated,
    }  # fmt: skip
    return left, counted


def compare(machine: str, stage: Stage, *faults: Mapping[str, Any], **more: Any) -> tuple[dict[str, Any], Counted]:
    """What both executors leave, after a comparison, and the run in C."""
    (python, without), (c, counted) = (run(machine, tick, stage, faults, **more) for tick in ("python", "auto"))
    assert not without.acts
    different = {name for name, column in c["columns"].items() if column != python["columns"][name]}
    assert (c["events"], c["code"], different) == (python["events"], python["code"], set())
    assert c == python
    return c, counted


STAGES = [(Stage.ZERO, "zero"), (Stage.RAMP, "ramp"), (Stage.FLOAT, "float"), (Stage.FULL, "stopping")]


@pytest.mark.slow
@pytest.mark.parametrize("machine", [*MACHINES, *ESTIMATED])
@pytest.mark.parametrize(("stage", "name"), STAGES)
def test_each_stage_is_equal_to_the_bit_and_its_torques_are_sent_by_c(machine: str, stage: Stage, name: str) -> None:
    left, counted = compare(machine, stage, duration=0.6 if stage is Stage.ZERO else 0.2)
    assert left["code"] == 0 and counted.acts[name] > 5 and counted.decided[name] > 5


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["zero", "ramp", "full"])
@pytest.mark.parametrize("machine", MACHINES)
def test_the_stop_that_the_operator_asks_for_is_equal_to_the_bit_in_each_stage(machine: str, phase: str) -> None:
    left, counted = compare(machine, Stage.FULL, stop_at=_phases(machine)[phase] + 0.051)
    assert left["code"] == 130 and left["counts"]["interrupted"] == 1 and counted.decided["stopping"] > 1


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["weak robots", "slow robots"])
def test_a_stop_whose_torques_the_limits_scale_is_equal_to_the_bit(machine: str) -> None:
    """Some torques stay within their limits: those are changed too, with the same share."""
    _, counted = compare(machine, Stage.FULL, duration=0.8)
    assert counted.limited > 5


@pytest.mark.slow
def test_a_limit_of_whole_steps_ends_no_stop_and_saturates_no_drive() -> None:
    """8.2 N m are 328 steps, but 1000 * (8.2 / 50) / 0.5 is 327.99999999999994, and the way back 8.200000000000001."""
    push = {"kind": "push", "drive": "u1", "torque": 8.0, "at": 0.1, "since": "engaged"}
    left, _ = compare("tight robots", Stage.FULL, push, duration=0.3)
    assert left["counts"].keys() == {"stage", "proved", "tracking"}
    assert abs(np.frombuffer(left["columns"]["sent.u3"])).max() == pytest.approx(8.2, abs=1e-12)


@cache
def _phases(machine: str) -> dict[str, float]:
    """Name of a phase of a run without faults -> when it begins, since the loop began [s]."""
    left, _ = run(machine, "python", Stage.FULL)
    return {event.detail: event.time / SECOND for event in left["events"] if event.kind is EventKind.STAGE}


KINDS = {
    "samples lost": {"kind": "silent", "for": 0.03},
    "drive fault": {"kind": "drive_fault"},
    "encoder jump": {"kind": "encoder_jump", "delta": 0.3},
    "encoder stuck": {"kind": "encoder_stuck"},
    "no torque": {"kind": "no_torque"},
    "wrong length": {"kind": "wrong_length", "length": 3},
    "stall": {"kind": "stall", "for": 0.03},
}


PHASES = ("enabling", "zero", "ramp", "full", "stopping", "standing")


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("fault", KINDS)
def test_a_fault_in_each_stage_has_its_reaction_at_the_same_instant(fault: str, phase: str) -> None:
    """Each fault in each phase, on both machines by turns."""
    machine = ("robots", "V rack mit")[([*KINDS].index(fault) + PHASES.index(phase)) % 2]
    begins = _phases(machine)
    begins = {**begins, "standing": begins["braking"] - 0.025}  # the last ticks of the stop
    at, values = begins[phase] + POWER_UP + 0.011, dict(KINDS[fault])
    if values["kind"] != "stall":
        values["drive"] = _setup(machine, "auto").drives[0].settings.name
    compare(machine, Stage.FULL, {**values, "at": at, "since": "power_on"})


FACTORS = (-1.0, -0.3, 0.0, 0.2, 0.5, 1.8, 3.0)
BUS_KINDS = {
    "host's bus-off": {"kind": "bus_off"},
    "frames lost": {"kind": "lost", "for": 0.005},
    "cable off": {"kind": "cut"},
}


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["zero", "stopping"])
@pytest.mark.parametrize("fault", BUS_KINDS)
@pytest.mark.parametrize("machine", [*MACHINES, "V rack robstride"])
def test_a_bus_that_fails_within_a_tick_has_its_reaction_at_the_same_instant(
    machine: str, fault: str, phase: str
) -> None:
    """Each share of a tick with each failure, in each phase and on each machine."""
    period = _setup(machine, "auto").settings.values.period
    turn = (
        [*BUS_KINDS].index(fault) + ("zero", "stopping").index(phase) + [*MACHINES, "V rack robstride"].index(machine)
    )
    at = _phases(machine)[phase] + POWER_UP + (5.0 + (0.1, 0.4, 0.8)[turn % 3]) * period
    compare(machine, Stage.FULL, {**BUS_KINDS[fault], "at": at, "since": "power_on"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "factor", "when"),
    [
        *(("V rack mit", factor, i % 3) for i, factor in enumerate(FACTORS)),
        *(("A", factor, (i + k) % 3) for i, factor in enumerate(FACTORS) for k in (1, 2)),
        *(("robots", factor, i) for i, factor in enumerate((-0.3, 0.2, 1.8))),
        *(("two arms", factor, i) for i, factor in enumerate((-0.3, 1.8))),
    ],
)
def test_what_the_test_of_the_drives_finds_is_found_at_the_same_instant(machine: str, factor: float, when: int) -> None:
    """Each factor from the start, from soon after, and from the middle of the test on."""
    begins = _phases(machine)
    fault = {"kind": "torque_constant", "factor": factor, "drive": _setup(machine, "auto").drives[-1].settings.name}
    at = (0.0, begins["zero"] + 0.071, (begins["zero"] + begins["ramp"]) / 2)[when]
    compare(machine, Stage.FULL, {**fault, "at": at + POWER_UP, "since": "power_on"})
