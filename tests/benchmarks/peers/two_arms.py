"""The law of two arms that carry a box, in NumPy on Pinocchio's terms, as a Python user writes it.

The numbers are those of the config `two_arms_box`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin

from servoctl.types import Array
from tests.benchmarks.peers.algebra import law_in_numpy
from tests.benchmarks.peers.pinocchio import minverse_and_bias

GAIN = 10.0
"""Baumgarte's alpha = beta of the task [1/s]."""

MASS, SIZE, REACH = 2.0, (0.3, 0.3, 0.2), 0.15
"""Mass of the box [kg], its size [m], and the distance of its centre from both hands [m]."""


class PinocchioTwoArms:
    """u of the pose of the box, with least torques."""

    name = "Pinocchio + pinv"

    def __init__(self, path: Path) -> None:
        model = pin.Model()
        for name, side in (("left", 0.5), ("right", -0.5)):
            place = pin.SE3(np.eye(3), np.array([0.0, side, 0.0]))
            model = pin.appendModel(model, _renamed(pin.buildModelFromUrdf(str(path)), name), 0, place)
        self._box = self._hold(model, "left_tool", "box", -np.pi / 2)
        self._grip = self._hold(model, "right_tool", "right_grip", np.pi / 2)
        box = model.frames[self._box]
        model.appendBodyToJoint(box.parentJoint, pin.Inertia.FromBox(MASS, *SIZE), box.placement)
        self._model, self._data, self._rest = model, model.createData(), np.zeros(model.nv)

    def _hold(self, model: Any, tool: str, name: str, roll: float) -> int:
        """Adds a frame at the hand's point of the box; returns its index."""
        at = model.frames[model.getFrameId(tool)]
        place = at.placement * pin.SE3(pin.rpy.rpyToMatrix(roll, 0.0, 0.0), np.array([0.0, 0.0, REACH]))
        return int(model.addFrame(pin.Frame(name, at.parentJoint, 0, place, pin.FrameType.OP_FRAME)))

    def command(self, t: float, q: Array, v: Array) -> Array:
        """u, shape (14,)."""
        model, data, world = self._model, self._data, pin.LOCAL_WORLD_ALIGNED
        Minv, bias = minverse_and_bias(model, data, q, v, self._rest)
        box, grip = self._box, self._grip
        A, G = (pin.getFrameJacobian(model, data, frame, world) for frame in (box, grip))
        drift, other = (pin.getFrameClassicalAcceleration(model, data, frame, world).vector for frame in (box, grip))
        Ahat = A - G
        place: Any = data.oMf[box]
        error = np.concatenate([place.translation - [0.5, 0.0, 0.5 - 0.1 * np.cos(t)], pin.log3(place.rotation)])
        rate = A @ v
        rate[2] -= 0.1 * np.sin(t)
        b = -2.0 * GAIN * rate - GAIN**2 * error - drift
        b[2] += 0.1 * np.cos(t)
        return law_in_numpy(Minv, -bias, None, Ahat, other - drift, A, b)[0]


def _renamed(model: Any, name: str) -> Any:
    """The model with the names of its joints and frames behind a prefix."""
    for i in range(1, len(model.names)):
        model.names[i] = f"{name}_{model.names[i]}"
    for i in range(1, len(model.frames)):
        model.frames[i].name = f"{name}_{model.frames[i].name}"
    return model
