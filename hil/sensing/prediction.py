"""Predicts the state at which the torques of this tick will act, by one step of the model under the present torques.

Design: a torque computed from samples at t acts about one period later. So the law gets the state predicted for that
moment, by one classical Runge-Kutta step of the fundamental equation. The remaining effect of the delay is the error
of the model, not the motion itself. Passive constraints hold to the order of the step; the next samples correct q.

Functions of a state and of the plant's matrices there, compiled.
"""

from collections.abc import Callable, Mapping
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.ccode import BoundCall
from servoctl.engine.kernel import BufferedCall, Kernel, run_fast
from servoctl.engine.step import rk4
from servoctl.engine.symbol import symbols, where
from servoctl.engine.trace import trace
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Matrices, assemble
from servoctl.types import Array, State

Function = Callable[..., Any]  # (state, matrices, *further arrays) -> a tuple of arrays, on numbers or symbols


def traced_kernel(
    name: str,
    model: Model,
    function: Function,
    outputs: tuple[str, ...],
    further: Mapping[str, int] | None = None,
    in_numpy: bool = False,
) -> Kernel:
    """The function as a kernel of t, q, v, the parameters and the further inputs (name -> length).

    The matrices come from the plant's NumPy code if `in_numpy`, or if the plant cannot be traced.
    """
    inputs = {each: symbols(each, size) for each, size in (further or {}).items()}
    variables, matrices = model.once("symbolic", in_numpy, lambda: _symbolic(model, in_numpy))
    state = State(variables["t"][0], variables["q"], variables["v"])
    results = trace(function, state, matrices, *inputs.values())
    return Kernel.compile(name, {**variables, **inputs}, dict(zip(outputs, results, strict=True)))


def _symbolic(model: Model, in_numpy: bool) -> tuple[Mapping[str, Array], Matrices]:
    symbols = model.symbols()
    return symbols, model.symbolic_matrices(symbols, in_numpy)


class StateFunction:
    """The function at a state, compiled; `outputs`: names of its results; `further`: further inputs, name -> length."""

    def __init__(
        self,
        name: str,
        model: Model,
        function: Function,
        outputs: tuple[str, ...],
        engine: str = "auto",
        further: Mapping[str, int] | None = None,
    ) -> None:
        self._model = model
        self._kernel = traced_kernel(name, model, function, outputs, further, engine == "numpy")
        run_fast(self._kernel, engine if model.opaque is None else "vm")

    def bound(self) -> BoundCall:
        """A call (t, q, v, parameters, *further) -> results with arrays of its own, which hold the parameters."""
        call = BufferedCall(self._kernel)
        _, _, _, parameters, *_ = call.inputs.values()
        parameters[...] = self._model.parameters
        return call.bound

    def at(self, state: State, *further: Array) -> tuple[Array, ...]:
        """The results at a state."""
        return tuple(self._kernel(state.t, state.q, state.v, self._model.parameters, *further))


class Prediction:
    """Predicts q and v; compiled."""

    def __init__(self, model: Model, rank_tolerance: float = 1e-6, engine: str = "auto") -> None:
        self._model, self._tolerance, self._n = model.plain, rank_tolerance, model.n
        self._parameters = self._model.parameters
        kernel = self._compile(engine == "numpy")
        self.engine, _ = run_fast(kernel, engine if model.opaque is None else "vm")  # `c`, `vm` or `numpy`
        self.call = BufferedCall(kernel)  # the compiled function with its buffers
        self._times, self._x, self._u, parameters = self.call.inputs.values()
        (self._ahead,) = self.call.outputs.values()
        parameters[:] = self._parameters

    def __call__(self, t: float, h: float, q: Array, v: Array, u: Array) -> tuple[Array, Array]:
        """q and v, shapes (n,), at t + h [s], from those at t under constant inputs u, shape (m,) [actuator units]."""
        n = self._n
        self._times[0], self._times[1] = t, h
        self._x[:n], self._x[n:], self._u[:] = q, v, u
        self.call()
        x = self._ahead.copy()
        return x[:n], x[n:]

    def _motion(self, state: State, matrices: Matrices, u: Array) -> tuple[Array]:
        terms = assemble(state, matrices.without_task(), self._tolerance)
        return (where(terms.sound, np.concatenate([state.v, terms.acceleration(u)]), np.nan),)

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
