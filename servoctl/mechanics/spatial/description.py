"""What a robot file says: links and joints by their own names, before they become a tree of moving bodies.

Design: a reader (`urdf`, `mujoco`) gives a `Description` and knows no tree; `build` makes the tree and knows no file.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from servoctl.mechanics.spatial.placement import IDENTITY, Inertial, Placement, Vector3

JointKind = Literal["fixed", "revolute", "continuous", "prismatic"]


@dataclass(frozen=True)
class Shape:
    """A picture of a link.

    Attributes:
        kind: `box`, `cylinder` (along z), `sphere` or `mesh`.
        size: Box: lengths along x, y, z [m]; cylinder: radius, length [m]; sphere: radius [m]; mesh: scale along x, y,
            z [-].
        placement: In link axes.
        file: The file of a mesh; None for others, and for a mesh that was not found.
    """

    kind: Literal["box", "cylinder", "sphere", "mesh"]
    size: tuple[float, ...]
    placement: Placement
    file: Path | None = None


@dataclass(frozen=True)
class LinkDescription:
    """A rigid link.

    Attributes:
        name: As in the file.
        inertial: None: the file gives none.
        shapes: Pictures.
    """

    name: str
    inertial: Inertial | None = None
    shapes: tuple[Shape, ...] = ()


@dataclass(frozen=True)
class JointDescription:
    """A joint of a tree.

    Attributes:
        name: As in the file.
        kind: Type.
        parent: Link that carries it.
        child: Link that it moves.
        placement: The child's axes in those of the parent at q = 0.
        axis: Unit vector in the child's axes.
        lower: Least coordinate [rad or m]; None: no limit.
        upper: Largest coordinate [rad or m]; None: no limit.
        velocity: Largest speed [rad/s or m/s]; None: no limit.
        effort: Least and largest torque [N m] or force [N]; None: not given, or 0.
        damping: Viscous coefficient [N m s/rad or N s/m].
        friction: Coulomb torque [N m] or force [N].
        mimic: Joint that this one follows: `q = multiplier q_mimic + offset`; None: it is free.
        multiplier: [-, or m/rad, rad/m].
        offset: [rad or m].
        armature: Inertia of its rotor at the joint [kg m^2 or kg].
    """

    name: str
    kind: JointKind
    parent: str
    child: str
    placement: Placement = IDENTITY
    axis: Vector3 = (1.0, 0.0, 0.0)
    lower: float | None = None
    upper: float | None = None
    velocity: float | None = None
    effort: tuple[float, float] | None = None
    damping: float = 0.0
    friction: float = 0.0
    mimic: str | None = None
    multiplier: float = 1.0
    offset: float = 0.0
    armature: float = 0.0


@dataclass(frozen=True)
class LoopDescription:
    """A joint that closes a loop, between a place on each of two links.

    Attributes:
        name: As in the file.
        kind: `weld`, or `point`.
        links: The two links; `world` is the world.
        places: The frame of the loop in the axes of each link.
    """

    name: str
    kind: Literal["weld", "point"]
    links: tuple[str, str]
    places: tuple[Placement, Placement]


@dataclass(frozen=True)
class Description:
    """A robot as its file describes it.

    Attributes:
        name: Of the robot.
        links: The links; the first one is the root.
        joints: The joints, parents before children.
        notes: Things that `check` reports, one sentence each.
        base: `free`: the root moves freely; an MJCF file says so, a URDF cannot.
        loops: What closes loops.
    """

    name: str
    links: tuple[LinkDescription, ...]
    joints: tuple[JointDescription, ...]
    notes: tuple[str, ...] = ()
    base: Literal["fixed", "free"] = "fixed"
    loops: tuple[LoopDescription, ...] = ()
