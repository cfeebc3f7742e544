"""Pinocchio: the dynamics of a tree whose loops its proximal solver closes, and terms for a law in NumPy."""

from typing import Any

import numpy as np
import pinocchio as pin

from servoctl.types import Array
from tests.benchmarks.peers.algebra import PeerTerms
from tests.benchmarks.peers.tree import GROUND, Tree

PROXIMAL = (1e-12, 1e-8, 10)
"""Accuracy, mu and iterations of the proximal solver."""


def minverse_and_bias(model: pin.Model, data: pin.Data, q: Array, v: Array, rest: Array) -> tuple[Array, Array]:
    """M^-1 and the bias forces; data then also holds Jacobians, placements, and accelerations of frames at `rest`."""
    pin.forwardKinematics(model, data, q, v, rest)
    pin.updateFramePlacements(model, data)
    pin.computeJointJacobians(model, data)
    bias = pin.nonLinearEffects(model, data, q, v)
    upper = pin.computeMinverse(model, data, q)
    return np.triu(upper) + np.triu(upper, 1).T, bias


class PinocchioTree:
    """A tree in Pinocchio."""

    name = "Pinocchio"

    def __init__(self, tree: Tree, alpha: float) -> None:
        """Builds the model.

        Args:
            tree: The mechanism.
            alpha: Baumgarte's, alpha = beta [1/s], on the loops.
        """
        self.tree = tree
        self.model = model = pin.Model()
        model.gravity.linear = np.array([0.0, -tree.g, 0.0])
        for i, bar in enumerate(tree.bars):
            place = pin.SE3(np.eye(3), np.array([bar.at, 0.0, 0.0]))
            joint = model.addJoint(bar.parent + 1, pin.JointModelRZ(), place, f"joint{i}")
            inertia = pin.Inertia(bar.mass, np.array([bar.length / 2, 0.0, 0.0]), np.diag(3 * [bar.inertia]))
            model.appendBodyToJoint(joint, inertia, pin.SE3.Identity())
        self._loops, self._loop_data = pin.StdVec_RigidConstraintModel(), pin.StdVec_RigidConstraintData()
        for loop in tree.loops:
            one, other = (pin.SE3(np.eye(3), np.array([at, 0.0, 0.0])) for at in (loop.at, loop.other_at))
            closed = pin.RigidConstraintModel(
                pin.ContactType.CONTACT_3D, model, loop.bar + 1, one, loop.other + 1, other, pin.LOCAL
            )
            closed.setBaumgarteCorrectorParameters(pin.BaumgarteCorrectorParameters(alpha**2, 2.0 * alpha))
            self._loops.append(closed)
            self._loop_data.append(closed.createData())
        self.data = model.createData()
        pin.initConstraintDynamics(model, self.data, self._loops, self._loop_data)
        self._settings = pin.ProximalSettings(*PROXIMAL)

    def acceleration(self, q: Array, v: Array, force: Array) -> Array:
        """Joint accelerations under generalized forces, loops closed."""
        result: Array = pin.constraintDynamics(
            self.model, self.data, q, v, force, self._loops, self._loop_data, self._settings
        )
        return result

    def rk4(self, q: Array, v: Array, force: Array, h: float, steps: int) -> Array:
        """States (q, v) after each step of the classical Runge-Kutta method, shape (steps + 1, 2 n)."""
        call, model, data, loops, loop_data, settings = (
            pin.constraintDynamics, self.model, self.data, self._loops, self._loop_data, self._settings,
        )  # fmt: skip
        n = len(q)
        states = np.empty((steps + 1, 2 * n))
        states[0, :n], states[0, n:] = q, v
        half, sixth = h / 2, h / 6
        for k in range(steps):
            # constraintDynamics returns a copy
            a1 = call(model, data, q, v, force, loops, loop_data, settings)
            v2 = v + half * a1
            a2 = call(model, data, q + half * v, v2, force, loops, loop_data, settings)
            v3 = v + half * a2
            a3 = call(model, data, q + half * v2, v3, force, loops, loop_data, settings)
            v4 = v + h * a3
            a4 = call(model, data, q + h * v3, v4, force, loops, loop_data, settings)
            q = q + sixth * (v + 2.0 * (v2 + v3) + v4)
            v = v + sixth * (a1 + 2.0 * (a2 + a3) + a4)
            states[k + 1, :n], states[k + 1, n:] = q, v
        return states

    def dop853(self, q: Array, v: Array, force: Array, duration: float, rtol: float) -> tuple[Array, Array]:
        """Times and states (q, v) of the steps of SciPy's DOP853."""
        from scipy.integrate import solve_ivp

        n = len(q)

        def rates(_: float, x: Array) -> Array:
            return np.concatenate([x[n:], self.acceleration(x[:n], x[n:], force)])

        result = solve_ivp(rates, (0.0, duration), np.concatenate([q, v]), "DOP853", rtol=rtol, atol=rtol)
        return result.t, result.y.T


class PinocchioTerms:
    """What a law needs of the robots: mass matrix, bias, and the rows of loop and object."""

    name = "Pinocchio + pinv"

    def __init__(self, tree: Tree) -> None:
        self._model = model = PinocchioTree(tree, 0.0).model
        (loop,) = tree.loops
        if loop.other != GROUND:
            raise ValueError("the law's loop must end on the ground")
        places = ((loop.bar, loop.at), (2, 0.5))
        frames = [
            pin.Frame(f"point{i}", bar + 1, 0, pin.SE3(np.eye(3), np.array([at, 0.0, 0.0])), pin.FrameType.OP_FRAME)
            for i, (bar, at) in enumerate(places)
        ]
        self._end, self._object = (model.addFrame(frame) for frame in frames)
        self._data = model.createData()
        self._zero = np.zeros(model.nv)
        self._base = np.array([loop.other_at, 0.0])

    def __call__(self, q: Array, v: Array) -> PeerTerms:
        """The terms at joint angles and rates."""
        model, data, world = self._model, self._data, pin.LOCAL_WORLD_ALIGNED
        Minv, bias = minverse_and_bias(model, data, q, v, self._zero)
        end, thing = self._end, self._object
        J, K = (pin.getFrameJacobian(model, data, frame, world) for frame in (end, thing))
        j, k = (pin.getFrameClassicalAcceleration(model, data, frame, world).linear[:2] for frame in (end, thing))
        places: Any = data.oMf
        return PeerTerms(
            Minv, -bias, J[:2], j, places[end].translation[:2] - self._base,
            K[[0, 1, 5]], k, places[thing].translation[:2], q[0] + q[1] + q[2],
        )  # fmt: skip
