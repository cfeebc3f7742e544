"""MuJoCo moves the machine: its friction, armature, contacts and loads, behind a law that keeps our model.

    x = (q, v) -> qpos, qvel of the joints of the same names;   u -> motors of the same joints, or qfrc_applied = B u

Design: joints are matched by name; a free base by the coordinates base_x ... base_qz. Motors are matched by the joint
that they drive, then by name. A motor's control is set so that the torque at its joint is u, within the limits that the
scene gives. A scene without motors (a URDF) gets B u. The
scene may hold more: bodies and joints that the plant does not have are MuJoCo's alone.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from servoctl.errors import ConfigError, PlantError, remedy
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.plant_values import dense_actuation, value
from servoctl.mechanics.spatial.dynamics import spin_columns
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.scene import Scene
from servoctl.mechanics.spatial.tree_builder import identifier
from servoctl.types import Array, State

BASE_POSITION = ("base_x", "base_y", "base_z")
BASE_TURN = ("base_qw", "base_qx", "base_qy", "base_qz")

POSES = 4  # poses near 0 at which B is compared with that at 0; others may be none of the plant's
WHOLE = 1e-9  # [steps] a hold this close to a whole number of steps of the scene is that many

DRAWN = "mjWARN_VGEOMFULL"
"""MuJoCo's only warning that concerns pictures; after any other its numbers are not the motion of the scene."""


