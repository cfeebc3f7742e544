"""Builds the tree of one or several robots from descriptions, payloads, frames and loops.

Design: whatever is wrong is collected, so a user sees everything at once. Payloads and frames may be on each other in
any order, so they are placed at the end.
"""

import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, get_args

from servoctl.errors import no_such, remedy
from servoctl.expression import RESERVED
from servoctl.mechanics.spatial.description import (
    Base,
    Description,
    JointDescription,
    JointProperties,
    Shape,
    box_gyration,
    inertia_note,
    is_massive,
)
from servoctl.mechanics.spatial.model import (
    FREE_BASE,
    LINK_PARAMETERS,
    WORLD,
    LoopJoint,
    LoopKind,
    RobotLink,
    RobotTree,
    TreeFrame,
    TreeJoint,
)
from servoctl.mechanics.spatial.placement import IDENTITY, Inertial, Placement, rotation_to


@dataclass(frozen=True)
class Attached:
    """A link, payload or frame on a body or on another frame."""

    label: str  # what it is, for messages
    name: str  # identifier
    on: str  # name of the frame that carries it; empty for the links of a robot
    at: Placement  # its place there
    inertial: Inertial | None = None  # none: it has no mass
    gyration: tuple[float, ...] | None = None  # see `RobotLink`
    shapes: tuple[Shape, ...] = ()  # pictures


def identifier(name: str, prefix: str = "") -> str:
    """The name as an identifier, with a prefix before it if one is given.

    Characters that no identifier has become `_`. A reserved word gets `_` behind it, a leading digit before it.
    """
    word = re.sub(r"\W", "_", f"{prefix}_{name}" if prefix else name)
    if not word.isidentifier():
        word = f"_{word}"
    return f"{word}_" if word in RESERVED or keyword.iskeyword(word) else word


class NameTable:
    """Names that must differ, with what each one stands for."""

    def __init__(self, problems: list[str], owners: Mapping[str, str] = MappingProxyType({})) -> None:
        """Starts with names that are taken.

        Args:
            problems: The list to add problems to.
            owners: Name -> what it stands for.
        """
        self.problems = problems  # a sentence for each name that is taken twice
        self._owners = dict(owners)

    def add(self, name: str, owner: str) -> bool:
        """Adds a name; if it is taken, adds a problem with both owners and returns False.

        Args:
            name: An identifier.
            owner: What it stands for, such as `left: joint 'a-b'`.
        """
        if name in self._owners:
            self.problems.append(
                f"{owner}: its name '{name}' is also that of {self._owners[name]} (rename one of them)"
            )
            return False
        self._owners[name] = owner
        return True


