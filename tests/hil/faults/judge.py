"""Plays a scenario and judges it by the true drives, the true machine and the frames on the wire."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from hil.assembly.emulation import environment_of, make_emulator
from hil.drives.base import Drive
from hil.loop import SECOND, nanoseconds
from hil.safety import Event, Reaction
from hil.safety.plan import ENDING, Phase
from hil.session.run import HilRun
from servoctl.config.hil import Emulation
from servoctl.types import Array
from tests.hil import rigs
from tests.hil.command_observer import CommandObserver
from tests.hil.faults.truth import TruthMonitor
from tests.hil.rigs import renewed

from .scenarios import Scenario

SETTLING = 0.6
"""Time after the run in which watchdogs run out and brakes close [s]."""
LEFT = 0.05
"""Largest speed at which drives may go off, as a share of that at the start of the stop."""
RESTING = 0.01
"""A machine rests below this share of its speed limits."""
SAG = 1e-3
"""Largest motion while brakes close at an ordinary end, where the drive holds meanwhile [m]."""

QUEUED = 2_000_000
"""Torque frames that waited in the host's controller while no node was there may enable a restarted moteus, until the
frame that stops it comes [ns]."""

SAYS = {
    "runaway", "exception", "bus", "bus_passive", "overruns", "lost", "stale", "drive_fault", "drive_state",
    "heartbeat", "encoder", "foreign", "tracking", "not_confirmed", "start_pose", "handshake",
}  # fmt: skip
"""Events that say that the stop was not an ordinary one: a drive, its bus or its encoder has failed."""

ACTS = {
    "torque_constant", "no_torque", "derating", "push", "blocked", "brake_stuck", "encoder_jump", "encoder_stuck",
    "encoder_flip", "encoder_drift", "clock_step", "output",
}  # fmt: skip
"""Kinds of faults that move the machine, or hide its motion, while it stops: then it may not stop as usual."""


@dataclass(frozen=True)
class Verdict:
    """How a scenario went.

    Attributes:
        scenario: The scenario.
        exit_code: Of the run.
        kinds: Kinds of its events, without changes of stage.
        problems: One sentence for each thing that must not be.
    """

    scenario: Scenario
    exit_code: int
    kinds: tuple[str, ...]
    problems: tuple[str, ...]


def play(scenario: Scenario) -> Verdict:
    """Runs a scenario, and judges it."""
    rig = rigs.RIGS[scenario.rig]
    setup = renewed(rigs._setup(rig, ()), scenario.faults, scenario.seed)
    emulator = make_emulator(setup, "vm", rigs._plant(rig, ()))
    observer = CommandObserver(emulator, setup.settings.drives)
    jacobian, truth = _jacobian(setup), TruthMonitor(emulator, QUEUED)

    def shares(v: Array) -> Array:
        """Speed of each joint over its limit."""
        return np.abs(v @ jacobian.T) / [drive.settings.speed_limit for drive in setup.drives]

    def engaged() -> None:
        emulator.engaged()
        truth.begin()
        if scenario.stop_at is not None:
            stop = partial(run.operator.request_stop, "Ctrl-C")
            emulator.world.after(nanoseconds(scenario.stop_at), stop)

    environment = replace(environment_of(setup, emulator), engaged=engaged)
    run = HilRun(setup, environment, Phase.FULL, scenario.duration)
    result = run.run(None, lambda event: None)
    emulator.clock.sleep_until(emulator.clock.now() + nanoseconds(SETTLING))
    kinds = tuple(event.kind.name.lower() for event in result.events if event.kind.name != "STAGE")
    columns, events = result.trajectory.columns, result.events
    problems = [f"the observer saw {each.what} to {each.drive}" for each in observer.report()[:3]]
    problems += truth.problems(result.unconfirmed)
    problems += [str(event) for event in events if event.kind.name == "EXCEPTION"]
    acted = not ACTS.isdisjoint(fault["kind"] for fault in scenario.faults)
    overpowered = any(_overpowered(drive, scenario.faults) for drive in setup.drives)  # its joint whirls: others follow
    held = [drive for drive in setup.drives if drive.settings.brake and not overpowered]
    acted_on = acted or not SAYS.isdisjoint(kinds)
    problems += _moving(shares(emulator.state[1]), setup.drives, held, acted_on, kinds)
    if len(columns["t"]) and not acted:
        problems += _stop(truth, shares, columns, events, kinds, scenario.faults)
        problems += _sag(setup.drives, columns, kinds)
    return Verdict(scenario, result.exit_code, kinds, tuple(problems))


def _jacobian(setup: rigs.RigSetup) -> Array:
    """Speeds of the drives' joints from the velocities, shape (drives, n)."""
    drives = len(setup.drives)
    J = np.zeros((drives, setup.loop.system.model.n))
    for i, row in enumerate((setup.sensing.displacements.rows or [])[:drives]):
        for j, factor in row:
            J[i, j] = factor
    return J


