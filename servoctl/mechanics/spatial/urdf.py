"""Reads a URDF, the Unified Robot Description Format of ROS.

Design: ten tags matter, so the standard library reads them, and one table says which numbers each of them has. Elements
for other programs (transmissions, Gazebo, ros2_control, collision shapes) are ignored. A value that is wrong is
reported and replaced by its default, so all problems of a file are shown at once, by link and joint name; nothing is
used in the end if there is a problem.

Source: https://wiki.ros.org/urdf/XML; attributes that a file leaves out have the defaults given there.
"""

import os
import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import NamedTuple, get_args
from urllib.parse import unquote
from xml.etree.ElementTree import Element

import numpy as np

from servoctl.errors import ConfigError, suggestion
from servoctl.mechanics.spatial.description import (
    Description,
    Findings,
    JointDescription,
    JointKind,
    LinkDescription,
    Shape,
    in_order,
    inertial_in_link,
    read_xml,
)  # fmt: skip
from servoctl.mechanics.spatial.placement import SNAP, Inertial, Placement, Vector3

OTHER_FORMATS = {
    "sdf": "an SDF file (export a URDF; close loops with `loops`)",
    "mujoco": "an MJCF file (give it as `mjcf:`)",
}
"""Root tag of another format -> what the file is."""

MOST = 1000  # largest number of links, and of joints

IGNORED = ("material", "transmission", "gazebo", "sensor", "ros2_control", "group", "disable_collisions")
"""Tags for other programs."""

CUT = "a URDF is a tree: cut a link there and close it with `loops`"

KINDS = get_args(JointKind)

REFUSED = {
    "floating": "connect no joint there and give the robot `base: free`",
    "planar": "write two prismatic joints and a continuous one, with links without mass between them",
    "ball": "write three continuous joints, with links without mass between them",
    "spherical": "write three continuous joints, with links without mass between them",
}
"""Type of a joint that is not supported -> what to do."""

EXACT = 1e-9  # [rad] an angle closer to a right angle than this was written with all digits that matter
HAIR = 2e-3  # an angle this close to a right angle was most likely rounded: 1.57 is 8e-4 off, 3.14 is 1.6e-3 off [rad]
LARGEST_NUMBER = 1e100  # larger numbers would overflow in products

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Numbers(NamedTuple):
    """The numbers of an attribute."""

    default: tuple[float, ...] = (0.0,)  # of an attribute that is missing; its length is the count of the numbers
    required: bool = False  # whether it may not be missing
    least: str = ""  # what is expected where the numbers may not be negative; empty: they may


_ORIGIN = Numbers((0.0, 0.0, 0.0))
_MOMENT = Numbers(required=True)
_LENGTH = Numbers(required=True, least="lengths of at least 0 m")
_SPEED = Numbers(least="a speed of at least 0")
_EFFORT = Numbers(least="a torque or force of at least 0")

ATTRIBUTES = {
    "origin": {"xyz": _ORIGIN, "rpy": _ORIGIN},
    "axis": {"xyz": Numbers((1.0, 0.0, 0.0))},
    "limit": {"lower": Numbers(), "upper": Numbers(), "velocity": _SPEED, "effort": _EFFORT},
    "dynamics": {"damping": Numbers(least="a coefficient of at least 0"), "friction": _EFFORT},
    "mimic": {"multiplier": Numbers((1.0,)), "offset": Numbers()},
    "mass": {"value": Numbers(required=True, least="at least 0 kg")},
    "inertia": {"ixx": _MOMENT, "iyy": _MOMENT, "izz": _MOMENT, "ixy": Numbers(), "ixz": Numbers(), "iyz": Numbers()},
    "box": {"size": _LENGTH._replace(default=(0.0, 0.0, 0.0))},
    "cylinder": {"radius": _LENGTH, "length": _LENGTH},
    "sphere": {"radius": _LENGTH},
    "mesh": {"scale": Numbers((1.0, 1.0, 1.0))},
}  # fmt: skip
"""Tag -> its attributes that are numbers."""

TEXTS = {"origin": (), "axis": (), "mimic": ("joint",), "mass": (), "inertia": ()}
"""Tag in which an unknown attribute is a problem, because it may change the robot -> its attributes that are text."""


