"""What holds a pose, whether the machine falls without it, and how far it is from its task."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from servoctl.engine.kernel import Kernel
from servoctl.engine.linalg import decompose, frobenius, solve_upper
from servoctl.engine.select_engine import run_fast
from servoctl.engine.trace import trace
from servoctl.errors import PlantError, TraceError
from servoctl.mechanics.initial import consistency
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Matrices, assemble
from servoctl.types import Array, State

RANK_TOLERANCE = 1e-10
"""A direction of the motors counts when its pivot exceeds this times |L^-1 B|_F."""

AT_REST = 1e-6
"""Acceleration below which a machine counts as at rest [coordinate unit/s^2]."""


class Hold(NamedTuple):
    """What holds a pose.

    Attributes:
        u: The smallest inputs that leave the smallest acceleration, shape (m,) [actuator units].
        acceleration: What is left of it, shape (n,): not zero where the machine falls although motors act.
    """

    u: Array
    acceleration: Array

    @property
    def holds(self) -> bool:
        """Whether the machine stays where it is."""
        return bool(np.abs(self.acceleration).max(initial=0.0) <= AT_REST)


class StaticBalance(NamedTuple):
    """How a machine starts to move from rest without torque.

    Attributes:
        falls: Whether it does.
        acceleration: The largest of any coordinate [its unit/s^2].
        coordinate: Which one.
    """

    falls: bool
    acceleration: float
    coordinate: str


class GravityCompensation:
    """u with `q'' = 0` at v = 0, by least squares in the metric of the mass matrix; compiled, for every tick."""

    def __init__(self, model: Model, rank_tolerance: float = 1e-6, engine: str = "auto") -> None:
        """Compiles.

        Args:
            model: The plant; its task does not matter.
            rank_tolerance: A passive direction counts when its pivot exceeds this times |Ahat L^-T|_F.
            engine: `auto`, `c`, `vm` or `numpy`.
        """
        self._model, self._tolerance = model.plain, rank_tolerance
        self._rest, self._parameters = np.zeros(model.n), self._model.parameters
        self._kernel: Kernel | None = None
        if engine == "numpy" or model.opaque is not None:
            return
        try:
            given = self._model.symbols()
            state = State(given["t"][0], given["q"], given["v"])
            found = trace(self._hold, state, self._model.symbolic_matrices(given))
            self._kernel = Kernel.compile("hold", given, found._asdict())
        except TraceError:
            return
        run_fast(self._kernel, engine)

    def __call__(self, t: float, q: Array) -> Hold:
        """What holds the pose q at the time t [s].

        Raises:
            PlantError: The mass matrix is not positive definite, or a term is not finite.
        """
        if self._kernel is not None:
            return Hold(*self._kernel(t, q, self._rest, self._parameters))
        state = State(t, q, self._rest)
        return self._hold(state, self._model.matrices(state))

    def _hold(self, state: State, matrices: Matrices) -> Hold:
        terms = assemble(state, matrices, self._tolerance)
        if terms.finite is False or terms.positive is False:
            raise PlantError(f"{type(self._model.plant).__name__}: no equations of motion at q={np.round(state.q, 4)}")
        push = terms.project(terms.inputs)
        u = -decompose(push, RANK_TOLERANCE, frobenius(terms.inputs)).solve(terms.free_acceleration)
        return Hold(u, solve_upper(terms.L, terms.free_acceleration + push @ u))


def falls_without_torque(
    model: Model, t: float, q: Array, rank_tolerance: float = 1e-6, braked: Sequence[int] = ()
) -> StaticBalance:
    """How the machine starts to move from rest when no motor acts, its passive constraints holding.

    Args:
        model: The plant; its task does not matter.
        t: Time [s].
        q: The pose.
        rank_tolerance: A passive direction counts when its pivot exceeds this times |Ahat L^-T|_F.
        braked: Actuators whose brakes are closed.
    """
    state = State(t, q, np.zeros(model.n))
    terms = assemble(state, model.plain.matrices(state), rank_tolerance)
    held = terms.project(terms.inputs)[:, list(braked)]
    reaction = decompose(held, RANK_TOLERANCE, frobenius(terms.inputs)).solve(terms.free_acceleration)
    acceleration = np.abs(solve_upper(terms.L, terms.free_acceleration - held @ reaction))
    worst = int(np.argmax(acceleration))
    largest = float(acceleration[worst])
    return StaticBalance(not largest <= AT_REST, largest, list(model.plant.coordinates)[worst])


def accelerations(model: Model, state: State, torques: Array, rank_tolerance: float = 1e-6) -> tuple[Array, Array]:
    """The largest that torques of these sizes can add, of displacements, shape (m,), and of coordinates, shape (n,).

    Args:
        model: The plant; its task does not matter.
        state: Where.
        torques: Of each motor, shape (m,) [actuator units].
        rank_tolerance: A passive direction counts when its pivot exceeds this times |Ahat L^-T|_F.
    """
    matrices = model.plain.matrices(state)
    terms = assemble(state, matrices, rank_tolerance)
    reached = solve_upper(terms.L, terms.project(terms.inputs))
    return np.abs(matrices.B.T @ reached) @ torques, np.abs(reached) @ torques


def task_errors(model: Model, state: State, wishes: Sequence[int] = ()) -> dict[str, tuple[float, float]]:
    """Task row -> violation and its rate; NaN where a row has none. What they are small of is the law's to say.

    Args:
        model: Whose rows they are.
        state: Where.
        wishes: Indices of the rows of priority 2 and below, which are left out: nothing waits for them.
    """
    found = consistency(model, state)
    task = [row for i, row in enumerate(model.plain.task_rows) if i not in wishes]
    return {
        row.name: (float(violation), float(rate))
        for row, violation, rate in zip(found.rows, found.violation, found.violation_rate, strict=True)
        if row in task
    }


def not_ready(model: Model, state: State, tolerance: float) -> list[str]:
    """Why the task must not be engaged here: a sentence per row whose violation or rate is above the tolerance."""
    said = []
    for name, pair in task_errors(model, state).items():
        for word, value in zip(("violation", "violation rate"), pair, strict=True):
            if not np.isnan(value) and not abs(value) <= tolerance:
                said.append(f"task.{name}: {word} {value:.3g}, above engage_tolerance {tolerance:g}")
    return said
