"""Robots for tests: a seven-joint arm, two of them with a box, and random trees."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from servoctl.mechanics.spatial.description import Description, JointDescription, JointKind, LinkDescription
from servoctl.mechanics.spatial.placement import Inertial, Placement, Vector3
from servoctl.mechanics.spatial.plant import Robot, RobotBuilder
from servoctl.types import Array

RIGHT = np.pi / 2
ARM = (
    ((0.0, 0.0, 0.333), 0.0),
    ((0.0, 0.0, 0.0), -RIGHT),
    ((0.0, -0.316, 0.0), RIGHT),
    ((0.0825, 0.0, 0.0), RIGHT),
    ((-0.0825, 0.384, 0.0), -RIGHT),
    ((0.0, 0.0, 0.0), RIGHT),
    ((0.088, 0.0, 0.0), RIGHT),
)
"""Place of each joint of a seven-joint arm with a common geometry: xyz [m], roll [rad]."""


def vector(values: Array | Sequence[float]) -> Vector3:
    x, y, z = (float(value) for value in values)
    return (x, y, z)


def random_inertial(random: np.random.Generator) -> Inertial:
    """Mass, centre and inertia of a random rigid body."""
    spread = 0.1 * random.standard_normal((3, 3))
    J = spread @ spread.T
    I = np.trace(J) * np.eye(3) - J  # noqa: E741
    six = (I[0, 0], I[1, 1], I[2, 2], I[0, 1], I[0, 2], I[1, 2])
    return Inertial(
        float(random.uniform(0.5, 4.0)),
        vector(random.uniform(-0.1, 0.1, 3)),
        tuple(map(float, six)),  # type: ignore[arg-type]
    )


def arm7(count: int = 7, damping: float = 0.0, seed: int = 0) -> Description:
    """An arm with links `link0` to `link7` and a frame `tool`, all joints about z."""
    random = np.random.default_rng(seed)
    links = [LinkDescription(f"link{i}", random_inertial(random)) for i in range(count + 1)]
    joints = [
        JointDescription(
            f"joint{i + 1}", "revolute", f"link{i}", f"link{i + 1}", Placement.at(xyz, (roll, 0.0, 0.0)),
            (0.0, 0.0, 1.0), lower=-2.9, upper=2.9, velocity=2.0, effort=(-80.0, 80.0), damping=damping,
        )
        for i, (xyz, roll) in enumerate(ARM[:count])
    ]  # fmt: skip
    tool = JointDescription(
        "flange", "fixed", f"link{count}", "tool", Placement.at((0.0, 0.0, 0.107), (0.0, 0.0, -0.5))
    )
    return Description("arm", (*links, LinkDescription("tool")), (*joints, tool))


def random_tree(seed: int, joints: int, mimics: int = 0, fixed: int = 0) -> Description:
    """A random tree of moving joints of all kinds, the last ones mimic others, with links fixed to random ones."""
    random = np.random.default_rng(seed)
    kinds: list[JointKind] = ["revolute", "revolute", "continuous", "prismatic"]
    links, parts = [LinkDescription("base", random_inertial(random))], []
    for i in range(joints + fixed):
        kind = "fixed" if i >= joints else kinds[int(random.integers(4))]
        parent = links[int(random.integers(max(0, i - 3), i + 1))].name
        axis = random.standard_normal(3) if random.random() < 0.5 else np.eye(3)[int(random.integers(3))]
        place = Placement.at(vector(random.uniform(-0.4, 0.4, 3)), vector(random.uniform(-3.0, 3.0, 3)))
        links.append(LinkDescription(f"link{i}", random_inertial(random)))
        parts.append(
            JointDescription(f"joint{i}", kind, parent, f"link{i}", place, vector(axis / np.linalg.norm(axis)))
        )
    for k in range(mimics):
        follower, followed = joints - 1 - k, k
        parts[follower] = replace(
            parts[follower], mimic=parts[followed].name, multiplier=float(random.uniform(-2.0, 2.0)), offset=0.3
        )
    return Description(f"tree{seed}", tuple(links), tuple(parts))


def built(description: Description, base: str = "fixed", **options: object) -> Robot:
    """The plant of one robot."""
    builder = RobotBuilder()
    builder.add(description, base=base, **options)  # type: ignore[arg-type]
    return builder.plant()


ELBOWS = {"left_joint4": -2.2, "left_joint6": 1.7, "right_joint4": -2.2, "right_joint6": 1.7}
"""A pose from which two arms find the one that holds their box."""


@cache
def two_arms(*loops: tuple[str, str]) -> Robot:
    """Two arms whose tools hold a box; `loops` are names and kinds."""
    builder = RobotBuilder()
    builder.add(arm7(), "left", Placement.at((0.0, 0.5, 0.0)))
    builder.add(arm7(seed=1), "right", Placement.at((0.0, -0.5, 0.0)))
    builder.body("box", "left_tool", Placement.at((0.0, 0.0, 0.2), (-np.pi / 2, 0.0, 0.0)), 5.0, (0.3, 0.4, 0.2))
    builder.frame("right_grip", "right_tool", Placement.at((0.0, 0.0, 0.2), (np.pi / 2, 0.0, 0.0)))
    for name, kind in loops:
        builder.loop(name, kind, "box", "right_grip")
    return builder.plant()


def random_state(robot: Robot, seed: int) -> tuple[Array, Array]:
    """q and v, with unit quaternions whose length does not change."""
    random = np.random.default_rng(seed)
    q, v = random.standard_normal((2, len(robot.coordinates)))
    for i in robot.tree.free_bases:
        p = list(robot.tree.columns[i][3:])
        q[p] /= np.linalg.norm(q[p])
        v[p] -= q[p] * (q[p] @ v[p])
    return q, v
