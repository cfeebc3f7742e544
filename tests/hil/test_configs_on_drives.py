"""The shipped configs that name drives, each from the first frame to the last drive off, emulated in lock-step.

With bounds, priorities, observers and estimators too, and with tasks that are missed.
"""

from dataclasses import replace as changed
from pathlib import Path

import numpy as np
import pytest

import servoctl as sc
from hil.assembly.prepare import load
from hil.core.controller import Controller
from hil.rig.logbook import STAGES
from hil.safety import EventKind
from hil.sensing.motion import task_errors
from hil.session.replay import replay
from hil.session.run import HilRun, RunResult
from hil.session.start import Request, start
from servoctl.config import load_config, shipped_configs
from servoctl.identification.log import simulated_machine
from servoctl.mechanics.actuator_parameters import armature_of
from servoctl.run_folder.missed import missed_tasks
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

Of the arm: half of what a step of joint6's torque, 6 mN m, holds off: on its 1.3e-4 kg m^2, over (15/s)^2.
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


CEILING = "bounds=[{name: ceiling, holonomic: '0.3*l - l*sin(theta1) - l*sin(theta2) - l/2*sin(theta3)'}]"


FUNNEL = "law.correction={funnel: {P: 0.1, rate: 10, start: 0.5, end: 0.1, shrink: 1}}"


def test_drives_carry_the_object_no_higher_than_a_ceiling() -> None:
    result = on_drives("coordinated_robots", CEILING, FUNNEL, duration=3.0)
    assert result.exit_code == 0
    run = result.trajectory
    l = 1.0  # noqa: E741 - as in the equation
    q = {name: run[f"q.{name}"] for name in ("theta1", "theta2", "theta3")}
    height = l * np.sin(q["theta1"]) + l * np.sin(q["theta2"]) + l / 2 * np.sin(q["theta3"])
    assert height.max() < 0.3 + 1e-3
    assert run["violation.object_y"].min() < -0.3  # the task asks for more
    metrics = run.summary()["bounds"]["ceiling"]
    assert metrics["min"] > -1e-3 and metrics["active_time"] > 0.5
    event = next(event for event in run.summary()["events"] if event["event"] == "bound")
    assert event["bound"] == "ceiling" and event["given_up"]["object_y"] > 0.1
    left = next(event for event in run.summary()["events"] if event["event"] == "funnel")  # the ceiling is in the way
    at = int(np.searchsorted(run.t, left["t"]))
    beta = run["violation_rate.object_y"] + 10.0 * run["violation.object_y"]
    width = 0.4 * np.exp(-run["task_time"]) + 0.1
    assert left["row"] == "object_y" and abs(beta[at - 1]) < width[at - 1] and abs(beta[at]) > width[at]


PUSH = """
import servoctl as sc

class Push(sc.SecondOrder):
    def A(self, q, v, t):
        return [[-1.0, 1.0]]

    def b(self, q, v, t):
        return [0.1]
"""


def test_a_task_that_prescribes_accelerations_alone_begins_without_an_error_that_it_does_not_have(
    tmp_path: Path,
) -> None:
    (tmp_path / "push.py").write_text(PUSH)
    text = Path(shipped_configs()["two_mass_spring_drive"]).read_text()
    begin, end = text.index("  - {name: distance"), text.index("run:")
    config = tmp_path / "push.yaml"
    config.write_text(f'{text[:begin]}  - {{name: push, class: "push.py:Push"}}\nlaw: {{}}\n{text[end:]}')
    ended = on_drives(config, duration=0.1)
    assert ended.exit_code == 0 and len(ended.trajectory.summary()["task_span"]) == 2


WISH = '  - {name: posture, holonomic: "x1 - 3", priority: 2}\nlaw:'


