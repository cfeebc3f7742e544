"""The law of a spatial chain or tree whose tip follows a point, in NumPy on Pinocchio's terms, as users write it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pinocchio as pin

from servoctl.mechanics.spatial.placement import Vector3
from servoctl.types import Array
from tests.benchmarks.peers.pinocchio import minverse_and_bias


class PinocchioChain:
    """u of the position of the last joint, with least torques."""

    name = "Pinocchio + pinv"

    def __init__(
        self,
        axes: Sequence[Vector3],
        parents: Sequence[int],
        length: float,
        mass: float,
        moment: float,
        target: Vector3,
        gain: float,
    ) -> None:
        """Builds the model.

        Args:
            axes: Of each joint, unit vectors in its link's axes.
            parents: Number of the link that carries each joint, from 1; 0: the world.
            length: Of a link along z [m].
            mass: Of a link, at half of its length [kg].
            moment: Of a link about each axis through that point [kg m^2].
            target: Point of the last joint [m].
            gain: Baumgarte's alpha = beta [1/s].
        """
        self._model, self._gain = (model := pin.Model()), gain
        inertia, joints = pin.Inertia(mass, np.array([0.0, 0.0, length / 2]), moment * np.eye(3)), len(axes)
        for i, (axis, parent) in enumerate(zip(axes, parents, strict=True)):
            place = pin.SE3(np.eye(3), np.array([0.0, 0.0, length if i else 0.0]))
            turning = pin.JointModelRevoluteUnaligned(np.array(axis))
            model.appendBodyToJoint(
                model.addJoint(parent, turning, place, f"joint{i + 1}"), inertia, pin.SE3.Identity()
            )
        self._rest, self._target = np.zeros(joints), np.array(target)
        self._tip = int(model.addFrame(pin.Frame("tip", joints, 0, pin.SE3.Identity(), pin.FrameType.OP_FRAME)))
        self._data = model.createData()

    def command(self, q: Array, v: Array) -> Array:
        """u, shape (joints,)."""
        model, data, world = self._model, self._data, pin.LOCAL_WORLD_ALIGNED
        Minv, bias = minverse_and_bias(model, data, q, v, self._rest)
        A = pin.getFrameJacobian(model, data, self._tip, world)[:3]
        drift = pin.getFrameClassicalAcceleration(model, data, self._tip, world).linear
        place: Any = data.oMf[self._tip]
        b = -2.0 * self._gain * (A @ v) - self._gain**2 * (place.translation - self._target) - drift
        moved = A @ Minv
        u: Array = np.linalg.pinv(moved) @ (b + moved @ bias)
        return u
