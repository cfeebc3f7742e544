"""What a robot file says: links and joints by their own names, before they become a tree of moving bodies.

`read_xml` opens a file: its root element, or one sentence about why it cannot be read. `Findings` collects what is
wrong with the file, so that all problems are shown at once.

Design: a reader (`urdf`, `mjcf`) gives a `Description` and knows no tree; `TreeBuilder` makes the tree and knows no
file. `xml.etree` follows no external entities, but it expands internal ones, so a file that declares a DOCTYPE or an
entity is refused before it is parsed, and so is a large file. Comments are dropped by the parser; therefore xacro is
looked for in elements and attributes, and a comment that mentions it does no harm.
"""

import codecs
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.parsers.expat import ErrorString

import numpy as np

from servoctl.errors import ConfigError, listed, no_such
from servoctl.input_file import read_regular
from servoctl.mechanics.spatial.placement import IDENTITY, Inertial, Placement, Vector3
from servoctl.types import Array

LARGEST = 10_000_000  # [bytes] largest size of a file

ENCODINGS = ("utf-8", "us-ascii", "iso-8859-1", "windows-1252")
"""Encodings that an XML declaration may name; UTF-16 is known by its first bytes."""

XACRO = "run xacro first, `xacro FILE -o robot.urdf`, or install xacrodoc"


def read_xml(path: Path) -> Element:
    """The root element of a file; tags of the root's own namespace lose it.

    Raises:
        ConfigError: The file cannot be read, is too large, is no text, is not XML, declares entities, or is xacro.
    """
    content = read_regular(path, LARGEST, "an XML file", large="meshes belong in files of their own")
    text = _text(path, content)
    if not text.strip():
        raise ConfigError(f"{path}: the file is empty (expected XML)")
    for word in ("<!DOCTYPE", "<!ENTITY"):
        if word in text:
            raise ConfigError(f"{path}: {word}: such declarations are refused (remove them, and write entities out)")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        if "<xacro:" in text:
            raise ConfigError(f"{path}: the file is xacro, not XML of a robot ({XACRO})") from error
        line, what = error.position[0], ErrorString(error.code)
        raise ConfigError(f"{path}: line {line}: the file is not XML: {what} (correct it there)") from error
    _refuse_xacro(path, root)
    _drop_namespace(root)
    return root


def _text(path: Path, content: bytes) -> str:
    declared = re.match(rb"""(?:\xef\xbb\xbf)?\s*<\?xml[^>]*?encoding\s*=\s*["']([^"']*)["']""", content)
    encoding = declared[1].decode("ascii", "replace").lower() if declared else "utf-8"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif encoding not in ENCODINGS:
        raise ConfigError(f"{path}: encoding: '{encoding}' is not known (save the file as UTF-8)")
    try:
        return content.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: byte {error.start} is no text in {encoding.upper()} (expected an XML file in UTF-8)"
        ) from error


def _refuse_xacro(path: Path, root: Element) -> None:
    for element in root.iter():
        namespace, _, tag = element.tag.rpartition("}")
        if "xacro" in namespace:
            raise ConfigError(f"{path}: <xacro:{tag}>: the file is xacro, not a finished robot ({XACRO})")
        for key, value in element.items():
            if "$(" in value or "${" in value:
                raise ConfigError(f"{path}: <{tag}> {key}: '{value}' is xacro ({XACRO})")


def _drop_namespace(root: Element) -> None:
    namespace, brace, _ = root.tag.rpartition("}")
    for element in root.iter() if brace else ():
        if element.tag.startswith(namespace + brace):
            element.tag = element.tag.rpartition("}")[2]


NAMES_IN_A_NOTE = 6

JointKind = Literal["fixed", "revolute", "continuous", "prismatic"]
Base = Literal["fixed", "free"]


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


@dataclass(frozen=True, kw_only=True)
class JointProperties:
    """What a joint of a file keeps in a tree of moving bodies."""

    multiplier: float = 1.0  # [-, m/rad or rad/m] of a joint that follows another: `q = multiplier q_other + offset`
    offset: float = 0.0  # [rad or m]
    lower: float | None = None  # least coordinate [rad or m]; None: no limit
    upper: float | None = None  # largest coordinate [rad or m]; None: no limit
    velocity: float | None = None  # largest speed [rad/s or m/s]; None: no limit
    effort: tuple[float, float] | None = None  # least and largest torque [N m] or force [N]; None: not given, or 0
    damping: float = 0.0  # [N m s/rad or N s/m] viscous coefficient
    friction: float = 0.0  # coulomb torque [N m] or force [N]
    armature: float = 0.0  # [kg m^2 or kg] inertia of its rotor at the joint


@dataclass(frozen=True)
class JointDescription(JointProperties):
    """A joint of a tree."""

    name: str  # as in the file
    kind: JointKind  # type
    parent: str  # link that carries it
    child: str  # link that it moves
    placement: Placement = IDENTITY  # the child's axes in those of the parent at q = 0
    axis: Vector3 = (1.0, 0.0, 0.0)  # unit vector in the child's axes
    mimic: str | None = None  # joint that this one follows; None: it is free


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
    base: Base = "fixed"  # `free`: the root moves freely; an MJCF file says so, a URDF cannot
    loops: tuple[LoopDescription, ...] = ()  # what closes loops
    driven: tuple[str, ...] = ()  # joints on which an MJCF has actuators; none: the file names no actuator


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
        for (what, advice), names in self._notes.items():
            things = listed(dict.fromkeys(names), NAMES_IN_A_NOTE)
            sentences.append(f"{things}: {what}" + (f" ({advice})" if advice else ""))
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


