"""`bounds` of a config: every kind, from YAML to the columns of a run, and rates that a path exceeds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import servoctl as sc
from servoctl.check.report import check
from servoctl.errors import ConfigError
from servoctl.run_folder.trajectory import Trajectory
from servoctl.study.metrics import metric_unit
from tests.config_texts import plant_text
from tests.rail_mass import RAIL_MASS
from tests.small_robot import SMALL, small_urdf

LIFT = plant_text(  # a driven support carries a mass on a rope
    "Lift", "m1: float = 2.0; m2: float = 1.0; g: float = 9.8", {"z1": "m", "z2": "m"}, {"F": "N"},
    "np.diag([self.m1, self.m2])", "np.array([-self.m1 * self.g, -self.m2 * self.g])", "np.array([[1.0], [0.0]])",
    '\n    def passive_constraints(self, q, t):\n        return {"cable": q[0] - q[1] - 0.5}\n',
)  # fmt: skip
HANGING = """\
plant: {class: "lift.py:Lift"}
initial: {q: {z1: 0.5, z2: 0}}
task:
  - {name: z, holonomic: "z2 + 0.3*(1 - cos(8*t))"}
bounds:
  - {name: rope, reaction: cable, at_most: 0}
  - {name: floor, holonomic: "z2 + 0.9"}
  - {name: gentle, nonholonomic: "4 - der(z1)", rate: 40}
