"""Reads an MJCF, the format of MuJoCo, where MuJoCo is installed.

Design: MuJoCo itself resolves defaults, includes and inertias of geoms; this reader only walks the arrays of its model.
MuJoCo lets a body have several joints at any points of it; here each of them moves a link of its own, without mass but
for the last.

Design: the law commands the torque of a joint. Of an actuator on it, motor or servo, the plant keeps gear, rotor,
damping and limits; the gains of servos are named as left out.
"""

from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from servoctl.errors import ConfigError
from servoctl.mechanics.spatial.description import (
    Description,
    Findings,
    JointDescription,
    LinkDescription,
    LoopDescription,
    Shape,
    inertial_in_link,
    read_xml,
)
from servoctl.mechanics.spatial.dynamics import quaternion_rotation
from servoctl.mechanics.spatial.placement import Placement
from servoctl.mechanics.spatial.plant import GRAVITY
from servoctl.mechanics.spatial.scene import Scene
from servoctl.types import Array

NONLINEAR_DAMPING = "damping that is not linear in the speed is left out"


class Actuators:
    """Reads the actuators of a scene."""

    def __init__(self, scene: Scene, findings: Findings) -> None:
        """Reads nothing yet; problems and notes go into `findings`."""
        self._scene, self._model, self._findings = scene, scene.model, findings
        self._gears = scene.model.actuator_gear[scene.outputs, 0]

    def on(self, joint: int) -> list[tuple[int, float]]:
        """The actuators on a joint, and the gear of each."""
        model = self._model
        return [
            (i, float(gear))
            for i, gear in enumerate(self._gears)
            if self._scene.acts_on(i) == "joint" and model.actuator_trnid[i, 0] == joint
        ]

    def effort(self, joint: int) -> tuple[float, float] | None:
        """Least and largest force that the joint's limits and its actuators allow; None if there is no limit."""
        model = self._model
        forces = [self._force_range(i, gear) for i, gear in self.on(joint)]
        ranges = [np.sum(forces, axis=0)] if forces else []  # they act together
        if model.jnt_actfrclimited[joint]:
            ranges.append(model.jnt_actfrcrange[joint])
        lower, upper = max(map(min, ranges), default=-np.inf), min(map(max, ranges), default=np.inf)
        limited = lower < upper and np.isfinite([lower, upper]).all()
        return (float(lower), float(upper)) if limited else None

    def note_left_out(self) -> None:
        """Notes what the actuators of the file have that an input of the plant, a torque at a joint, has not."""
        scene, model, findings = self._scene, self._model, self._findings
        for i in range(len(self._gears)):
            name = scene.name("actuator", i)
            if (acts_on := scene.acts_on(i)) != "joint":
                findings.note(name, f"an actuator on a {acts_on} is left out", "motors are on hinges and slides")
                continue
            if not scene.takes_torque(i):
                what = f"the gains of {self._servo(i)} are left out"
                findings.note(name, what, "the law commands the torque of its joint")
            if scene.word("mjtDyn", model.actuator_dyntype[i]) != "none":
                findings.note(name, "its activation is left out: torques act at once", "give `realism.lag`")
            if np.any(getattr(model, "actuator_delay", np.zeros(model.nu))[i]):
                findings.note(name, "its delay is left out", "give `realism.delay`")
            if np.any(getattr(model, "actuator_dampingpoly", np.zeros(model.nu))[i]):
                findings.note(name, NONLINEAR_DAMPING)

    def _force_range(self, i: int, gear: float) -> Array:
        """Least and largest force of an actuator at its joint, shape (2,); infinite without a limit.

        The control of a servo is a position or a speed: its range is no limit of the force.
        """
        scene, model, ranges = self._scene, self._model, [np.array([-np.inf, np.inf])]
        if model.actuator_forcelimited[i]:
            ranges.append(model.actuator_forcerange[i] * gear)
        control = scene.controls[i]
        if model.actuator_ctrllimited[control] and scene.takes_torque(i):
            ranges.append(model.actuator_ctrlrange[control] * model.actuator_gainprm[i, 0] * gear)
        if not np.isfinite(ranges[1:]).all():
            joint = scene.name("joint", int(model.actuator_trnid[i, 0]))
            self._findings.problem(f"joint '{joint}'", "the range of its torque is not finite")
        return np.array([max(map(min, ranges)), min(map(max, ranges))])

    def _servo(self, i: int) -> str:
        """What an actuator is that takes no torque."""
        if self._scene.word("mjtBias", self._model.actuator_biastype[i]) != "affine":
            return "an actuator that is no motor"
        _, stiffness, damping = self._model.actuator_biasprm[i, :3]
        return "a position servo" if stiffness else "a velocity servo" if damping else "an actuator that is no motor"


