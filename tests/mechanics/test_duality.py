"""A plant without `actuation` gets B from its `motor_positions`, by power duality."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import servoctl as sc
from servoctl.errors import PlantError
from servoctl.mechanics.motors import check_motor_positions
from servoctl.types import Array, State


@dataclass(frozen=True)
class Boom(sc.Plant):
    """A boom on a hinge, raised by a cylinder between the ground and a point of the boom."""

    m: float = 20.0  # [kg] at the tip
    length: float = 2.0  # [m]
    arm: float = 0.8  # [m] from the hinge to the cylinder's rod
    base: float = 0.5  # [m] from the hinge down to the cylinder's foot
    coordinates: ClassVar = {"lift": "rad"}
    actuators: ClassVar = {"cylinder": "N"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[self.m * self.length**2]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([-9.81 * self.m * self.length * np.cos(q[0])])

    def motor_positions(self, q: Array) -> Array:
        # the foot is straight below the hinge
        return np.array([np.hypot(self.arm * np.cos(q[0]), self.arm * np.sin(q[0]) + self.base)])


def lever(boom: Boom, q: float) -> float:
    """The cylinder's moment arm by geometry: the distance of its line from the hinge [m]."""
    rod = boom.arm * np.array([np.cos(q), np.sin(q)])
    foot = np.array([0.0, -boom.base])
    along = (rod - foot) / np.linalg.norm(rod - foot)
    return float(rod[0] * along[1] - rod[1] * along[0])


def test_the_column_of_b_is_the_moment_arm() -> None:
    boom = Boom()
    for q in (-0.6, 0.0, 0.4, 1.1):
        np.testing.assert_allclose(boom.actuation(np.array([q]), 0.0), [[lever(boom, q)]], rtol=1e-14)


def test_parameters_stay_inputs_of_the_derived_matrix() -> None:
    other = Boom(arm=1.3)
    Boom().actuation(np.array([0.4]), 0.0)  # a matrix derived for other parameters must not be used again
    np.testing.assert_allclose(other.actuation(np.array([0.4]), 0.0), [[lever(other, 0.4)]], rtol=1e-14)


@pytest.mark.parametrize("engine", ["numpy", "vm"])
def test_a_run_needs_no_actuation(engine: str) -> None:
    task = {"lift": sc.Holonomic("lift - 0.2*(1 - cos(t))")}
    law = sc.ConstraintFollowing(sc.Baumgarte(10.0, 10.0))
    run = sc.simulate(Boom(), task, law, q=[0.0], v=[0.0], duration=0.5, step=0.005, engine=engine)
    assert run.summary()["tasks"]["lift"]["max_violation"] < 1e-9
    table = run.to_pandas()
    t, q, u = (table[name].to_numpy() for name in ("t", "q.lift", "u.cylinder"))
    boom = Boom()
    moment = boom.m * boom.length**2 * 0.2 * np.cos(t) + 9.81 * boom.m * boom.length * np.cos(q)
    np.testing.assert_allclose(u, moment / [lever(boom, x) for x in q], rtol=1e-6)


def test_the_displacements_are_conjugate_by_construction() -> None:
    check_motor_positions(Boom(), State(0.0, np.array([0.3]), np.zeros(1)))


def test_a_wrong_number_of_displacements_is_an_error() -> None:
    @dataclass(frozen=True)
    class Two(Boom):
        actuators: ClassVar = {"cylinder": "N", "rope": "N"}

    with pytest.raises(PlantError, match=r"Two.motor_positions: expected shape \(2,\), one displacement per actuator"):
        Two().actuation(np.zeros(1), 0.0)


def test_displacements_that_symbols_cannot_follow_are_an_error() -> None:
    @dataclass(frozen=True)
    class Stops(Boom):
        def motor_positions(self, q: Array) -> Array:
            return np.array([1.0 if q[0] > 0 else 0.0])

    with pytest.raises(PlantError, match=r"Stops.motor_positions: .*write actuation\(q, t\)"):
        Stops().actuation(np.zeros(1), 0.0)
