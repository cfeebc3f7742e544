"""Robots from files as a plant.

Design: a robot's class is made for its list of parameters, because parameters are fields: `gravity`, and per link with
mass `<link>_m`, `<link>_com`, `<link>_I`. The tree is structural. Every method runs the recursions again from the
fields, so parameters remain inputs of compiled code.

The recursions cost Python milliseconds at each state. On numbers the same function, traced once for each structure of a
robot, runs on CasADi's virtual machine in microseconds.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from os import PathLike
from typing import Any, cast

import numpy as np

from servoctl.engine import stored
from servoctl.engine.fingerprint import fingerprint, key_of, structure_fingerprint
from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.linalg import product
from servoctl.engine.parameters import SameStructure, parameter_values, with_parameters
from servoctl.engine.symbol import Symbol
from servoctl.errors import PlantError
from servoctl.mechanics.actuator_parameters import with_armature
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial import dynamics, kinematics
from servoctl.mechanics.spatial.description import Base
from servoctl.mechanics.spatial.kinematics import FrameMotion, PointMotion
from servoctl.mechanics.spatial.loops import ClosedLoop, UnitLength
from servoctl.mechanics.spatial.model import LINK_PARAMETERS, WORLD, RobotTree
from servoctl.mechanics.spatial.placement import IDENTITY, Moments, Placement
from servoctl.mechanics.spatial.tree_builder import TreeBuilder
from servoctl.mechanics.spatial.urdf import read_urdf
from servoctl.types import Array

KEPT = 64  # number of compiled functions that are kept


class KnownRobot:
    """What is read from a robot once, because robots do not change."""

    def __init__(self, robot: Any) -> None:
        self._robot = robot
        self.p = parameter_values(robot)
        self.kernels: dict[Callable[..., Array], Kernel] = {}  # function -> its compiled copy

    @functools.cached_property
    def fingerprint(self) -> str:
        """`structure_fingerprint` of the robot, which takes milliseconds."""
        return structure_fingerprint(self._robot)


def traced_once(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function (robot, vectors and numbers) -> array, on numbers or symbols, by its compiled copy."""

    @functools.wraps(function)
    def evaluate(robot: Any, *vectors: Any) -> Array:
        known: KnownRobot = robot.known
        kernel = known.kernels.get(function)
        if kernel is None:
            n = len(robot.coordinates)  # not the size of q, which may be wrong
            sizes = tuple(1 if np.size(vector) == 1 else n for vector in vectors)
            kernel = known.kernels[function] = _kernel(function, sizes, SameStructure(robot))
        return kernel(*vectors, known.p)[0]

    return evaluate


@functools.lru_cache(maxsize=KEPT)
def _kernel(function: Callable[..., Array], sizes: tuple[int, ...], key: SameStructure) -> Kernel:
    robot = key.thing
    place = key_of(lambda: fingerprint(sizes), lambda: robot.known.fingerprint)

    def traced() -> Kernel:
        given = inputs({f"x{i}": (size,) for i, size in enumerate(sizes)} | {"p": (len(robot.known.p),)})
        *x, parameters = given.values()
        result = function(with_parameters(robot, parameters), *x)
        return Kernel.compile(function.__name__, given, {"result": np.asarray(result)})

    return stored.kept_kernel(place, f"{function.__module__}.{function.__name__}", traced)


GRAVITY = (0.0, 0.0, -9.81)  # acceleration of gravity [m/s^2] where none is given