def test_a_posture_that_conflicts_with_the_task_stops_no_drive(tmp_path: Path) -> None:
    config = tmp_path / "wish.yaml"
    config.write_text(Path(shipped_configs()["two_mass_spring_drive"]).read_text().replace("\nlaw:", f"\n{WISH}"))
    begun = start(Request(str(config), SHORT, duration=0.03, engine="vm"))
    assert begun.setup.loop.system.law.stops_on  # on drives the default is `fault`
    ended = begun.run(tmp_path / "run", lambda event: None)
    summary = ended.trajectory.summary()
    assert (ended.exit_code, summary["status"], summary["faults"], ended.unconfirmed) == (0, "done", [], ())
    assert set(summary["status_counts"]) == {"OK"}
    assert summary["rank_min"] == summary["rank_max"] > 0  # rows after the end, without a command, do not count
    assert summary["tasks"]["distance"]["max_violation"] < 1e-3
    assert summary["tasks"]["posture"]["final_violation"] == pytest.approx(3.0, abs=0.1)
    assert summary["given_up"]["posture"] > 100.0  # beta^2 times 3 m is 192 m/s^2
    again = replay(tmp_path / "run")
    assert (again.differing, again.other_samples) == (0, 0)


def test_the_emulated_machine_has_rotors_that_the_law_does_not_know() -> None:
    """Its kinetic energy is the work of the true torques; what `identify` writes to keep the machine is read again."""
    rotors = "hil.emulation.parameters.armature.F=0.5"
    result = on_drives("two_mass_spring_drive", rotors, "hil.safety.tracking=0.1", duration=1.0)
    assert result.exit_code == 0
    run = result.trajectory
    x1, x2, v1, v2, F = (run[f"true_{name}"] for name in ("q.x1", "q.x2", "v.x1", "v.x2", "u.F"))
    energy = 1.5 * v1**2 / 2 + 2.0 * v2**2 / 2 + 10.0 * (x2 - x1 - 0.5) ** 2 / 2
    power = F * v1
    work = np.concatenate([[0.0], np.cumsum(np.diff(run.t) * (power[1:] + power[:-1]) / 2)])
    np.testing.assert_allclose(energy - energy[0], work, atol=1e-3 * np.ptp(energy))

    known = load("two_mass_spring_drive", ["plant.armature={F: 0.2}"], "vm")
    for stated, kept in (((), {"armature.F": 0.2}), (("armature.F",), None)):
        machine = simulated_machine(known.run)
        assert machine is not None
        sections = changed(machine, emulated=stated).sections({"armature": [0.3]}, rubs=False)
        assert sections == ({"hil": {"emulation": {"parameters": kept}}} if kept else {})
    setup = load(
        "two_mass_spring_drive", ["plant.armature={F: 0.3}", "hil.emulation.parameters={armature.F: 0.2}"], "vm"
    )
    assert [armature_of(of.model.plain.plant) for of in (setup.run.system, setup.simulated)] == [(0.3,), (0.2,)]


def test_the_error_is_smaller_with_an_observer() -> None:
    change = "hil.emulation.parameters.m=1.05"
    errors = []
    for more in ((), ("law.observer=auto",)):
        result = on_drives("coordinated_robots", change, *more, duration=1.0)
        assert result.exit_code == 0
        run = result.trajectory
        y = run["violation.object_y"][run.during("object_y")]
        errors.append((float(np.sqrt(np.mean(y**2))), float(np.abs(y).max())))
    d, task = run["disturbance.object_y"], run.during("object_y")
    assert np.isfinite(d[task]).all()
    assert np.isfinite(d).sum() == len(d[task])  # while the task stands still, nothing is observed
    assert run.summary()["disturbance"]["object_y"]["max"] == np.abs(d[task]).max()
    (rms, largest), (rms_observed, largest_observed) = errors
    assert rms_observed < 0.3 * rms
    # the drives hold the pose before the task begins: the observer starts without a jump
    assert largest_observed < 1.01 * largest


STRONG = [f"hil.drives.u{i}.{key}" for i in range(1, 7) for key in ("torque_limit=24", "rated_torque=1")]
HEAVY = [
    "hil.emulation.parameters.m=1.3", "hil.safety.tracking=0.9", "hil.safety.engage_tolerance=0.1",
    "hil.safety.ramp_time=1.5", *STRONG,
]  # fmt: skip