def _overpowered(drive: Drive, faults: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a push that lasts is stronger than the brake of a drive: nothing can hold its joint then."""
    strength = Emulation().brake_torque * drive.settings.torque_limit
    pushes = [fault["torque"] for fault in faults if fault["kind"] == "push" and fault["drive"] == drive.settings.name]
    return any(abs(torque) > strength for torque in pushes)


def _moving(
    shares: Array, drives: Sequence[Drive], held: Sequence[Drive], acted: bool, kinds: Sequence[str]
) -> list[str]:
    """A joint that moves when all is over; one that no brake holds may, after a failure or by a fault."""
    if "not_confirmed" in kinds:
        return []
    return [
        f"{drive.settings.name} moves at {share:.1%} of its speed limit, {SETTLING} s after the end"
        for drive, share in zip(drives, shares.tolist(), strict=True)
        if share > RESTING and (drive in held or not acted)
    ]


def _stop(
    truth: TruthMonitor,
    shares: Callable[[Array], Array],
    columns: dict[str, Array],
    events: Sequence[Event],
    kinds: Sequence[str],
    faults: Sequence[Mapping[str, Any]],
) -> list[str]:
    """Drives that go off at speed, though nothing has failed, and joints that speed up in the stop."""
    cause = next((event.time for event in events if event.kind.reaction >= Reaction.STOP), None)
    stage = columns["stage"]
    stopping = np.flatnonzero(stage >= rigs.STAGES.index("stopping"))
    slow = "not_stopped" in kinds and any(fault["kind"] == "delay" for fault in faults)  # no feedback stops it in time
    if not len(stopping) or slow or not SAYS.isdisjoint(kinds):
        return []
    t = columns["t"]
    first = stopping[0] if cause is None else min(stopping[0], int(np.searchsorted(t, cause / SECOND)))
    v = np.stack([column for name, column in columns.items() if name.startswith("true_v.")], axis=1)
    began = float(shares(v[min(first, len(v) - 1)]).max())
    left = {name: float(shares(off.v)[truth.names.index(name)]) for name, off in truth.off.items()}
    fast = {name: share for name, share in left.items() if share > max(LEFT * began, RESTING)}
    return [f"{name} goes off at {share / began:.0%} of the speed at the stop's start" for name, share in fast.items()]


def _sag(drives: Sequence[Drive], columns: dict[str, Array], kinds: Sequence[str]) -> list[str]:
    """Motion while brakes close, at an ordinary end, of a machine whose drives all hold meanwhile."""
    holding = all(drive.settings.brake and drive.holds_while_braking for drive in drives)
    rows = np.isin(columns["stage"], [rigs.STAGES.index(phase.value) for phase in ENDING])
    if not (holding and rows.any() and set(kinds) <= {"interrupted", "missed", "load", "saturated", "clamped"}):
        return []
    q = np.stack([column for name, column in columns.items() if name.startswith("true_q.")], axis=1)[rows]
    moved = float(np.abs(q - q[0]).max())
    return [f"it moves by {1e3 * moved:.2f} mm (mrad) while the brakes close"] if moved > 2 * SAG else []