HIDDEN_GROUP = 3  # geoms of this group and above are not drawn: by MuJoCo's custom they are for collisions


def pose(quaternion: Array, position: Array) -> Placement:
    """The placement of a unit quaternion (w, x, y, z) and a position [m]."""
    return Placement.of(quaternion_rotation(quaternion), position)


def turned(placement: Placement, model: Any, joint: int, kind: str) -> Placement:
    """The placement at coordinate 0; MuJoCo's bodies are placed at the coordinate `ref`."""
    ref, axis = float(model.qpos0[model.jnt_qposadr[joint]]), model.jnt_axis[joint]
    if kind == "slide":
        return placement.then(Placement.of(np.eye(3), -ref * axis))
    half = -0.5 * ref
    return placement.then(pose(np.array([np.cos(half), *(np.sin(half) * axis)]), np.zeros(3)))


def shapes_of(scene: Scene, body: int) -> tuple[Shape, ...]:
    """The boxes, cylinders and spheres of a body; a capsule is a cylinder with two spheres."""
    model = scene.model
    geoms = range(model.body_geomadr[body], model.body_geomadr[body] + model.body_geomnum[body])
    shapes: list[Shape] = []
    for geom in geoms:
        if model.geom_group[geom] >= HIDDEN_GROUP:
            continue
        placement = pose(model.geom_quat[geom], model.geom_pos[geom])
        r, half, third = (float(x) for x in model.geom_size[geom])
        kind = scene.word("mjtGeom", model.geom_type[geom])
        if kind == "box":
            shapes.append(Shape("box", (2 * r, 2 * half, 2 * third), placement))
        if kind == "sphere":
            shapes.append(Shape("sphere", (r,), placement))
        if kind in ("cylinder", "capsule"):
            shapes.append(Shape("cylinder", (r, 2 * half), placement))
        if kind == "capsule":
            ends = (Placement.of(np.eye(3), (0.0, 0.0, z)) for z in (-half, half))
            shapes += [Shape("sphere", (r,), placement.then(end)) for end in ends]
    return tuple(shapes)


TORQUE_SCALE = 10
"""Place of a weld's `torquescale` in MuJoCo's data of an equality; a weld with 0 turns freely."""


class Mimic(NamedTuple):
    """The joint that one follows, `q = multiplier q_leader + offset`; it follows no other."""

    leader: int
    multiplier: float
    offset: float


