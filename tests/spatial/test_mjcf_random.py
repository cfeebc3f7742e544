"""Random MJCF files against MuJoCo: several joints per body, turned bodies, free bases, loops, joints that follow."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servoctl.mechanics.spatial.description import Description
from servoctl.mechanics.spatial.mjcf import read_mjcf
from servoctl.mechanics.spatial.plant import Robot, RobotBuilder
from servoctl.types import Array

mujoco = pytest.importorskip("mujoco", reason="mujoco is not installed (pip install mujoco)")


@dataclass
class Author:
    """Writes a random file."""

    random: np.random.Generator
    joints: list[str] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)

    def text(self, count: int = 3, size: float = 0.5) -> str:
        return " ".join(f"{x:.4f}" for x in self.random.uniform(-size, size, count))

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def turn(self) -> str:
        return f'euler="{self.text(3, 90)}"' if self.chance(0.5) else f'quat="{self.text(4, 1)}"'

    def joint(self) -> str:
        name, kind = f"j{len(self.joints)}", "slide" if self.chance(0.3) else "hinge"
        self.joints.append(name)
        place = self.text(3, 0.2) if self.chance(0.5) else "0 0 0"
        ref = self.text(1, 1 if kind == "slide" else 40)
        rest = f'damping="{self.random.random():.3f}" armature="{self.random.random():.3f}"'
        return f'<joint name="{name}" type="{kind}" axis="{self.text()}" pos="{place}" ref="{ref}" {rest}/>'

    def body(self, depth: int, inside: str) -> str:
        name = f"b{len(self.bodies)}"
        self.bodies.append(name)
        mass = f'mass="{self.random.uniform(0.1, 2):.3f}"'
        if self.chance(0.5):
            matter = f'<inertial pos="{self.text()}" {mass} {self.turn()} diaginertia="0.03 0.02 0.025"/>'
        else:
            matter = f'<geom type="capsule" size=".05 .1" pos="{self.text()}" {self.turn()} {mass}/>'
        site = f'<site name="s{name}" pos="{self.text()}" {self.turn()}/>'
        children = "".join(
            self.body(depth - 1, "".join(self.joint() for _ in range(self.random.integers(0, 3))))
            for _ in range(self.random.integers(1, 3) if depth else 0)
        )
        return f'<body name="{name}" pos="{self.text()}" {self.turn()}>{inside}{matter}{site}{children}</body>'

    def equalities(self) -> str:
        one, other, third, fourth = self.random.choice(self.bodies, 4)
        pairs = [(one, other), (third, fourth)]
        loops = [
            f'<connect name="e0" body1="{one}" body2="{other}" anchor="{self.text()}"/>',
            f'<weld name="e1" body1="{third}" body2="{fourth}" anchor="{self.text()}"/>'
            if self.chance(0.5)
            else f'<weld name="e1" site1="s{third}" site2="s{fourth}"/>',
        ]
        belts = zip(self.joints[::3], self.joints[1::3], strict=False)
        return "".join(loop for loop, (a, b) in zip(loops, pairs, strict=True) if a != b) + "".join(
            f'<joint name="m{i}" joint1="{a}" joint2="{b}" polycoef="{self.text(1)} {self.text(1, 2)} 0 0 0"/>'
            for i, (a, b) in enumerate(belts)
        )

    def file(self) -> str:
        free = self.chance(0.4)
        world = self.body(3, "<freejoint/>" if free else self.joint())
        world += "" if free else self.body(1, self.joint())
        motors = "".join(
            f'<motor joint="{name}" gear="{self.random.uniform(-3, 3):.3f}"/>'
            for name in self.joints
            if self.chance(0.4)
        )
        return (
            f'<mujoco><compiler eulerseq="{self.random.choice(["xyz", "ZYX", "zxz"])}"/><worldbody>{world}</worldbody>'
            f"<equality>{self.equalities()}</equality><actuator>{motors}</actuator></mujoco>"
        )


@dataclass
class Pair:
    """A robot and MuJoCo's model of one file, at one state.

    Attributes:
        rates: Our rates -> rates of MuJoCo.
    """

    robot: Robot
    description: Description
    model: Any
    data: Any
    q: Array
    v: Array
    rates: Array


def pair(path: Path, random: np.random.Generator) -> Pair:
    description, builder = read_mjcf(path), RobotBuilder()
    builder.add(description)
    robot, model = builder.plant(), mujoco.MjModel.from_xml_path(str(path))
    names, joints = list(robot.coordinates), {joint.name: joint for joint in description.joints}
    q, data, rates = random.uniform(-1, 1, len(names)), mujoco.MjData(model), np.zeros((model.nv, len(names)))
    if description.base == "free":
        q[3:7] /= np.linalg.norm(q[3:7])
        w, x, y, z = q[3:7]
        rates[:3, :3] = np.eye(3)
        rates[3:6, 3:7] = 2 * np.array([[-x, w, z, -y], [-y, -z, w, x], [-z, y, -x, w]])
        data.qpos[:7] = q[:7]
    for i in range(model.njnt):
        if (joint := joints.get(model.joint(i).name)) is not None:
            multiplier, offset = 1.0, 0.0
            while joint.mimic is not None:
                offset += multiplier * joint.offset
                multiplier, joint = multiplier * joint.multiplier, joints[joint.mimic]
            column = names.index(joint.name)
            rates[model.jnt_dofadr[i], column] = multiplier
            data.qpos[model.jnt_qposadr[i]] = multiplier * q[column] + offset
    v = np.linalg.pinv(rates) @ rates @ random.uniform(-1, 1, len(names))  # unit quaternions stay so
    if description.base == "free":
        v[:] = 0.0  # rates of a quaternion have a bias of their own
    data.qvel[:] = rates @ v
    mujoco.mj_forward(model, data)
    return Pair(robot, description, model, data, q, v, rates)


@pytest.mark.parametrize("seed", range(12))
def test_a_random_file_is_the_machine_of_mujoco(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    path = tmp_path / "random.xml"
    path.write_text(Author(random).file())
    both = pair(path, random)
    M = np.zeros((both.model.nv, both.model.nv))
    mujoco.mj_fullM(both.model, both.data, M)
    bias = both.data.qfrc_bias - both.data.qfrc_passive
    back = np.linalg.pinv(both.rates) @ both.rates  # rates that exist
    ours = back.T @ both.robot.mass_matrix(both.q, 0.0) @ back
    np.testing.assert_allclose(ours, both.rates.T @ M @ both.rates, rtol=0, atol=1e-12 * np.abs(M).max())
    force = -back.T @ both.robot.force(both.q, both.v, 0.0)
    np.testing.assert_allclose(force, both.rates.T @ bias, rtol=0, atol=1e-12 * (1 + np.abs(bias).max()))

    names = [f"sb{i}" for i in range(both.model.nbody - 1)]
    for name, frame in both.robot.frame_motions(names, both.q, both.v).items():
        np.testing.assert_allclose(frame.position, both.data.site(name).xpos, atol=1e-13)
        np.testing.assert_allclose(frame.rotation, both.data.site(name).xmat.reshape(3, 3), atol=1e-13)

    rows = both.robot.passive_constraints(both.q, 0.0)
    for loop in both.description.loops:
        violation = np.asarray(rows[loop.name].rows(both.robot, 0.0, both.q, both.v).violation, dtype=float)
        where = both.data.efc_id[both.data.efc_type == int(mujoco.mjtConstraint.mjCNSTR_EQUALITY)]
        gap = both.data.efc_pos[: len(where)][where == both.model.equality(loop.name).id]
        assert np.linalg.norm(violation[:3]) == pytest.approx(np.linalg.norm(gap[:3]), abs=1e-12)
    for i in range(both.model.neq):
        name = both.model.equality(i).name
        if name.startswith("m") and not any(name in note for note in both.description.notes):
            where = (both.data.efc_type == int(mujoco.mjtConstraint.mjCNSTR_EQUALITY)) & (both.data.efc_id == i)
            assert np.abs(both.data.efc_pos[where]).max() < 1e-13, "joints follow as MuJoCo's equality says"


def actuators(random: np.random.Generator) -> str:
    """One to three random actuators on the joint `j`."""

    def span(name: str, share: float) -> str:
        return f'{name}="{-random.random():.3f} {random.random():.3f}"' if random.random() < share else ""

    kinds = {
        "motor": "",
        "position": 'kp="50" kv="3"',
        "velocity": 'kv="4"',
        "general": f'gainprm="{random.uniform(-3, 3):.3f}"',
    }
    lines = []
    for kind in random.choice(list(kinds), random.integers(1, 4)):
        gear = random.uniform(0.2, 3) * random.choice([-1, 1])
        ranges = f"{span('ctrlrange', 0.7)} {span('forcerange', 0.7)}"
        lines.append(f'<{kind} joint="j" {kinds[kind]} gear="{gear:.3f}" {ranges}/>')
    return "".join(lines)


@pytest.mark.parametrize("seed", range(30))
def test_the_effort_of_a_joint_is_the_torque_that_mujoco_reaches(tmp_path: Path, seed: int) -> None:
    random, path = np.random.default_rng(seed), tmp_path / "joint.xml"
    limit = f'actuatorfrcrange="{-random.random():.3f} {random.random():.3f}"' if seed % 3 == 0 else ""
    path.write_text(
        f'<mujoco><worldbody><body><joint name="j" {limit}/><geom size=".1"/></body></worldbody>'
        f"<actuator>{actuators(random)}</actuator></mujoco>"
    )
    model, reached = mujoco.MjModel.from_xml_path(str(path)), []
    for sign in (-1.0, 1.0):
        data = mujoco.MjData(model)
        data.ctrl[:] = 1e9 * sign * np.sign(model.actuator_gear[:, 0] * model.actuator_gainprm[:, 0])
        data.qpos[0] = data.qvel[0] = -1e7 * sign  # far behind the setpoint of a servo
        mujoco.mj_fwdPosition(model, data)
        mujoco.mj_fwdVelocity(model, data)
        mujoco.mj_fwdActuation(model, data)
        reached.append(float(data.qfrc_actuator[0]))
    (joint,) = read_mjcf(path).joints
    if joint.effort is None:
        assert max(np.abs(reached)) > 1e6, "nothing limits it"
    else:
        assert joint.effort == pytest.approx(reached, rel=1e-12)
