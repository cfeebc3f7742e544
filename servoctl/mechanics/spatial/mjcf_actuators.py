"""The actuators of an MJCF: the torques that they can give, and what of them is left out.

Design: the law commands the torque of a joint. Of an actuator on it, motor or servo, the plant keeps gear, rotor,
damping and limits; the gains of servos are named as left out.
"""

from typing import Any

import numpy as np

from servoctl.mechanics.spatial.description import Findings
from servoctl.types import Array


class Actuators:
    """Reads the actuators of a model."""

    def __init__(self, model: Any, mujoco: Any, findings: Findings) -> None:
        """Reads nothing yet.

        Args:
            model: MuJoCo's model.
            mujoco: The module.
            findings: Where problems and notes go.
        """
        self._model, self._mujoco, self._findings = model, mujoco, findings

    def on(self, joint: int) -> list[tuple[int, float]]:
        """The actuators on a joint, and the gear of each."""
        model = self._model
        return [
            (i, float(model.actuator_gear[i, 0]))
            for i in range(model.nu)
            if self._acts_on(i) == "joint" and model.actuator_trnid[i, 0] == joint
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
        model, findings = self._model, self._findings
        for i in range(model.nu):
            name = model.actuator(i).name or f"actuator{i}"
            if (acts_on := self._acts_on(i)) != "joint":
                findings.note(name, f"an actuator on a {acts_on} is left out", "motors are on hinges and slides")
                continue
            if not self._takes_torque(i):
                what = f"the gains of {self._servo(i)} are left out"
                findings.note(name, what, "the law commands the torque of its joint")
            if model.actuator_dyntype[i] != self._mujoco.mjtDyn.mjDYN_NONE:
                findings.note(name, "its activation is left out: torques act at once", "give `realism.lag`")
            if np.any(getattr(model, "actuator_delay", np.zeros(model.nu))[i]):
                findings.note(name, "its delay is left out", "give `realism.delay`")

    def _force_range(self, i: int, gear: float) -> Array:
        """Least and largest force of an actuator at its joint, shape (2,); infinite without a limit.

        The control of a servo is a position or a speed: its range is no limit of the force.
        """
        model, ranges = self._model, [np.array([-np.inf, np.inf])]
        if model.actuator_forcelimited[i]:
            ranges.append(model.actuator_forcerange[i] * gear)
        if model.actuator_ctrllimited[i] and self._takes_torque(i):
            ranges.append(model.actuator_ctrlrange[i] * model.actuator_gainprm[i, 0] * gear)
        if not np.isfinite(ranges[1:]).all():
            joint = self._model.joint(int(model.actuator_trnid[i, 0])).name or f"joint{model.actuator_trnid[i, 0]}"
            self._findings.problem(f"joint '{joint}'", "the range of its torque is not finite")
        return np.array([max(map(min, ranges)), min(map(max, ranges))])

    def _acts_on(self, i: int) -> str:
        """`joint`: a hinge or a slide, on which JOINT and JOINTINPARENT mean the same; or what else it acts on."""
        mujoco, model = self._mujoco, self._model
        kind = str(mujoco.mjtTrn(model.actuator_trntype[i]).name).removeprefix("mjTRN_").lower()
        if kind not in ("joint", "jointinparent"):
            return kind
        joint = str(mujoco.mjtJoint(model.jnt_type[model.actuator_trnid[i, 0]]).name).removeprefix("mjJNT_").lower()
        return "joint" if joint in ("hinge", "slide") else f"{joint} joint"

    def _takes_torque(self, i: int) -> bool:
        """Whether the force of an actuator is its control times a constant."""
        model, mujoco = self._model, self._mujoco
        unbiased = model.actuator_biastype[i] == mujoco.mjtBias.mjBIAS_NONE
        return bool(unbiased and model.actuator_gaintype[i] == mujoco.mjtGain.mjGAIN_FIXED)

    def _servo(self, i: int) -> str:
        """What an actuator is that takes no torque."""
        model = self._model
        if model.actuator_biastype[i] != self._mujoco.mjtBias.mjBIAS_AFFINE:
            return "an actuator that is no motor"
        _, stiffness, damping = model.actuator_biasprm[i, :3]
        return "a position servo" if stiffness else "a velocity servo" if damping else "an actuator that is no motor"
