"""MuJoCo: the dynamics of a tree whose loops are soft equality constraints."""

from typing import Any

import mujoco
import numpy as np

from servoctl.types import Array
from tests.benchmarks.peers.tree import GROUND, Tree

HARDEST = 0.9999
"""Largest impedance of a constraint that MuJoCo allows: the share of it that is met at each instant."""


def description(tree: Tree, h: float, softness: float) -> str:
    """MJCF of a tree.

    Args:
        tree: The mechanism.
        h: Step [s].
        softness: `solref`'s time constant of the loops [s], critically damped.
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
    return (
        f'<mujoco><compiler angle="radian"/><option timestep="{h}" integrator="RK4" gravity="0 {-tree.g} 0" '
        f'solver="Newton" tolerance="1e-12" iterations="100"><flag contact="disable" refsafe="disable"/></option>'
        f"<worldbody>{inside(GROUND)}</worldbody><equality>{equalities}</equality></mujoco>"
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
