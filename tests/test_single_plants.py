"""Properties of single plants: inputs, closure, picture, errors of structure."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from screws import ScrewScara

from plants.coordinated_robots import CoordinatedRobots
from plants.crane_rope import CraneRope
from plants.flexible_joint_arm import FlexibleJointArm
from plants.polar_particle import PolarParticle
from plants.scara import Scara
from plants.swarm import Aggregation, Swarm
from servoctl.errors import PlantError
from servoctl.mechanics.plant import Plant
from servoctl.types import Array

RANDOM = np.random.default_rng(13)
SCARA: dict[str, Any] = {"m2": 12.0, "m3": 9.0, "m4": 1.5, "Iz3": 0.03, "Iz4": 0.01, "l0": 0.1}


def test_screws_and_closed_form_are_one_scara() -> None:
    closed, screws = Scara(**SCARA), ScrewScara(**SCARA)
    for q, v in RANDOM.normal(size=(10, 2, 4)):
        np.testing.assert_allclose(screws.mass_matrix(q, 0.0), closed.mass_matrix(q, 0.0), atol=1e-12)
        np.testing.assert_allclose(screws.coriolis_matrix(q, v), closed.coriolis_matrix(q, v), atol=1e-12)
        np.testing.assert_allclose(screws.force(q, v, 0.0), closed.force(q, v, 0.0), atol=1e-12)


def test_the_drawn_tool_of_the_scara_is_at_the_pose_of_the_screws() -> None:
    plant = ScrewScara(**SCARA)
    home = np.eye(4)
    home[:3, 3] = [0.0, plant.l1 + plant.l2, plant.l0]
    for q in RANDOM.normal(size=(5, 4)):
        a, b = q[0], q[0] + q[1]
        # (39) of Xu, Liu 2017
        tool = [
            -plant.l1 * np.sin(a) - plant.l2 * np.sin(b),
            plant.l1 * np.cos(a) + plant.l2 * np.cos(b),
            plant.l0 + q[3],
        ]
        np.testing.assert_allclose(plant.links(q)["slide"][-1], tool, atol=1e-14)
        np.testing.assert_allclose(plant.chain().forward_kinematics(q, home)[:3, 3], tool, atol=1e-14)


def test_actuation_of_the_robots_is_the_published_one() -> None:
    # (70) of Liu et al. 2015
    published = [[1, -1, 0, 0, 0, 0], [0, 1, -1, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, -1, 1, 0], [0, 0, 0, 0, -1, 1]]
    np.testing.assert_array_equal(CoordinatedRobots().actuation(np.zeros(5), 0.0), published)


@pytest.mark.parametrize("s", [2, 3, 4, 5])
def test_every_joint_motor_of_the_robots_works_on_the_angle_between_its_links(s: int) -> None:
    plant = CoordinatedRobots(s=s)
    n = 2 * s - 1
    # power u_j (w_outer - w_inner), the ground at rest on either side
    w = RANDOM.normal(size=n)
    rates = np.diff(np.concatenate([[0.0], w, [0.0]]))
    signs = np.where(np.arange(n + 1) < s, 1.0, -1.0)
    np.testing.assert_allclose(plant.actuation(np.zeros(n), 0.0).T @ w, signs * rates, atol=1e-15)


def test_the_loop_of_the_robots_closes_at_the_second_base() -> None:
    plant = CoordinatedRobots()
    q = np.deg2rad([60.0, -60.0, 0.0, 60.0, -60.0])
    np.testing.assert_allclose(plant.passive_constraints(q, 0.0)["loop"], [0.0, 0.0], atol=1e-15)
    drawn = plant.links(q)
    np.testing.assert_allclose(drawn["robot2"][-1], [plant.L, 0.0], atol=1e-15)
    np.testing.assert_array_equal(drawn["robot1"][-1], drawn["object"][0])
    np.testing.assert_array_equal(drawn["object"][-1], drawn["robot2"][0])


def test_both_metrics_of_the_particle_have_one_free_motion() -> None:
    true, published = PolarParticle(m=1.7), PolarParticle(m=1.7, published_metric=True)
    assert true.actuators["Ftheta"] == "N m" and published.actuators["Ftheta"] == "N/m"
    for q, v in RANDOM.uniform(0.5, 3.0, size=(5, 2, 2)):
        free = [np.linalg.solve(p.mass_matrix(q, 0.0), p.force(q, v, 0.0)) for p in (true, published)]
        np.testing.assert_allclose(free[0], free[1], rtol=1e-13)
        np.testing.assert_array_equal(published.mass_matrix(q, 0.0), 1.7 * np.eye(2))


def test_aggregation_follows_the_gradient_of_the_swarms_potential() -> None:
    (position, rate), h = RANDOM.normal(size=(2, 8)), 1e-6

    def potential(p: Array, i: int) -> float:
        distances = [np.linalg.norm(p[2 * i : 2 * i + 2] - p[2 * j : 2 * j + 2]) for j in range(4) if j != i]
        return float(sum(-0.7 * d + 1.3 * d**2 / 2 + 50 for d in distances))

    slope = [
        (potential(position + h * e, k // 2) - potential(position - h * e, k // 2)) / (2 * h)
        for k, e in enumerate(np.eye(8))
    ]
    np.testing.assert_allclose(Aggregation(a=1.3, b=0.7).psi(position, rate, 0.0), rate + slope, atol=1e-7)


def test_two_robots_rest_at_the_distance_where_forces_balance() -> None:
    np.testing.assert_allclose(
        Aggregation(a=2.0, b=0.5).psi(np.array([0.0, 0.0, 0.15, 0.2]), np.zeros(4), 0.0), 0.0, atol=1e-16
    )


def test_a_single_robot_has_no_attraction() -> None:
    np.testing.assert_array_equal(Aggregation().psi(np.ones(2), np.array([0.3, -0.4]), 0.0), [0.3, -0.4])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CoordinatedRobots(s=1), "CoordinatedRobots: s: expected at least 2 links in each arm, got 1"),
        (lambda: FlexibleJointArm(inputs="joint"), "FlexibleJointArm: inputs: expected 'motor' or 'link', got 'joint'"),
        (lambda: Swarm(N=0), "Swarm: N: expected at least 1 robot, got 0"),
    ],
)
def test_a_wrong_structure_is_named(build: Callable[[], Plant], message: str) -> None:
    with pytest.raises(PlantError) as error:
        build()
    assert str(error.value) == message


def test_every_body_of_the_crane_with_a_rope_obeys_newton_and_the_rope_pulls() -> None:
    plant = CraneRope(M=17.0, m=41.0, J=0.3, r=0.15, g=9.7)
    for angle, length, F, tau in RANDOM.uniform([-0.7, 1.0, -50, -90], [0.7, 3.0, 50, 0], (6, 4)):
        s, turning, winding, rolling = RANDOM.normal(size=4)
        e, across = np.array([np.sin(angle), -np.cos(angle)]), np.array([np.cos(angle), np.sin(angle)])
        x, y = np.array([s, 0.0]) + length * e
        velocity = np.array([rolling, 0.0]) + winding * e + length * turning * across
        q, v = np.array([s, x, y, length]), np.array([rolling, *velocity, winding])
        assert abs(plant.passive_constraints(q, 0.0)["rope"]) < 1e-12
        A = np.array([[-e[0], *e, -1.0]])
        assert abs(A @ v) < 1e-12
        # the length's second rate at q'' = 0 is that of a point that passes the trolley: length turning^2
        b = np.array([-length * turning**2])
        M, Q, B = plant.mass_matrix(q, 0.0), plant.force(q, v, 0.0), plant.actuation(q, 0.0)
        solved = np.linalg.solve(np.block([[M, -A.T], [A, np.zeros((1, 1))]]), [*(Q + B @ [F, tau]), *b])
        (ds, dx, dy, dl), tension = solved[:4], -solved[4]
        np.testing.assert_allclose(plant.m * np.array([dx, dy + plant.g]), -tension * e, atol=1e-10)
        assert plant.M * ds == pytest.approx(F + tension * e[0])
        assert plant.J * dl / plant.r == pytest.approx(tau + tension * plant.r)
    hanging = np.array([0.0, 0.0, -2.0, 2.0])
    held = plant.force(hanging, np.zeros(4), 0.0) + plant.actuation(hanging, 0.0) @ [0.0, -plant.m * plant.g * plant.r]
    np.testing.assert_allclose(held, -plant.m * plant.g * np.array([0.0, 0.0, 1.0, 1.0]), atol=1e-12)
