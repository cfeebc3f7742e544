"""An encoder node that nobody else checks: what it cannot have measured is dropped, then stops the machine."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from hil.assembly.prepare import load
from hil.assembly.setup import RigSetup
from hil.loop import SECOND
from hil.rig.logbook import STAGES
from hil.safety import Reaction
from hil.sensing.motion import task_errors
from hil.session.run import RunResult
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import State
from tests.faces import on_rig
from tests.hil.emulation import SHORT
from tests.hil.rigs import renewed

MACHINES = {"two_mass_spring_drive": "x2", "flexible_joint_drive": "link1"}
"""Config -> coordinate that only its encoder node sees: an ODrive, and a CANopen encoder."""

AT = 0.7
"""When it goes wrong, from the beginning of the task [s]: at speed."""

LIMITS = {"limit": (), "none": ("hil.sensors.0.speed_limit=null",)}

FAULTS: list[tuple[str, dict[str, Any], float]] = [
    ("encoder", {"kind": "encoder_jump", "delta": 0.1}, 2),
    ("encoder", {"kind": "encoder_jump", "delta": -0.03}, 2),
    ("encoder", {"kind": "encoder_flip"}, 2),
    ("encoder", {"kind": "encoder_stuck"}, 50),
    ("stale", {"kind": "silent"}, 6),
    ("stale", {"kind": "cut"}, 6),
    ("stale", {"kind": "reboot", "for": 0.1}, 6),
    ("goes on", {"kind": "bus_off"}, 0),
    ("tracking", {"kind": "encoder_drift", "rate": 0.3}, 400),
]
"""Verdict, fault, periods within which it comes."""


@cache
def machine(name: str, limit: str = "limit") -> RigSetup:
    return load(name, (*SHORT, *LIMITS[limit]), "vm")


def play(prepared: RigSetup, duration: float, node: str = "", **fault: Any) -> tuple[RunResult, str, float, float]:
    """A run with a fault of a node: verdict, time to it [s], largest error of the coordinates that the law got."""
    node = node or prepared.sensors[0].settings.name
    again = renewed(prepared, [{**fault, "drive": node, "since": "engaged", "at": AT}], 0)
    ended = on_rig(again, duration=duration)
    trajectory = ended.trajectory
    working = trajectory["stage"] == STAGES.index("full")
    onset = trajectory["t"][working][0] + AT
    misled = max(
        np.abs(trajectory[name] - trajectory[f"true_{name}"])[working].max()
        for name in trajectory.columns
        if name.startswith("q.")
    )
    first = next((event for event in ended.events if event.kind.reaction >= Reaction.STOP), None)
    if first is None:
        return ended, "goes on", 0.0, misled
    return ended, first.kind.name.lower(), first.time / SECOND - onset, misled


@pytest.mark.parametrize("limit", LIMITS)
def test_a_jump_of_a_tenth_of_a_metre_never_reaches_the_law(limit: str) -> None:
    prepared = machine("two_mass_spring_drive", limit)
    ended, verdict, after, misled = play(prepared, AT + 0.1, kind="encoder_jump", delta=0.1)
    assert (ended.exit_code, verdict, ended.unconfirmed) == (3, "encoder", ())
    assert after <= 2.5 * prepared.settings.values.period
    assert misled < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("name", "limit", "first"), list(zip(MACHINES, ["none", "limit"], (0, 1), strict=True)))
def test_every_fault_of_an_encoder_node_has_its_reaction(name: str, limit: str, first: int) -> None:
    """Every second one on each machine."""
    prepared = machine(name, limit)
    assert prepared.sensors[0].settings.name == MACHINES[name]
    for verdict, fault, periods in FAULTS[first::2]:
        ended, found, after, misled = play(prepared, AT + 0.1 + periods * 0.001, **fault)
        assert (fault, found, ended.exit_code) == (fault, verdict, 0 if verdict == "goes on" else 3)
        assert after <= (periods + 1) * prepared.settings.values.period, fault
        assert misled < {"encoder": 0.005, "tracking": 0.1 + 0.05}.get(verdict, 1e-3), fault


NODES = [("two_mass_spring_drive", 1), ("scara_drive", 3), ("coordinated_robots", 4)]
"""A sensor, and drives of two protocols."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "index"), NODES)
def test_a_jump_above_the_limit_is_noticed_and_half_of_it_adds_no_more_error_than_its_size(
    name: str, index: int
) -> None:
    prepared = machine(name)
    node = prepared.nodes[index].settings.name
    channel = prepared.sensing.displacements.channels[index]
    possible = 1.5 * channel.speed_limit * prepared.settings.values.period + 3 * channel.resolution
    _, verdict, after, misled = play(prepared, AT + 0.1, node, kind="encoder_jump", delta=2 * possible)
    assert (verdict, misled < possible) == ("encoder", True)
    assert after <= 3 * prepared.settings.values.period

    ended, verdict, _, misled = play(prepared, AT + 0.2, node, kind="encoder_jump", delta=possible / 2)
    assert misled <= possible / 2 + 1e-3
    trajectory, model = ended.trajectory, prepared.loop.system.model
    for i in np.flatnonzero(trajectory["stage"] == STAGES.index("full"))[::25]:
        t, q, v = float(trajectory["task_time"][i]), *(columns_at(trajectory, kind, i) for kind in ("true_q", "true_v"))
        for row, (violation, _) in task_errors(model, State(t, q, v)).items():
            # no lever of these machines is longer than 1 m, and without the jump no error is larger than 1e-3
            assert abs(violation) <= 1e-3 + possible / 2, row


def columns_at(trajectory: Trajectory, kind: str, i: int) -> np.ndarray:
    """True q or v in a row."""
    return np.array([trajectory[name][i] for name in trajectory.columns if name.startswith(f"{kind}.")])
