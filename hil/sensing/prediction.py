"""Where the machine will be when the torque of this tick acts: one step of the model under the torques in force.

Design: a command that is computed from samples at t acts from about one period later on. The law then gets the state
there, by one classical Runge-Kutta step of the fundamental equation, so that what is left of the delay is the model's
error and not the motion itself. Passive constraints hold to the order of the step; the next samples put q back.
"""

from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.kernel import BufferedCall, Kernel
from servoctl.engine.select_engine import run_fast
from servoctl.engine.symbol import symbols
from servoctl.engine.trace import trace
from servoctl.errors import TraceError
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Matrices, assemble
from servoctl.simulation.runge_kutta import rk4
from servoctl.types import Array, State


class Prediction:
    """Predicts q and v.

    Attributes:
        engine: `c`, `vm` or `numpy`.
        note: Why it is not the engine that was asked for; empty where it is.
    """

    def __init__(self, model: Model, rank_tolerance: float = 1e-6, engine: str = "auto") -> None:
        """Compiles.

        Args:
            model: The plant; its task does not matter.
            rank_tolerance: A passive direction counts when its pivot exceeds this times |Ahat L^-T|_F.
            engine: `auto`, `c`, `vm` or `numpy`.
        """
        self._model, self._tolerance, self._n = model.plain, rank_tolerance, model.n
        self._parameters = self._model.parameters
        self._tick: BufferedCall | None = None
        self.engine, self.note = "numpy", ""
        if engine == "numpy" or model.opaque is not None:
            self.note = f"the plant runs in NumPy: {model.opaque}" if model.opaque is not None else ""
            return
        try:
            kernel = self._compile()
        except TraceError as error:
            self.note = f"the plant runs in NumPy: {error}"
            return
        self.engine, self.note = run_fast(kernel, engine)
        self._tick = BufferedCall(kernel)
        self._times, self._x, self._u, parameters = self._tick.inputs.values()
        (self._ahead,) = self._tick.outputs.values()
        parameters[:] = self._parameters

    def __call__(self, t: float, h: float, q: Array, v: Array, u: Array) -> tuple[Array, Array]:
        """q and v after a time under held torques.

        Args:
            t: Time [s].
            h: How far ahead [s].
            q: Coordinates, shape (n,).
            v: Velocities, shape (n,).
            u: Inputs in force, shape (m,) [actuator units].
        """
        n = self._n
        if self._tick is None:
            x = rk4(lambda s, y: self._rates(s, y, u), t, np.concatenate((q, v)), h)
        else:
            self._times[0], self._times[1] = t, h
            self._x[:n], self._x[n:], self._u[:] = q, v, u
            self._tick()
            x = self._ahead.copy()
        return x[:n], x[n:]

    def _rates(self, t: float, x: Array, u: Array) -> Array:
        state = State(t, x[: self._n], x[self._n :])
        return self._motion(state, self._model.matrices(state), u)

    def _motion(self, state: State, matrices: Matrices, u: Array) -> Array:
        terms = assemble(state, matrices, self._tolerance)
        if terms.finite is False or terms.positive is False:
            return np.full(2 * self._n, np.nan)
        return np.concatenate([state.v, terms.acceleration(u)])

    def _compile(self) -> Kernel:
        n, m = self._n, self._model.m
        given = {**self._model.symbols(), "u": symbols("u", m)}
        state = State(given["t"][0], given["q"], given["v"])
        matrices = self._model.symbolic_matrices(given)
        rates = trace(self._motion, state, matrices, given["u"])
        motion = Kernel.compile("motion", given, {"rates": rates}).called()
        times, x, u, p = (ca.SX.sym(*size) for size in self._sizes().items())

        def change(t: Any, x: Any) -> Any:
            return motion(t, x[:n], x[n:], p, u)

        function = ca.Function("predict", [times, x, u, p], [rk4(change, times[0], x, times[1])])
        shapes = {name: (size,) for name, size in self._sizes().items()}
        return Kernel(function, shapes, {"ahead": (2 * n,)})

    def _sizes(self) -> dict[str, int]:
        return {"times": 2, "x": 2 * self._n, "u": self._model.m, "p": len(self._parameters)}
