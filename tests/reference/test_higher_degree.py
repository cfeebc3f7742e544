"""Tasks of higher relative degree against flat outputs, closed-form errors and hand-derived internal dynamics."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.polynomial import Polynomial

import servoctl as sc
from plants.flexible_joint_arm import FlexibleJointArm
from plants.mass_on_car import MassOnCar
from plants.two_mass_spring import TwoMassSpring
from servoctl.check.model import task_section
from servoctl.errors import ConfigError, TaskError
from servoctl.laws.input_output import InputOutput
from servoctl.simulation.internal_dynamics import internal_dynamics
from servoctl.types import Array
from tests.small_plants import Masses

CASES = json.loads((Path(__file__).parents[1] / "data" / "cases.json").read_text())
MOVE = Polynomial([0.0] * 7 + [1716.0, -9009.0, 20020.0, -24024.0, 16380.0, -6006.0, 924.0])
"""From 0 to 1 over a unit of time, at rest to the 6th derivative at both ends."""


def law(poles: Any = -4.0, **options: Any) -> InputOutput:
    return InputOutput(correction=sc.Poles(poles), **options)


def test_the_far_mass_follows_a_prescribed_move_by_the_flat_input() -> None:
    run = sc.load("two_mass_spring_prescribed").simulate()
    m1, m2, k, amount, time = 1.0, 2.0, 10.0, 0.4, 2.0
    g = [amount / time**i * (MOVE.deriv(i) if i else MOVE)(run.t / time) for i in range(5)]
    assert np.abs(run["q.x2"] - 0.5 - g[0]).max() < 1e-8
    assert np.abs(run["u.F"] - (m1 * m2 / k * g[4] + (m1 + m2) * g[2])).max() < 1e-6


def test_three_masses_decay_onto_the_path_by_their_six_poles() -> None:
    run = sc.load(
        "three_masses", ["task.last.holonomic=x3 - 1.1", "law.correction.poles=[-1,-2,-3,-4,-5,-6]"]
    ).simulate()
    poles = -np.arange(1.0, 7.0)
    start = np.linalg.solve(np.vander(poles, increasing=True).T, [-0.1, 0.0, 0.0, 0.0, 0.0, 0.0])
    expected = np.exp(np.outer(run.t, poles)) @ start
    assert np.abs(run["violation.last"] - expected).max() < 1e-8


def test_the_load_of_a_crane_converges_with_its_four_poles() -> None:
    run = sc.load("crane").simulate()
    poles = np.array([-0.8, -1.0, -1.2, -1.5])
    start = np.linalg.solve(np.vander(poles, increasing=True).T, [-5.0, 0.0, 0.0, 0.0])
    assert np.abs(run["violation.load"] - np.exp(np.outer(run.t, poles)) @ start).max() < 1e-8


def test_the_flexible_joint_arm_follows_the_published_task_through_its_motors() -> None:
    flexible = CASES["case4_review_examples"]["flexible_joint_8_3"]
    case = flexible["runs"]["I3_relative_degree4"]
    run = sc.load("flexible_joint_motor_raised").simulate()
    rows = np.searchsorted(run.t, np.array(flexible["times"]) - 1e-9)
    assert np.abs(run["violation.opposite_speeds"][rows] - case["beta"]).max() < 1e-8
    assert np.abs(run.q[rows] - case["q"]).max() < 1e-7
    assert np.abs(run.u[rows] - case["control"]).max() < 1e-6  # inputs reach 45 N m


def test_each_row_is_differentiated_to_its_own_degree() -> None:
    task = {"links": sc.Nonholonomic("der(link1) + der(link2)"), "motor": sc.Holonomic("motor1 - 0.1*(1 - cos(t))")}
    run = sc.simulate(FlexibleJointArm(), task, law(), q=0.0, duration=1.0, method="dop853")
    assert run.rows == ["links", "motor"]
    assert max(run.violation("links").max(), run.violation("motor").max()) < 1e-8


@pytest.mark.parametrize(("angle", "damping", "degree"), [(0.7, 1.0, 2), (0.0, 1.0, 3), (0.0, 0.0, 4)])
def test_the_degree_of_a_mass_on_a_car_depends_on_its_incline(angle: float, damping: float, degree: int) -> None:
    plant = MassOnCar(a=angle, d=damping)
    start = sc.State(0.0, np.array([0.0, 0.0]), np.zeros(2))
    model = law().prepare(sc.Model(plant, {"y": sc.Holonomic("x + s*cos(a)")}, start))
    assert [row.degree for row in model.task_rows] == [degree]


@pytest.mark.parametrize(("damping", "stable"), [(1.0, True), (0.0, None), (-0.3, False)])
def test_the_internal_dynamics_of_a_mass_on_an_inclined_car_are_named(damping: float, stable: bool | None) -> None:
    overrides = [f"plant.parameters={{d: {damping}}}"]
    found = internal_dynamics(*[getattr(sc.load("mass_on_car", overrides), x) for x in ("loop", "start")])
    assert found is not None
    expected = np.roots([0.5 * np.sin(np.pi / 4) ** 2, damping, 5.0])  # m2 sin^2 s'' + d s' + k s = 0
    assert sorted(found.modes, key=lambda z: z.imag) == pytest.approx(sorted(expected, key=lambda z: z.imag), abs=1e-9)
    assert found.stable is stable


def test_a_task_that_fixes_the_motion_leaves_no_internal_dynamics() -> None:
    run = sc.load("three_masses")
    found = internal_dynamics(run.loop, run.start)
    assert found is not None
    assert (found.dimension, found.stable) == (0, True)


def test_poles_of_the_published_robots_are_those_of_the_polynomial_and_nothing_else() -> None:
    run = sc.load("two_mass_spring")
    found = internal_dynamics(run.loop, run.start)
    assert found is not None
    assert found.dimension == 2  # both masses together: x1'' follows from the spring's constant pull
    assert found.stable is None


def test_a_row_that_no_input_reaches_at_any_degree_is_named() -> None:
    @dataclass(frozen=True)
    class Apart(Masses):
        def force(self, q: Array, v: Array, t: float) -> Array:
            return -q

    with pytest.raises(TaskError, match=r"alone: no input appears in its derivatives up to the 8th"):
        sc.simulate(Apart(forces="F"), {"alone": sc.Holonomic("y")}, law(), q=0.0, duration=1.0)


def test_an_opaque_plant_is_refused_by_name() -> None:
    @dataclass(frozen=True)
    class Hidden(TwoMassSpring):
        def force(self, q: Array, v: Array, t: float) -> Array:
            return super().force(np.array([float(x) for x in q]), v, t)

    with pytest.raises(TaskError, match=r"input_output needs a plant that can be compiled: .*float\(x\)"):
        sc.simulate(Hidden(), {"x2": sc.Holonomic("x2 - 0.5")}, law(), q=[0.0, 0.5], duration=1.0)


def test_a_task_of_several_rows_keeps_its_name_and_may_have_poles_of_its_own() -> None:
    task = {"masses": sc.Holonomic(lambda q, t: np.array([q[0] - 1.0, q[1] - 2.0]))}
    start, end = np.array([-1.0, -2.0]), np.exp(-3.0) * 4.0  # a double pole at -3: (1 + 3 t) exp(-3 t)
    own = law(corrections={"masses": sc.Poles(-3)})
    for chosen in (own, law({"masses": -3}), law([-3, -3]), law(-3, priorities={"masses": 1}, optional=["masses"])):
        run = sc.simulate(Masses(), task, chosen, q=0.0, duration=1.0)
        assert run.metadata["tasks"] == {"masses": ["masses.0", "masses.1"]}
        assert [run[f"violation.masses.{i}"][-1] for i in (0, 1)] == pytest.approx(start * end, abs=1e-9)


def test_rows_of_one_task_may_have_different_degrees() -> None:
    task = {"both": sc.Nonholonomic(lambda q, v, t: np.array([v[2] - 1.0, v[0] + v[1] - 0.2]))}
    start = sc.State(0.0, np.zeros(4), np.zeros(4))
    model = law().prepare(sc.Model(FlexibleJointArm(), task, start))
    assert [(row.name, row.group, row.degree) for row in model.task_rows] == [
        ("both.0", "both", 1),
        ("both.1", "both", 3),
    ]
    run = sc.simulate(FlexibleJointArm(), task, law(), q=0.0, duration=1.0, method="dop853")
    assert np.abs(run["violation.both.0"] + np.exp(-4.0 * run.t)).max() < 1e-8


def test_the_tool_of_a_robot_follows_a_reference_by_poles() -> None:
    overrides = ["law={kind: input_output, correction: {poles: -10}, limits: robot}", "run.duration=0.02"]
    run = sc.load("arm_path", [*overrides, "task.path.correction={poles: [-8, -9, -10]}"]).simulate()
    assert run.metadata["status"] == "done"
    assert list(run.tasks) == ["path", "upright", "rest"]


def test_check_and_errors_speak_of_the_task_as_it_is_written() -> None:
    run = sc.load("crane", ['task=[{name: load, holonomic: "s - abs(t - 1)"}]', "law.correction.poles=-1"])
    (section,) = task_section(run)
    assert [str(finding) for finding in section.findings] == [
        "task.load: abs in a holonomic row: its second derivative ignores the kink"
    ]
    poles = "law={kind: input_output, correction: {poles: -10}, limits: robot}"
    with pytest.raises(ConfigError, match="upright: its axis points opposite to its direction"):
        sc.load("arm_path", [poles, "task.upright.along=[0, 0, 1]", "initial.max_violation=10"])
