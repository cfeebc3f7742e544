"""The picture of a robot as lines through the origins of its joints."""

from functools import cache

import numpy as np

from servoctl.mechanics.spatial.model import WORLD, RobotTree
from servoctl.types import Array


def skeleton(tree: RobotTree, origins: Array) -> dict[str, Array]:
    """Branch -> polyline from the base, or from where it leaves another branch, to its tip, shape (points, 3) [m].

    A branch has the name of its last frame, and ends with the frames on its last body, in their order.

    Args:
        tree: The robots.
        origins: Position of each frame, shape (frames, 3) [m].
    """
    lines: dict[str, Array] = {}
    for first, fixed, points in _branches(tree):
        start = [_base(origins, fixed, points[0])] if fixed else [] if first is None else [first]
        lines[tree.frames[points[-1]].name] = _distinct(origins[[*start, *points]])
    return lines


@cache
def _branches(tree: RobotTree) -> list[tuple[int | None, list[int], list[int]]]:
    """Of each branch: the frame from which it leaves another, the fixed frames of its base, and its other frames.

    The first is None for a branch on the world, whose base is among the fixed frames; a free base has none.
    """
    on_body: dict[int, list[int]] = {i: [] for i in range(WORLD, len(tree.joints))}
    # nearest to the body's origin first: that of the link whose joint moves the body is there
    for k in sorted(range(len(tree.frames)), key=lambda k: float(np.linalg.norm(tree.frames[k].placement.xyz))):
        on_body[tree.frames[k].body].append(k)
    parents = [joint.parent for joint in tree.joints]
    found: list[tuple[int | None, list[int], list[int]]] = []
    for tip in sorted(set(range(len(parents))) - set(parents)):
        first, *bodies = _branch(parents, tip)
        points = [*(on_body[body][0] for body in bodies), *sorted(on_body[tip][1:])]
        is_free = tree.joints[bodies[0]].kind == "free"
        fixed = on_body[WORLD] if first == WORLD and not is_free else []
        found.append((None if first == WORLD else on_body[first][0], fixed, points))
    return found


def _branch(parents: list[int], tip: int) -> list[int]:
    """Bodies from the world, or from one that carries several, to the tip."""
    bodies = [tip]
    while bodies[0] != WORLD and (len(bodies) == 1 or parents.count(bodies[0]) == 1):
        bodies.insert(0, parents[bodies[0]])
    return bodies


def _base(origins: Array, fixed: list[int], joint: int) -> int:
    """The fixed link nearest to a joint on it, or the world if there is none."""
    return min([k for k in fixed if k] or fixed, key=lambda k: float(np.linalg.norm(origins[k] - origins[joint])))


def _distinct(points: Array) -> Array:
    """The points without those that repeat the one before; a dot is two equal points."""
    moved = np.linalg.norm(np.diff(points, axis=0), axis=1) > 1e-9
    kept = points[np.append(True, moved)]
    return kept if len(kept) > 1 else np.repeat(kept, 2, axis=0)
