"""Displacements of the motors: `rho(q)` with `rho' = B^T q'`, so that the power of the inputs is `u^T rho'`.

Design: what a drive's encoder measures is conjugate to what the drive exerts. Where B is constant `rho = B^T q` up to
the zero of the encoder; elsewhere B^T need not be the Jacobian of anything, so nothing is guessed.
"""

import casadi as ca
import numpy as np

from servoctl.engine.kernel import Kernel, inputs, jacobian
from servoctl.engine.symbol import is_symbolic, to_sx
from servoctl.engine.trace import trace
from servoctl.errors import PlantError, TraceError
from servoctl.mechanics import plant_values
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State

STATES = 5
"""Random states and times at which B must be the same to count as constant."""

CONJUGATE = 1e-9
"""Largest difference of the Jacobian from B^T, relative to the largest entry of either."""

DIFFERENCES = 1e-6
"""The same where the plant's code cannot be traced, so that the Jacobian comes from central differences."""


def constant_actuation(plant: Plant, q: Array) -> Array:
    """B, shape (n, m), of a plant in which it depends neither on q nor on t.

    On symbols it counts as constant where none of those of q and t are left in it.

    Raises:
        PlantError: It is not constant.
    """
    constant = _constant_expressions if is_symbolic(q) else _constant_numbers
    B = constant(plant, q)
    if B is None:
        raise PlantError(
            f"{type(plant).__name__}.motor_positions: cannot be derived, since actuation(q, t) is not constant "
            "(write motor_positions(q): one displacement per actuator, whose Jacobian is B^T)"
        )
    return B


def _constant_numbers(plant: Plant, q: Array) -> Array | None:
    shape = (len(plant.coordinates), len(plant.actuators))
    B = plant_values.numbers(plant, "actuation", State(0.0, q, np.zeros(len(q))), shape, q, 0.0)
    random = np.random.default_rng(0)
    for _ in range(STATES):
        other, t = 2.0 * random.standard_normal(len(q)), 10.0 * float(random.random())
        there = State(t, other, np.zeros(len(q)))
        apart = np.abs(B - plant_values.numbers(plant, "actuation", there, shape, other, t)).max(initial=0.0)
        if not apart <= 1e-12 * np.abs(B).max(initial=0.0):
            return None
    return B


def _constant_expressions(plant: Plant, q: Array) -> Array | None:
    t = inputs({"t": (1,)})["t"]
    B = np.atleast_2d(np.asarray(plant.actuation(q, t[0])))
    state = ca.veccat(*ca.symvar(to_sx(q)), to_sx(t))
    return None if is_symbolic(B) and ca.depends_on(to_sx(B), state) else B


def check_motor_positions(plant: Plant, around: State) -> None:
    """Raises PlantError unless `motor_positions` fits the plant: its shape, and its Jacobian equal to B^T.

    Args:
        plant: With actuators.
        around: A state near which both are compared.
    """
    name, n, m = type(plant).__name__, len(plant.coordinates), len(plant.actuators)
    random = np.random.default_rng(1)
    for i in range(STATES):
        q = around.q + (0.3 * random.standard_normal(n) if i else 0.0)
        t = around.t + i
        at = State(t, q, np.zeros(n))
        _displacements(plant, q, t)
        J, limit = motor_jacobian(plant, q)
        B = plant_values.numbers(plant, "actuation", at, (n, m), q, t)
        apart = np.abs(J - B.T).max(axis=1) / max(float(np.abs(B).max()), float(np.abs(J).max()))
        worst = int(np.argmax(apart))
        if not apart[worst] <= limit:
            actuator = list(plant.actuators)[worst]
            raise PlantError(
                f"{name}.motor_positions: not conjugate to '{actuator}': its gradient is "
                f"{np.round(J[worst], 6).tolist()}, the actuator's column of B {np.round(B[:, worst], 6).tolist()} "
                f"at q={np.round(q, 4)}, t={t:g} (both must agree, so that u^T rho' is the power of the inputs)"
            )


def motor_jacobian(plant: Plant, q: Array) -> tuple[Array, float]:
    """Jacobian of `motor_positions`, shape (m, n), and how far it may be off, relative to its largest entry."""
    given = inputs({"q": (len(q),)})
    try:
        rho = np.atleast_1d(np.asarray(trace(plant.motor_positions, given["q"]), dtype=object))
        return Kernel.compile("motor_jacobian", given, {"J": jacobian(rho, given["q"])})(q)[0], CONJUGATE
    except (TraceError, PlantError):
        pass
    columns = []
    for i in range(len(q)):
        step = np.zeros(len(q))
        step[i] = 1e-5 * max(1.0, abs(float(q[i])))
        ahead, behind = (_displacements(plant, at) for at in (q + step, q - step))
        columns.append((ahead - behind) / (2 * step[i]))
    return np.stack(columns, axis=1), DIFFERENCES


def _displacements(plant: Plant, q: Array, t: float = 0.0) -> Array:
    state = State(t, q, np.zeros(len(q)))
    return plant_values.numbers(plant, "motor_positions", state, (len(plant.actuators),), q)


def displacement_unit(plant: Plant, actuator: str) -> str:
    """Unit of what is conjugate to an actuator: `rad` to `N m`, `m` to `N`; else joules per unit of the actuator."""
    effort = plant.actuators[actuator]
    return {"N m": "rad", "N": "m"}.get(effort, f"J/({effort})")
