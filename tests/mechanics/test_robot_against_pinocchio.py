"""Trees of robots against Pinocchio at random states: mass matrix, bias, centre of mass, frames."""

from typing import Any

import numpy as np
import pytest

from servoctl.mechanics.spatial.description import Description
from servoctl.mechanics.spatial.dynamics import quaternion_rotation, spin_columns
from servoctl.mechanics.spatial.placement import Placement
from servoctl.mechanics.spatial.plant import Robot
from servoctl.types import Array
from tests.robot_trees import arm7, built, random_state, random_tree, urdf

pin = pytest.importorskip("pinocchio", reason="Pinocchio is not installed")

ROBOTS = {
    "arm of 7 joints": arm7(),
    "tree of 6 joints": random_tree(1, 6),
    "tree of 7 joints, two of them mimic": random_tree(2, 7, mimics=2, fixed=2),
    "tree of 14 joints": random_tree(3, 14, fixed=3),
    "tree of 26 hinges": random_tree(5, 26, fixed=3, hinges=True),
    "tree of 29 joints": random_tree(4, 29, mimics=3, fixed=4),
}
CASES = [(name, base) for name in ROBOTS for base in ("fixed", "free")]


class Oracle:
    """A description in Pinocchio, with the coordinates of our robot.

    Rates of Pinocchio's own coordinates are `S v`: mimic joints repeat those they follow, and a free base has its
    linear and angular velocity in its own axes.
    """

    def __init__(self, description: Description, robot: Robot) -> None:
        free = robot.tree.free_bases != ()
        text = urdf(description)
        self.model = pin.buildModelFromXML(text, *([pin.JointModelFreeFlyer()] if free else []))
        self.data = self.model.createData()
        self.robot, self.free = robot, free

    def state(self, q: Array, v: Array) -> tuple[Array, Array, Array, Array]:
        """Pinocchio's q, v, the matrix S, and `S' v`."""
        model, tree = self.model, self.robot.tree
        q_pin, S, drift = pin.neutral(model), np.zeros((model.nv, len(q))), np.zeros(model.nv)
        for joint, columns in zip(tree.joints, tree.columns, strict=True):
            if joint.kind == "free":
                p = q[3:7]
                R = quaternion_rotation(p).astype(float)
                q_pin[:7] = [*q[:3], *p[1:], p[0]]
                S[:3, :3] = R.T
                S[3:6, 3:7] = spin_columns(p)
                drift[:3] = -np.cross(S[3:6, 3:7] @ v[3:7], R.T @ v[:3])
                continue
            own = model.joints[model.getJointId(joint.name)]
            angle = joint.multiplier * q[columns[0]] + joint.offset
            S[own.idx_v, columns[0]] = joint.multiplier
            q_pin[own.idx_q : own.idx_q + own.nq] = [angle] if own.nq == 1 else [np.cos(angle), np.sin(angle)]
        return q_pin, S @ v, S, drift


@pytest.fixture(params=CASES, ids=[f"{name}, {base} base" for name, base in CASES], scope="module")
def case(request: pytest.FixtureRequest) -> tuple[Robot, Oracle]:
    name, base = request.param
    robot = built(ROBOTS[name], base)
    return robot, Oracle(ROBOTS[name], robot)


def states(robot: Robot) -> list[tuple[Array, Array]]:
    return [random_state(robot, seed) for seed in range(3)]


