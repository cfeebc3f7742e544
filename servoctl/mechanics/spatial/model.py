"""The structure of one or several robots: moving bodies in trees, their links, frames and loops.

Design: everything here is structural and hashable; masses, inertias and gravity are float fields of `Robot`, so they
stay inputs of compiled code. A moving body has exactly one joint, and its axes are those of the joint: z is the joint's
axis. Links that are fixed to each other move as one body, and each keeps an inertial of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from servoctl.errors import PlantError, no_such
from servoctl.mechanics.spatial.description import JointProperties, Shape
from servoctl.mechanics.spatial.placement import Placement

WORLD = -1  # index of the body that does not move

LoopKind = Literal["weld", "hinge", "slide", "point"]

FREE_BASE = ("x", "y", "z", "qw", "qx", "qy", "qz")
"""Coordinates of a free base: position [m] of its frame in world axes, and the unit quaternion of its rotation."""


@dataclass(frozen=True)
class TreeJoint(JointProperties):
    """The joint that moves a body; body i is moved by joint i."""

    name: str  # of the joint, which is that of its coordinate; of a free base the prefix of its seven coordinates
    kind: Literal["revolute", "prismatic", "free"]  # `revolute` about z, `prismatic` along z, or `free`
    parent: int  # index of the body that carries it, or `WORLD`
    placement: Placement  # the joint's axes in those of the parent body at q = 0
    # index of the joint whose coordinate this one repeats; that joint follows none. None: it has one of its own
    follows: int | None = None

    @property
    def unit(self) -> str:
        """Unit of the coordinate."""
        return "m" if self.kind == "prismatic" else "rad"

    @property
    def leads(self) -> bool:
        """Whether it has one coordinate, of its own: it follows no other joint, and is no free base."""
        return self.follows is None and self.kind != "free"


LINK_PARAMETERS = {"m": 1, "com": 3, "I": 6}
"""Parameter of a link, as in `link7_m`, -> its length: mass, centre of mass, inertia about it (xx yy zz xy xz yz)."""


@dataclass(frozen=True)
class RobotLink:
    """A link with mass. Its parameters are `<name>_m`, `<name>_com` and, unless it has a gyration, `<name>_I`."""

    name: str  # identifier
    body: int  # index of the moving body that it belongs to, or `WORLD`
    placement: Placement  # the link's axes in those of the body
    # inertia per mass [m^2], (xx, yy, zz, xy, xz, yz) about the centre, of a body given by its size; None: the inertia
    # is a parameter
    gyration: tuple[float, ...] | None = None

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of its parameters."""
        return tuple(f"{self.name}_{part}" for part in (LINK_PARAMETERS if self.gyration is None else ("m", "com")))


@dataclass(frozen=True)
class TreeFrame:
    """A named frame on a body: each link, each payload, each frame added, and `world`."""

    name: str
    body: int  # index of the body, or `WORLD`
    placement: Placement  # in the axes of the body
    shapes: tuple[Shape, ...] = ()  # pictures, placed in the frame


@dataclass(frozen=True)
class LoopJoint:
    """A passive constraint between two frames."""

    name: str  # of the constraint group
    # `weld` (6 rows), `hinge` (5, about z of the first), `slide` (5, along z of the first) or `point` (3)
    kind: LoopKind
    first: str  # name of a frame
    second: str  # name of another


@dataclass(frozen=True)
class RobotTree:
    """Robots, payloads, frames and loops, ready for the recursions."""

    name: str  # for messages
    joints: tuple[TreeJoint, ...]  # parents before children
    links: tuple[RobotLink, ...]  # links and payloads with mass
    frames: tuple[TreeFrame, ...]  # every frame, by name and in order; `world` is the first
    loops: tuple[LoopJoint, ...] = ()
    motors: tuple[str, ...] = ()  # names of the joints that have an actuator of the same name
    notes: tuple[str, ...] = ()  # things that `check` reports, one sentence each

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Computed once, because caches of compiled functions ask for it at every call."""
        return hash((self.name, self.joints, self.links, self.frames, self.loops, self.motors))

    @cached_property
    def columns(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the coordinates that move each joint: one, seven for a free base; a mimic joint's are shared."""
        found: dict[int, tuple[int, ...]] = {}
        count = 0
        for i, joint in enumerate(self.joints):
            if joint.follows is None:
                size = len(FREE_BASE) if joint.kind == "free" else 1
                found[i] = tuple(range(count, count + size))
                count += size
        return tuple(found[i if joint.follows is None else joint.follows] for i, joint in enumerate(self.joints))

    @cached_property
    def coordinates(self) -> Mapping[str, str]:
        """Name -> unit of each coordinate."""
        units: dict[str, str] = {}
        for joint in self.joints:
            if joint.kind == "free":
                units |= {f"{joint.name}_{part}": "m" if part in "xyz" else "-" for part in FREE_BASE}
            elif joint.leads:
                units[joint.name] = joint.unit
        return units

    @cached_property
    def free_bases(self) -> tuple[int, ...]:
        """Indices of the joints that are free bases."""
        return tuple(i for i, joint in enumerate(self.joints) if joint.kind == "free")

    @cached_property
    def _frames(self) -> Mapping[str, TreeFrame]:
        return {frame.name: frame for frame in self.frames}

    def frame(self, name: str) -> TreeFrame:
        """A frame by its name.

        Raises:
            PlantError: There is none; the message has the nearest name.
        """
        if name not in self._frames:
            raise PlantError(no_such("frame", name, self._frames))
        return self._frames[name]

    def moved_by(self, name: str) -> list[TreeJoint]:
        """The joint of a coordinate, and those that follow it."""
        i = next(i for i, joint in enumerate(self.joints) if joint is self.joint(name))
        return [self.joints[i], *(joint for joint in self.joints if joint.follows == i)]

    def friction(self, name: str) -> float:
        """Dry friction at a coordinate: of its joint, and of those that follow it, by their transmission."""
        return sum(abs(joint.multiplier) * joint.friction for joint in self.moved_by(name))

    def armature(self, name: str) -> float:
        """Inertia of the rotors at a coordinate: of its joint, and of those that follow it, by their transmission."""
        return sum(joint.multiplier**2 * joint.armature for joint in self.moved_by(name))

    def velocity(self, name: str) -> float | None:
        """Largest speed of a coordinate that its joint and those that follow it allow; None: no limit."""
        speeds = [
            joint.velocity / abs(joint.multiplier)
            for joint in self.moved_by(name)
            if joint.velocity is not None and joint.multiplier
        ]
        return min(speeds, default=None)

    def joint(self, name: str) -> TreeJoint:
        """A joint with a coordinate, by its name.

        Raises:
            PlantError: There is none; the message has the nearest name.
        """
        known = {joint.name: joint for joint in self.joints if joint.leads}
        if name not in known:
            raise PlantError(no_such("joint", name, known))
        return known[name]
