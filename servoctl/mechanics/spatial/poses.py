"""Poses of frames at many configurations at once, for pictures."""

from collections.abc import Sequence

import numpy as np

from servoctl.mechanics.spatial.model import WORLD, RobotTree, TreeJoint
from servoctl.types import Array

Poses = tuple[Array, Array]  # rotations, shape (frames, 3, 3), and positions [m], shape (frames, 3), in world axes


def frame_poses(tree: RobotTree, names: Sequence[str], q: Array) -> dict[str, Poses]:
    """Frame -> its poses.

    Args:
        tree: The robots.
        names: Names of frames.
        q: Coordinates, shape (frames, n).
    """
    still = np.broadcast_to(np.eye(3), (len(q), 3, 3)), np.zeros((len(q), 3))
    bodies: dict[int, Poses] = {WORLD: still}
    for i, joint in enumerate(tree.joints):
        local = _moved(joint, q[:, list(tree.columns[i])])
        bodies[i] = _then(_then(bodies[joint.parent], (joint.placement.R, joint.placement.p)), local)
    frames = {name: tree.frame(name) for name in names}
    return {name: _then(bodies[frame.body], (frame.placement.R, frame.placement.p)) for name, frame in frames.items()}


def _then(outer: Poses, inner: tuple[Array, Array]) -> Poses:
    R, p = outer
    return R @ inner[0], p + (R @ inner[1][..., None])[..., 0]


def _moved(joint: TreeJoint, q: Array) -> Poses:
    """The pose of a body in the axes of its joint, from the columns of its coordinates, shape (frames, 1 or 7)."""
    R, p = np.zeros((len(q), 3, 3)), np.zeros((len(q), 3))
    if joint.kind == "free":
        return _from_quaternion(q[:, 3:]), q[:, :3]
    value = joint.multiplier * q[:, 0] + joint.offset
    angle = value if joint.kind == "revolute" else np.zeros(len(q))
    R[:, 0, 0] = R[:, 1, 1] = np.cos(angle)
    R[:, 1, 0] = np.sin(angle)
    R[:, 0, 1] = -R[:, 1, 0]
    R[:, 2, 2] = 1.0
    p[:, 2] = value if joint.kind == "prismatic" else 0.0
    return R, p


def _from_quaternion(quaternion: Array) -> Array:
    """Rotations of quaternions (w, x, y, z) of any length but 0, shape (frames, 3, 3)."""
    w, x, y, z = quaternion.T / np.linalg.norm(quaternion, axis=1)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), -1, 0)