def read_urdf(path: str | PathLike[str]) -> Description:
    """The robot that a URDF describes.

    Raises:
        ConfigError: The file cannot be read, or describes no robot; it has every problem of the file.
    """
    path = Path(path)
    root = read_xml(path)
    if root.tag != "robot":
        raise ConfigError(
            f"{path}: it is {OTHER_FORMATS.get(root.tag, f'no URDF: its root is <{root.tag}>, not <robot>')}"
        )
    for tag in ("link", "joint"):
        if (count := len(root.findall(tag))) > MOST:
            raise ConfigError(f"{path}: it has {count} {tag}s (expected at most {MOST})")
    findings = Findings(path)
    links = [_Reader("link", name, findings).link(element) for element, name in _named(root, "link", findings)]
    joints = [_Reader("joint", name, findings).joint(element) for element, name in _named(root, "joint", findings)]
    for _, name in _named(root, "loop_joint", findings):
        findings.problem(f"loop_joint '{name}'", f"it is not supported ({CUT})")
    _note_other_tags(root, findings)
    ordered_links, ordered_joints = in_order(links, joints, findings)
    if findings.problems:
        raise ConfigError(findings.problems)
    return Description(root.get("name") or path.stem, tuple(ordered_links), tuple(ordered_joints), findings.notes)


def _named(root: Element, tag: str, findings: Findings) -> Iterator[tuple[Element, str]]:
    """Yields the elements of a tag with their names; one without a name is a problem."""
    for number, element in enumerate(root.findall(tag), start=1):
        name = element.get("name", "").strip()
        if name:
            yield element, name
        else:
            findings.problem(f"{tag} number {number}", "name: missing")


def _note_other_tags(root: Element, findings: Findings) -> None:
    known = ("link", "joint", "loop_joint")
    for tag in dict.fromkeys(element.tag for element in root):
        if tag not in known + IGNORED:
            findings.note(f"<{tag.rpartition('}')[2]}>", "unknown tags are ignored", suggestion(tag, known))


