"""Where the bodies of long trees are and how they move, in loops along the branches.

Design: one joint's step is traced once (`engine.recursions`), in the directions of the world's axes. Mass matrix, bias
force and frames need the same values at the same symbols, so the last ones are kept. They depend on no parameter.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from servoctl.engine.recursions import outward
from servoctl.engine.symbol import is_symbolic
from servoctl.mechanics.spatial.model import RobotTree
from servoctl.mechanics.spatial.scalars import UNIT, ZERO, Matrix, Triple, plus, sine_cosine
from servoctl.types import Array

LONG = 20
"""Joints from which a tree is long: written out, it would take a compiler longer and run hardly faster."""

_last = threading.local()


def is_long(tree: RobotTree) -> bool:
    """Whether a tree has many joints, all of them hinges with coordinates of their own."""
    return len(tree.joints) >= LONG and all(
        joint.kind == "revolute" and joint.follows is None and joint.multiplier == 1.0 for joint in tree.joints
    )


def poses(tree: RobotTree, q: Array) -> Array:
    """Where each body of a long tree is, on symbols, shape (n, 15).

    Rotation, row after row, origin [m], and the arm from the origin of the parent, or of the world, to it [m].
    """
    return _kept("poses", (tree, *q), lambda: _poses(tree, q))


def motions(tree: RobotTree, q: Array, v: Array) -> Array:
    """Angular velocity and acceleration of each body, velocity and acceleration of its origin, at q'' = 0, (n, 12)."""
    return _kept("motions", (tree, *q, *v), lambda: _motions(tree, q, v))


def rotation_of(pose: Array) -> Matrix:
    """The rotation in a row of `poses`."""
    return matrix(pose[:9])


def axis_of(pose: Array) -> Triple:
    """The joint's axis in a row of `poses`: z of the body."""
    return Triple(*pose[2:9:3])


def origin_of(pose: Array) -> Triple:
    """The origin in a row of `poses` [m]."""
    return Triple(*pose[9:12])


def arm_of(pose: Array) -> Triple:
    """The arm from the parent's origin in a row of `poses` [m]."""
    return Triple(*pose[12:])


def parents(tree: RobotTree) -> list[int]:
    """Parent of each body."""
    return [joint.parent for joint in tree.joints]


def matrix(values: Any) -> Matrix:
    """From nine values, row after row."""
    return Matrix(*(Triple(*values[k : k + 3]) for k in (0, 3, 6)))


def flat(*parts: Matrix | Triple) -> Array:
    """Matrices, row after row, and vectors in one vector."""
    rows = [row for part in parts for row in ((part.x, part.y, part.z) if isinstance(part, Matrix) else (part,))]
    return np.array([value for row in rows for value in (row.x, row.y, row.z)], dtype=object)


def _kept(name: str, key: tuple[Any, ...], make: Callable[[], Array]) -> Array:
    """The last result of this name if it was made from the same objects, else a new one."""
    before = getattr(_last, name, None)
    if before is None or len(before[0]) != len(key) or any(a is not b for a, b in zip(before[0], key, strict=True)):
        before = key, make()
        setattr(_last, name, before)
    found: Array = before[1]
    return found


def _poses(tree: RobotTree, q: Array) -> Array:
    places = [[*np.ravel(joint.placement.rotation), *joint.placement.xyz] for joint in tree.joints]
    angles = [[plus(q[i], float(joint.offset))] for i, joint in enumerate(tree.joints)]
    return outward(_turned, parents(tree), flat(UNIT, ZERO, ZERO), np.array(places), np.array(angles, dtype=object))


def _turned(parent: Array, place: Array, angle: Array) -> Array:
    """Pose of the body that a hinge turns."""
    R, sine, cosine = rotation_of(parent), *sine_cosine(angle[0])
    turned, arm = R @ matrix(place[:9]), R(Triple(*place[9:]))
    rotation = Matrix(*(row.turned_back(sine, cosine) for row in (turned.x, turned.y, turned.z)))
    return flat(rotation, origin_of(parent) + arm, arm)


def _motions(tree: RobotTree, q: Array, v: Array) -> Array:
    return outward(_moved, parents(tree), np.zeros(12), poses(tree, q), np.reshape(v, (-1, 1)))


def _moved(parent: Array, pose: Array, speed: Array) -> Array:
    """Motion of the body that a hinge turns."""
    spin, turn, velocity, acceleration = (Triple(*parent[k : k + 3]) for k in (0, 3, 6, 9))
    along, arm = axis_of(pose) * speed[0], arm_of(pose)
    rate = spin.cross(arm)
    return flat(
        spin + along, turn + spin.cross(along), velocity + rate, acceleration + turn.cross(arm) + spin.cross(rate)
    )


def serves(tree: RobotTree, q: Array) -> bool:
    """Whether `poses` and `motions` serve: on symbols of a long tree."""
    return is_long(tree) and is_symbolic(q)
