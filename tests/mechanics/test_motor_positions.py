"""Displacements of motors are conjugate to their efforts: the Jacobian of `motor_positions` is B^T."""

import importlib
import inspect
import pkgutil
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pytest

import plants
from plants.chain import Chain
from plants.coordinated_robots import CoordinatedRobots
from plants.flexible_joint_arm import FlexibleJointArm
from plants.four_bars import FourBars
from plants.parallelogram import Parallelogram
from plants.polar_particle import PolarParticle
from plants.two_wheeled_robot import TwoWheeledRobot
from plants.unicycle import Unicycle
from servoctl.engine.kernel import inputs
from servoctl.engine.trace import trace
from servoctl.errors import PlantError
from servoctl.mechanics.motors import check_motor_positions, displacement_unit, motor_positions
from servoctl.mechanics.planar import Linkage, PlanarLinkage
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State
from tests.small_plants import Masses


def shipped() -> list[Plant]:
    """Every plant of the package with its defaults, and variants that have other motors."""
    found: list[Plant] = []
    for module in pkgutil.iter_modules(plants.__path__):
        for _, kind in inspect.getmembers(importlib.import_module(f"plants.{module.name}"), inspect.isclass):
            if issubclass(kind, Plant) and kind.__module__ == f"plants.{module.name}" and not inspect.isabstract(kind):
                found.append(kind())
    found += [Parallelogram(motor=2), FourBars(motor=True), FlexibleJointArm(inputs="link"), CoordinatedRobots(s=4)]
    return [plant for plant in found if plant.actuators and not rolls(plant)]


def rolls(plant: Plant) -> bool:
    """Whether the way of a wheel matters: then the angle of its motor is no function of the pose."""
    return type(plant).passive_rates is not Plant.passive_rates


PLANTS = shipped()


def states(plant: Plant) -> list[Array]:
    random = np.random.default_rng(5)
    return [random.standard_normal(len(plant.coordinates)) for _ in range(6)]


def test_every_plant_with_actuators_is_here() -> None:
    assert len({type(plant).__name__ for plant in PLANTS}) >= 13


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: type(plant).__name__)
def test_differences_of_the_displacements_are_the_transposed_actuation(plant: Plant) -> None:
    h = 1e-5
    for q in states(plant):
        columns = [
            (motor_positions(plant, q + step) - motor_positions(plant, q - step)) / (2 * h)
            for step in h * np.eye(len(q))
        ]
        # displacements are at most quadratic in h to the third order: round-off of 1 in 2 h remains
        np.testing.assert_allclose(np.stack(columns, axis=1), plant.actuation(q, 0.0).T, atol=1e-9)


@pytest.mark.parametrize("plant", [Unicycle(), TwoWheeledRobot()], ids=lambda plant: type(plant).__name__)
def test_a_wheel_that_rolls_has_no_displacement(plant: Plant) -> None:
    with pytest.raises(
        PlantError, match=r"motor_positions: cannot be derived, since actuation\(q, t\) is not constant"
    ):
        motor_positions(plant, np.zeros(len(plant.coordinates)))


def test_a_motor_between_two_links_turns_by_their_difference() -> None:
    np.testing.assert_allclose(motor_positions(Chain(N=3), np.array([0.1, 0.4, 1.0])), [0.1, 0.3, 0.6], atol=1e-15)
    rho = motor_positions(CoordinatedRobots(), np.array([1.0, 2.0, 4.0, 7.0, 11.0]))
    np.testing.assert_allclose(rho, [1.0, 1.0, 2.0, -3.0, -4.0, 11.0], atol=1e-15)


@dataclass(frozen=True)
class Slide(PlanarLinkage):
    """A block driven along a bar that turns: B depends on q."""

    def build(self, linkage: Linkage) -> None:
        linkage.body("bar", 1.0, 0.1)
        linkage.body("block", 1.0, 0.1)
        linkage.revolute("axle", "ground", (0.0, 0.0), "bar", (0.0, 0.0))
        linkage.prismatic("slide", "bar", (0.2, 0.1), "block", (0.0, 0.3), axis=(3.0, 4.0))
        linkage.motor("push", "slide")


