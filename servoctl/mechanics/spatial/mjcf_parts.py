"""Placements, inertials, shapes and `<equality>` elements from the arrays of a MuJoCo model."""

from typing import Any, NamedTuple

import numpy as np

from servoctl.mechanics.spatial.description import Findings, LoopDescription, Shape
from servoctl.mechanics.spatial.inertial_values import inertial_in_link
from servoctl.mechanics.spatial.placement import Inertial, Placement
from servoctl.mechanics.spatial.steps import quaternion_rotation
from servoctl.types import Array

HIDDEN_GROUP = 3  # geoms of this group and above are not drawn: by MuJoCo's custom they are for collisions


def rotation(quaternion: Array) -> Array:
    """The rotation matrix of a unit quaternion (w, x, y, z), shape (3, 3)."""
    R: Array = quaternion_rotation(quaternion.tolist()).array
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


class Mimic(NamedTuple):
    """A joint that follows another one, `q = multiplier q_leader + offset`; both are indices."""

    leader: int
    multiplier: float
    offset: float


class Equalities:
    """Reads the equalities of a model: `joint` as mimic joints, `connect` and `weld` as loops; the rest is named."""

    def __init__(self, model: Any, mujoco: Any, findings: Findings) -> None:
        """Reads them all; what cannot be followed becomes a note."""
        self._model, self._mujoco, self._findings = model, mujoco, findings
        self.mimics: dict[int, Mimic] = {}  # joint -> what it follows
        self.loops: list[LoopDescription] = []  # what closes loops
        kinds = mujoco.mjtEq
        for i in range(model.neq):
            name, kind = model.equality(i).name or f"equality{i}", int(model.eq_type[i])
            if not model.eq_active0[i]:
                findings.note(name, "an equality that is not active is left out")
            elif kind == int(kinds.mjEQ_JOINT):
                self._add_mimic(i, name)
            elif kind in (int(kinds.mjEQ_CONNECT), int(kinds.mjEQ_WELD)):
                self._add_loop(i, name, "weld" if kind == int(kinds.mjEQ_WELD) else "point")
            else:
                word = str(kinds(kind).name).removeprefix("mjEQ_").lower()
                findings.note(name, f"equality of type {word} is left out", "close loops with `loops`")

    def _add_mimic(self, i: int, name: str) -> None:
        model, data = self._model, self._model.eq_data[i]
        follower, leader = int(model.eq_obj1id[i]), int(model.eq_obj2id[i])
        if leader < 0:
            self._findings.note(name, "equality that holds one joint is left out", "take out the joint")
            return
        if data[2:5].any() or data[1] == 0.0:
            self._findings.note(name, "equality of joints is left out: its polynomial is not a line")
            return
        multiplier = float(data[1])
        start, leads = (float(model.qpos0[model.jnt_qposadr[joint]]) for joint in (follower, leader))
        offset = start + float(data[0]) - multiplier * leads
        if (follower in self._driven and leader not in self._driven) or follower in self.mimics:
            # the joint with a motor keeps its coordinate
            follower, leader, multiplier, offset = leader, follower, 1.0 / multiplier, -offset / multiplier
        if follower in self.mimics or self._ends_at(leader) == follower:
            self._findings.note(name, "equality of joints is left out: one of them follows others already")
            return
        self.mimics[follower] = Mimic(leader, multiplier, offset)

    def _ends_at(self, joint: int) -> int:
        """The joint at the end of a chain of mimics."""
        while joint in self.mimics:
            joint = self.mimics[joint].leader
        return joint

    @property
    def _driven(self) -> set[int]:
        """Joints with a motor."""
        model, on_joint = self._model, self._mujoco.mjtTrn.mjTRN_JOINT
        return {int(model.actuator_trnid[k, 0]) for k in range(model.nu) if model.actuator_trntype[k] == on_joint}

    def _add_loop(self, i: int, name: str, kind: str) -> None:
        model, data = self._model, self._model.eq_data[i]
        first, second = int(model.eq_obj1id[i]), int(model.eq_obj2id[i])
        if model.eq_objtype[i] == self._mujoco.mjtObj.mjOBJ_SITE:
            sites = first, second
            bodies = [int(model.site_bodyid[site]) for site in sites]
            places = [Placement.of(rotation(model.site_quat[site]), model.site_pos[site]) for site in sites]
        elif kind == "weld":  # MuJoCo keeps the second body's anchor first
            bodies = [first, second]
            places = [Placement.of(rotation(data[6:10]), data[3:6]), Placement.of(np.eye(3), data[:3])]
        else:
            bodies, places = [first, second], [Placement.of(np.eye(3), data[k : k + 3]) for k in (0, 3)]
        names = [model.body(body).name or f"body{body}" for body in bodies]
        if bodies[0] == bodies[1]:
            self._findings.note(name, f"equality is left out: both ends are on {names[0]}")
            return
        self.loops.append(LoopDescription(name, kind, (names[0], names[1]), (places[0], places[1])))  # type: ignore[arg-type]