def close(actual: Any, expected: Any) -> None:
    """Within 1e-10 of the largest entry: files and programs agree to rounding."""
    scale = max(1e-3, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(np.asarray(actual, dtype=float) / scale, expected / scale, rtol=0, atol=1e-10)


def test_mass_matrix_and_bias(case: tuple[Robot, Oracle]) -> None:
    robot, oracle = case
    for q, v in states(robot):
        q_pin, v_pin, S, drift = oracle.state(q, v)
        M = pin.crba(oracle.model, oracle.data, q_pin).copy()
        M = np.triu(M) + np.triu(M, 1).T
        ours = robot.mass_matrix(q, 0.0)
        expected = S.T @ M @ S
        if oracle.free:  # the part along the quaternion itself is ours to choose
            p = q[3:7]
            extra = (ours - expected)[3:7, 3:7]
            c = np.trace(extra)
            assert c > 0.0
            close(extra, c * np.outer(p, p))
            ours[3:7, 3:7] -= extra
        close(ours, expected)
        close(-robot.force(q, v, 0.0), S.T @ pin.rnea(oracle.model, oracle.data, q_pin, v_pin, drift))


def test_frames(case: tuple[Robot, Oracle]) -> None:
    robot, oracle = case
    world = pin.LOCAL_WORLD_ALIGNED
    names = [frame.name for frame in robot.tree.frames if frame.name != "world"]
    for q, v in states(robot):
        q_pin, v_pin, S, drift = oracle.state(q, v)
        motions = robot.frame_motions(names, q, v)
        pin.computeJointJacobians(oracle.model, oracle.data, q_pin)
        pin.forwardKinematics(oracle.model, oracle.data, q_pin, v_pin, drift)
        pin.updateFramePlacements(oracle.model, oracle.data)
        for name in names:
            frame, motion = oracle.model.getFrameId(name), motions[name]
            place = oracle.data.oMf[frame]
            close(motion.rotation, place.rotation)
            close(motion.position, place.translation)
            J = pin.getFrameJacobian(oracle.model, oracle.data, frame, world) @ S
            close(motion.linear, J[:3])
            close(motion.angular, J[3:])
            rate = pin.getFrameVelocity(oracle.model, oracle.data, frame, world)
            close(motion.velocity, rate.linear)
            close(motion.angular_velocity, rate.angular)
            acceleration = pin.getFrameClassicalAcceleration(oracle.model, oracle.data, frame, world)
            close(motion.drift, acceleration.linear)
            close(motion.angular_drift, acceleration.angular)


def test_centre_of_mass(case: tuple[Robot, Oracle]) -> None:
    robot, oracle = case
    for q, v in states(robot):
        q_pin, v_pin, S, drift = oracle.state(q, v)
        motion = robot.centre_of_mass(q, v)
        pin.centerOfMass(oracle.model, oracle.data, q_pin, v_pin, drift)
        moving = oracle.data.mass[0]
        fixed = 0.0 if oracle.free else oracle.model.inertias[0].mass  # Pinocchio leaves out what cannot move
        share = moving / (moving + fixed)
        centre = share * oracle.data.com[0]
        if fixed:
            centre = centre + (1.0 - share) * oracle.model.inertias[0].lever
        close(motion.position, centre)
        close(motion.velocity, share * oracle.data.vcom[0])
        close(motion.drift, share * oracle.data.acom[0])
        close(motion.linear, share * pin.jacobianCenterOfMass(oracle.model, oracle.data, q_pin) @ S)


def test_energy_up_to_a_constant(case: tuple[Robot, Oracle]) -> None:
    robot, oracle = case
    values = []
    for q, v in states(robot):
        q_pin, v_pin, _, _ = oracle.state(q, v)
        energy = robot.energy(q, v, 0.0)
        assert energy is not None
        kinetic = pin.computeKineticEnergy(oracle.model, oracle.data, q_pin, v_pin)
        values.append((energy, kinetic + pin.computePotentialEnergy(oracle.model, oracle.data, q_pin)))
    ours, expected = np.array(values).T
    close(ours - ours[0] + expected[0], expected)


def test_a_robot_that_stands_turned_has_its_gravity_turned() -> None:
    place = Placement.at((0.3, -0.2, 0.5), (0.4, -0.3, 1.2))
    robot, upright = built(arm7(), at=place), built(arm7())
    q, v = random_state(robot, 0)
    oracle = Oracle(arm7(), upright)
    oracle.model.gravity.linear = place.R.T @ [0.0, 0.0, -9.81]
    close(-robot.force(q, v, 0.0), pin.nonLinearEffects(oracle.model, oracle.data, q, v))
