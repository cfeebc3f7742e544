"""Coordinates from poses of frames: inverse kinematics with the loops closed and inside the joint limits.

Design: the rows and their Jacobian are those of the tasks. The search starts from the given coordinates; if it ends
short of the poses, it starts again from points drawn further and further from them, the same in every call. The root
found is then moved along the free motions of the robot to the one nearest to the given coordinates.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from servoctl.engine import stored
from servoctl.engine.fingerprint import fingerprint, key_of
from servoctl.errors import TaskError, listed
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.initial import bounded_root, consistency, holonomic_error, nearest_root
from servoctl.mechanics.model import Model
from servoctl.mechanics.spatial.model import RobotTree
from servoctl.mechanics.spatial.plant import Robot
from servoctl.types import Array, State

REACHED = 1e-9  # [m, rad] poses and loops are reached when no row is violated by more
RESTARTS = 30  # most starts after the given one

REACH = 1.0
"""How far starts are drawn from the given place of a joint or base without limits [m]; angles go half a turn."""

SHOWN = 4  # rows and joints that a message lists


def solve_poses(robot: Robot, start: State, poses: Mapping[str, Constraint]) -> State:
    """The state at which frames have their poses, with q nearest to the given one; a known one is in the cache.

    Args:
        robot: The robot; its loops are closed too.
        start: q where the search begins, moved inside the joint limits; its time is that of the poses, and v stays.
        poses: Name -> `Pose`, `Position`, or any other holonomic task.

    Raises:
        TaskError: No such state was found: the message has each row that is left and how far it is off.
    """
    key = key_of(partial(fingerprint, robot, start.t, start.q, dict(poses)))
    q = stored.kept_numbers(key, "poses", lambda: _solved(robot, start, poses))
    return State(start.t, q, start.v)


def _solved(robot: Robot, start: State, poses: Mapping[str, Constraint]) -> Array:
    lower, upper = np.array(list(joint_limits(robot.tree).values())).T
    if (lower > upper).any():
        raise TaskError("; ".join(joints_without_room(robot.tree)))
    wanted = with_unit_quaternions(robot.tree, np.clip(start.q, lower, upper))
    own = robot.passive_constraints(wanted, start.t)  # named by free bases and loops, as a frame may be too
    named = {f"pose of {name}" if name in own else name: pose for name, pose in poses.items()}
    model = Model(robot, named, State(start.t, wanted, start.v))
    error = holonomic_error(model, start)
    best, least = wanted, np.inf
    for begin in _starts(robot.tree, wanted, lower, upper):
        q = bounded_root(error, begin, lower, upper)
        left = float(np.nan_to_num(np.abs(error(q)[0]), nan=np.inf).max(initial=0.0))
        if left < REACHED:
            q = nearest_root(error, q, wanted, lower, upper)
            return with_unit_quaternions(robot.tree, q)
        if left < least:
            best, least = q, left
    raise TaskError(_out_of_reach(model, State(start.t, best, start.v), lower, upper))


def joint_limits(tree: RobotTree) -> dict[str, tuple[float, float]]:
    """Coordinate -> its least and largest value; infinite without a limit.

    A coordinate that other joints follow keeps their limits too.
    """
    names = list(tree.coordinates)
    limits = dict.fromkeys(names, (-np.inf, np.inf))
    for joint, columns in zip(tree.joints, tree.columns, strict=True):
        if joint.kind == "free" or joint.multiplier == 0.0:
            continue
        name = names[columns[0]]
        ends = [-np.inf if joint.lower is None else joint.lower, np.inf if joint.upper is None else joint.upper]
        low, high = sorted((end - joint.offset) / joint.multiplier for end in ends)
        limits[name] = max(limits[name][0], low), min(limits[name][1], high)
    return limits


def joints_without_room(tree: RobotTree) -> Iterator[str]:
    """Yields a sentence for each coordinate that its limits and those of the joints that follow it do not let move."""
    for name, (low, high) in joint_limits(tree).items():
        followers = [joint.name for joint in tree.moved_by(name)[1:]] if low >= high else []
        if followers:
            unit = tree.coordinates[name]
            yield (
                f"{name} has no room: its limits and those of what follows it ({listed(followers, SHOWN)}) want at "
                f"least {low + 0.0:.4g} {unit} and at most {high + 0.0:.4g} {unit} (correct them in the robot's file)"
            )


def with_unit_quaternions(tree: RobotTree, q: Array) -> Array:
    """q with the quaternion of each free base at length 1; (1, 0, 0, 0) in place of zeros."""
    q = np.array(q, dtype=float)
    for i in tree.free_bases:
        p = list(tree.columns[i][3:])
        length = float(np.linalg.norm(q[p]))
        q[p] = q[p] / length if length > 0.0 else [1.0, 0.0, 0.0, 0.0]
    return q


def _starts(tree: RobotTree, wanted: Array, lower: Array, upper: Array) -> Iterator[Array]:
    """The given point, then points drawn further and further from it."""
    yield wanted
    random = np.random.default_rng(0)
    units = list(tree.coordinates.values())
    reach = np.array([np.pi if unit == "rad" else REACH for unit in units])
    low = np.where(np.isfinite(lower), lower, np.minimum(wanted, upper) - reach)
    high = np.where(np.isfinite(upper), upper, np.maximum(wanted, lower) + reach)
    for k in range(RESTARTS):
        share = min(1.0, 2.0 * (k + 1) / RESTARTS)
        drawn = wanted + share * (random.uniform(low, high) - wanted)
        yield with_unit_quaternions(tree, drawn)


def _out_of_reach(model: Model, state: State, lower: Array, upper: Array) -> str:
    at = consistency(model, state)
    off = [(row, float(x)) for row, x in zip(at.rows, np.abs(at.violation), strict=True) if not x < REACHED]
    off = sorted(off, key=lambda item: -np.nan_to_num(item[1], nan=np.inf))
    units = model.row_units[0] | model.row_units[1]
    left = listed((f"{row.name} {x:.3g} {units.get(row.name, '')}".rstrip() for row, x in off), SHOWN)
    names = list(model.plant.coordinates)
    held = [name for name, x, low, high in zip(names, state.q, lower, upper, strict=True) if not low < x < high]
    limits = f"; at its limit: {', '.join(held[:SHOWN])}" if held else ""
    return (
        f"no coordinates inside the joint limits reach the poses: the nearest found are off by {left}{limits} "
        "(move the pose, or start initial.q elsewhere)"
    )
