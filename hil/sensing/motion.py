"""What the model says of the motion at a state: what holds a pose, whether it falls, and where it will be; compiled.

Design: a torque computed from samples at t acts about one period later. So the law gets the state predicted for that
moment, by one classical Runge-Kutta step of the fundamental equation under the present torques. The remaining effect of
the delay is the error of the model, not the motion itself. Passive constraints hold to the order of the step; the next
samples correct q.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from servoctl.engine.ccode import BoundCall
from servoctl.engine.decomposition import decompose, frobenius
from servoctl.engine.kernel import BufferedCall, Kernel, run_fast
from servoctl.engine.linalg import solve_upper
from servoctl.engine.step import rk4
from servoctl.engine.symbol import symbols, where
from servoctl.engine.trace import trace
from servoctl.errors import PlantError
from servoctl.mechanics.initial import consistency
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Matrices, Terms, assemble
from servoctl.types import Array, State

Function = Callable[..., Any]  # (state, terms of motion there, *further arrays) -> a tuple of arrays, on symbols


def traced_kernel(
    name: str,
    model: Model,
    rank_tolerance: float,
    function: Function,
    outputs: tuple[str, ...],
    further: Mapping[str, int],
    in_numpy: bool,
) -> Kernel:
    """The function as a kernel of t, q, v, the parameters and the further inputs (name -> length).

    The matrices come from the plant's NumPy code if `in_numpy`, or if the plant cannot be traced.
    """
    inputs = {each: symbols(each, size) for each, size in further.items()}
    variables, matrices = model.once("symbolic", in_numpy, lambda: _symbolic(model, in_numpy))
    state = State(variables["t"][0], variables["q"], variables["v"])

    def at_state(*arrays: Array) -> Any:
        return function(state, assemble(state, matrices.without_task(), rank_tolerance), *arrays)

    results = trace(at_state, *inputs.values())
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
        rank_tolerance: float,
        function: Function,
        outputs: tuple[str, ...],
        engine: str,
        further: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._model, in_numpy = model, engine == "numpy"
        self._kernel = traced_kernel(name, model, rank_tolerance, function, outputs, further, in_numpy)
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
    """Predicts q and v under the torques that were sent; compiled."""

    def __init__(self, model: Model, rank_tolerance: float = 1e-6, engine: str = "auto") -> None:
        self._model, self._n = model.plain, model.n
        kernel = self._compile(rank_tolerance, engine == "numpy")
        self.engine, _ = run_fast(kernel, engine if model.opaque is None else "vm")  # `c`, `vm` or `numpy`
        self.call = BufferedCall(kernel)  # the compiled function with its buffers
        self._times, self._x, self._u, parameters = self.call.inputs.values()
        (self._ahead,) = self.call.outputs.values()
        parameters[:] = self._model.parameters

    def __call__(self, t: float, h: float, q: Array, v: Array, u: Array) -> tuple[Array, Array]:
        """q and v, shapes (n,), at t + h [s], from those at t under constant inputs u, shape (m,) [actuator units]."""
        n = self._n
        self._times[0], self._times[1] = t, h
        self._x[:n], self._x[n:], self._u[:] = q, v, u
        self.call()
        x = self._ahead.copy()
        return x[:n], x[n:]

    def _motion(self, state: State, terms: Terms, u: Array) -> tuple[Array]:
        return (where(terms.sound, np.concatenate([state.v, terms.acceleration(u)]), np.nan),)

    def _compile(self, rank_tolerance: float, in_numpy: bool) -> Kernel:
        model, n = self._model, self._n
        rates = traced_kernel("motion", model, rank_tolerance, self._motion, ("rates",), {"u": model.m}, in_numpy)
        motion = rates.called()
        sizes = {"times": 2, "x": 2 * n, "u": model.m, "p": len(model.parameters)}
        times, x, u, p = (ca.SX.sym(*size) for size in sizes.items())

        def change(t: Any, x: Any) -> Any:
            return motion(t, x[:n], x[n:], p, u)

        function = ca.Function("predict", [times, x, u, p], [rk4(change, times[0], x, times[1])])
        return Kernel(function, {name: (size,) for name, size in sizes.items()}, {"ahead": (2 * n,)})


RANK_TOLERANCE = 1e-10  # a direction of the motors counts when its pivot exceeds this times |L^-1 B|_F

MOVABLE = 1e-3
"""The same for `inertia`: near a singular pose the inertia along a blocked direction would grow without limit."""

REDUNDANT = 1e-12
"""Singular values below this share of the largest one are rounding: redundant motors cause them."""

AT_REST = 1e-6  # [coordinate unit/s^2] acceleration below which a machine counts as at rest


class Hold(NamedTuple):
    """Inputs that hold a pose."""

    u: Array  # [actuator units] smallest inputs with the smallest acceleration, shape (m,)
    acceleration: Array  # remaining acceleration, shape (n,); not zero if the motors cannot hold the machine
    # [actuator unit per its acceleration] W = (B^T Phi B)^+, shape (m, m): `W a` are the smallest inputs that
    # accelerate the motor displacements by a, or as near to a as the machine allows
    inertia: Array

    def let_go(self, free: Sequence[int]) -> tuple[Array, Array]:
        """What follows where the motors `free` make no torque and the others stand.

        Returns the torques of the others, shape (m,), and the accelerations of the free ones [joint unit/s^2].
        """
        reach = np.linalg.pinv(self.inertia)
        accelerations, torques = -reach @ self.u, np.zeros(len(self.u))
        if others := [i for i in range(len(self.u)) if i not in free]:
            held = reach[np.ix_(others, others)]
            torques[others] = -np.linalg.lstsq(held, accelerations[others], rcond=REDUNDANT)[0]
        return torques, (accelerations + reach @ torques)[list(free)]

    @property
    def holds(self) -> bool:
        """Whether the machine stays at rest."""
        return bool(np.abs(self.acceleration).max(initial=0.0) <= AT_REST)


class StaticBalance(NamedTuple):
    """Whether a machine stays at rest without torque."""

    falls: bool  # whether it starts to move
    acceleration: float  # [its unit/s^2] largest acceleration of any coordinate
    coordinate: str  # name of that coordinate


class GravityCompensation(StateFunction):
    """u with `q'' = 0` at v = 0, by least squares in the metric of the mass matrix; compiled."""

    def __init__(self, model: Model, rank_tolerance: float = 1e-6, engine: str = "auto") -> None:
        self._rest = np.zeros(model.n)
        super().__init__("hold", model.plain, rank_tolerance, self._hold, Hold._fields, engine)

    def __call__(self, t: float, q: Array, v: Array | None = None) -> Hold:
        """Inputs that hold the pose q at the time t [s]; with v, those that let it move on without acceleration.

        Raises PlantError if the mass matrix is not positive definite, or a term is not finite.
        """
        hold = Hold(*self.at(State(t, q, self._rest if v is None else v)))
        if not np.isfinite(hold.u).all():
            raise self.failure(q)
        return hold

    def failure(self, q: Array) -> PlantError:
        """The error of a pose at which the result is not finite."""
        return PlantError(f"{type(self._model.plant).__name__}: no equations of motion at q={np.round(q, 4)}")

    def _hold(self, state: State, terms: Terms) -> Hold:
        push = terms.project(terms.inputs)
        scale = frobenius(terms.inputs)
        u = -decompose(push, RANK_TOLERANCE, scale).solve(terms.free_acceleration)
        inverse = decompose(push, MOVABLE, scale).pseudoinverse()
        return Hold(
            where(terms.sound, u, np.nan), solve_upper(terms.L, terms.free_acceleration + push @ u), inverse @ inverse.T
        )


def falls_without_torque(
    model: Model, t: float, q: Array, rank_tolerance: float = 1e-6, braked: Sequence[int] = ()
) -> StaticBalance:
    """Whether the machine starts to move from rest at the pose q, shape (n,), without torque, at the time t [s].

    `braked`: indices of the actuators whose brakes are closed.
    """
    state = State(t, q, np.zeros(model.n))
    terms = model.plain.terms(state, rank_tolerance)
    held = terms.project(terms.inputs)[:, list(braked)]
    reaction = decompose(held, RANK_TOLERANCE, frobenius(terms.inputs)).solve(terms.free_acceleration)
    acceleration = np.abs(solve_upper(terms.L, terms.free_acceleration - held @ reaction))
    worst = int(np.argmax(acceleration))
    largest = float(acceleration[worst])
    return StaticBalance(not largest <= AT_REST, largest, list(model.plant.coordinates)[worst])


def accelerations(model: Model, state: State, torques: Array, rank_tolerance: float = 1e-6) -> tuple[Array, Array]:
    """Largest accelerations of the motor displacements, shape (m,), and of the coordinates, shape (n,), in a state.

    `torques`: size of that of each motor, shape (m,) [actuator units].
    """
    matrices = model.plain.matrices(state)
    terms = assemble(state, matrices, rank_tolerance)
    reached = solve_upper(terms.L, terms.project(terms.inputs))
    return np.abs(matrices.B.T @ reached) @ torques, np.abs(reached) @ torques


def task_errors(model: Model, state: State, low_priority_rows: Sequence[int] = ()) -> dict[str, tuple[float, float]]:
    """Task row -> violation and its rate; NaN where a row has one of them alone; rows with neither are left out.

    `low_priority_rows`: indices of the rows of priority 2 and below, left out too: the task may start without them.
    """
    errors = consistency(model, state)
    rows = enumerate(model.plain.task_rows)
    task = [row for i, row in rows if i not in low_priority_rows and (row.has_violation or row.has_rate)]
    return {
        row.name: (float(violation), float(rate))
        for row, violation, rate in zip(errors.rows, errors.violation, errors.violation_rate, strict=True)
        if row in task
    }
