"""What a robot file says: links and joints by their own names, before they become a tree of moving bodies.

`Findings` collects what is wrong with the file, so that all problems are shown at once.

Design: a reader (`urdf`, `mjcf`) gives a `Description` and knows no tree; `TreeBuilder` makes the tree and knows no
file.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from servoctl.mechanics.spatial.placement import IDENTITY, Inertial, Placement, Vector3
from servoctl.types import Array

NAMES_IN_A_NOTE = 6

JointKind = Literal["fixed", "revolute", "continuous", "prismatic"]


@dataclass(frozen=True)
class Shape:
    """A picture of a link."""

    kind: Literal["box", "cylinder", "sphere", "mesh"]  # `box`, `cylinder` (along z), `sphere` or `mesh`
    # box: lengths along x, y, z [m]; cylinder: radius, length [m]; sphere: radius [m]; mesh: scale along x, y, z [-]
    size: tuple[float, ...]
    placement: Placement  # in link axes
    file: Path | None = None  # the file of a mesh; None for others, and for a mesh that was not found


@dataclass(frozen=True)
class LinkDescription:
    """A rigid link."""

    name: str  # as in the file
    inertial: Inertial | None = None  # none: the file gives none
    shapes: tuple[Shape, ...] = ()  # pictures


@dataclass(frozen=True)
class JointDescription:
    """A joint of a tree."""

    name: str  # as in the file
    kind: JointKind  # type
    parent: str  # link that carries it
    child: str  # link that it moves
    placement: Placement = IDENTITY  # the child's axes in those of the parent at q = 0
    axis: Vector3 = (1.0, 0.0, 0.0)  # unit vector in the child's axes
    lower: float | None = None  # least coordinate [rad or m]; None: no limit
    upper: float | None = None  # largest coordinate [rad or m]; None: no limit
    velocity: float | None = None  # largest speed [rad/s or m/s]; None: no limit
    effort: tuple[float, float] | None = None  # least and largest torque [N m] or force [N]; None: not given, or 0
    damping: float = 0.0  # [N m s/rad or N s/m] viscous coefficient
    friction: float = 0.0  # coulomb torque [N m] or force [N]
    mimic: str | None = None  # joint that this one follows: `q = multiplier q_mimic + offset`; None: it is free
    multiplier: float = 1.0  # [-, or m/rad, rad/m]
    offset: float = 0.0  # [rad or m]
    armature: float = 0.0  # [kg m^2 or kg] inertia of its rotor at the joint


@dataclass(frozen=True)
class LoopDescription:
    """A joint that closes a loop, between a place on each of two links."""

    name: str  # as in the file
    kind: Literal["weld", "point"]  # `weld`, or `point`
    links: tuple[str, str]  # the two links; `world` is the world
    places: tuple[Placement, Placement]  # the frame of the loop in the axes of each link


@dataclass(frozen=True)
class Description:
    """A robot as its file describes it."""

    name: str  # of the robot
    links: tuple[LinkDescription, ...]  # the links; the first one is the root
    joints: tuple[JointDescription, ...]  # the joints, parents before children
    notes: tuple[str, ...] = ()  # things that `check` reports, one sentence each
    base: Literal["fixed", "free"] = "fixed"  # `free`: the root moves freely; an MJCF file says so, a URDF cannot
    loops: tuple[LoopDescription, ...] = ()  # what closes loops


class Findings:
    """Problems and notes about one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []
        self._notes: dict[tuple[str, str], list[str]] = defaultdict(list)

    def problem(self, where: str, what: str) -> None:
        """Adds a problem of a link or joint; both are parts of the sentence `<file>: <where>: <what>`."""
        self.problems.append(f"{self.path}: {where}: {what}" if where else f"{self.path}: {what}")

    def note(self, name: str, what: str, remedy: str = "") -> None:
        """Adds a note about a link or joint; equal notes of several names become one."""
        self._notes[what, remedy].append(name)

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence per kind of note."""
        sentences = []
        for (what, remedy), names in self._notes.items():
            names = list(dict.fromkeys(names))
            more = f" and {len(names) - NAMES_IN_A_NOTE} more" if len(names) > NAMES_IN_A_NOTE else ""
            sentences.append(f"{', '.join(names[:NAMES_IN_A_NOTE])}{more}: {what}" + (f" ({remedy})" if remedy else ""))
        return tuple(sentences)


TOLERANCE = 1e-6  # share of the largest principal moment by which a rounded inertia may break the triangle inequality


IMPOSSIBLE = "no rigid body has this inertia"  # words of every note about such an inertia


def is_massive(inertial: Inertial | None) -> bool:
    """Whether a link has mass or inertia."""
    return inertial is not None and (inertial.m != 0.0 or any(inertial.I))


def box_gyration(x: float, y: float, z: float) -> tuple[float, ...]:
    """Inertia per mass of a uniform box about its centre, (xx, yy, zz, xy, xz, yz) [m^2]."""
    return (y * y + z * z) / 12, (x * x + z * z) / 12, (x * x + y * y) / 12, 0.0, 0.0, 0.0


def inertia_note(inertia: Sequence[float]) -> str | None:
    """Why no rigid body has this inertia, (xx, yy, zz, xy, xz, yz); None if one has."""
    xx, yy, zz, xy, xz, yz = inertia
    moments = np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    shown = ", ".join(f"{value:.3g}" for value in moments)
    if moments[0] < -TOLERANCE * abs(moments).max():
        return f"{IMPOSSIBLE}: its principal moments are {shown} kg m^2 (none may be negative)"
    if moments[2] > (moments[0] + moments[1]) * (1.0 + TOLERANCE):
        return (
            f"{IMPOSSIBLE}: its principal moments are {shown} kg m^2 (the largest may be at most the sum of the others)"
        )
    return None


def inertial_in_link(m: float, inertia: Array, placement: Placement, name: str, findings: Findings) -> Inertial | None:
    """The inertial of a link, None if it has neither mass nor inertia; a note if no rigid body has this inertia.

    Args:
        m: Mass [kg].
        inertia: Inertia about the centre of mass [kg m^2], shape (3, 3), in axes of the inertial.
        placement: The axes of the inertial in those of the link; their origin is the centre of mass.
        name: The link's name.
        findings: Where the note goes.
    """
    if m == 0 and not inertia.any():
        return None
    T = placement.R @ inertia @ placement.R.T
    moments = (T[0, 0], T[1, 1], T[2, 2], T[0, 1], T[0, 2], T[1, 2])
    note = "inertia without mass (give it a mass)" if m == 0 else inertia_note(moments)
    if note:
        findings.note(name, note)
    return Inertial(m, placement.xyz, tuple(float(x) for x in moments))  # type: ignore[arg-type]
