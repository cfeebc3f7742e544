"""Gravity compensation and static balance at a pose, and the errors of the task there."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hil.sensing.prediction import StateFunction
from servoctl.engine.decomposition import decompose, frobenius
from servoctl.engine.linalg import solve_upper
from servoctl.engine.symbol import where
from servoctl.errors import PlantError
from servoctl.mechanics.initial import consistency
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Matrices, assemble
from servoctl.types import Array, State

RANK_TOLERANCE = 1e-10  # a direction of the motors counts when its pivot exceeds this times |L^-1 B|_F

MOVABLE = 1e-3
"""The same for `inertia`: near a singular pose the inertia along a blocked direction would grow without limit."""

AT_REST = 1e-6  # [coordinate unit/s^2] acceleration below which a machine counts as at rest


class Hold(NamedTuple):
    """Inputs that hold a pose."""

    u: Array  # [actuator units] smallest inputs with the smallest acceleration, shape (m,)
    acceleration: Array  # remaining acceleration, shape (n,); not zero if the motors cannot hold the machine
    # [actuator unit per its acceleration] W = (B^T Phi B)^+, shape (m, m): `W a` are the smallest inputs that
    # accelerate the motor displacements by a, or as near to a as the machine allows
    inertia: Array

    @property
    def let_go(self) -> Array:
        """Acceleration of each motor's axis without its torque, while the others stand, shape (m,)."""
        inertia = np.diag(self.inertia)
        accelerations: Array = np.divide(np.abs(self.u), inertia, out=np.zeros_like(inertia), where=inertia > 0.0)
        return accelerations

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
        self._tolerance, self._rest = rank_tolerance, np.zeros(model.n)
        super().__init__("hold", model.plain, self._hold, Hold._fields, engine)

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

    def _hold(self, state: State, matrices: Matrices) -> Hold:
        terms = assemble(state, matrices.without_task(), self._tolerance)
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
    terms = assemble(state, model.plain.matrices(state).without_task(), rank_tolerance)
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
