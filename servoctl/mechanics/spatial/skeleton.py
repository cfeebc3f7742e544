"""The picture of a robot as lines through the origins of its joints."""

import numpy as np

from servoctl.mechanics.spatial.kinematics import body_motions
from servoctl.mechanics.spatial.model import WORLD, RobotTree
from servoctl.mechanics.spatial.scalars import Vector
from servoctl.types import Array


def skeleton(tree: RobotTree, q: Array) -> dict[str, Array]:
    """Branch -> polyline from the base, or from where it leaves another branch, to its tip, shape (points, 3) [m].

    A branch has the name of its last frame, and ends with the frames on its last body, in their order.
    """
    motions = body_motions(tree, q, np.zeros(len(q)), range(len(tree.joints)))
    parents = [joint.parent for joint in tree.joints]
    lines: dict[str, Array] = {}
    for tip in sorted(set(range(len(parents))) - set(parents)):
        branch = _branch(parents, tip)
        points = [motions[body].origin.array for body in branch if body != WORLD]
        if branch[0] == WORLD and tree.joints[branch[1]].kind != "free":
            points.insert(0, _base(tree, branch[1]))
        frames = [frame for frame in tree.frames if frame.body == tip]
        end = motions[tip]
        points += [(end.origin + end.R(Vector.of(frame.placement.xyz))).array for frame in frames]
        lines[frames[-1].name if frames else tree.joints[tip].name] = _distinct(points)
    return lines


def _branch(parents: list[int], tip: int) -> list[int]:
    """Bodies from the world, or from one that carries several, to the tip."""
    bodies = [tip]
    while bodies[0] != WORLD and (len(bodies) == 1 or parents.count(bodies[0]) == 1):
        bodies.insert(0, parents[bodies[0]])
    return bodies


def _base(tree: RobotTree, joint: int) -> Array:
    """Position of the fixed link nearest to a joint on it."""
    at = tree.joints[joint].placement.p
    fixed = [frame.placement.p for frame in tree.frames if frame.body == WORLD]
    nearest: Array = min(fixed[1:] or fixed, key=lambda p: float(np.linalg.norm(p - at)))
    return nearest


def _distinct(points: list[Array]) -> Array:
    """The points as rows, without those that repeat the one before; a dot is two equal points."""
    kept = [point for i, point in enumerate(points) if not i or np.linalg.norm(point - points[i - 1]) > 1e-9]
    return np.array(kept if len(kept) > 1 else 2 * kept)