class Equalities:
    """Reads the equalities of a scene: `joint` as mimic joints, `connect` and `weld` as loops; the rest is named."""

    def __init__(self, scene: Scene, findings: Findings, actuators: Actuators) -> None:
        """Reads them all; what cannot be followed becomes a note."""
        self._scene, self._model, self._findings, self._actuators = scene, scene.model, findings, actuators
        self.mimics: dict[int, Mimic] = {}  # joint -> the joint that it follows
        self.loops: list[LoopDescription] = []  # what closes loops
        for i in range(scene.model.neq):
            name, kind = scene.name("equality", i), scene.word("mjtEq", scene.model.eq_type[i])
            if not scene.model.eq_active0[i]:
                findings.note(name, "an equality that is not active is left out")
            elif kind == "joint":
                self._add_mimic(i, name)
            elif kind in ("connect", "weld"):
                self._add_loop(i, name, is_weld=kind == "weld")
            else:
                findings.note(name, f"equality of type {kind} is left out", "close loops with `loops`")

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
        first, second = (self.mimics.get(joint, Mimic(joint, 1.0, 0.0)) for joint in (follower, leader))
        if first.leader == second.leader:
            self._findings.note(name, "equality of joints is left out: one of them follows the other already")
            return
        # with all joints in terms of those that they follow: q_follower = multiplier q_leader + offset
        offset = (multiplier * second.offset + offset - first.offset) / first.multiplier
        multiplier *= second.multiplier / first.multiplier
        follower, leader = first.leader, second.leader
        if self._actuators.on(follower) and not self._actuators.on(leader):  # one with a motor keeps its coordinate
            follower, leader, multiplier, offset = leader, follower, 1.0 / multiplier, -offset / multiplier
        for joint, of in self.mimics.items():
            if of.leader == follower:
                self.mimics[joint] = Mimic(leader, of.multiplier * multiplier, of.multiplier * offset + of.offset)
        self.mimics[follower] = Mimic(leader, multiplier, offset)

    def _add_loop(self, i: int, name: str, is_weld: bool) -> None:
        model, data = self._model, self._model.eq_data[i]
        first, second = int(model.eq_obj1id[i]), int(model.eq_obj2id[i])
        if self._scene.word("mjtObj", model.eq_objtype[i]) == "site":
            sites = first, second
            bodies = [int(model.site_bodyid[site]) for site in sites]
            places = [pose(model.site_quat[site], model.site_pos[site]) for site in sites]
        elif is_weld:  # MuJoCo keeps the second body's anchor first
            bodies = [first, second]
            places = [pose(data[6:10], data[3:6]), Placement.of(np.eye(3), data[:3])]
        else:
            bodies, places = [first, second], [Placement.of(np.eye(3), data[k : k + 3]) for k in (0, 3)]
        if any(model.body_mocapid[model.body_rootid[body]] >= 0 for body in bodies):
            self._findings.note(name, "equality is left out: it pulls towards a mocap body, which a program moves")
            return
        if any(self._scene.joint_kind(joint) == "free" for joint in range(model.njnt)):
            ends = [self._on_world(body, place) for body, place in zip(bodies, places, strict=True)]
            bodies, places = [body for body, _ in ends], [place for _, place in ends]
        names = [self._scene.name("body", body) for body in bodies]
        if bodies[0] == bodies[1]:
            self._findings.note(name, f"equality is left out: both ends are on {names[0]}")
            return
        kind: Literal["weld", "point"] = "weld" if is_weld and data[TORQUE_SCALE] else "point"
        self.loops.append(LoopDescription(name, kind, (names[0], names[1]), (places[0], places[1])))

    def _on_world(self, body: int, place: Placement) -> tuple[int, Placement]:
        """A place on a body that does not move, as one on the world: beside a free base such a body is left out."""
        model = self._model
        while body and model.body_weldid[body] == 0:
            place = pose(model.body_quat[body], model.body_pos[body]).then(place)
            body = int(model.body_parentid[body])
        return body, place


WORLD = "world"

IGNORED = {
    "jnt_stiffness": ("joint", "its stiffness is left out"),
    "jnt_stiffnesspoly": ("joint", "its stiffness is left out"),
    "dof_dampingpoly": ("dof", NONLINEAR_DAMPING),
    "body_gravcomp": ("body", "its gravity compensation is left out"),
}
"""Array with one row per thing -> kind of thing, note where the row is not 0."""

UNREAD_FLAGS = ("constraint", "equality", "frictionloss", "limit", "passive", "damper", "clampctrl", "actuation")
"""What an MJCF can disable and a plant cannot."""


def read_mjcf(path: str | PathLike[str]) -> Description:
    """The robot that an MJCF file describes; its base is free if its only root body has a free joint.

    Raises:
        ConfigError: The file cannot be read, or it has joints that are not supported; every one is named.
        MissingPackageError: MuJoCo is not installed.
    """
    path = Path(path)
    root = read_xml(path)
    if root.tag != "mujoco":
        what = "a URDF (give it as `urdf:`)" if root.tag == "robot" else f"no MJCF file: its root is <{root.tag}>"
        raise ConfigError(f"{path}: it is {what}")
    return _ModelReader(path, Scene(path)).description()


