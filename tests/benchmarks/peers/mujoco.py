"""MuJoCo: the dynamics of a tree whose loops are soft equality constraints, and terms for a law in NumPy."""

from typing import Any

import mujoco
import numpy as np

from servoctl.types import Array
from tests.benchmarks.peers.algebra import PeerTerms
from tests.benchmarks.peers.tree import GROUND, Tree

HARDEST = 0.9999
"""Largest impedance of a constraint that MuJoCo allows: the share of it that is met at each instant."""


def description(tree: Tree, h: float, softness: float, closed: bool = True) -> str:
    """MJCF of a tree.

    Args:
        tree: The mechanism.
        h: Step [s].
        softness: `solref`'s time constant of the loops [s], critically damped.
        closed: Whether the loops are there.
    """

    # sites, because `connect` by an anchor would take the closed pose from the model's zero pose
    ends = {
        f"loop{number}_{side}": end
        for number, loop in enumerate(tree.loops)
        for side, end in enumerate(((loop.bar, loop.at), (loop.other, loop.other_at)))
    }

    def inside(owner: int) -> str:
        """Sites and bars that a bar, or the ground, carries."""
        sites = [f'<site name="{name}" pos="{at} 0 0"/>' for name, (bar, at) in ends.items() if bar == owner]
        return "".join(sites + [body(k) for k, bar in enumerate(tree.bars) if bar.parent == owner])

    def body(i: int) -> str:
        bar = tree.bars[i]
        return (
            f'<body name="bar{i}" pos="{bar.at} 0 0"><joint name="joint{i}" axis="0 0 1"/><inertial mass="{bar.mass}" '
            f'pos="{bar.length / 2} 0 0" diaginertia="{bar.inertia} {bar.inertia} {bar.inertia}"/>{inside(i)}</body>'
        )

    equalities = "".join(
        f'<connect site1="loop{number}_0" site2="loop{number}_1" solref="{softness} 1" '
        f'solimp="{HARDEST} {HARDEST} 0.001"/>'
        for number in range(len(tree.loops))
    )
    equality = f"<equality>{equalities}</equality>" if closed else ""
    return (
        f'<mujoco><compiler angle="radian"/><option timestep="{h}" integrator="RK4" gravity="0 {-tree.g} 0" '
        f'solver="Newton" tolerance="1e-12" iterations="100"><flag contact="disable" refsafe="disable"/></option>'
        f"<worldbody>{inside(GROUND)}</worldbody>{equality}</mujoco>"
    )


class MujocoTree:
    """A tree in MuJoCo."""

    name = "MuJoCo"

    def __init__(self, tree: Tree, h: float, softness: float) -> None:
        self.tree = tree
        self.model: Any = mujoco.MjModel.from_xml_string(description(tree, h, softness))
        self.data: Any = mujoco.MjData(self.model)

    def acceleration(self, q: Array, v: Array, force: Array) -> Array:
        """Joint accelerations under generalized forces, loops as closed as MuJoCo has them; a view."""
        data = self.data
        data.qpos, data.qvel, data.qfrc_applied = q, v, force
        mujoco.mj_forward(self.model, data)
        result: Array = data.qacc
        return result

    def rk4(self, q: Array, v: Array, force: Array, steps: int) -> Array:
        """States (q, v) after each step, shape (steps + 1, 2 n); MuJoCo's own loop in C++."""
        from mujoco import rollout

        n, data = len(q), self.data
        mujoco.mj_resetData(self.model, data)
        data.qpos, data.qvel, data.qfrc_applied = q, v, force
        spec = mujoco.mjtState.mjSTATE_FULLPHYSICS
        start = np.empty(mujoco.mj_stateSize(self.model, spec))
        mujoco.mj_getState(self.model, data, start, spec)
        control = np.ascontiguousarray(force)[None, None, :]
        applied = mujoco.mjtState.mjSTATE_QFRC_APPLIED
        states, _ = rollout.rollout(self.model, data, start[None], control, control_spec=applied, nstep=steps)
        at = 1  # time comes first
        result: Array = np.concatenate([start[None, at : at + 2 * n], states[0][:, at : at + 2 * n]])
        return result


class MujocoTerms:
    """What a law needs of the robots: mass matrix, bias, and the rows of loop and object."""

    name = "MuJoCo + pinv"

    def __init__(self, tree: Tree) -> None:
        (loop,) = tree.loops
        self._model: Any = mujoco.MjModel.from_xml_string(description(tree, 0.001, 0.01, closed=False))
        self._data: Any = mujoco.MjData(self._model)
        n = self._model.nv
        self._M = np.zeros((n, n))
        self._places = ((loop.bar + 1, np.array([loop.at, 0.0, 0.0])), (3, np.array([0.5, 0.0, 0.0])))
        self._base = np.array([loop.other_at, 0.0])
        self._J, self._R, self._D = np.zeros((3, n)), np.zeros((3, n)), np.zeros((3, n))

    def __call__(self, q: Array, v: Array) -> PeerTerms:
        """The terms at joint angles and rates."""
        model, data = self._model, self._data
        data.qpos, data.qvel = q, v
        mujoco.mj_fwdPosition(model, data)
        mujoco.mj_fwdVelocity(model, data)
        mujoco.mj_fullM(model, data, self._M)
        points, rows, drifts = [], [], []
        for body, at in self._places:
            point = data.xpos[body] + data.xmat[body].reshape(3, 3) @ at
            mujoco.mj_jac(model, data, self._J, self._R, point, body)
            mujoco.mj_jacDot(model, data, self._D, None, point, body)
            points.append(point[:2])
            rows.append(self._J[:2].copy())
            drifts.append(self._D[:2] @ v)
        task = np.vstack([rows[1], self._R[2]])
        return PeerTerms(
            np.linalg.inv(self._M), -data.qfrc_bias, rows[0], drifts[0], points[0] - self._base,
            task, drifts[1], points[1], q[0] + q[1] + q[2],
        )  # fmt: skip