law: {correction: {second_order: {damping: 20, stiffness: 100}}, limits: {F: 200}}
run: {duration: 0.6, period: 0.005}
"""


@pytest.fixture
def lift(tmp_path: Path) -> Path:
    (tmp_path / "lift.py").write_text(LIFT)
    path = tmp_path / "lift.yaml"
    path.write_text(HANGING)
    return path


@pytest.fixture
def robot(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "small.urdf").write_text(small_urdf())
    path = tmp_path / "c.yaml"
    path.write_text(SMALL.replace("run: {duration: 0.1", "run: {duration: 1, period: 0.005"))
    return path


def run_of(path: Path, *changes: str) -> Trajectory:
    return sc.load(path, list(changes), engine="vm").simulate()


def test_a_rope_stays_taut_and_pulls_with_the_force_of_the_mass_on_it(lift: Path) -> None:
    run = run_of(lift)
    tension = 9.8 + np.gradient(run["v.z2"], run.t)  # of 1 kg
    assert run["bound.rope"].min() >= -1e-12
    assert np.abs(run["bound.rope"] - run["passive_force.z2"]).max() < 1e-10
    assert np.median(np.abs(run["bound.rope"] - tension)) < 0.2
    free = run_of(lift, "bounds=[]")
    assert free["passive_force.z2"].min() < -1.0  # the task alone would push the rope
    event = next(event for event in run.metadata["events"] if event["event"] == "bound")
    assert event["bound"] == "rope" and event["given_up"]["z"] > 1.0
    assert f"z by up to {event['given_up']['z']:.4g} m/s^2" in event["text"]
    assert set(run.summary()["bounds"]) == {"rope", "floor", "gentle"}


def test_a_reaction_that_dependent_rows_share_is_refused(lift: Path) -> None:
    twice = LIFT.replace('{"cable": q[0] - q[1] - 0.5}', '{"cable": q[0] - q[1] - 0.5, "rod": 2*q[0] - 2*q[1] - 1}')
    (lift.parent / "lift.py").write_text(twice)
    with pytest.raises(ConfigError, match=r"bounds.rope.reaction: the reaction of cable is not unique"):
        sc.load(lift)


def test_check_says_that_a_disturbance_observer_does_not_act_on_bounds(lift: Path) -> None:
    said = "law.observer acts on the task alone"
    assert said in str(check(sc.load(lift, ["law.observer=auto"], engine="vm")).sections)
    assert said not in str(check(sc.load(lift, engine="vm")).sections)


@pytest.mark.parametrize("delay", ["2*ms", "5*ms", "8*ms"])
def test_late_commands_keep_bounds_by_the_state_that_they_lead_to(lift: Path, delay: str) -> None:
    near = "bounds.floor.holonomic=z2 + 0.3"
    run = run_of(lift, near, f"realism={{delay: {delay}}}")
    assert run.metadata["status"] == "done"
    assert run["bound.floor"].min() >= -1e-5
    assert run["bound_active.floor"].sum() > 5
    assert run_of(lift, "bounds=[]", f"realism={{delay: {delay}}}")["q.z2"].min() < -0.4


def test_bounds_that_do_not_hold_leave_late_commands_as_they_were(lift: Path) -> None:
    far = "bounds=[{name: floor, holonomic: z2 + 9}]"
    late = "realism={delay: 5*ms}"
    assert np.array_equal(run_of(lift, far, late).u, run_of(lift, "bounds=[]", late).u)


def test_a_robot_keeps_the_limits_of_its_file_and_a_distance(robot: Path) -> None:
    text = robot.read_text() + (
        "bounds:\n"
        "  - {name: joints, position: robot}\n"
        "  - {name: speeds, velocity: robot}\n"
        "  - {name: ball, distance: [tool, [0.7, 0, 0.2]], at_least: 0.15}\n"
        "  - {name: near, distance: [tool, ground], at_most: 0.65}\n"
    )
    robot.write_text(text.replace("value: 0.9", "value: 0.55 - 0.4*sin(2*t)"))
    run = run_of(robot)
    names = ["joints.shoulder", "joints.elbow", "speeds.shoulder", "speeds.elbow", "ball", "near"]
    assert list(run.summary()["bounds"]) == names
    q = np.array([run["q.shoulder"], run["q.elbow"]])
    assert np.allclose(run["bound.joints.elbow"], np.minimum(q[1] - 0.2, 2.8 - q[1]))
    assert np.allclose(run["bound.speeds.elbow"], 3.0 - np.abs(run["v.elbow"]))
    turn = q.sum(axis=0)
    tool = np.array([0.4 * np.cos(q[0]) + 0.3 * np.cos(turn), 0.4 * np.sin(q[0]) + 0.3 * np.sin(turn)])
    assert np.allclose(run["bound.near"], 0.65 - np.hypot(*tool), atol=1e-9)
    for name in names:  # speeds change within a period, because the other joint moves
        assert run[f"bound.{name}"].min() > (-2.5e-3 if name.startswith("speeds") else -1e-9), name
    assert sum(bool(run[f"bound_active.{name}"].any()) for name in names) >= 2


def test_check_says_how_far_a_sampled_bound_may_be_passed_and_where_the_start_is(lift: Path) -> None:
    run = sc.load(lift, ["bounds.floor.holonomic=z2 - 0.1"], engine="vm", strict=False)
    report = check(run)
    floor, gentle = (report.values["bounds"][name] for name in ("floor", "gentle"))
    assert floor["h"] == pytest.approx(-0.1) and not floor["inside"]
    assert floor["rate"] == 15.0 and floor["rate_times_period"] == pytest.approx(0.075)
    assert gentle["rate"] == 40.0
    assert any("bounds: floor: the start is outside" in warning for warning in report.warnings)
    # a lift with constant forces moves in parabolas: only the motion between samples may pass the bound
    fastest = max(abs(200.0 / 3.0 - 9.8), abs(-200.0 / 3.0 - 9.8))
    assert 0.5 * fastest * 0.005**2 / 8 < floor["between_samples"] <= 1.01 * fastest * 0.005**2 / 8


AROUND = """\
plant: {class: "bounded_arm.py:Arm"}
initial: {q: {a: -0.3, b: 1.0}, v: {a: 0.2, b: 0.2}, project: true}
task:
  - {name: x, holonomic: "l*cos(a) + l*cos(a + b) - (0.9 + 0.3*cos(1.5*t))"}
  - {name: y, holonomic: "l*sin(a) + l*sin(a + b) - (0.3 + 0.3*sin(1.5*t))"}
bounds:
  - name: disc
    holonomic: "sqrt((l*cos(a) + l*cos(a + b) - 0.7334)**2 + (l*sin(a) + l*sin(a + b) - 0.5425)**2) - 0.08"
