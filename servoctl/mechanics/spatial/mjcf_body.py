"""Placements, inertials and shapes from the arrays of a MuJoCo model."""

from typing import Any

import numpy as np

from servoctl.mechanics.spatial.description import Shape
from servoctl.mechanics.spatial.placement import Inertial, Placement
from servoctl.mechanics.spatial.urdf_link import inertial_in_link
from servoctl.mechanics.spatial.urdf_values import Findings
from servoctl.types import Array

HIDDEN_GROUP = 3  # geoms of this group and above are not drawn: by MuJoCo's custom they are for collisions


def rotation(quaternion: Array) -> Array:
    """The rotation matrix of a unit quaternion (w, x, y, z), shape (3, 3)."""
    w, v = quaternion[0], quaternion[1:]
    x, y, z = v
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    R: Array = np.eye(3) + 2.0 * (w * cross + cross @ cross)
    return R


def joint_placement(model: Any, joint: int) -> Placement:
    """The place of a joint in the axes of its body."""
    return Placement.of(np.eye(3), model.jnt_pos[joint])


def turned(placement: Placement, model: Any, joint: int, kind: str) -> Placement:
    """The placement at coordinate 0; MuJoCo's bodies are placed at the coordinate `ref`."""
    ref, axis = float(model.qpos0[model.jnt_qposadr[joint]]), model.jnt_axis[joint]
    if kind == "slide":
        return placement.then(Placement.of(np.eye(3), -ref * axis))
    half = -0.5 * ref
    return placement.then(Placement.of(rotation(np.array([np.cos(half), *(np.sin(half) * axis)])), np.zeros(3)))


def inertial_of(model: Any, body: int, name: str, findings: Findings) -> Inertial | None:
    """The inertial of a body in its axes; None without mass."""
    placement = Placement.of(rotation(model.body_iquat[body]), model.body_ipos[body])
    return inertial_in_link(float(model.body_mass[body]), np.diag(model.body_inertia[body]), placement, name, findings)


def shapes_of(model: Any, body: int, mujoco: Any) -> tuple[Shape, ...]:
    """The boxes, cylinders and spheres of a body; a capsule is a cylinder with two spheres."""
    geoms = range(model.body_geomadr[body], model.body_geomadr[body] + model.body_geomnum[body])
    shapes: list[Shape] = []
    for geom in geoms:
        if model.geom_group[geom] >= HIDDEN_GROUP:
            continue
        placement = Placement.of(rotation(model.geom_quat[geom]), model.geom_pos[geom])
        r, half, third = (float(x) for x in model.geom_size[geom])
        kind = mujoco.mjtGeom(model.geom_type[geom]).name.removeprefix("mjGEOM_")
        if kind == "BOX":
            shapes.append(Shape("box", (2 * r, 2 * half, 2 * third), placement))
        if kind == "SPHERE":
            shapes.append(Shape("sphere", (r,), placement))
        if kind in ("CYLINDER", "CAPSULE"):
            shapes.append(Shape("cylinder", (r, 2 * half), placement))
        if kind == "CAPSULE":
            ends = (Placement.of(np.eye(3), (0.0, 0.0, z)) for z in (-half, half))
            shapes += [Shape("sphere", (r,), placement.then(end)) for end in ends]
    return tuple(shapes)
