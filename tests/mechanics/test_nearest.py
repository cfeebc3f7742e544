"""Nearest states against geometry; a constraint that no state satisfies keeps its violation."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from plants.coordinated_robots import CoordinatedRobots
from servoctl.mechanics.constraint import Holonomic, Nonholonomic
from servoctl.mechanics.initial import nearest
from servoctl.mechanics.model import Model
from servoctl.types import Array, State
from tests.small_plants import Masses


def close(task: dict[str, Any], state: State, fix: tuple[str, ...] = ()) -> tuple[State, Any]:
    return nearest(Model(Masses(forces=""), task, state), state, fix)


def test_the_nearest_point_of_a_circle_lies_on_the_ray_from_its_centre() -> None:
    start = State(0.0, np.array([3.0, 4.0]), np.array([1.0, 0.0]))
    found, left = close({"circle": Holonomic("x**2 + y**2 - 1")}, start)
    np.testing.assert_allclose(found.q, [0.6, 0.8], atol=1e-10)
    np.testing.assert_allclose(found.v, np.array([1.0, 0.0]) - 0.6 * np.array([0.6, 0.8]), atol=1e-9)
    np.testing.assert_allclose([left.violation, left.violation_rate], 0.0, atol=1e-10)


def test_the_nearest_state_follows_a_moving_constraint_at_its_time() -> None:
    found, _ = close({"line": Holonomic("y - x - t**2")}, State(2.0, np.zeros(2), np.zeros(2)))
    np.testing.assert_allclose([found.q, found.v], [[-2.0, 2.0], [-2.0, 2.0]], atol=1e-12)


def test_fixed_coordinates_keep_their_values_and_velocities() -> None:
    start = State(0.0, np.array([0.5, 4.0]), np.array([0.7, 0.0]))
    found, _ = close({"circle": Holonomic("x**2 + y**2 - 1")}, start, ("x",))
    np.testing.assert_allclose(found.q, [0.5, np.sqrt(0.75)], rtol=1e-10)
    np.testing.assert_allclose(found.v, [0.7, -0.7 * 0.5 / np.sqrt(0.75)], rtol=1e-9)
    assert (found.q[0], found.v[0]) == (0.5, 0.7)


def test_a_nonholonomic_row_moves_velocities_only() -> None:
    found, left = close({"knife": Nonholonomic("der(x)*sin(y) - der(y)*cos(y)")}, State(0.0, np.zeros(2), np.ones(2)))
    assert found.q.tolist() == [0.0, 0.0]
    np.testing.assert_allclose(found.v, [1.0, 0.0], atol=1e-12)
    assert left.violation[0] == pytest.approx(0.0, abs=1e-12)


def test_dependent_rows_do_no_harm_and_contradicting_rows_keep_a_violation() -> None:
    start = State(0.0, np.array([3.0, 0.0]), np.zeros(2))
    found, left = close({"a": Holonomic("x - 1"), "b": Holonomic("2*x - 2")}, start)
    np.testing.assert_allclose(found.q, [1.0, 0.0], atol=1e-10)
    found, left = close({"a": Holonomic("x - 1"), "b": Holonomic("x - 2")}, start)
    np.testing.assert_allclose(found.q, [1.5, 0.0], atol=1e-8)
    np.testing.assert_allclose(left.violation, [0.5, -0.5], atol=1e-8)
    assert left.worst([*left.rows], "holonomic") is not None


def test_a_violation_that_no_pose_removes_remains() -> None:
    _, left = close({"circle": Holonomic("x**2 + y**2 + 1")}, State(0.0, np.array([0.3, 0.4]), np.zeros(2)))
    assert left.violation[0] == pytest.approx(1.0, abs=1e-3)  # the minimum; steps end where they gain nothing


def test_a_closed_chain_is_assembled_without_the_task() -> None:
    plant = CoordinatedRobots()
    q = np.deg2rad([55.0, -62.0, 3.0, 60.0, -60.0])
    model = Model(plant, {"level": Holonomic("theta3 - 0.2")}, State(0.0, q, np.zeros(5)))
    found, left = nearest(model, State(0.0, q, np.ones(5)), among=())
    assert np.abs(left.violation[:2]).max() < 1e-10 and np.abs(left.violation_rate[:2]).max() < 1e-10
    assert abs(left.violation[2]) > 0.1
    assert np.linalg.norm(found.q - q) < 0.3


@dataclass(frozen=True)
class ParallelLegs(Masses):
    """Two legs, each closed by a second branch: crank and rod beside a link, all straight down in the zero pose."""

    tilt: float = 1e-8  # [rad] of the cranks in the zero pose
    coordinates: ClassVar = {f"{part}{i}": "rad" for i in (1, 2) for part in ("crank", "rod", "link")}
    actuators: ClassVar = {}

    def passive_constraints(self, q: Array, t: float) -> dict[str, Array]:
        legs = {"one": (q[:3], 0.02), "two": (q[3:], -0.015)}
        return {name: self._gap(angles, side) for name, (angles, side) in legs.items()}

    def _gap(self, angles: Array, side: float) -> Array:
        """From the end of the rod to the end of the link, whose joint lies beside that of the crank."""
        crank, rod, link = angles[0] + self.tilt, angles[0] + angles[1], angles[2] - 2 * self.tilt
        x = 0.3 * np.sin(crank) + 0.15 * np.sin(rod) - 0.35 * np.sin(link) - side
        z = -0.3 * np.cos(crank) - 0.15 * np.cos(rod) + 0.35 * np.cos(link) + 0.08
        return np.array([x, z])


@pytest.mark.parametrize("tilt", [0.0, 1e-8, 1e-6, 1e-4])
def test_legs_with_parallel_branches_close_from_a_pose_that_is_nearly_singular(tilt: float) -> None:
    """All links point the same way, so the cranks hardly move the gap in z: a Newton step is 1e6 rad long."""
    plant, state = ParallelLegs(tilt=tilt), State(0.0, np.zeros(6), np.zeros(6))
    found, left = nearest(Model(plant, {}, state), state)
    assert np.abs(left.violation).max() < 1e-10
    assert np.abs(found.q).max() < np.pi / 2
    held, _ = nearest(Model(plant, {}, state), state, ("link2",))
    assert held.q[5] == 0.0
