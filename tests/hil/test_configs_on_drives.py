"""The shipped configs that name drives, each from the first frame to the last drive off, emulated in lock-step."""

from pathlib import Path

import numpy as np
import pytest

from hil.rig.logbook import STAGES
from hil.safety.events import EventKind
from hil.sensing.motion import task_errors
from hil.session.replay import replay
from hil.session.run import HilRun
from hil.session.start import Request, start
from servoctl.config import load_config, shipped_configs
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import State
from tests.faces import on_drives
from tests.hil.command_observer import observed
from tests.hil.emulation import SHORT
from tests.shipped import ON_DRIVES

DURATION = 0.4
"""Of the task [s]."""
ERRORS = {"arm_on_drives": 0.1}
"""Largest error of a task row on ideal machines [its unit], 1e-3 elsewhere: delays, steps of torques and encoders.

Of the arm: half a step of joint6's torque, 3 mN m, on its 1.3e-4 kg m^2, over (15/s)^2.
"""


def true_violations(begun: HilRun, trajectory: Trajectory, rows: np.ndarray) -> dict[str, float]:
    """Largest violation of each task row at the simulated plant's own state."""
    model, names = begun.setup.loop.system.model, list(begun.setup.loop.system.model.plant.coordinates)
    largest: dict[str, float] = {}
    for i in rows[::5]:
        q, v = (np.array([trajectory[f"true_{kind}.{name}"][i] for name in names]) for kind in "qv")
        for row, (violation, _) in task_errors(model, State(float(trajectory["task_time"][i]), q, v)).items():
            largest[row] = max(largest.get(row, 0.0), abs(violation))
    return largest


def test_every_protocol_has_a_config() -> None:
    rigs = {name: hil for name in shipped_configs() if (hil := load_config(name).config.hil) is not None}
    assert set(rigs) == ON_DRIVES
    protocols = {drive.protocol for hil in rigs.values() for drive in hil.drives}
    assert protocols == {"cia402", "mit", "moteus", "odrive", "robstride"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ON_DRIVES))
def test_a_config_on_drives_does_its_task_and_switches_off(name: str, tmp_path: Path) -> None:
    with observed() as observers:
        begun = start(Request(name, duration=DURATION))
    ended = begun.run(tmp_path / "run", lambda event: None)
    trajectory, summary = ended.trajectory, ended.trajectory.summary()
    assert (ended.exit_code, summary["status"], summary["faults"], ended.unconfirmed) == (0, "done", [], ())
    said = [event.detail for event in ended.events if event.kind is EventKind.STAGE]
    braking = ["braking"] if any(drive.brake for drive in begun.setup.settings.drives) else []
    assert said == ["enabling", "zero", "ramp", "full", "stopping", *braking, "disabling", "over"]
    assert all(drive["confirmed_off"] for drive in summary["drives"].values())
    assert observers[0].report() == []

    full = np.flatnonzero(trajectory["stage"] == STAGES.index("full"))
    assert trajectory["task_time"][full[-1]] == pytest.approx(DURATION, abs=2 * begun.setup.settings.values.period)
    true = true_violations(begun, trajectory, full)
    for row, error in true.items():
        seen = np.abs(trajectory[f"violation.{row}"][full]).max()
        assert 0.0 < error <= ERRORS.get(name, 1e-3), row
        assert seen <= ERRORS.get(name, 1e-3), row
    for drive in begun.setup.settings.drives:  # a few times what the run needs, and never reached
        assert 1.3 * np.abs(trajectory[f"u.{drive.name}"][full]).max() < drive.torque_limit
        assert 1.3 * np.abs(trajectory[f"speed.{drive.name}"][full]).max() < drive.speed_limit

    again = replay(tmp_path / "run")
    assert (again.engine, again.differing, again.other_samples, again.tolerance) == (again.logged_engine, 0, 0, 0.0)
    assert again.rows > len(full)
    assert again.samples > len(full)


@pytest.mark.parametrize("name", ["coordinated_robots"])
def test_the_task_is_engaged_where_its_path_begins(name: str) -> None:
    """The path begins with an acceleration of 0.5 m/s^2: while it waits it has none, or the robots would lead it."""
    begun = start(Request(name, duration=0.05, engine="vm"))
    trajectory = begun.run(None, lambda event: None).trajectory
    first = np.flatnonzero(trajectory["stage"] == STAGES.index("full"))[0]
    waiting = trajectory["stage"] == STAGES.index("ramp")
    assert np.abs(trajectory["violation_rate.object_y"][waiting]).max() < 0.01
    for row in ("object_x", "object_y", "level"):
        assert abs(trajectory[f"violation.{row}"][first]) < 5e-4, "0.5 m/s^2 / beta^2 would be 5e-3"


def test_ranges_of_a_motor_that_no_table_has_are_given_in_the_config(tmp_path: Path) -> None:
    """Those of the table's motor, written out: the same drive, the same run."""
    ranges = "hil.drives.0.ranges={position: 12.5, velocity: 25.64, torque: 18, kp: 500, kd: 5}"
    begun = start(Request("scara_drive", (*SHORT, "hil.drives.0.motor=", ranges), duration=0.1, engine="vm"))
    assert begun.setup.drives[0].quantum()[2] == pytest.approx(3 * 36 / 4095)
    given, table = begun.run(tmp_path / "given", lambda event: None), on_drives("scara_drive", duration=0.1)
    assert given.exit_code == table.exit_code == 0
    assert start(Request(tmp_path / "given" / "config.yaml", engine="vm")).setup.settings == begun.setup.settings
    assert all((given.trajectory[name] == table.trajectory[name]).all() for name in ("q.q1", "u.tau1"))