law: {correction: {second_order: {damping: 20, stiffness: 100}}}
run: {duration: 4, period: 0.002}
realism: {delay: 0.002, measured: q, noise: {q: 1e-5}, parameter_error: {m: 0.3}}
estimation: {kind: model, disturbance: 60}
"""


@pytest.mark.parametrize(("error", "margin", "least"), [(0.3, "0", 0.0), (-0.3, "auto", 0.0)])
def test_masses_that_are_wrong_by_a_third_do_not_lead_into_the_disc(
    error: float, margin: str, least: float, tmp_path: Path
) -> None:
    source = Path(__file__).parent / "laws" / "bounded_arm.py"
    (tmp_path / "bounded_arm.py").write_text(source.read_text())
    path = tmp_path / "around.yaml"
    path.write_text(AROUND)
    wrong = f"realism.parameter_error.m={error}"
    kept, free = run_of(path, wrong, f"bounds.disc.margin={margin}"), run_of(path, wrong, "bounds=[]")
    assert kept["bound.disc"].min() >= least
    ends = [np.hypot(run["violation.x"], run["violation.y"])[-1] for run in (kept, free)]
    assert ends[0] <= 2.0 * ends[1] + 1e-6


@pytest.mark.parametrize(("period", "late"), [("5*ms", 1), ("20*ms", 1)])
def test_motors_that_follow_with_a_lag_do_not_lead_into_the_disc(period: str, late: int, tmp_path: Path) -> None:
    (tmp_path / "bounded_arm.py").write_text((Path(__file__).parent / "laws" / "bounded_arm.py").read_text())
    path, known = tmp_path / "around.yaml", AROUND[: AROUND.index("realism:")]
    path.write_text(f"{known}realism: {{delay: {late}*{period}, lag: 2*ms}}\n")
    kept, free = run_of(path, f"run.period={period}"), run_of(path, f"run.period={period}", "bounds=[]")
    assert kept["bound.disc"].min() >= 0.0
    assert kept["bound_active.disc"].sum() > 20
    ends = [np.hypot(run["violation.x"], run["violation.y"])[-1] for run in (kept, free)]
    assert ends[0] <= 1.5 * ends[1] + 1e-8


def test_check_says_which_margin_the_estimator_asks_for(tmp_path: Path) -> None:
    (tmp_path / "bounded_arm.py").write_text((Path(__file__).parent / "laws" / "bounded_arm.py").read_text())
    path = tmp_path / "around.yaml"
    path.write_text(AROUND)
    without, kept = (
        check(sc.load(path, [f"bounds.disc.margin={margin}"], engine="vm", strict=False)) for margin in ("0", "auto")
    )
    facts = kept.values["bounds"]["disc"]
    assert facts["estimate_error"] == without.values["bounds"]["disc"]["estimate_error"]
    assert facts["margin"] == pytest.approx(facts["estimate_error"], rel=0.02)  # the start is projected in between
    assert 1e-3 < facts["margin"] < 5e-3
    assert without.values["bounds"]["disc"]["margin"] == 0.0
    line = next(lines for title, lines in without.sections if title == "bounds")[0]
    assert "change no faster than estimation.disturbance (margin: auto keeps that much)" in line


TIP_X = "reach/2*(cos(theta1) + cos(theta2))"


def test_check_names_a_bound_that_the_path_of_the_task_leaves() -> None:
    """The circle x = 0.9 + 0.3 cos(1.5 t) lies between 0.6 and 1.2 m."""
    limits = {"far": 1.5, "near": 0.5, "mid": 0.7}
    bounds = [f"{{name: {name}, holonomic: '{TIP_X} - {x}'}}" for name, x in limits.items()]
    changes = [f"bounds=[{', '.join(bounds)}]", "run.duration=4.185"]
    report = check(sc.load("arm_obstacle", changes, engine="vm", strict=False))
    paths = {name: facts.get("path") for name, facts in report.values["bounds"].items()}
    assert paths["near"] is None
    assert paths["far"]["share"] == 1.0
    assert paths["far"]["least"] == pytest.approx(-0.9, abs=2e-3)
    assert paths["mid"]["share"] == pytest.approx(np.arccos(2.0 / 3.0) / np.pi, abs=0.03)  # 0.9 + 0.3 cos < 0.7
    assert sum("bounds: far: the task's path is outside at every time" in warning for warning in report.warnings) == 1
    assert not [warning for warning in report.warnings if "bounds: mid" in warning]


def test_check_names_a_speed_that_the_path_of_the_task_exceeds() -> None:
    limits = "bounds=[{name: speeds, velocity: {theta1: 0.3, theta2: 5}}]"
    report = check(sc.load("arm_obstacle", [limits, "run.duration=4.188"], engine="vm", strict=False))
    facts = report.values["bounds"]
    t = np.linspace(0.0, 2.0 * np.pi / 1.5, 4001)
    x, y = 0.9 + 0.3 * np.cos(1.5 * t), 0.3 + 0.3 * np.sin(1.5 * t)
    first = np.arctan2(y, x) - np.arccos(np.hypot(x, y) / 1.4)  # two links of 0.7 m
    rate = np.gradient(first, t)
    assert facts["speeds.theta1"]["path"]["share"] == pytest.approx(np.mean(np.abs(rate) > 0.3), abs=0.03)
    assert facts["speeds.theta1"]["path"]["least"] == pytest.approx(0.3 - np.abs(rate).max(), abs=5e-3)
    assert "path" not in facts["speeds.theta2"]


def test_a_bound_that_the_free_motion_can_keep_is_no_conflict_with_the_path() -> None:
    """The tip needs two of three joints, so the first one may turn slower than it does."""
    bounds = "bounds=[{name: elbow, holonomic: reach/3*sin(theta1)}, {name: first, velocity: {theta1: 0.3}}]"
    report = check(sc.load("elbow_above_table", [bounds], engine="vm", strict=False))
    assert all("path" not in report.values["bounds"][name] for name in ("elbow", "first"))
    assert not report.values["bounds"]["first"]["inside"]  # the start moves faster


def test_a_late_bound_of_what_a_task_moves_gives_up_that_task_and_asks_for_no_enormous_inputs() -> None:
    ceiling = "{name: ceiling, holonomic: '0.3*l - l*sin(theta1) - l*sin(theta2) - l/2*sin(theta3)'}"
    changes = [f"bounds=[{ceiling}]", "run.period=0.002", "run.duration=1.6", "realism={delay: 2*ms}"]
    run = sc.load("coordinated_robots", changes, engine="vm").simulate()
    assert run["bound.ceiling"].min() >= 0.0
    assert np.abs(run.u).max() < 20.0
    assert np.abs(run["violation.level"]).max() < 1e-9  # the other rows of the task cost nothing
    assert run["given_up.object_y"].max() > 1.0


ONE = plant_text("One", "m: float = 1.0", {"x": "m"}, {"F": "N"}, "np.array([[self.m]])", "np.array([-0.5 * v[0]])")


def test_a_machine_of_one_coordinate_stays_inside_the_limits_of_its_position(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(ONE)
    path = tmp_path / "c.yaml"
    path.write_text(
        'plant: {class: "one.py:One"}\ninitial: {q: {x: 0}, v: 0}\ntask: [{name: go, holonomic: "x - 0.5*sin(t)"}]\n'
        "law: {correction: {baumgarte: {alpha: 5, beta: 5}}, limits: {F: 20}}\n"
        "bounds: [{name: inside, position: {x: [-0.3, 0.3]}}]\nrun: {duration: 1, period: 0.002}\n"
    )
    run = run_of(path)
    assert run["q.x"].max() == pytest.approx(0.3, abs=1e-3)  # it comes to rest there, short of sin(1)/2 = 0.42
    assert check(sc.load(path, engine="vm")).to_dict()["bounds"]["inside"]["braking"] == pytest.approx(20.0)


def test_an_acceleration_to_brake_with_is_taken_where_only_poses_that_the_run_never_visits_forbid_it() -> None:
    bound = "bounds=[{name: p, position: {theta1: [-2, 2]}, acceleration: 20}]"
    run = sc.load("coordinated_robots_limited", [bound, "run.duration=0.05"], engine="vm")
    values = check(run).to_dict()["bounds"]["p"]
    assert values["braking"] == 20.0 and values["weakest_braking"] < -20.0
    assert run.simulate().metadata["status"] == "done"
    with pytest.raises(ConfigError, match="or give acceleration if the run stays away from there"):
        sc.load("coordinated_robots_limited", [bound.replace(", acceleration: 20", "")])


@pytest.mark.parametrize("bound", ["velocity: {x: 1}", "holonomic: '-0.1 - x'", "position: {x: [-3, -0.1]}"])
@pytest.mark.parametrize("effects", ["{lag: 50*ms}", "{delay: 5*ms, jitter: 10*ms}", "{delay: 20*ms}"])
def test_a_run_passes_a_bound_by_no_more_than_check_says_under_lag_and_jitter(
    tmp_path: Path, bound: str, effects: str
) -> None:
    """A mass hurries to 0 with at most 10 N; bounds stop it on the way, or limit its speed."""
    (tmp_path / "mass.py").write_text(RAIL_MASS)
    (tmp_path / "mass.yaml").write_text(
        "plant: {class: 'mass.py:Mass'}\ninitial: {q: {x: -0.9}, max_violation: 3}\n"
        "task: [{name: go, holonomic: x}]\nlaw: {correction: {baumgarte: {alpha: 5, beta: 5}}, limits: {F: 10}}\n"
        f"bounds: [{{name: b, {bound}}}]\nrun: {{duration: 2, period: 0.01}}\nrealism: {effects}\n"
    )
    run = sc.load(tmp_path / "mass.yaml", engine="vm")
    claimed = check(run).values["bounds"]["b"]["between_samples"]
    least = run.simulate().summary()["bounds"]["b"]["min"]
    assert least >= -claimed - 1e-12
    assert claimed < 1.0 if "lag" in effects or "jitter" in effects else claimed < 2e-4  # and it says something


def test_h_of_a_limit_has_the_unit_of_its_coordinate_under_the_name_of_the_bound() -> None:
    run = sc.load("linear_motor", ["run.duration=0.01"], engine="vm")
    units = run.simulate().units
    assert (units["bound.stroke"], units["bound_lack.stroke"]) == ("m", "m/s^2")
    assert metric_unit(run, "bounds.stroke.min") == "m"
    assert metric_unit(run, "bounds.stroke.active_time") == "s"
    assert not {column for column in units if column.startswith("bound")} - {"bound.stroke", "bound_lack.stroke"}


CONFIG = """
plant: {class: "plants.two_mass_spring:TwoMassSpring"}
initial: {q: {x1: 0.1, x2: 1.1}, project: true, max_violation: 1}
task: [{name: first, holonomic: "x1 - 0.1*cos(20*t)"}]
bounds: [{name: wall, holonomic: "x1 + 0.105"}]
law: {correction: {baumgarte: {alpha: 10, beta: 10}}}
run: {duration: 1, period: 0.001}
"""


def loaded(folder: Path, *changes: str) -> sc.Run:
    (folder / "wall.yaml").write_text(CONFIG)
    return sc.load(folder / "wall.yaml", changes, engine="vm", strict=False)


def missed(run: sc.Run) -> dict[str, Any]:
    summary = run.simulate().summary()
    return {"off": summary["tasks"]["first"]["max_violation"], **summary["bounds"]["wall"]}


def test_the_rate_that_gives_up_a_path_inside_is_named_with_one_that_does_not(tmp_path: Path) -> None:
    """The path comes within 5 mm at 40 m/s^2: the default of 15 1/s leaves it 53 mm off."""
    run = loaded(tmp_path)
    report = check(run)
    hurry = report.values["bounds"]["wall"]["hurry"]
    assert hurry["rate"] == 15.0 and 0.0 < hurry["first"] < 0.05
    assert any("wall: the task's path stays inside, but comes near faster" in warning for warning in report.warnings)
    assert missed(run)["off"] > 0.05
    faster = loaded(tmp_path, f"bounds.wall.rate={hurry['enough']}")
    assert "hurry" not in check(faster).values["bounds"]["wall"]
    found = missed(faster)
    assert found["off"] < 0.01 and found["violated_time"] == 0.0


@pytest.mark.parametrize("change", ["task.first.holonomic='x1 - 0.1*cos(2*t)'", "task.first.holonomic='x2 - x1 - 1'"])
def test_a_slow_path_and_a_bound_that_the_task_does_not_determine_are_not_named(tmp_path: Path, change: str) -> None:
    assert "hurry" not in check(loaded(tmp_path, change)).values["bounds"]["wall"]
