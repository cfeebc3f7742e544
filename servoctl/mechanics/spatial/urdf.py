"""Reads a URDF, the Unified Robot Description Format of ROS.

Design: ten tags matter, so the standard library reads them. Elements for other programs (transmissions, Gazebo,
ros2_control, collision shapes) are ignored. All problems of a file are reported at once, by link and joint name.

Source: https://wiki.ros.org/urdf/XML; attributes that a file leaves out have the defaults given there.
"""

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from xml.etree.ElementTree import Element

from servoctl.errors import ConfigError
from servoctl.expression.suggest import suggestion
from servoctl.mechanics.spatial.description import Description
from servoctl.mechanics.spatial.tree_order import in_order
from servoctl.mechanics.spatial.urdf_joint import read_joint
from servoctl.mechanics.spatial.urdf_link import read_link
from servoctl.mechanics.spatial.urdf_values import Findings
from servoctl.mechanics.spatial.xml_file import read_xml

OTHER_FORMATS = {
    "sdf": "an SDF file (export a URDF; close loops with `loops`)",
    "mujoco": "an MJCF file (give it as `mjcf:`)",
}
"""Root tag of another format -> what the file is."""

MOST = 1000  # largest number of links, and of joints

IGNORED = ("material", "transmission", "gazebo", "sensor", "ros2_control", "group", "disable_collisions")
"""Tags for other programs."""

CUT = "a URDF is a tree: cut a link there and close it with `loops`"


def read_urdf(path: str | PathLike[str]) -> Description:
    """The robot that a URDF describes.

    Args:
        path: The file.

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
    links = [read_link(element, name, findings) for element, name in _named(root, "link", findings)]
    joints = [read_joint(element, name, findings) for element, name in _named(root, "joint", findings)]
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