class _Reader:
    """Reads the elements of one link or joint."""

    def __init__(self, what: str, name: str, findings: Findings) -> None:
        self.name, self.where, self.findings = name, f"{what} '{name}'", findings

    def link(self, element: Element) -> LinkDescription:
        """A link with its inertial in link axes and its pictures."""
        inertial = self._inertial(element)
        shapes = [self._shape(visual) for visual in element.findall("visual")]
        return LinkDescription(self.name, inertial, tuple(shape for shape in shapes if shape is not None))

    def joint(self, element: Element) -> JointDescription:
        """A joint."""
        kind = self._kind(element)
        parent, child = self._link(element, "parent"), self._link(element, "child")
        placement, rpy = self._origin(element)
        self._note_rounded_angles(rpy)
        if kind == "fixed":
            if element.find("mimic") is not None:
                self._note("a fixed joint follows no other: its <mimic> is ignored")
            return JointDescription(self.name, kind, parent, child, placement)
        if element.find("safety_controller") is not None:
            self._note("its <safety_controller> is ignored (soft limits are `bounds: position`)")
        lower, upper, velocity, effort = self._limits(element, kind)
        dynamics = self._values("dynamics", self._child(element, "dynamics"))
        damping, friction = (max(value, 0.0) for (value,) in dynamics.values())
        mimic, multiplier, offset = self._mimic(element)
        return JointDescription(
            self.name, kind, parent, child, placement, self._axis(element), mimic, multiplier=multiplier, offset=offset,
            lower=lower, upper=upper, velocity=velocity, effort=(-effort, effort) if effort else None,
            damping=damping, friction=friction,
        )  # fmt: skip

    def _kind(self, element: Element) -> JointKind:
        kind = element.get("type")
        if kind in KINDS:
            return kind  # type: ignore[return-value]
        if kind is None:
            self._problem(f"type: missing (expected one of {', '.join(KINDS)})")
        elif kind in REFUSED:
            self._problem(f"type: '{kind}' is not supported ({REFUSED[kind]})")
        else:
            hint = suggestion(kind, KINDS) or f"expected one of {', '.join(KINDS)}"
            self._problem(f"type: there is no type '{kind}' ({hint})")
        return "fixed"

    def _link(self, element: Element, tag: str) -> str:
        """The name of the parent or the child; empty if it is missing."""
        end = self._child(element, tag)
        name = "" if end is None else end.get("link", "")
        if not name:
            self._problem(f'{tag}: missing (expected <{tag} link="NAME"/>)')
        return name

    def _axis(self, element: Element) -> Vector3:
        axis = self._child(element, "axis")
        xyz = np.array(self._values("axis", axis)["xyz"])
        length = float(np.linalg.norm(xyz))
        if axis is not None and length < SNAP:
            self._problem(f"axis: xyz: expected an axis of length 1, got length {length:g}: '{axis.get('xyz')}'")
            return (1.0, 0.0, 0.0)
        x, y, z = (float(part) for part in xyz / length)
        return (x, y, z)

    def _limits(self, element: Element, kind: JointKind) -> tuple[float | None, ...]:
        """Lower, upper, velocity, effort; None where there is no limit."""
        limit = self._child(element, "limit")
        if limit is None:
            self._note("no limits")
            return None, None, None, None
        lower, upper, speed, torque = (value for (value,) in self._values("limit", limit).values())
        velocity, effort = (value if value > 0.0 else None for value in (speed, torque))
        given = [limit.get(key) is not None for key in ("lower", "upper")]
        if lower > upper:
            self._problem(f"limit: lower, {lower:g}, is above upper, {upper:g} (swap them)")
        if velocity is None:
            self._note("no limit of speed: velocity is 0 or missing")
        if effort is None:
            self._note("no limit of torque or force: effort is 0 or missing")
        if kind == "continuous":
            if any(given) and (lower or upper):
                self._note("lower and upper of a continuous joint are ignored", "make it revolute")
            return None, None, velocity, effort
        if not any(given):
            self._note("no limits of position: lower and upper are missing")
            return None, None, velocity, effort
        if not all(given):
            self._note(f"{'upper' if given[0] else 'lower'} is missing: it is 0, as URDF defines")
        if lower == upper:
            self._note("lower and upper are equal: the joint cannot move")
        return lower, upper, velocity, effort

    def _mimic(self, element: Element) -> tuple[str | None, float, float]:
        """The joint that is followed, multiplier and offset."""
        mimic = self._child(element, "mimic")
        (multiplier,), (offset,) = self._values("mimic", mimic).values()
        if mimic is not None and not mimic.get("joint"):
            self._problem("mimic: joint: missing (expected the name of a joint)")
        return None if mimic is None else mimic.get("joint") or None, multiplier, offset

    def _note_rounded_angles(self, rpy: tuple[float, ...]) -> None:
        quarters = np.round(np.array(rpy) / (np.pi / 2))
        off = np.abs(np.array(rpy) - quarters * np.pi / 2)[quarters != 0]
        worst = float(np.max(off, where=off < HAIR, initial=0.0))
        if worst > EXACT:
            size = re.sub(r"e-0*", "e-", f"{worst:.2g}")
            self._note(f"rpy is {size} rad off a right angle, and taken as written", "write it with 16 digits")

    def _inertial(self, link: Element) -> Inertial | None:
        element = self._child(link, "inertial")
        if element is None:
            return None
        placement, _ = self._origin(element)
        mass, inertia = self._child(element, "mass"), self._child(element, "inertia")
        for tag, part in (("mass", mass), ("inertia", inertia)):
            if part is None:
                self._problem(f"<inertial> has no <{tag}> (add it, or remove <inertial>: the link has no mass then)")
        if mass is None or inertia is None:
            return None
        ((m,),) = self._values("mass", mass).values()
        xx, yy, zz, xy, xz, yz = (value for (value,) in self._values("inertia", inertia).values())
        moments = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        return inertial_in_link(m, moments, placement, self.name, self.findings)

    def _shape(self, visual: Element) -> Shape | None:
        placement, _ = self._origin(visual)
        geometry = self._child(visual, "geometry")
        bodies = list(geometry) if geometry is not None else []
        if len(bodies) != 1:
            self._problem(f"<visual> has {len(bodies)} shapes in <geometry> (expected one)")
            return None
        body = bodies[0]
        if body.tag not in ("box", "cylinder", "sphere", "mesh"):
            self.findings.note(self.where, f"<{body.tag}> is not drawn")
            return None
        file = None
        if body.tag == "mesh":
            address = body.get("filename", "")
            if not address:
                self._problem("mesh: filename: missing (expected the address of a file)")
                return None
            file = mesh_file(address, self.findings.path)
            if file is None:
                self.findings.note(self.where, f"the mesh {address} is not found: it is not drawn")
            elif file.suffix.lower() != ".stl":
                self.findings.note(self.where, f"the mesh {address} is no STL file: it is not drawn")
        size: tuple[float, ...] = sum(self._values(body.tag, body).values(), ())
        return Shape(body.tag, size, placement, file)  # type: ignore[arg-type]

    def _origin(self, element: Element) -> tuple[Placement, tuple[float, ...]]:
        """The placement of an element's `<origin>`, the identity if it has none; and its rpy [rad]."""
        values = self._values("origin", self._child(element, "origin"))
        return Placement.at(values["xyz"], values["rpy"]), values["rpy"]

    def _child(self, parent: Element, tag: str) -> Element | None:
        """The child of this tag; None if there is none. Several are a problem."""
        children = parent.findall(tag)
        if len(children) > 1:
            self._problem(f"<{tag}> stands {len(children)} times in <{parent.tag}> (expected one)")
        return children[0] if children else None

    def _values(self, tag: str, element: Element | None) -> dict[str, tuple[float, ...]]:
        """The numbers of an element by attribute; the defaults if there is none."""
        table = ATTRIBUTES[tag]
        if element is None:
            return {key: numbers.default for key, numbers in table.items()}
        known = (*TEXTS.get(tag, ()), *table)
        for key in element.attrib if tag in TEXTS else ():
            if key not in known and not key.startswith("{"):
                hint = suggestion(key, known) or f"known: {', '.join(known)}"
                self._problem(f"{tag}: {key}: unknown attribute ({hint})")
        return {key: self._numbers(f"{tag}: {key}", element.get(key), numbers) for key, numbers in table.items()}

    def _numbers(self, where: str, text: str | None, expected: Numbers) -> tuple[float, ...]:
        """The numbers of an attribute, separated by blanks; its default if they are wrong."""
        count = len(expected.default)
        counted = "a number" if count == 1 else f"{count} numbers"
        if text is None:
            if expected.required:
                self._problem(f"{where}: missing (expected {counted})")
            return expected.default
        words = text.split()
        for word in words:
            if not _NUMBER.fullmatch(word) or not abs(float(word)) <= LARGEST_NUMBER:
                self._problem(f"{where}: expected {counted}, got '{word}'{_hint(word)}")
                return expected.default
        if len(words) != count:
            self._problem(f"{where}: expected {counted}, got {len(words)}: '{text.strip()}'")
            return expected.default
        values = tuple(float(word) for word in words)
        if expected.least and min(values) < 0:
            shown = f"'{text}'" if "lengths" in expected.least else f"{values[0]:g}"
            self._problem(f"{where}: expected {expected.least}, got {shown}")
        return values

    def _problem(self, what: str) -> None:
        self.findings.problem(self.where, what)

    def _note(self, what: str, remedy: str = "") -> None:
        self.findings.note(self.name, what, remedy)