Ordered = tuple[list[LinkDescription], list[JointDescription]]


def in_order(links: Sequence[LinkDescription], joints: Sequence[JointDescription], findings: Findings) -> Ordered:
    """Links with the root first, and joints with parents before children: branch by branch, in the file's order."""
    names = dict.fromkeys(link.name for link in links)
    _check_names(links, joints, findings)
    for joint in joints:
        for tag, link in (("parent", joint.parent), ("child", joint.child)):
            if link and link not in names:
                findings.problem(f"joint '{joint.name}'", f"{tag}: {no_such('link', link, names)}")
        if joint.parent and joint.parent == joint.child:
            findings.problem(f"joint '{joint.name}'", f"parent and child are the same link, '{joint.child}'")
    _check_mimics(joints, findings)
    carrier = _carriers(joints, findings)
    roots = [name for name in names if name not in carrier]
    if len(roots) > 1:
        listed = ", ".join(f"'{name}'" for name in roots)
        findings.problem(f"link {listed}", f"{len(roots)} links are no joint's child (join them by a fixed joint)")
    ordered = _walk(roots, joints)
    _check_cycles(set(names) - {joint.child for joint in ordered} - set(roots), carrier, findings)
    known = {link.name: link for link in links}
    return [known[name] for name in [*roots, *(joint.child for joint in ordered)] if name in known], ordered


def _check_names(links: Sequence[LinkDescription], joints: Sequence[JointDescription], findings: Findings) -> None:
    for what, names in (("link", [link.name for link in links]), ("joint", [joint.name for joint in joints])):
        for name, count in Counter(names).items():
            if count > 1:
                findings.problem(f"{what} '{name}'", f"{count} {what}s have this name (names must differ)")
    if not links:
        findings.problem("", "the file has no <link>")


def _carriers(joints: Sequence[JointDescription], findings: Findings) -> dict[str, JointDescription]:
    """Link -> the joint whose child it is."""
    by_child: dict[str, list[JointDescription]] = defaultdict(list)
    for joint in joints:
        if joint.child:
            by_child[joint.child].append(joint)
    for child, several in by_child.items():
        if len(several) > 1:
            listed = " and ".join(f"'{joint.name}'" for joint in several)
            what = f"it is the child of {len(several)} joints, {listed}"
            findings.problem(
                f"link '{child}'", f"{what} (a URDF is a tree: cut link '{child}' and close it with `loops`)"
            )
    return {child: several[0] for child, several in by_child.items()}


def _walk(roots: Sequence[str], joints: Sequence[JointDescription]) -> list[JointDescription]:
    """The joints that the roots reach, each once."""
    leaving: dict[str, list[JointDescription]] = defaultdict(list)
    for joint in joints:
        leaving[joint.parent].append(joint)
    ordered: list[JointDescription] = []
    waiting = [joint for root in reversed(roots) for joint in reversed(leaving[root])]
    reached = set(roots)
    while waiting:
        joint = waiting.pop()
        if joint.child not in reached:
            reached.add(joint.child)
            ordered.append(joint)
            waiting += reversed(leaving[joint.child])
    return ordered


def _check_cycles(unreached: set[str], carrier: dict[str, JointDescription], findings: Findings) -> None:
    """Reports each closed chain of links once; links that hang on one are not reported."""
    seen: set[str] = set()
    for start in sorted(unreached):
        chain, link = [], start
        while link in carrier and link not in seen:
            seen.add(link)
            chain.append(link)
            link = carrier[link].parent
        if link in chain and len(chain) - chain.index(link) > 1:
            loop = " -> ".join(reversed([*chain[chain.index(link) :], link]))
            findings.problem(
                f"link '{link}'",
                f"it carries itself, {loop} (a URDF is a tree: cut link '{link}' and close it with `loops`)",
            )


def _check_mimics(joints: Sequence[JointDescription], findings: Findings) -> None:
    known = {joint.name: joint for joint in joints}
    for joint in joints:
        if joint.mimic is None:
            continue
        where, followed = f"joint '{joint.name}'", known.get(joint.mimic)
        if followed is None:
            free = [other.name for other in joints if other.kind != "fixed" and other is not joint]
            findings.problem(where, f"mimic: {no_such('joint', joint.mimic, free)}")
        elif followed.kind == "fixed":
            findings.problem(where, f"mimic: joint '{joint.mimic}' is fixed (make joint '{joint.name}' fixed too)")
        elif (cycle := _mimic_cycle(joint, known)) and joint.name == min(cycle):
            chain = " -> ".join([joint.name, *cycle])
            what = "the joint follows itself" if len(cycle) == 1 else f"the joints follow each other, {chain}"
            findings.problem(where, f"mimic: {what} (one joint must be free)")


def _mimic_cycle(joint: JointDescription, known: dict[str, JointDescription]) -> list[str]:
    """The joints that are followed in turn until `joint` is met again; empty if it is not met."""
    chain: list[str] = []
    at: JointDescription | None = joint
    while at is not None and at.mimic is not None and at.mimic not in chain:
        chain.append(at.mimic)
        at = known.get(at.mimic)
    return chain if joint.name in chain[-1:] else []
