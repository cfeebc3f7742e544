"""Mass matrix and bias force of trees with many hinges, in loops along the branches.

    M[i, j] = left_i . right_j   for each joint j on the way from the joint i to the root

Design: written out, the recursions of `dynamics` have statements for each pair of joints, which takes a compiler half a
minute for 100 joints. Here the step of one joint is traced once. All is in the directions of the world's axes, where
moments and wrenches of bodies add up after a shift, and where the entries of M are products of two vectors of 6, about
the root's origin.

Source: Featherstone 2008, tables 5.1 (recursive Newton-Euler) and 6.2 (composite bodies).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from servoctl.engine.mapped import for_each
from servoctl.engine.products import product
from servoctl.engine.recursions import inward
from servoctl.mechanics.spatial.branches import (
    arm_of,
    axis_of,
    flat,
    matrix,
    motions,
    origin_of,
    parents,
    poses,
    rotation_of,
)
from servoctl.mechanics.spatial.dynamics import LocalMotion, Wrench, body_wrench
from servoctl.mechanics.spatial.model import WORLD, RobotTree
from servoctl.mechanics.spatial.moments import Moments
from servoctl.mechanics.spatial.scalars import ZERO, Triple, plus
from servoctl.types import Array


def mass_matrix(tree: RobotTree, links: Sequence[Sequence[Any]], q: Array) -> Array:
    """M(q), shape (n, n), on symbols.

    Args:
        tree: A long tree.
        links: Of each link of the tree, in its axes: mass, centre of mass, inertia about it (xx yy zz xy xz yz).
        q: Coordinates, shape (n,).
    """
    at = poses(tree, q)
    composite = inward(_carried, parents(tree), _moments(tree, links, at), at)
    needed = for_each(_needed, composite, at, at[_roots(tree), 9:12])
    products = product(needed, for_each(_along_joint, at, at[_roots(tree), 9:12]).T)
    M: Array = np.zeros((len(q), len(q)), dtype=object)
    for i in range(len(q)):
        j = i
        while j != WORLD:
            M[i, j] = M[j, i] = products[i, j]
            j = tree.joints[j].parent
    return M


def bias(tree: RobotTree, links: Sequence[Sequence[Any]], gravity: Sequence[Any], q: Array, v: Array) -> Array:
    """The generalized force that gives `q'' = 0`, shape (n,), on symbols; see `mass_matrix` and `dynamics.bias`."""
    at, down = poses(tree, q), np.array([gravity] * len(q), dtype=object)
    alone = for_each(_wrench, _moments(tree, links, at), motions(tree, q, v), down)
    wrenches = inward(_shifted, parents(tree), alone, at)
    forces: Array = for_each(_about_axis, wrenches, at)[:, 0]
    return forces


def _roots(tree: RobotTree) -> list[int]:
    """The joint next to the world from which each joint is reached."""
    roots: list[int] = []
    for i, joint in enumerate(tree.joints):
        roots.append(i if joint.parent == WORLD else roots[joint.parent])
    return roots


def _moments(tree: RobotTree, links: Sequence[Sequence[Any]], at: Array) -> Array:
    """Moments of each body about its origin in world directions, shape (n, 10)."""
    moving = [(link, values) for link, values in zip(tree.links, links, strict=True) if link.body != WORLD]
    places = [[*np.ravel(link.placement.rotation), *link.placement.xyz] for link, _ in moving]
    of_links = for_each(_placed, np.array([values for _, values in moving], dtype=object), np.array(places))
    of_bodies: Array = np.full((len(at), 10), 0.0, dtype=object)
    for row, (link, _) in zip(of_links, moving, strict=True):
        of_bodies[link.body] = [plus(a, b) for a, b in zip(of_bodies[link.body], row, strict=True)]
    return for_each(_turned, of_bodies, at)


def _placed(link: Array, place: Array) -> Array:
    """Moments of a link in the axes of its body."""
    own = Moments.of(link[0], list(link[1:4]), list(link[4:]))
    return _values(own.placed_by(matrix(place[:9]), Triple.of(place[9:])))


def _turned(body: Array, pose: Array) -> Array:
    """Moments of a body in the directions of the world's axes."""
    return _values(_moments_of(body).placed_by(rotation_of(pose), ZERO))


def _carried(body: Array, pose: Array) -> Array:
    """Moments of a body about the origin of its parent."""
    return _values(_moments_of(body).shifted(arm_of(pose)))


def _needed(body: Array, pose: Array, root: Array) -> Array:
    """The wrench that a unit acceleration of the joint needs, about the root's origin: moment and force."""
    moments, axis, origin = _moments_of(body), axis_of(pose), origin_of(pose) - Triple(*root)
    force = axis.cross(moments.first)
    return flat(moments.inertia(axis) + origin.cross(force), force)


def _along_joint(pose: Array, root: Array) -> Array:
    """Factors of moment and force about the root's origin in the moment about the joint's axis."""
    axis = axis_of(pose)
    return flat(axis, (origin_of(pose) - Triple(*root)).cross(axis))


def _wrench(body: Array, motion: Array, gravity: Array) -> Array:
    """The wrench about its origin that gives a body its motion; gravity counts as an acceleration upwards."""
    spin, turn, acceleration = (Triple(*motion[k : k + 3]) for k in (0, 3, 9))
    wrench = body_wrench(_moments_of(body), LocalMotion(spin, turn, acceleration - Triple(*gravity)))
    return flat(wrench.force, wrench.moment)


def _shifted(wrench: Array, pose: Array) -> Array:
    """A wrench about the origin of the parent."""
    moved = Wrench(Triple(*wrench[:3]), Triple(*wrench[3:]))
    return flat(moved.force, moved.moment + arm_of(pose).cross(moved.force))


def _about_axis(wrench: Array, pose: Array) -> Array:
    """Part of a moment about the axis of the joint."""
    return np.array([Triple(*wrench[3:]).dot(axis_of(pose))], dtype=object)


def _moments_of(values: Array) -> Moments:
    return Moments(values[0], Triple(*values[1:4]), *values[4:])


def _values(m: Moments) -> Array:
    values = [m.m, m.first.x, m.first.y, m.first.z, m.xx, m.yy, m.zz, m.xy, m.xz, m.yz]
    return np.array(values, dtype=object)
