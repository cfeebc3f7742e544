"""Predicts the state at which the torques of this tick will act, by one step of the model under the present torques.

Design: a torque computed from samples at t acts about one period later. So the law gets the state predicted for that
moment, by one classical Runge-Kutta step of the fundamental equation. The remaining effect of the delay is the error
of the model, not the motion itself. Passive constraints hold to the order of the step; the next samples correct q.
"""

from typing import Any

import casadi as ca
import numpy as np

from hil.sensing.state_function import traced_kernel
from servoctl.engine.kernel import BufferedCall, Kernel
from servoctl.engine.select_engine import run_fast
from servoctl.engine.symbol import where
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Matrices, assemble
from servoctl.simulation.runge_kutta import rk4
from servoctl.types import Array, State


class Prediction:
    """Predicts q and v; compiled.

    Attributes:
        engine: `c`, `vm` or `numpy`.
        note: Why the requested engine is not used; empty if it is.
    """

    def __init__(self, model: Model, rank_tolerance: float = 1e-6, engine: str = "auto") -> None:
        self._model, self._tolerance, self._n = model.plain, rank_tolerance, model.n
        self._parameters = self._model.parameters
        kernel = self._compile(engine == "numpy")
        if model.opaque is None:
            self.engine, self.note = run_fast(kernel, engine)
        else:
            self.engine, self.note = "vm", f"the plant runs in NumPy: {model.opaque}"
        self.call = BufferedCall(kernel)  # the compiled function with its buffers
        self._times, self._x, self._u, parameters = self.call.inputs.values()
        (self._ahead,) = self.call.outputs.values()
        parameters[:] = self._parameters

    def __call__(self, t: float, h: float, q: Array, v: Array, u: Array) -> tuple[Array, Array]:
        """q and v after a time under constant torques.

        Args:
            t: Time [s].
            h: Time to predict [s].
            q: Coordinates, shape (n,).
            v: Velocities, shape (n,).
            u: Present inputs, shape (m,) [actuator units].
        """
        n = self._n
        self._times[0], self._times[1] = t, h
        self._x[:n], self._x[n:], self._u[:] = q, v, u
        self.call()
        x = self._ahead.copy()
        return x[:n], x[n:]

    def _motion(self, state: State, matrices: Matrices, u: Array) -> tuple[Array]:
        terms = assemble(state, matrices.without_task(), self._tolerance)
        sound = where(terms.finite, terms.positive, 0.0)
        return (where(sound, np.concatenate([state.v, terms.acceleration(u)]), np.nan),)

    def _compile(self, in_numpy: bool) -> Kernel:
        n = self._n
        motion = traced_kernel("motion", self._model, self._motion, ("rates",), {"u": self._model.m}, in_numpy).called()
        times, x, u, p = (ca.SX.sym(*size) for size in self._sizes().items())

        def change(t: Any, x: Any) -> Any:
            return motion(t, x[:n], x[n:], p, u)

        function = ca.Function("predict", [times, x, u, p], [rk4(change, times[0], x, times[1])])
        shapes = {name: (size,) for name, size in self._sizes().items()}
        return Kernel(function, shapes, {"ahead": (2 * n,)})

    def _sizes(self) -> dict[str, int]:
        return {"times": 2, "x": 2 * self._n, "u": self._model.m, "p": len(self._parameters)}