def test_heavier_links_cost_little_with_an_estimator(tmp_path: Path) -> None:
    rms = []
    for more in ((), ("estimation.kind=model",)):
        result = on_drives("coordinated_robots", *HEAVY, *more, out=tmp_path if more else None, duration=1.5)
        assert result.exit_code == 0
        run = result.trajectory
        rms.append(float(np.sqrt(np.mean(run["violation.object_y"][run.during("object_y")] ** 2))))
    assert rms[1] < rms[0] / 20.0
    found = replay(tmp_path)
    assert found.agrees
    assert found.rows > 500
    # torques as the frames carry them: those of the law would make the mass 0.3 % too large
    assert sc.identify(tmp_path).values["m"] == pytest.approx(1.3, rel=1e-4)
    # the estimator knows the resolution of the encoders, and the folder says so
    assert "noise:" in (tmp_path / "config.yaml").read_text()


def test_the_estimator_knows_the_lag_of_the_current_loop() -> None:
    changes = ["estimation.kind=model", "hil.emulation.current_lag=0.002"]
    estimator = load("two_mass_spring_drive", changes, "numpy").run.system.estimator
    assert estimator is not None
    assert estimator.timing.lag == (0.002,)
    assert estimator.timing.late == 1


def test_a_coordinate_without_a_number_for_its_noise_has_the_resolution_of_its_encoder() -> None:
    found = []
    for more in ((), ("estimation.noise.q={x1: 1e-7}",)):
        estimator = load("two_mass_spring_drive", ["estimation.kind=model", *more], "numpy").run.system.estimator
        assert estimator is not None
        found.append(estimator.innovation)
    (first, second), (given, by_encoder) = found
    assert given != first and by_encoder == second > 0.0


def test_an_estimator_that_starts_again_knows_the_torques_that_hold_the_machine() -> None:
    """Otherwise it would expect the machine to fall while commands are on their way: 250 standard deviations."""
    setup = load("coordinated_robots", ["estimation.kind=model"], "vm")
    controller, hold = Controller(setup.loop), setup.gravity_compensation(0.0, setup.start.q).u
    controller.sent(hold, moves=False)
    apart = setup.loop.layout.slices["estimate.innovation"]
    for _ in range(5):
        controller.command(0.0, setup.start.q, np.zeros(5))
        assert controller.row[apart].max() < 0.1
        controller.sent(hold)


CONFLICT = '  - {name: posture, holonomic: "x1 - 0.05"}\nlaw:\n  on_infeasible: warn'


def ended(folder: Path, required: bool = True) -> RunResult:
    """A run whose two rows ask for different accelerations of one actuator."""
    text = Path(shipped_configs()["two_mass_spring_drive"]).read_text().replace("\nlaw:", f"\n{CONFLICT}")
    if not required:
        text = text.replace("holonomic:", "required: false, holonomic:")
    config = folder / "conflict.yaml"
    config.write_text(text)
    out = folder / "run" if required else None
    return on_drives(config, "hil.safety.engage_tolerance=0.1", out=out, duration=0.3)


def test_a_missed_task_has_its_status_its_exit_code_and_a_cause(tmp_path: Path) -> None:
    """The count while it runs is that of its rows."""
    result = ended(tmp_path)
    summary = result.trajectory.summary()
    assert (result.exit_code, summary["status"]) == (4, "missed")
    assert "the task was missed over most of the run" in summary["error"]
    shares = missed_tasks(result.trajectory, [])
    assert shares["posture"] > 0.5
    assert f"posture in {shares['posture']:.0%} of the ticks" in summary["error"]
    assert "rank 1 of 2 rows" in summary["error"]
    assert [event.kind for event in result.events].count(EventKind.UNMET) == 1
    assert summary["error"] in (tmp_path / "run" / "events.jsonl").read_text()
    assert result.unconfirmed == ()


def test_tasks_that_may_be_missed_do_not_fail_the_run(tmp_path: Path) -> None:
    result = ended(tmp_path, required=False)
    assert (result.exit_code, result.trajectory.summary()["status"]) == (0, "done")
