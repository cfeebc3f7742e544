"""The law of a quadruped on four feet, in NumPy on Pinocchio's terms, as a Python user writes it.

The numbers are those of the config `quadruped_stand`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin

from servoctl.types import Array
from tests.benchmarks.peers.algebra import law_in_numpy
from tests.benchmarks.peers.pinocchio import minverse_and_bias

GAIN = 10.0
"""Baumgarte's alpha = beta of the task [1/s]."""

FEET = ("LF_foot", "RF_foot", "LH_foot", "RH_foot")
BASE = 6
"""Rates of the base in Pinocchio; servoctl has the rates of seven coordinates."""


class PinocchioQuadruped:
    """u of the pose of the trunk on four fixed feet, with least torques."""

    name = "Pinocchio + pinv"

    def __init__(self, path: Path, motors: Sequence[str]) -> None:
        self._model = model = pin.buildModelFromUrdf(str(path), pin.JointModelFreeFlyer())
        self._data, self._rest = model.createData(), np.zeros(model.nv)
        self._feet = [model.getFrameId(foot) for foot in FEET]
        self._trunk = model.getFrameId("trunk")
        self._order = [model.joints[model.getJointId(name)].idx_v - BASE for name in motors]
        self._B = np.zeros((model.nv, len(motors)))
        self._B[BASE + np.array(self._order), range(len(motors))] = 1.0

    def _state(self, q: Array, v: Array) -> tuple[Array, Array]:
        """q and v as Pinocchio has them: the quaternion's scalar last, rates of the base in its own axes."""
        w, x, y, z = q[3:7]
        turning = 2.0 * np.array([[-x, w, z, -y], [-y, -z, w, x], [-z, y, -x, w]]) @ v[3:7]
        q2, v2 = np.zeros(self._model.nq), np.zeros(self._model.nv)
        q2[:7], v2[3:BASE] = [*q[:3], x, y, z, w], turning
        v2[:3] = pin.Quaternion(w, x, y, z).toRotationMatrix().T @ v[:3]
        order = np.array(self._order)
        q2[7 + order], v2[BASE + order] = q[7:], v[7:]
        return q2, v2

    def command(self, t: float, q: Array, v: Array) -> Array:
        """u, shape (12,)."""
        model, data, world = self._model, self._data, pin.LOCAL_WORLD_ALIGNED
        q, v = self._state(q, v)
        Minv, bias = minverse_and_bias(model, data, q, v, self._rest)
        frames = (*self._feet, self._trunk)
        *feet, A = (pin.getFrameJacobian(model, data, frame, world) for frame in frames)
        *drifts, drift = (pin.getFrameClassicalAcceleration(model, data, frame, world).vector for frame in frames)
        Ahat = np.vstack([foot[:3] for foot in feet])
        bhat = -np.concatenate([each[:3] for each in drifts])
        place: Any = data.oMf[self._trunk]
        roll = pin.rpy.rpyToMatrix(0.15 * (1.0 - np.cos(2.0 * t)), 0.0, 0.0)
        height = [0.0, 0.0, 0.32 - 0.03 * (1.0 - np.cos(4.0 * t))]
        error = np.concatenate([place.translation - height, pin.log3(place.rotation @ roll.T)])
        rate = A @ v
        rate[2] += 0.12 * np.sin(4.0 * t)
        rate[3] -= 0.3 * np.sin(2.0 * t)
        b = -2.0 * GAIN * rate - GAIN**2 * error - drift
        b[2] -= 0.48 * np.cos(4.0 * t)
        b[3] += 0.6 * np.cos(2.0 * t)
        return law_in_numpy(Minv, -bias, self._B, Ahat, bhat, A, b)[0]
