"""The law of a spatial chain whose tip follows a point, in NumPy on Pinocchio's terms, as a Python user writes it."""

from typing import Any

import numpy as np
import pinocchio as pin

from servoctl.bench.spatial_chain import AXES, GAIN, INERTIA, LENGTH, MASS, target
from servoctl.types import Array


class PinocchioChain:
    """u of the position of the last joint, with least torques."""

    name = "Pinocchio + pinv"

    def __init__(self, joints: int) -> None:
        self._model = model = pin.Model()
        inertia = pin.Inertia(MASS, np.array([0.0, 0.0, LENGTH / 2]), INERTIA * np.eye(3))
        for i in range(joints):
            place = pin.SE3(np.eye(3), np.array([0.0, 0.0, LENGTH if i else 0.0]))
            turning = pin.JointModelRevoluteUnaligned(np.array(AXES[i % len(AXES)]))
            model.appendBodyToJoint(model.addJoint(i, turning, place, f"joint{i + 1}"), inertia, pin.SE3.Identity())
        self._data, self._rest, self._target = model.createData(), np.zeros(joints), np.array(target(joints))
        self._tip = int(model.addFrame(pin.Frame("tip", joints, 0, pin.SE3.Identity(), pin.FrameType.OP_FRAME)))
        self._data = model.createData()

    def command(self, q: Array, v: Array) -> Array:
        """u, shape (joints,)."""
        model, data, world = self._model, self._data, pin.LOCAL_WORLD_ALIGNED
        pin.forwardKinematics(model, data, q, v, self._rest)
        pin.updateFramePlacements(model, data)
        pin.computeJointJacobians(model, data)
        bias = pin.nonLinearEffects(model, data, q, v)
        Minv = pin.computeMinverse(model, data, q)
        Minv = np.triu(Minv) + np.triu(Minv, 1).T
        A = pin.getFrameJacobian(model, data, self._tip, world)[:3]
        drift = pin.getFrameClassicalAcceleration(model, data, self._tip, world).linear
        place: Any = data.oMf[self._tip]
        b = -2.0 * GAIN * (A @ v) - GAIN**2 * (place.translation - self._target) - drift
        moved = A @ Minv
        u: Array = np.linalg.pinv(moved) @ (b + moved @ bias)
        return u
