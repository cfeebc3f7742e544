"""Rotors of the actuators (`plant.armature`) against closed forms, and in every command that names them."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import servoctl as sc
from servoctl.errors import ConfigError
from servoctl.mechanics.actuator_parameters import with_armature, without_armature
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant_values import dense_actuation
from servoctl.types import State
from tests.config_texts import plant_text

LIMIT = 1e-9
"""Relative to the numbers themselves, of size 1: the goal; what is found is round-off."""

ARM = plant_text(
    "Arm", "m1: float = 1.0; m2: float = 0.8; g: float = 9.81", {"a": "rad", "b": "rad"}, {"u1": "N m", "u2": "N m"},
    "self.m1 * np.diag([0.1, 0.0]) + self.m2 * (np.array([[0.25, 0.09], [0.09, 0.09]])"
    " + np.cos(q[1]) * np.array([[0.24, 0.12], [0.12, 0.0]]))",
    "0.12 * self.m2 * np.sin(q[1]) * np.array([2 * v[0] * v[1] + v[1]**2, -(v[0]**2)])"
    " - np.array([self.g * self.m1 * 0.2 * np.cos(q[0]), 0.0])",
    "np.array([[1.0, -1.0], [0.0, 1.0]])",
)  # fmt: skip

CONFIG = """
plant: {class: "arm.py:Arm", armature: {u1: 0.3, u2: 0.2}}
initial: {q: {a: 0.2, b: 0.5}, v: 0}
task:
  - {name: ta, holonomic: "a - 0.2 - 0.5*(1 - cos(2*t))"}
  - {name: tb, holonomic: "b - 0.5 - 0.4*(1 - cos(3*t))"}
law: {correction: {baumgarte: {alpha: 10, beta: 10}}}
run: {duration: 2, period: 0.002, integrator: {method: rk4, step: 0.001}}
"""


@dataclass(frozen=True)
class Cylinder(sc.Plant):
    """A boom that a hydraulic cylinder lifts: the actuator's coordinate is the cylinder's length."""

    m: float = 2.0
    a: float = 0.5
    b: float = 0.4
    coordinates = {"phi": "rad"}  # noqa: RUF012
    actuators = {"F": "N"}  # noqa: RUF012

    def mass_matrix(self, q, t):  # type: ignore[no-untyped-def]
        return np.array([[self.m * 0.3]])

    def force(self, q, v, t):  # type: ignore[no-untyped-def]
        return np.array([-self.m * np.sin(q[0])])

    def motor_positions(self, q):  # type: ignore[no-untyped-def]
        return np.array([np.sqrt(self.a**2 + self.b**2 - 2 * self.a * self.b * np.cos(q[0]))])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "arm.py").write_text(ARM)
    (tmp_path / "c.yaml").write_text(CONFIG)
    return tmp_path / "c.yaml"


def test_the_rotors_of_an_arm_with_a_remote_motor_are_in_its_mass_matrix(config: Path) -> None:
    plain, geared = (sc.load(config, more).system.model.plant for more in (["plant.armature="], []))
    q, v = np.array([0.3, -0.8]), np.array([1.0, 2.0])
    # the second motor stands on the base: its rotor turns at b' - a'
    rotors = np.array([[0.3 + 0.2, -0.2], [-0.2, 0.2]])
    np.testing.assert_allclose(geared.mass_matrix(q, 0.0) - plain.mass_matrix(q, 0.0), rotors, atol=LIMIT)
    np.testing.assert_allclose(geared.right_hand_side(q, v, 0.0), plain.right_hand_side(q, v, 0.0), atol=LIMIT)


def test_a_cylinder_with_b_that_depends_on_q_has_the_mass_and_the_force_of_its_moving_parts() -> None:
    plant, J = with_armature(Cylinder(), [3.0]), 3.0
    for phi, rate in ((0.7, 1.3), (2.0, -0.4), (-1.1, 3.0)):
        q, v = np.array([phi]), np.array([rate])
        rho = np.sqrt(0.41 - 0.4 * np.cos(phi))
        B = 0.2 * np.sin(phi) / rho
        slope = (0.2 * np.cos(phi) - B**2) / rho
        M, Q = 0.6 + J * B**2, -2.0 * np.sin(phi) - J * B * slope * rate**2
        np.testing.assert_allclose(plant.mass_matrix(q, 0.0), [[M]], rtol=LIMIT)
        np.testing.assert_allclose(plant.right_hand_side(q, v, 0.0), [Q], rtol=LIMIT)
        model = Model(plant, {}, State(0.0, q, v))
        assert model.opaque is None
        traced = model.matrices(State(0.0, q, v))
        np.testing.assert_allclose([traced.M[0, 0], traced.Q[0]], [M, Q], rtol=LIMIT)


def test_law_and_machine_both_have_the_rotors_and_a_wrong_one_is_seen(config: Path) -> None:
    run = sc.load(config, engine="vm")
    good = run.simulate().summary()["tasks"]
    wrong = sc.load(config, "realism.parameter_error.armature.u1=-0.9", engine="vm").simulate().summary()["tasks"]
    assert good["ta"]["max_violation"] < 1e-4  # what the hold of 2 ms leaves
    assert wrong["ta"]["max_violation"] > 1e-3
    named = sc.load(config, "realism={parameter_error: {armature.u1: -0.9}}", engine="vm")
    assert named.system.simulated.plant.armature == pytest.approx((0.03, 0.2))
    with pytest.raises(ConfigError, match=r"armature.u9: Arm has no such parameter that is a number \(did you mean"):
        sc.load(config, "realism={parameter_error: {armature.u9: -0.9}}")


@pytest.mark.parametrize("name", ["scara", "two_mass_spring", "arm_path"])
def test_the_energy_counts_each_rotor_once_also_of_a_plant_that_takes_it_from_its_mass_matrix(name: str) -> None:
    plain = without_armature(sc.load(name).system.model.plant)
    J = np.arange(1.0, len(plain.actuators) + 1)
    q, v = np.random.default_rng(1).uniform(-1, 1, (2, len(plain.coordinates)))
    before, after = plain.energy(q, v, 0.0), with_armature(plain, J.tolist()).energy(q, v, 0.0)
    assert before is not None and after is not None
    speeds = dense_actuation(plain, q, 0.0).T @ v
    assert after - before == pytest.approx(0.5 * np.sum(J * speeds**2), rel=1e-12)


@dataclass(frozen=True)
class Hoist(sc.Plant):
    """A falling load that takes its weight from its mass matrix."""

    m: float = 2.0
    coordinates: ClassVar = {"z": "m"}
    actuators: ClassVar = {"F": "N"}

    def mass_matrix(self, q, t):
        return np.array([[self.m]])

    def force(self, q, v, t):
        return self.mass_matrix(q, t) @ np.array([-9.81])

    def actuation(self, q, t):
        return np.eye(1)


def test_a_rotor_has_no_weight_though_a_force_takes_its_mass_matrix() -> None:
    start = State(0.0, np.zeros(1), np.zeros(1))
    found = sc.fundamental_acceleration(with_armature(Hoist(), [3.0]), start).acceleration
    assert found == pytest.approx([-9.81 * 2.0 / 5.0], rel=1e-14)
