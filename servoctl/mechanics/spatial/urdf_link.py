"""Reads `<link>` elements of a URDF: inertials and pictures."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

import numpy as np

from servoctl.mechanics.spatial.description import LinkDescription, Shape
from servoctl.mechanics.spatial.inertial_values import inertia_note
from servoctl.mechanics.spatial.mesh_files import mesh_file
from servoctl.mechanics.spatial.placement import Inertial, Placement
from servoctl.mechanics.spatial.urdf_values import Findings, Values
from servoctl.types import Array

MOMENTS = ("ixx", "iyy", "izz", "ixy", "ixz", "iyz")


def read_link(element: Element, name: str, findings: Findings) -> LinkDescription:
    """A link with its inertial in link axes and its pictures."""
    values = Values(findings, f"link '{name}'")
    inertial = values.child(element, "inertial")
    shapes = [_shape(visual, values) for visual in element.findall("visual")]
    return LinkDescription(
        name,
        None if inertial is None else _inertial(inertial, name, values),
        tuple(shape for shape in shapes if shape is not None),
    )


def _inertial(element: Element, name: str, values: Values) -> Inertial | None:
    placement, _ = values.origin(element)
    mass, inertia = values.child(element, "mass"), values.child(element, "inertia")
    for tag, part in (("mass", mass), ("inertia", inertia)):
        if part is None:
            values.problem(f"<inertial> has no <{tag}> (add it, or remove <inertial>: the link has no mass then)")
    if mass is None or inertia is None:
        return None
    values.attributes(mass, ("value",))
    values.attributes(inertia, MOMENTS)
    m = values.number(mass, "value")
    if m < 0:
        values.problem(f"mass: value: expected at least 0 kg, got {m:g}")
    xx, yy, zz, xy, xz, yz = (values.number(inertia, key, 0.0 if key in MOMENTS[3:] else None) for key in MOMENTS)
    return inertial_in_link(m, np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), placement, name, values.findings)


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


def _shape(visual: Element, values: Values) -> Shape | None:
    placement, _ = values.origin(visual)
    geometry = values.child(visual, "geometry")
    bodies = list(geometry) if geometry is not None else []
    if len(bodies) != 1:
        values.problem(f"<visual> has {len(bodies)} shapes in <geometry> (expected one)")
        return None
    body = bodies[0]
    if body.tag == "box":
        return Shape("box", _lengths(body, {"size": 3}, values), placement)
    if body.tag == "cylinder":
        return Shape("cylinder", _lengths(body, {"radius": 1, "length": 1}, values), placement)
    if body.tag == "sphere":
        return Shape("sphere", _lengths(body, {"radius": 1}, values), placement)
    if body.tag == "mesh":
        return _mesh(body, placement, values)
    values.findings.note(values.where, f"<{body.tag}> is not drawn")
    return None


def _mesh(body: Element, placement: Placement, values: Values) -> Shape | None:
    address = body.get("filename", "")
    if not address:
        values.problem("mesh: filename: missing (expected the address of a file)")
        return None
    file = mesh_file(address, values.findings.path)
    if file is None:
        values.findings.note(values.where, f"the mesh {address} is not found: it is not drawn")
    elif file.suffix.lower() != ".stl":
        values.findings.note(values.where, f"the mesh {address} is no STL file: it is not drawn")
    return Shape("mesh", tuple(values.numbers(body, "scale", 3, (1.0, 1.0, 1.0))), placement, file)


def _lengths(body: Element, counts: dict[str, int], values: Values) -> tuple[float, ...]:
    lengths: list[float] = []
    for key, count in counts.items():
        found: Sequence[float] = values.numbers(body, key, count)
        if body.get(key) is not None and min(found) < 0:
            values.problem(f"{body.tag}: {key}: expected lengths of at least 0 m, got '{body.get(key)}'")
        lengths += found
    return tuple(lengths)