class _ModelReader:
    def __init__(self, path: Path, scene: Scene) -> None:
        self._path, self._scene, self._model, self._findings = path, scene, scene.model, Findings(path)
        self._actuators = Actuators(scene, self._findings)
        self._equalities = Equalities(scene, self._findings, self._actuators)
        self._links: list[LinkDescription] = []
        self._joints: list[JointDescription] = []

    def description(self) -> Description:
        model = self._model
        roots = [i for i in range(1, model.nbody) if model.body_parentid[i] == 0]
        free = [i for i in roots if model.body_jntnum[i] and self._scene.joint_kind(model.body_jntadr[i]) == "free"]
        kept = self._kept_roots(roots, free)
        if not free:
            self._links.append(LinkDescription(WORLD, None, shapes_of(self._scene, 0)))
        for body in range(1, model.nbody):
            if model.body_rootid[body] in kept:
                self._add_body(body, is_base=body in free)
        self._add_sites()
        self._note_left_out()
        if self._findings.problems:
            raise ConfigError(self._findings.problems)
        name = self._path.stem
        base = "free" if free else "fixed"
        return Description(
            name, tuple(self._links), tuple(self._joints), self._findings.notes, base,  # type: ignore[arg-type]
            tuple(self._equalities.loops), tuple(self._driven()),
        )  # fmt: skip

    def _kept_roots(self, roots: list[int], free: list[int]) -> list[int]:
        """The bodies on the world that belong to the robot; beside a free one no other may move."""
        if not free:
            return roots
        for body in roots:
            if body == free[0]:
                continue
            moves = any(
                self._model.body_rootid[b] == body and self._model.body_jntnum[b]
                for b in range(len(self._model.body_rootid))
            )
            if moves:
                self._findings.problem(
                    f"body '{self._body(body)}'",
                    f"it moves beside the free body '{self._body(free[0])}' (write each robot into a file of its own)",
                )
            else:
                self._findings.note(self._body(body), "a body that does not move is left out beside a free one")
        return free[:1]

    def _add_body(self, body: int, is_base: bool) -> None:
        model, name = self._model, self._body(body)
        parent = self._body(model.body_parentid[body])
        inside = pose(model.body_quat[body], model.body_pos[body])
        joints = range(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body])
        for joint in () if is_base else joints:
            is_last = joint == joints[-1] and not model.jnt_pos[joint].any()
            link = name if is_last else f"{name}_{self._joint(joint)}"
            self._add_joint(joint, parent, link, inside.then(Placement.of(np.eye(3), model.jnt_pos[joint])))
            if not is_last:
                self._links.append(LinkDescription(link))
            parent, inside = link, Placement.of(np.eye(3), -model.jnt_pos[joint])
        if not is_base and parent != name:
            self._joints.append(JointDescription(f"{name}_body", "fixed", parent, name, inside))
        m, inertia = float(model.body_mass[body]), np.diag(model.body_inertia[body])
        placement = pose(model.body_iquat[body], model.body_ipos[body])
        inertial = inertial_in_link(m, inertia, placement, name, self._findings)
        self._links.append(LinkDescription(name, inertial, shapes_of(self._scene, body)))

    def _add_sites(self) -> None:
        """Adds each site with a name as a link without mass, which is a frame."""
        model, links = self._model, {link.name for link in self._links}
        for i in range(model.nsite):
            name, carrier = model.site(i).name, self._body(model.site_bodyid[i])
            if not name or carrier not in links:
                continue
            if name in links:
                self._findings.note(name, "a site is left out: its name is taken", "rename it")
                continue
            place = pose(model.site_quat[i], model.site_pos[i])
            self._links.append(LinkDescription(name))
            self._joints.append(JointDescription(f"{name}_site", "fixed", carrier, name, place))

    def _add_joint(self, joint: int, parent: str, child: str, placement: Placement) -> None:
        model, name, kind = self._model, self._joint(joint), self._scene.joint_kind(joint)
        if kind not in ("hinge", "slide"):
            self._findings.problem(
                f"joint '{name}'", f"type '{kind}' is not supported here (write hinges about three axes)"
            )
            return
        dof = model.jnt_dofadr[joint]
        limited = bool(model.jnt_limited[joint])
        lower, upper = (float(x) if limited else None for x in model.jnt_range[joint])
        if limited and not np.isfinite(model.jnt_range[joint]).all():
            self._findings.problem(f"joint '{name}'", f"range: expected numbers, got {model.jnt_range[joint].tolist()}")
        damping, armature = float(model.dof_damping[dof]), float(model.dof_armature[dof])
        for i, gear in self._actuators.on(joint):  # MuJoCo has had both on actuators since version 4
            armature += gear**2 * float(getattr(model, "actuator_armature", np.zeros(model.nu))[i])
            damping += gear**2 * float(getattr(model, "actuator_damping", np.zeros(model.nu))[i])
        mimic = self._equalities.mimics.get(joint)
        moved = "prismatic" if kind == "slide" else "revolute" if limited else "continuous"
        self._joints.append(
            JointDescription(
                name, moved, parent, child, turned(placement, model, joint, kind),  # type: ignore[arg-type]
                tuple(float(x) for x in model.jnt_axis[joint]),  # type: ignore[arg-type]
                None if mimic is None else self._joint(mimic.leader),
                multiplier=1.0 if mimic is None else mimic.multiplier, offset=0.0 if mimic is None else mimic.offset,
                lower=lower, upper=upper, effort=self._actuators.effort(joint),
                damping=damping, friction=float(model.dof_frictionloss[dof]), armature=armature,
            )
        )  # fmt: skip

    def _driven(self) -> list[str]:
        """The joints with actuators that have a coordinate; a joint that follows another one has none."""
        joints = [j for j in range(self._model.njnt) if self._actuators.on(j) and j not in self._equalities.mimics]
        return [self._joint(joint) for joint in joints]

    def _note_left_out(self) -> None:
        model, findings = self._model, self._findings
        disabled = self._scene.disabled
        gravity = np.zeros(3) if "gravity" in disabled else model.opt.gravity
        if not np.allclose(gravity, GRAVITY):
            shown = ", ".join(f"{x:g}" for x in gravity)
            findings.note("option", f"the file's gravity, [{shown}], is not read", "give it as `gravity`")
        if model.opt.density or model.opt.viscosity:
            findings.note("option", "the density and the viscosity of the air around are left out")
        for flag in UNREAD_FLAGS:
            if flag in disabled:
                findings.note("option", f"the flag that disables '{flag}' is not read", "take out what it switches off")
        if model.opt.disableactuator:
            findings.note("option", "`actuatorgroupdisable` is not read", "take those actuators out")
        for count, what in (("nflex", "flexible bodies"), ("nplugin", "plugins")):
            if getattr(model, count):
                findings.note("file", f"the forces of {what} are left out")
        for array, (kind, what) in IGNORED.items():
            rows = np.asarray(getattr(model, array, ()))  # some are younger than MuJoCo 3
            for i in np.flatnonzero(rows.reshape(len(rows), -1).any(axis=1)).tolist() if len(rows) else []:
                findings.note(self._joint(model.dof_jntid[i]) if kind == "dof" else self._scene.name(kind, i), what)
        self._actuators.note_left_out()
        for joint in self._equalities.mimics:
            if self._actuators.on(joint):
                findings.note(self._joint(joint), "its actuator is left out: the joint follows another one")
        if self._can_touch():
            findings.note("contact", "contacts are left out: nothing stops the bodies", "give `bounds`, `loops`")
        for i in range(model.ntendon):
            findings.note(self._scene.name("tendon", i), "tendon is left out", "close loops with `loops`")
        for i in range(model.njnt):
            dofs = slice(model.jnt_dofadr[i], model.jnt_dofadr[i] + 6)
            for part in ("armature", "damping", "frictionloss") if self._scene.joint_kind(i) == "free" else ():
                if getattr(model, f"dof_{part}")[dofs].any():
                    findings.note(self._joint(i), f"the {part} of its free joint is left out")

    def _can_touch(self) -> bool:
        """Whether moving bodies can touch the world in MuJoCo, or some bodies are said to touch by name."""
        model = self._model
        if self._scene.disabled & {"contact", "constraint"}:
            return False
        moves = np.asarray(model.body_weldid)[model.geom_bodyid] > 0
        kind, other = np.asarray(model.geom_contype), np.asarray(model.geom_conaffinity)
        meet = (kind[moves, None] & other[~moves]) | (other[moves, None] & kind[~moves])
        return bool(model.npair or meet.any())

    def _body(self, i: int) -> str:
        return self._scene.name("body", i)

    def _joint(self, i: int) -> str:
        return self._scene.name("joint", i)
