"""Reads `<joint>` elements of a URDF."""

import re
from typing import get_args
from xml.etree.ElementTree import Element

import numpy as np

from servoctl.expression.suggest import suggestion
from servoctl.mechanics.spatial.description import JointDescription, JointKind
from servoctl.mechanics.spatial.placement import SNAP, Vector3
from servoctl.mechanics.spatial.urdf_values import Findings, Values

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


def read_joint(element: Element, name: str, findings: Findings) -> JointDescription:
    """A joint; what is wrong with it is in `findings`, and replaced by defaults."""
    values = Values(findings, f"joint '{name}'")
    kind = _kind(element, values)
    parent, child = (_link(element, tag, values) for tag in ("parent", "child"))
    placement, rpy = values.origin(element)
    _note_rounded_angles(rpy, name, findings)
    if kind == "fixed":
        if element.find("mimic") is not None:
            findings.note(name, "a fixed joint follows no other: its <mimic> is ignored")
        return JointDescription(name, kind, parent, child, placement)
    lower, upper, velocity, effort = _limits(element, kind, name, values)
    damping, friction = _dynamics(element, name, values)
    mimic, multiplier, offset = _mimic(element, values)
    return JointDescription(
        name, kind, parent, child, placement, _axis(element, values), lower, upper, velocity,
        None if effort is None else (-effort, effort),
        damping, friction, mimic, multiplier, offset,
    )  # fmt: skip


def _kind(element: Element, values: Values) -> JointKind:
    kind = element.get("type")
    if kind in KINDS:
        return kind  # type: ignore[return-value]
    if kind is None:
        values.problem(f"type: missing (expected one of {', '.join(KINDS)})")
    elif kind in REFUSED:
        values.problem(f"type: '{kind}' is not supported ({REFUSED[kind]})")
    else:
        hint = suggestion(kind, KINDS) or f"expected one of {', '.join(KINDS)}"
        values.problem(f"type: there is no type '{kind}' ({hint})")
    return "fixed"


def _link(element: Element, tag: str, values: Values) -> str:
    """The name of the parent or the child; empty if it is missing."""
    end = values.child(element, tag)
    name = "" if end is None else end.get("link", "")
    if not name:
        values.problem(f'{tag}: missing (expected <{tag} link="NAME"/>)')
    return name


def _axis(element: Element, values: Values) -> Vector3:
    axis = values.child(element, "axis")
    if axis is None:
        return (1.0, 0.0, 0.0)
    values.attributes(axis, ("xyz",))
    xyz = np.array(values.numbers(axis, "xyz", 3, (1.0, 0.0, 0.0)))
    length = float(np.linalg.norm(xyz))
    if length < SNAP:
        values.problem(f"axis: xyz: expected an axis of length 1, got length {length:g}: '{axis.get('xyz')}'")
        return (1.0, 0.0, 0.0)
    x, y, z = (float(part) for part in xyz / length)
    return (x, y, z)


Limits = tuple[float | None, float | None, float | None, float | None]


def _limits(element: Element, kind: str, name: str, values: Values) -> Limits:
    """Lower, upper, velocity, effort; None where there is no limit."""
    limit, note = values.child(element, "limit"), values.findings.note
    if limit is None:
        note(name, "no limits")
        return None, None, None, None
    lower, upper = (values.number(limit, key, 0.0) for key in ("lower", "upper"))
    given = [limit.get(key) is not None for key in ("lower", "upper")]
    if lower > upper:
        values.problem(f"limit: lower, {lower:g}, is above upper, {upper:g} (swap them)")
    velocity = values.at_least_0(limit, "velocity", "a speed")
    effort = values.at_least_0(limit, "effort", "a torque or force")
    if velocity is None:
        note(name, "no limit of speed: velocity is 0 or missing")
    if effort is None:
        note(name, "no limit of torque or force: effort is 0 or missing")
    if kind == "continuous":
        if any(given) and (lower or upper):
            note(name, "lower and upper of a continuous joint are ignored", "make it revolute")
        return None, None, velocity, effort
    if not any(given):
        note(name, "no limits of position: lower and upper are missing")
        return None, None, velocity, effort
    if not all(given):
        note(name, f"{'upper' if given[0] else 'lower'} is missing: it is 0, as URDF defines")
    if lower == upper:
        note(name, "lower and upper are equal: the joint cannot move")
    return lower, upper, velocity, effort


def _dynamics(element: Element, name: str, values: Values) -> tuple[float, float]:
    """Damping and friction."""
    dynamics = values.child(element, "dynamics")
    if dynamics is None:
        return 0.0, 0.0
    damping = values.at_least_0(dynamics, "damping", "a coefficient") or 0.0
    friction = values.at_least_0(dynamics, "friction", "a torque or force") or 0.0
    return damping, friction


def _mimic(element: Element, values: Values) -> tuple[str | None, float, float]:
    """The joint that is followed, multiplier and offset."""
    mimic = values.child(element, "mimic")
    if mimic is None:
        return None, 1.0, 0.0
    values.attributes(mimic, ("joint", "multiplier", "offset"))
    if not mimic.get("joint"):
        values.problem("mimic: joint: missing (expected the name of a joint)")
    return mimic.get("joint") or None, values.number(mimic, "multiplier", 1.0), values.number(mimic, "offset", 0.0)


def _note_rounded_angles(rpy: list[float], name: str, findings: Findings) -> None:
    quarters = np.round(np.array(rpy) / (np.pi / 2))
    off = np.abs(np.array(rpy) - quarters * np.pi / 2)[quarters != 0]
    worst = float(np.max(off, where=off < HAIR, initial=0.0))
    if worst > EXACT:
        size = re.sub(r"e-0*", "e-", f"{worst:.2g}")
        findings.note(name, f"rpy is {size} rad off a right angle, and taken as written", "write it with 16 digits")
