"""A pose that is held stays; a floating machine stands still, gives way to a hand, and comes to rest when let go."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hil.assembly.prepare import load
from hil.assembly.setup import RigSetup
from hil.recorder.columns import STAGES
from hil.safety.plan import Phase, Stage
from hil.session.calibration import guided_motion, write_guided_motion
from hil.session.start import Request, start
from servoctl.config import load_config
from servoctl.errors import ConfigError, RunFolderError
from servoctl.reference.table import file_curve
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array
from tests.faces import on_rig
from tests.hil.rigs import renewed


@cache
def robots() -> RigSetup:
    """Two robots with an object: they fall without torque, and six drives act on three degrees of freedom."""
    return load("coordinated_robots", engine="vm")


def run(
    stage: Stage, duration: float, faults: Sequence[dict[str, Any]] = (), **emulation: Any
) -> tuple[Trajectory, int]:
    setup = renewed(robots(), faults)
    values = setup.settings.values
    values = values.model_copy(update={"emulation": values.emulation.model_copy(update=emulation)})
    setup = replace(setup, settings=replace(setup.settings, values=values))
    result = on_rig(setup, None, stage, duration)
    assert result.unconfirmed == ()
    return result.trajectory, result.exit_code


def true_motion(done: Trajectory, phase: Phase) -> tuple[Array, Array, Array]:
    """Times from 0, coordinates and velocities of the simulated machine in a stage."""
    rows = done.columns["stage"] == STAGES.index(phase.value)
    q, v = ([done.columns[f"{kind}.theta{i}"][rows] for i in range(1, 6)] for kind in ("true_q", "true_v"))
    t = done.t[rows]
    return t - t[0], np.array(q).T, np.array(v).T


def test_a_pose_that_is_held_stays_within_a_third_of_a_milliradian_while_brakes_open_and_after_the_test() -> None:
    done, code = run(Stage.ZERO, 1.5)
    q0 = np.array(robots().start.q)
    t, q, _ = true_motion(done, Phase.ZERO)
    for held in (true_motion(done, Phase.ENABLING)[1], q[t < 0.1], q[t > 1.0]):
        assert np.abs(held - q0).max() < 3e-4  # by the model alone: 1e-2 by then
    assert np.abs(q - q0).max() < 2e-3, "the test of the drives moves the joints on purpose"
    assert code == 0


def test_a_pose_is_held_by_a_machine_a_tenth_heavier_than_its_model() -> None:
    done, _ = run(Stage.ZERO, 1.0, parameters={"m": 1.1})
    _, q, v = true_motion(done, Phase.ZERO)
    assert np.abs(q - robots().start.q).max() < 3e-3
    assert np.abs(q[-1] - robots().start.q).max() < 1e-4  # the integral has found the missing torque
    assert np.abs(v[-1]).max() < 1e-3


def test_a_floating_machine_drifts_by_less_than_a_milliradian_in_five_seconds() -> None:
    done, code = run(Stage.FLOAT, 5.0)
    t, q, _ = true_motion(done, Phase.FLOAT)
    assert t[-1] > 4.99 and code == 0
    assert np.ptp(q, axis=0).max() < 1e-3


def test_a_floating_machine_with_friction_stands_still_although_its_links_are_a_tenth_heavier() -> None:
    done, _ = run(Stage.FLOAT, 1.5, parameters={"m": 1.1}, coulomb_friction=1.0)
    assert np.ptp(true_motion(done, Phase.FLOAT)[1], axis=0).max() < 1e-3


def test_a_push_moves_a_floating_machine_and_it_stops_within_half_a_second_when_let_go() -> None:
    push = {"kind": "push", "drive": "u1", "torque": 1.0, "at": 0.1, "for": 1.0}
    done, code = run(Stage.FLOAT, 1.7, [push])
    t, q, v = true_motion(done, Phase.FLOAT)
    pushed = q[np.searchsorted(t, 1.1)] - q[0]
    assert np.abs(pushed).max() > 0.02
    assert np.abs(v[(t > 0.9) & (t < 1.1)]).max() > 0.02
    assert np.abs(v[t > 1.6]).max() < 1e-3  # the steps of the torque on the wire keep it trembling by half of this
    assert np.abs(q[-1] - q[np.searchsorted(t, 1.6)]).max() < 3e-4
    assert code == 0, "a hand is no fault: the run goes on to its end"


def test_a_floating_machine_never_gets_more_than_its_lowered_torque() -> None:
    push = {"kind": "push", "drive": "u1", "torque": 60.0, "at": 0.2, "for": 0.4}
    done, _ = run(Stage.FLOAT, 1.0, [push])
    guiding = robots().plan(Stage.FLOAT, 1.0).guiding
    assert guiding is not None
    rows = done.columns["stage"] == STAGES.index(Phase.FLOAT.value)
    for name, limit in zip(robots().loop.system.model.plant.actuators, guiding.limits, strict=True):
        assert limit <= 12.0
        assert np.abs(done.columns[f"u.{name}"][rows]).max() <= limit + 1e-12


def test_walls_turn_a_guided_joint_before_its_position_limit() -> None:
    setup = robots()
    q0 = setup.sensing.displacements(setup.loop.system.model.plant, setup.start.q)[0]
    near = [replace(drive, position_limits=(-3.0, float(q0) + 0.1)) for drive in setup.settings.drives[:1]]
    narrow = replace(setup, settings=replace(setup.settings, drives=(*near, *setup.settings.drives[1:])))
    setup = renewed(narrow, [{"kind": "push", "drive": "u1", "torque": 8.0, "at": 0.1, "for": 1.0}])
    done = on_rig(setup, None, Stage.FLOAT, 1.2)
    _, q, _ = true_motion(done.trajectory, Phase.FLOAT)
    assert 0.01 < (q[:, 0] - q[0, 0]).max() < 0.05  # without a wall 0.2, and the limit ends the run
    assert done.exit_code == 0


def test_the_guided_motion_is_a_reference_file_with_the_names_of_the_coordinates(tmp_path: Path) -> None:
    push = {"kind": "push", "drive": "u1", "torque": 2.0, "at": 0.1, "for": 0.4}
    done, _ = run(Stage.FLOAT, 1.0, [push])
    file, names = tmp_path / "guided.csv", list(robots().loop.system.model.plant.coordinates)
    said = write_guided_motion(file, done, names)
    assert "guided motion of 1.00 s" in said and re.search(rf"moved: {names[0]} [\d.e-]+ (rad|m), ", said)
    columns, curve, faults = file_curve(file, "t", None, "cubic", "hold")
    assert (list(columns), faults) == (names, ())
    assert curve is not None
    t, q, _ = true_motion(done, Phase.FLOAT)
    times, smoothed = guided_motion(done)
    assert times[0] == 0.0 and times[-1] == t[-1]
    at = np.array([np.interp(times, t, column) for column in q.T]).T
    assert np.abs(smoothed - at).max() < 2e-4


def test_a_run_that_never_floats_leaves_no_reference(tmp_path: Path) -> None:
    done, _ = run(Stage.ZERO, 0.1)
    with pytest.raises(RunFolderError, match="ended before stage float"):
        write_guided_motion(tmp_path / "guided.csv", done, ["theta1"])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"record": Path("a.csv")}, "--record: only stage float is guided by hand"),
        ({"record": Path("a.txt"), "stage": "float"}, "--record: expected a name that ends in .csv, got a.txt"),
        ({"record": Path("nowhere/a.csv"), "stage": "float"}, "nowhere: no such folder"),
    ],
)
def test_a_record_that_cannot_be_written_is_refused_before_anything_moves(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        start(Request("coordinated_robots", engine="vm", **options))


def test_a_damping_that_would_shake_the_machine_in_the_hand_is_refused() -> None:
    """Beyond the limit of a speed that a held torque slows a cycle late, and not before it."""

    def moving(damping: float) -> float:
        setup = load("coordinated_robots", (f"hil.safety.float_damping={damping}",), "vm")
        t, _, v = true_motion(on_rig(setup, None, Stage.FLOAT, 0.8).trajectory, Phase.FLOAT)
        return float(np.abs(v[t > 0.4]).max())

    with pytest.raises(ConfigError, match="400 1/s would shake the machine in the hand at a period of") as found:
        start(Request("coordinated_robots", ("hil.safety.float_damping=400",), stage="float", engine="vm"))
    most = float(re.search(r"at most (.*?) 1/s", str(found.value))[1])  # type: ignore[index]
    start(Request("coordinated_robots", (f"hil.safety.float_damping={most}",), stage="float", engine="vm"))
    assert moving(2.0 * most) > 20.0 * moving(0.9 * most)


def test_the_number_of_a_stage_in_a_log_never_changes() -> None:
    assert STAGES[:10] == [
        "shadow", "waiting for samples", "enabling", "zero", "ramp", "full", "stopping", "disabling", "over", "float"
    ]  # fmt: skip


def test_float_torque_is_a_share() -> None:
    with pytest.raises(ConfigError, match=r"hil.safety.float_torque: expected"):
        load_config("coordinated_robots", ["hil.safety.float_torque=1.5"])