class MujocoMachine:
    """A scene of MuJoCo as the machine of a run; see `Machine`."""

    def __init__(self, path: Path, plant: Plant, step: float = math.inf, is_urdf: bool = False) -> None:
        """Loads a scene and matches it with a plant.

        Args:
            path: MJCF, or a URDF that MuJoCo reads.
            plant: Plant whose coordinates and actuators it must have.
            step: Longest step [s]; the scene's `timestep` if that is shorter.
            is_urdf: Whether it is a URDF, whatever its name ends with.

        Raises:
            ConfigError: MuJoCo cannot read the file, or a joint or motor has no partner; names all of them.
            MissingPackageError: MuJoCo is not installed.
        """
        self._scene = scene = Scene(path)
        # path: the scene
        self.path, self._plant, self._n = path, plant, len(plant.coordinates)
        mujoco, model = self._mujoco, self._model = scene.mujoco, scene.model
        self._data = mujoco.MjData(model)
        self._joints = [identifier(scene.name("joint", i)) for i in range(model.njnt)]
        self._parts = mujoco.mjtState.mjSTATE_INTEGRATION
        # length of the state besides q and v: MuJoCo's own state
        self.size = int(mujoco.mj_stateSize(model, self._parts))
        self._step = min(step, float(model.opt.timestep))
        if is_urdf or path.suffix.lower() == ".urdf":  # it names neither step nor method
            self._step = step if math.isfinite(step) else self._step
            model.opt.integrator = int(mujoco.mjtIntegrator.mjINT_RK4)
        # MuJoCo would go on from its start after a bad step, in silence
        model.opt.disableflags |= int(getattr(mujoco.mjtDisableBit, "mjDSBL_AUTORESET", 0))
        self._warnings = [int(kind) for name, kind in mujoco.mjtWarning.__members__.items() if name != DRAWN]
        self._warnings.remove(int(mujoco.mjtWarning.mjNWARNING))
        problems: list[str] = []
        rest = State(0.0, np.zeros(self._n), np.zeros(self._n))
        self._B = np.asarray(value(plant, "actuation", rest, True), dtype=float)
        self._varies = self._varying(rest)
        self._place_coordinates(problems)
        self._place_actuators(problems)
        if problems:
            raise ConfigError([f"{path.name}: {problem}" for problem in problems])
        self.notes = tuple(self._notes())  # what of the scene the law's plant does not have, one sentence each

    def start(self, t: float, x: Array) -> Array:
        self._mujoco.mj_resetData(self._model, self._data)
        for position, speed, leader, multiplier, offset in self._followers:
            self._data.qpos[position] = multiplier * x[leader] + offset
            self._data.qvel[speed] = multiplier * x[self._n + leader]
        self._set(t, x)
        return self._state()

    def after(self, t: float, x: Array, rest: Array, u: Array, h: float) -> tuple[Array, Array]:
        mujoco, model, data = self._mujoco, self._model, self._data
        mujoco.mj_setState(model, data, rest, self._parts)
        self._set(t, x)
        count = max(1, math.ceil(h / self._step - WHOLE))
        model.opt.timestep = h / count
        for each in self._warnings:
            data.warning[each].number = 0
        for i in range(count):
            self._drive(t + i * h / count, u)
            mujoco.mj_step(model, data)
        if any(data.warning[each].number for each in self._warnings):
            return np.full(len(x), np.nan), np.full(self.size, np.nan)
        return self._motion(), self._state()

    def touching(self, t: float, x: Array) -> list[str]:
        """Pairs of bodies that touch at a start, each with the depth.

        Args:
            x: q and v, shape (2n,).
        """
        self.start(t, x)
        self._mujoco.mj_forward(self._model, self._data)
        pairs: dict[tuple[str, str], float] = {}
        for contact in self._data.contact[: self._data.ncon]:
            pair = self._body(contact.geom1), self._body(contact.geom2)
            pairs[pair] = min(pairs.get(pair, 0.0), float(contact.dist))
        return [f"{one} touches {other} ({-1e3 * depth:.3g} mm deep)" for (one, other), depth in pairs.items()]

    def _place_coordinates(self, problems: list[str]) -> None:
        """Where q and v are in MuJoCo's qpos and qvel."""
        model, kinds = self._model, [self._scene.joint_kind(i) for i in range(len(self._joints))]
        joints = {name: i for i, name in enumerate(self._joints)}
        free = [i for i, kind in enumerate(kinds) if kind == "free"]
        names = list(self._plant.coordinates)
        floats = BASE_TURN[0] in names
        if floats and len(free) != 1:
            problems.append(f"the plant's base is free, but the scene has {len(free)} free joints (expected one)")
            return
        ours, positions, speeds = [], [], []  # index of a coordinate, place of its value, place of its rate
        self._turn: list[int] = []  # the coordinates of a free base's quaternion, whose rates MuJoCo does not have
        if floats:
            first, dof = int(model.jnt_qposadr[free[0]]), int(model.jnt_dofadr[free[0]])
            ours, self._turn = ([names.index(name) for name in group] for group in (BASE_POSITION, BASE_TURN))
            positions, speeds = list(range(first, first + 3)), list(range(dof, dof + 3))
            self._quaternion, self._spin = slice(first + 3, first + 7), slice(dof + 3, dof + 6)
        for k, name in enumerate(names):
            if floats and name in BASE_POSITION + BASE_TURN:
                continue
            joint = joints.get(name)
            if joint is None:
                problems.append(f"no joint '{name}', which the plant has as coordinate ({remedy(name, list(joints))})")
            elif kinds[joint] not in ("hinge", "slide"):
                problems.append(f"joint '{name}' is no hinge and no slide, but a coordinate of the plant")
            else:
                ours.append(k)
                positions.append(int(model.jnt_qposadr[joint]))
                speeds.append(int(model.jnt_dofadr[joint]))
        self._followers = list(self._following(joints))
        self._ours, self._positions, self._speeds = np.array(ours, int), np.array(positions, int), np.array(speeds, int)

    def _following(self, joints: Mapping[str, int]) -> Iterator[tuple[int, int, int, float, float]]:
        """Mimic joints of a robot in the scene: place in qpos, place in qvel, leader, multiplier, offset."""
        tree = self._plant.tree if isinstance(self._plant, Robot) else None
        for joint, columns in () if tree is None else zip(tree.joints, tree.columns, strict=True):
            if joint.follows is not None and joint.name in joints:
                i = joints[joint.name]
                where = int(self._model.jnt_qposadr[i]), int(self._model.jnt_dofadr[i])
                yield *where, columns[0], joint.multiplier, joint.offset

    def _place_actuators(self, problems: list[str]) -> None:
        """Motors of the plant's actuators and their control per torque; none: torques act on the joints."""
        scene, model = self._scene, self._model
        names = [scene.name("actuator", i) for i in range(len(scene.controls))]
        found, scales = [], []
        for j, name in enumerate(self._plant.actuators):
            motor, scale = self._motor_of(j, name)
            if motor is not None:
                found.append(motor)
                scales.append(scale)
                joint = self._joints[model.actuator_trnid[motor, 0]]
                if self._varies[j] and joint in self._plant.coordinates:
                    problems.append(
                        f"motor '{names[motor]}' has one gear at every pose, but the plant's actuation by '{name}' of "
                        f"'{joint}' changes with the pose (take the motors out: torques then act on the joints)"
                    )
            elif model.nu:
                problems.append(
                    f"no motor on the joint that '{name}' drives, nor of its name ({remedy(name, names)}; without any "
                    "motor in the scene, torques act on the joints)"
                )
        problems += [f"{names[i]}: two actuators of the plant drive it" for i in set(found) if found.count(i) > 1]
        for i in found:
            if not self._is_plain(i):
                problems.append(f"motor '{names[i]}' is no <motor> on a joint (servos take no torque)")
            if scene.is_off(i):
                off = '<flag actuation="disable"/>, or `actuatorgroupdisable`'
                problems.append(f"motor '{names[i]}' is switched off by an option of the file (take out {off})")
        self._motors = np.array(found, int)
        if problems or not found:
            return
        gains = model.actuator_gear[scene.outputs[self._motors], 0] * model.actuator_gainprm[self._motors, 0]
        self._control, self._driven = np.array(scales) / gains, scene.controls[self._motors]

    def _varying(self, rest: State) -> Array:
        """Which columns of B change with the pose, shape (m,)."""
        random, varies = np.random.default_rng(0), np.zeros(self._B.shape[1], dtype=bool)
        for _ in range(POSES):
            with suppress(PlantError):
                B = np.asarray(value(self._plant, "actuation", rest._replace(q=0.1 * random.standard_normal(self._n))))
                varies |= np.abs(B - self._B).max(axis=0, initial=0.0) > WHOLE * np.abs(self._B).max(initial=0.0)
        return varies

    def _motor_of(self, j: int, name: str) -> tuple[int | None, float]:
        """The motor of an actuator, by the joint that it drives, then by name; and torque at the joint per input."""
        scene, joints = self._scene, self._model.actuator_trnid[:, 0]
        driven = np.flatnonzero(self._B[:, j])
        joint = list(self._plant.coordinates)[driven[0]] if len(driven) == 1 else None
        there = [i for i, at in enumerate(joints) if scene.acts_on(i) == "joint" and self._joints[at] == joint]
        there = [i for i in there if self._is_plain(i) and not scene.is_off(i)] or there
        named = [i for i in range(len(scene.controls)) if identifier(scene.name("actuator", i)) == name]
        if len(there) == 1 or (there and not named):
            return there[0], float(self._B[driven[0], j])
        return (named[0], 1.0) if named else (None, 1.0)

    def _is_plain(self, i: int) -> bool:
        """Whether an actuator is a motor on a joint, which takes a torque."""
        model, scene = self._model, self._scene
        gain = float(model.actuator_gear[scene.outputs[i], 0] * model.actuator_gainprm[i, 0])
        return scene.acts_on(i) == "joint" and gain != 0.0 and scene.takes_torque(i)

    def _notes(self) -> list[str]:
        """What the scene has beyond the plant."""
        model = self._model
        joints = [i for i, name in enumerate(self._joints) if name not in self._plant.coordinates]
        followers = {position for position, *_ in self._followers}
        joints = [i for i in joints if int(model.jnt_qposadr[i]) not in followers]
        if self._turn:
            joints = [i for i in joints if self._scene.joint_kind(i) != "free"]
        more = [self._scene.name("joint", i) for i in joints]
        return [f"joints that the plant does not have: {', '.join(more)}"] if more else []

    def _set(self, t: float, x: Array) -> None:
        """Puts q and v into MuJoCo's data."""
        data, q, v = self._data, x[: self._n], x[self._n :]
        data.time = t
        data.qpos[self._positions], data.qvel[self._speeds] = q[self._ours], v[self._ours]
        if self._turn:
            data.qpos[self._quaternion] = q[self._turn]
            data.qvel[self._spin] = spin_columns(q[self._turn]) @ v[self._turn]

    def _motion(self) -> Array:
        """q and v from MuJoCo's data."""
        data, n = self._data, self._n
        x = np.zeros(2 * n)
        x[self._ours], x[n + self._ours] = data.qpos[self._positions], data.qvel[self._speeds]
        if self._turn:
            turn, quaternion = np.array(self._turn), data.qpos[self._quaternion]
            x[turn], x[n + turn] = quaternion, spin_columns(quaternion).T @ data.qvel[self._spin] / 4.0
        return x

    def _drive(self, t: float, u: Array) -> None:
        data = self._data
        if len(self._motors):
            data.ctrl[self._driven] = self._control * u
            return
        force = np.asarray(dense_actuation(self._plant, self._motion()[: self._n], t), dtype=float) @ u
        data.qfrc_applied[self._speeds] = force[self._ours]
        if self._turn:
            data.qfrc_applied[self._spin] = spin_columns(data.qpos[self._quaternion]) @ force[self._turn] / 4.0

    def _state(self) -> Array:
        state = np.empty(self.size)
        self._mujoco.mj_getState(self._model, self._data, state, self._parts)
        return state

    def _body(self, geom: int) -> str:
        return self._scene.name("body", int(self._model.geom_bodyid[geom]))