def test_a_motor_on_a_slide_that_turns_is_conjugate_too() -> None:
    plant = Slide()
    first, second = (plant.actuation(q, 0.0) for q in states(plant)[:2])
    assert np.abs(first - second).max() > 0.1
    check_motor_positions(plant, State(0.0, np.zeros(6), np.zeros(6)))


@dataclass(frozen=True)
class Winch(Masses):
    """A load on a rope from the origin, pulled towards it: the column of B has the direction of the rope."""

    gain: float = 1.0
    exponent: float = 0.0
    coordinates: ClassVar = {"x": "m", "y": "m"}
    actuators: ClassVar = {"F": "N"}

    def actuation(self, q: Array, t: float) -> Array:
        length = np.sqrt(q[0] ** 2 + q[1] ** 2)
        return -np.array([[q[0]], [q[1]]]) / length


@dataclass(frozen=True)
class MeasuredWinch(Winch):
    def motor_positions(self, q: Array) -> Array:
        return np.array([-self.gain * np.sqrt(q[0] ** 2 + q[1] ** 2)])


@dataclass(frozen=True)
class OpaqueWinch(Winch):
    """The same by code that symbols cannot follow."""

    def motor_positions(self, q: Array) -> Array:
        return np.array([-self.gain * float(np.hypot(q[0], q[1]))])


HERE = State(0.0, np.array([3.0, 4.0]), np.zeros(2))


def test_motor_positions_are_required_if_actuation_depends_on_the_pose() -> None:
    message = r"Winch.motor_positions: cannot be derived, since actuation\(q, t\) is not constant \(write"
    with pytest.raises(PlantError, match=message):
        motor_positions(Winch(), HERE.q)
    with pytest.raises(PlantError, match=message):
        trace(partial(motor_positions, Winch()), inputs({"q": (2,)})["q"])
    with pytest.raises(PlantError, match=message):
        check_motor_positions(Winch(), HERE)


@dataclass(frozen=True)
class Switching(Winch):
    """Its motor is coupled in from t = 1 s on: constant in q, not in time."""

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[1.0], [0.0]]) * (1.0 if t > 1.0 else 0.5)


def test_motor_positions_are_required_if_actuation_depends_on_time() -> None:
    with pytest.raises(PlantError, match=r"Switching.motor_positions: cannot be derived"):
        motor_positions(Switching(), HERE.q)


@pytest.mark.parametrize("kind", [MeasuredWinch, OpaqueWinch])
def test_motor_positions_of_a_plant_are_checked(kind: type[Winch]) -> None:
    check_motor_positions(kind(), HERE)
    with pytest.raises(
        PlantError, match=r"Winch.motor_positions: not conjugate to 'F': its gradient is \[-1.2, -1.6\]"
    ):
        check_motor_positions(kind(gain=2.0), HERE)


@dataclass(frozen=True)
class TwoRopes(Winch):
    def motor_positions(self, q: Array) -> Array:
        return np.array([q[0], q[1]])


def test_there_is_one_displacement_per_actuator() -> None:
    with pytest.raises(PlantError, match=r"TwoRopes.motor_positions: expected shape \(1,\), got"):
        check_motor_positions(TwoRopes(), HERE)


def test_the_published_metric_has_no_conjugate_displacement() -> None:
    with pytest.raises(PlantError, match=r"published_metric Ftheta .* has no conjugate displacement"):
        motor_positions(PolarParticle(published_metric=True), np.array([1.0, 0.5]))


def test_units_of_displacements() -> None:
    assert displacement_unit(CoordinatedRobots(), "u1") == "rad"
    assert displacement_unit(Winch(), "F") == "m"
    assert displacement_unit(PolarParticle(published_metric=True), "Ftheta") == "J/(N/m)"