@dataclasses.dataclass(frozen=True)
class Robot(Plant):
    """One or several robots, payloads and loops; `robot` and `RobotBuilder.plant` make one.

    Attributes:
        tree: The structure.
        gravity: Acceleration of gravity in world axes [m/s^2].
    """

    tree: RobotTree
    gravity: tuple[float, ...]

    known = cached_property(KnownRobot)

    def __post_init__(self) -> None:
        problems = [
            f"{name}: expected {count} numbers, got {len(getattr(self, name))}"
            for name, count in _lengths(self.tree).items()
            if len(getattr(self, name)) != count
        ]
        for link, m in self.masses.items():
            if not isinstance(m, Symbol) and not m >= 0.0:
                problems.append(f"{link}_m: expected a mass of at least 0 kg, got {m:g}")
        if problems:
            raise PlantError("\n".join(f"{self.tree.name}: {problem}" for problem in problems))

    @classmethod
    def from_urdf(
        cls,
        path: str | PathLike[str],
        *,
        base: Base = "fixed",
        at: Placement = IDENTITY,
        motors: Sequence[str] | None = None,
        gravity: Sequence[float] = GRAVITY,
    ) -> "Robot":
        """The robot of a URDF.

        Args:
            path: The file.
            base: `fixed`, or `free` with seven coordinates.
            at: Place of a fixed base in the world.
            motors: Names of the joints that have an actuator, as in the file; None: all that do not mimic others.
            gravity: Acceleration of gravity in world axes [m/s^2].

        Raises:
            ConfigError: The file cannot be read, or describes no robot; it has every problem of the file.
            PlantError: The robot has no plant, for example because a link that moves has no mass.
        """
        builder = RobotBuilder()
        builder.add(read_urdf(path), at=at, base=base, motors=motors)
        return builder.plant(gravity)

    def __reduce__(self) -> tuple[Any, ...]:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        tree, gravity = values.pop("tree"), values.pop("gravity")
        return robot, (tree, values, gravity)

    @property
    def coordinates(self) -> Mapping[str, str]:
        return self.tree.coordinates

    @property
    def actuators(self) -> Mapping[str, str]:
        return {name: "N" if self.coordinates[name] == "m" else "N m" for name in self.tree.motors}

    @traced_once
    def mass_matrix(self, q: Array, t: float) -> Array:
        M = dynamics.mass_matrix(self.tree, self.body_moments(), q)
        for (i, *_), joint in zip(self.tree.columns, self.tree.joints, strict=True):
            if joint.leads and joint.name not in self.tree.motors:  # rotors of actuators are a parameter of the plant
                M[i, i] = M[i, i] + self.tree.armature(joint.name)
        return M

    @traced_once
    def force(self, q: Array, v: Array, t: float) -> Array:
        """Q(q, v), shape (n,): gravity, Coriolis forces and the damping of joints."""
        Q = np.array(-dynamics.bias(self.tree, self.body_moments(), self.gravity, q, v), dtype=object)
        for columns, joint in zip(self.tree.columns, self.tree.joints, strict=True):
            if joint.damping:
                Q[columns[0]] = Q[columns[0]] - joint.damping * joint.multiplier**2 * v[columns[0]]
        return Q

    def actuation(self, q: Array, t: float) -> Array:
        """B, shape (n, m): each actuator acts on the coordinate of its name."""
        B, names = np.zeros((len(q), len(self.tree.motors))), list(self.coordinates)
        for j, motor in enumerate(self.tree.motors):
            B[names.index(motor), j] = 1.0
        return B

    def passive_constraints(self, q: Array, t: float) -> dict[str, Any]:
        """The unit quaternion of each free base, and the loops."""
        bases = {self.tree.joints[i].name: UnitLength(self.tree.columns[i][3:]) for i in self.tree.free_bases}
        return bases | {loop.name: ClosedLoop(loop) for loop in self.tree.loops}

    def energy(self, q: Array, v: Array, t: float) -> float | None:
        """Mechanical energy [J]; None if a joint has damping."""
        if any(joint.damping for joint in self.tree.joints):
            return None
        value: float = energy(self, q, v)[0]
        return value

    def links(self, q: Array) -> dict[str, Array]:
        """The skeleton: one polyline per branch of the tree, through the origins of its joints [m]."""
        return skeleton(self.tree, frame_poses(self, q)[:, 9:])

    def frame_motions(self, names: Sequence[str], q: Array, v: Array) -> dict[str, FrameMotion]:
        """Pose, Jacobians, velocity and drift of frames, in world axes; on numbers or symbols.

        Args:
            names: Names of frames: links, payloads, added frames, `world`.
            q: Coordinates, shape (n,).
            v: Their rates, shape (n,).

        Raises:
            PlantError: There is no frame of a name.
        """
        return kinematics.frame_motions(self.tree, names, q, v)

    def frame_poses(self, names: Sequence[str], q: Array) -> tuple[Array, Array]:
        """Rotations, shape (states, frames, 3, 3), and positions [m], shape (states, frames, 3), in world axes.

        Args:
            q: Coordinates, shape (states, n).

        Raises:
            PlantError: There is no frame of a name.
        """
        frames = [self.tree.frames.index(self.tree.frame(name)) for name in names]
        poses = np.array([frame_poses(self, at)[frames] for at in q]).reshape(len(q), len(names), 12)
        return poses[..., :9].reshape(len(q), len(names), 3, 3), poses[..., 9:]

    def centre_of_mass(self, q: Array, v: Array) -> PointMotion:
        """Position, Jacobian, velocity and drift of the centre of all that has mass, in world axes.

        Raises:
            PlantError: Nothing has mass.
        """
        return kinematics.centre_of_mass(self.tree, self.link_moments(), q, v)

    @property
    def masses(self) -> dict[str, Any]:
        """Link of the tree -> its mass [kg]."""
        return {link.name: getattr(self, f"{link.name}_m") for link in self.tree.links}

    def link_moments(self) -> list[Moments]:
        """Mass and moments of each link of the tree, in the link's axes."""
        moments = []
        for link in self.tree.links:
            m, com, *own = (getattr(self, name) for name in link.parameters)
            inertia = own[0] if link.gyration is None else [m * value for value in link.gyration]
            moments.append(Moments.of(m, com, inertia))
        return moments

    def body_moments(self) -> list[Moments]:
        """Mass and moments of each moving body, in its axes."""
        return dynamics.body_moments(self.tree, self.link_moments())