def _hint(word: str) -> str:
    if "," in word:
        return " (decimals have a point, numbers are separated by blanks)"
    if word.lower().lstrip("+-") in ("inf", "infinity", "nan"):
        return " (expected finite numbers; a limit that is left out does not exist)"
    return ""


SCHEMES = ("package", "model")  # schemes of an address that names a package, then a path in it


def mesh_file(address: str, robot_file: Path) -> Path | None:
    """The file of a mesh; None if there is none. Nothing is fetched from a network.

    Args:
        address: `package://name/path`, `model://name/path`, `file:///path`, or a path relative to the robot file.
        robot_file: The file that names the mesh.
    """
    scheme, separator, rest = address.partition("://")
    if not separator:
        places = iter([robot_file.parent / address])
    elif scheme in SCHEMES:
        places = _in_packages(rest, robot_file)
    else:
        places = iter([Path(unquote(rest))] if scheme == "file" else [])
    return next((place for place in places if os.path.isfile(place)), None)


def _in_packages(path: str, robot_file: Path) -> Iterator[Path]:
    """Yields where a package's file may be: above the robot file, then in ROS 1 and ROS 2 search paths."""
    package, _, inside = path.partition("/")
    for folder in robot_file.absolute().parents:
        yield folder / package / inside
        if folder.name == package:
            yield folder / inside
    for folder in _search_path("ROS_PACKAGE_PATH"):
        yield folder / package / inside
        if folder.name == package:
            yield folder / inside
    for folder in _search_path("AMENT_PREFIX_PATH"):
        yield folder / "share" / package / inside


def _search_path(variable: str) -> list[Path]:
    return [Path(folder) for folder in os.environ.get(variable, "").split(os.pathsep) if folder]