class TreeBuilder:
    """Collects the parts of a tree."""

    def __init__(self) -> None:
        self.problems: list[str] = []  # everything that is wrong, one sentence each; complete after `tree`
        # name -> value of each link's parameters: `<link>_m`, `<link>_com`, `<link>_I`
        self.values: dict[str, Any] = {}
        self._notes: list[str] = []
        self._names: list[str] = []
        self._joints: list[TreeJoint] = []
        self._moved: list[str] = []
        self._links: list[RobotLink] = []
        self._frames = {"world": TreeFrame("world", WORLD, IDENTITY)}
        self._loops: list[LoopJoint] = []
        self._motors: list[str] = []
        self._attached: list[Attached] = []
        self._quantities = NameTable(self.problems, {"gravity": "the plant's gravity"})
        self._frame_names = NameTable(self.problems, {"world": "the world"})
        self._groups = NameTable(self.problems)

    def add(
        self,
        description: Description,
        prefix: str = "",
        at: Placement = IDENTITY,
        base: Base | None = None,
        motors: Sequence[str] | None = None,
    ) -> None:
        """Adds a robot.

        Args:
            description: What its file says.
            prefix: Its joints and links are named `<prefix>_<name>`; "": as in the file.
            at: Place of a fixed base in the world.
            base: `fixed`, or `free` with seven coordinates `base_x`, ..., `base_qz`; None: as its file says.
            motors: Names of the joints that have an actuator, as in the file; None: all that have a coordinate.
        """
        where, base = prefix or description.name, base or description.base
        self._names.append(where)
        notes = list(description.notes)
        if (base, description.base) == ("fixed", "free"):
            notes.append(f"{description.links[0].name}: its free base is fixed at `at`, not where the file has it")
        self._notes += [f"{prefix}: {note}" if prefix else note for note in notes]
        root, *others = description.links
        places = {root.name: (self._base(where, prefix, at, base), IDENTITY if base == "free" else at)}
        indices: dict[str, int] = {}
        for joint in description.joints:
            body, place = places[joint.parent]
            outer = place.then(joint.placement)
            if joint.kind == "fixed":
                places[joint.child] = body, outer
                continue
            axes = Placement.of(rotation_to(joint.axis), (0.0, 0.0, 0.0))
            indices[joint.name] = len(self._joints)
            places[joint.child] = len(self._joints), axes.inverse
            self._moved.append(
                f"{where}: link '{joint.child}' on joint '{joint.name}': it moves no mass, nor does a link behind it"
            )
            self._joints.append(_tree_joint(joint, identifier(joint.name, prefix), body, outer.then(axes)))
        self._follow(description.joints, indices)
        own = {name: self._joints[i].name for name, i in indices.items() if self._joints[i].follows is None}
        for name, coordinate in own.items():
            self._quantities.add(coordinate, f"{where}: joint '{name}'")
        for link in (root, *others):
            label, name = f"{where}: link '{link.name}'", identifier(link.name, prefix)
            if link is root and name == "world" and not is_massive(link.inertial):
                if base == "free":
                    advice = "leave base out, or give the file's first body a free joint"
                    self.problems.append(f"{where}: base: free: the file's root is the world itself ({advice})")
                continue  # many files name their root so; it is the world itself
            self._place(Attached(label, name, "", IDENTITY, link.inertial, None, link.shapes), *places[link.name])
        for loop in description.loops:
            name, label = identifier(loop.name, prefix), f"{where}: loop '{loop.name}'"
            for number, (carrier, place) in enumerate(zip(loop.links, loop.places, strict=True), 1):
                body, at_link = places.get(carrier, (WORLD, IDENTITY))
                self._place(Attached(label, f"{name}_{number}", "", IDENTITY), body, at_link.then(place))
            self.loop(name, loop.kind, f"{name}_1", f"{name}_2")
        for name in motors or ():
            if name not in own:
                what = "follows another joint" if name in indices else "there is no such joint"
                self.problems.append(f"{where}: motors: {name}: {what} ({remedy(name, own)})")
        self._motors += [coordinate for name, coordinate in own.items() if motors is None or name in motors]
        more = [name for name in own if name not in description.driven]
        if motors is None and description.driven and more:  # joints without a motor in a file that has others
            kept = ", ".join(description.driven)
            note = f"{', '.join(more)}: a motor here, but none in the file (motors: [{kept}] has those of the file)"
            self._notes.append(f"{prefix}: {note}" if prefix else note)

    def body(
        self,
        name: str,
        on: str,
        at: Placement,
        m: float,
        size: Sequence[float] | None = None,
        com: Sequence[float] | None = None,
        inertia: Sequence[float] | None = None,
    ) -> None:
        """Adds a payload.

        Args:
            name: Identifier of the payload and of its frame.
            on: Frame that carries it.
            at: Its place in that frame.
            m: Mass [kg].
            size: Edges of a uniform box about its frame's origin [m]; its inertia is proportional to the mass.
            com: Centre of mass in its frame [m], where `size` is not given; None: the origin.
            inertia: (ixx, iyy, izz, ixy, ixz, iyz) about the centre of mass [kg m^2]; None: 0, or given by `size`.
        """
        label, problems = f"bodies: {name}", []
        if not m > 0.0:
            problems.append(f"m: expected a positive mass [kg], got {m:g}")
        if size is not None and (com is not None or inertia is not None):
            problems.append("size gives centre of mass and inertia already (leave out com and inertia)")
        for key, values, count in (("size", size, 3), ("com", com, 3), ("inertia", inertia, 6)):
            if values is not None and len(values) != count:
                problems.append(f"{key}: expected {count} numbers, got {len(values)}")
        if size is not None and not all(edge > 0.0 for edge in size):
            problems.append(f"size: expected three positive lengths [m], got {list(size)}")
        self.problems += [f"{label}: {problem}" for problem in problems]
        part = Attached(label, name, on, at)
        if not problems and size is not None:
            edges = tuple(float(edge) for edge in size)
            shapes = (Shape("box", edges, IDENTITY),)
            part = replace(part, inertial=Inertial(float(m)), gyration=box_gyration(*edges), shapes=shapes)
        elif not problems:
            centre, moments = (tuple(map(float, x or count * (0.0,))) for x, count in ((com, 3), (inertia, 6)))
            note = inertia_note(moments)
            self._notes += [f"{label}: {note}"] if note else []
            part = replace(part, inertial=Inertial(float(m), centre, moments))  # type: ignore[arg-type]
        self._attached.append(part)

    def frame(self, name: str, on: str, at: Placement) -> None:
        """Adds a frame on another one, at a place in that one."""
        self._attached.append(Attached(f"frames: {name}", name, on, at))

    def loop(self, name: str, kind: str, first: str, second: str) -> None:
        """Adds a passive constraint between two frames: `weld`, `hinge`, `slide` or `point`, see `LoopJoint`."""
        if kind not in get_args(LoopKind):
            self.problems.append(f"loops: {name}: there is no '{kind}' ({remedy(kind, get_args(LoopKind))})")
        self._groups.add(name, f"loops: {name}")
        self._loops.append(LoopJoint(name, kind, first, second))  # type: ignore[arg-type]

    def tree(self) -> RobotTree:
        """The tree of all that has been added; it means nothing if there are problems."""
        self._place_attached()
        known = [*self._frames, *(part.name for part in self._attached)]
        for loop in self._loops:
            for frame in (loop.first, loop.second):
                if frame not in known:
                    self.problems.append(f"loops: {loop.name}: {no_such('frame', frame, known)}")
            if loop.first == loop.second:
                self.problems.append(f"loops: {loop.name}: both frames are '{loop.first}' (a loop joins two frames)")
        self._check_masses()
        return RobotTree(
            " and ".join(self._names), tuple(self._joints), tuple(self._links), tuple(self._frames.values()),
            tuple(self._loops), tuple(self._motors), tuple(self._notes),
        )  # fmt: skip

    def _base(self, where: str, prefix: str, at: Placement, base: Base) -> int:
        if base not in get_args(Base):
            self.problems.append(f"{where}: base: expected fixed or free, got {base!r}")
        if base != "free":
            return WORLD
        if at != IDENTITY:
            self.problems.append(f"{where}: at: a free base has no fixed place (give its start in initial.q)")
        name = identifier("base", prefix)
        for part in FREE_BASE:
            self._quantities.add(f"{name}_{part}", f"{where}: the free base's coordinate '{part}'")
        self._groups.add(name, f"{where}: the free base")
        self._moved.append(f"{where}: no link on its free base has mass")
        self._joints.append(TreeJoint(name, "free", WORLD, IDENTITY))
        return len(self._joints) - 1

    def _follow(self, joints: Sequence[JointDescription], indices: Mapping[str, int]) -> None:
        known = {joint.name: joint for joint in joints}
        for name, i in indices.items():
            multiplier, offset, at, passed = 1.0, 0.0, known[name], {name}
            while at.mimic is not None:
                multiplier, offset = multiplier * at.multiplier, multiplier * at.offset + offset
                if at.mimic not in indices or at.mimic in passed:
                    self.problems.append(f"joint '{name}': mimic: '{at.mimic}' is not a joint that moves by itself")
                    break
                at = known[at.mimic]
                passed.add(at.name)
            if at.name != name:
                self._joints[i] = replace(
                    self._joints[i], follows=indices[at.name], multiplier=multiplier, offset=offset
                )

    def _place_attached(self) -> None:
        """Places payloads and frames, each after the one that it is on."""
        waiting = self._attached
        while waiting:
            ready = [part for part in waiting if part.on in self._frames]
            if not ready:
                self._report_unplaced(waiting)
                break
            for part in ready:
                frame = self._frames[part.on]
                self._place(part, frame.body, frame.placement.then(part.at))
            waiting = [part for part in waiting if part not in ready]
        self._attached = waiting

    def _report_unplaced(self, parts: Sequence[Attached]) -> None:
        names = {part.name for part in parts}
        for part in parts:
            if part.on not in names:
                self.problems.append(f"{part.label}: on: {no_such('frame', part.on, self._frames)}")
        if all(part.on in names for part in parts):
            each = ", ".join(f"{part.name} on {part.on}" for part in parts)
            self.problems.append(f"frames: on: they carry each other, {each} (put one of them on a link)")

    def _place(self, part: Attached, body: int, placement: Placement) -> None:
        """Adds a frame, and its inertial if it has one."""
        if identifier(part.name) != part.name:
            self.problems.append(f"{part.label}: it is no name (write it as '{identifier(part.name)}')")
        if not self._frame_names.add(part.name, part.label):
            return
        self._frames[part.name] = TreeFrame(part.name, body, placement, part.shapes)
        inertial = part.inertial
        if inertial is None or not is_massive(inertial):
            return
        link = RobotLink(part.name, body, placement, part.gyration)
        self._links.append(link)
        values = inertial.m, inertial.com, inertial.I
        for key, name, value in zip(LINK_PARAMETERS, link.parameters, values, strict=False):
            if self._quantities.add(name, f"{part.label}: parameter '{key}'"):
                self.values[name] = value

    def _check_masses(self) -> None:
        """Adds a problem for each coordinate that moves no mass."""
        massive = [any(link.body == i for link in self._links) for i in range(len(self._joints))]
        for i in reversed(range(len(self._joints))):
            parent = self._joints[i].parent
            if massive[i] and parent != WORLD:
                massive[parent] = True
        for i, joint in enumerate(self._joints):
            followers = [j for j, other in enumerate(self._joints) if other.follows == i]
            if joint.follows is None and not any(massive[j] for j in (i, *followers)):
                self.problems.append(
                    f"{self._moved[i]} (give it mass: an <inertial> in its file, or a payload in `bodies`)"
                )


def _tree_joint(joint: JointDescription, name: str, parent: int, placement: Placement) -> TreeJoint:
    kept = {field.name: getattr(joint, field.name) for field in fields(JointProperties)}
    return TreeJoint(name, "prismatic" if joint.kind == "prismatic" else "revolute", parent, placement, **kept)