@traced_once
def energy(robot: Robot, q: Array, v: Array) -> Array:
    """Kinetic and potential energy together [J], shape (1,)."""
    weight = kinematics.first_moment(robot.tree, robot.link_moments(), q) @ np.array(robot.gravity)
    return np.array([0.5 * (v @ product(robot.mass_matrix(q, 0.0), v)) - weight])


@traced_once
def frame_poses(robot: Robot, q: Array) -> Array:
    """Rotation by rows and position [m] of each frame of the tree, in world axes, shape (frames, 12)."""
    return kinematics.frame_poses(robot.tree, q)


def robot(tree: RobotTree, values: Mapping[str, Any], gravity: Sequence[float] = GRAVITY) -> Robot:
    """The plant of a tree.

    Args:
        values: Name -> value of each link's parameters.

    Raises:
        PlantError: A value has the wrong length, or a mass is negative.
    """
    made: Robot = _class(tuple(_fields(tree).items()))(tree=tree, gravity=tuple(gravity), **values)
    return made


class RobotBuilder(TreeBuilder):
    """Collects robots, payloads, frames and loops from what files describe, and makes the plant."""

    def plant(self, gravity: Sequence[float] = GRAVITY) -> Robot:
        """The plant.

        Args:
            gravity: Acceleration of gravity in world axes [m/s^2].

        Raises:
            PlantError: Everything that is wrong with the parts.
        """
        tree = self.tree()
        if self.problems:
            raise PlantError("\n".join(self.problems))
        plant, rotors = robot(tree, self.values, gravity), [tree.armature(name) for name in tree.motors]
        return cast(Robot, with_armature(plant, rotors)) if any(rotors) else plant


def _fields(tree: RobotTree) -> dict[str, Any]:
    """Name -> type of each link's parameters."""
    fields: dict[str, Any] = {}
    for link in tree.links:
        fields |= dict.fromkeys(link.parameters, tuple[float, ...]) | {f"{link.name}_m": float}
    return fields


def _lengths(tree: RobotTree) -> dict[str, int]:
    """Name -> length of each parameter that is a list."""
    lengths = list(LINK_PARAMETERS.values())[1:]
    lists = [pair for link in tree.links for pair in zip(link.parameters[1:], lengths, strict=False)]
    return {"gravity": 3} | dict(lists)


@cache
def _class(fields: tuple[tuple[str, Any], ...]) -> Any:
    """The class of robots with these parameters, so that two of one structure have one class."""
    return dataclasses.make_dataclass("Robot", fields, bases=(Robot,), namespace={"__module__": __name__}, frozen=True)


def skeleton(tree: RobotTree, origins: Array) -> dict[str, Array]:
    """Branch -> polyline from the base, or from where it leaves another branch, to its tip, shape (points, 3) [m].

    A branch has the name of its last frame, and ends with the frames on its last body, in their order. The number of
    points is the same in every pose, so some may be equal; a dot is two equal points.

    Args:
        origins: Position of each frame, shape (frames, 3) [m].
    """
    lines: dict[str, Array] = {}
    for first, fixed, points in _branches(tree):
        start = [_base(origins, fixed, points[0])] if fixed else [] if first is None else [first]
        line = [*start, *points]
        lines[tree.frames[points[-1]].name] = origins[line if len(line) > 1 else 2 * line]
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
