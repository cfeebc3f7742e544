"""A robot of a URDF in Pinocchio and in MuJoCo: its terms at a state."""

from pathlib import Path

import numpy as np

from servoctl.types import Array


class PinocchioArm:
    """Mass matrix, bias, and a frame's pose, Jacobian and drift, by Pinocchio from Python."""

    name = "Pinocchio, from Python"

    def __init__(self, path: Path, frame: str) -> None:
        import pinocchio as pin

        self._pin, self.model = pin, pin.buildModelFromUrdf(str(path))
        self.data = self.model.createData()
        self._frame, self._rest = self.model.getFrameId(frame), np.zeros(self.model.nv)

    def __call__(self, q: Array, v: Array) -> tuple[Array, ...]:
        """M, bias, rotation, position, Jacobian and drift of the frame, the last two with the linear part first."""
        pin, model, data, frame = self._pin, self.model, self.data, self._frame
        world = pin.LOCAL_WORLD_ALIGNED
        M = pin.crba(model, data, q)
        bias = pin.nonLinearEffects(model, data, q, v)
        pin.computeJointJacobians(model, data, q)
        pin.forwardKinematics(model, data, q, v, self._rest)
        pin.updateFramePlacement(model, data, frame)
        J = pin.getFrameJacobian(model, data, frame, world)
        drift = pin.getFrameClassicalAcceleration(model, data, frame, world)
        place = data.oMf[frame]
        return M, bias, place.rotation, place.translation, J, drift.vector

    def full(self, q: Array, v: Array) -> Array:
        """The same terms in one vector, M complete."""
        M, *rest = (np.array(part) for part in self(q, v))
        M = np.triu(M) + np.triu(M, 1).T
        return np.concatenate([part.ravel() for part in (M, *rest)])


class MujocoArm:
    """Mass matrix and bias by MuJoCo's `mj_forward` from Python, which also evaluates contacts and actuators."""

    name = "MuJoCo mj_forward, M and bias, from Python"

    def __init__(self, path: Path) -> None:
        import mujoco

        self._mujoco, self.model = mujoco, mujoco.MjModel.from_xml_path(str(path))
        self.data = mujoco.MjData(self.model)

    def __call__(self, q: Array, v: Array) -> None:
        """Evaluates the state."""
        self.data.qpos[:], self.data.qvel[:] = q, v
        self._mujoco.mj_forward(self.model, self.data)

    def full(self, q: Array, v: Array) -> Array:
        """M and the bias in one vector."""
        self(q, v)
        M = np.zeros((len(q), len(q)))
        self._mujoco.mj_fullM(self.model, self.data, M)
        return np.concatenate([M.ravel(), self.data.qfrc_bias])
