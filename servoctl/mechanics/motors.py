"""How far each motor has moved at a pose: `rho(q)` with `rho' = B^T q'`, so that the inputs have the power `u^T rho'`.

Design: a drive's encoder measures the displacement that is conjugate to the drive's effort. Where B is constant,
`rho = B^T q` up to the encoder's zero. Where B depends on q, the rows of B^T need not be gradients of anything, so the
plant must give rho itself.
"""

from functools import partial

import casadi as ca
import numpy as np

from servoctl.engine.kernel import Kernel, inputs, jacobian
from servoctl.engine.linalg import slopes
from servoctl.engine.parameters import SameStructure, derived, parameter_values, with_parameters
from servoctl.engine.symbol import to_sx
from servoctl.engine.trace import trace
from servoctl.errors import PlantError, ServoctlError, TraceError
from servoctl.mechanics import plant_values
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.plant_values import dense_actuation
from servoctl.types import Array, State

STATES = 5  # random states and times at which B must be the same to count as constant
CONJUGATE = 1e-9  # largest difference between the Jacobian of rho and B^T, relative to the largest entry of either
DIFFERENCES = 1e-6  # the same limit for plants that cannot be traced, where the Jacobian comes from central differences


def motor_positions(plant: Plant, q: Array) -> Array:
    """rho(q), shape (m,), on numbers or symbols: the plant's own `motor_positions`, or `B^T q` if it gives None.

    Raises:
        PlantError: The plant gives None, and B is not constant.
    """
    written = plant.motor_positions(q)
    return _derived(plant, q) if written is None else np.atleast_1d(np.asarray(written))


def constant_actuation(plant: Plant) -> Array:
    """B, shape (n, m), of a plant whose B depends neither on q nor on t, on numbers or symbols of its parameters.

    Where its code cannot be traced, B must be the same at random states and times.

    Raises:
        PlantError: B is not constant.
    """
    kernel = _constant_kernel(SameStructure(plant))
    B = _constant_numbers(plant) if isinstance(kernel, ServoctlError) else kernel
    if isinstance(B, Kernel):
        B = B(parameter_values(plant))[0]
    if B is None:
        raise PlantError(
            f"{type(plant).__name__}.motor_positions: cannot be derived, since actuation(q, t) is not constant "
            "(write motor_positions(q): one displacement per actuator, whose Jacobian is B^T)"
        )
    return B


def _constant_numbers(plant: Plant) -> Array | None:
    n = len(plant.coordinates)
    B, random = _actuation(plant, np.zeros(n), 0.0), np.random.default_rng(0)
    for _ in range(STATES):
        other, t = 2.0 * random.standard_normal(n), 10.0 * float(random.random())
        difference = np.abs(B - _actuation(plant, other, t)).max(initial=0.0)
        if not difference <= 1e-12 * np.abs(B).max(initial=0.0):
            return None
    return B


@derived
def _constant_kernel(key: SameStructure) -> Kernel | ServoctlError | None:
    """p -> B; None where B is not constant, or why it cannot be traced."""
    try:
        symbols, B, varies = traced_actuation(key.thing)
    except (TraceError, PlantError) as error:
        return error
    return None if varies else Kernel.compile("constant_actuation", {"p": symbols["p"]}, {"B": B})


def traced_actuation(plant: Plant) -> tuple[dict[str, Array], Array, bool]:
    """Symbols t, q, v and p, B as expressions of them, and whether it depends on t or q."""
    n = len(plant.coordinates)
    symbols = inputs({"t": (1,), "q": (n,), "v": (n,), "p": (len(parameter_values(plant)),)})
    t, q, _, p = symbols.values()
    B = np.asarray(trace(dense_actuation, with_parameters(plant, p), q, t[0]), dtype=object)
    return symbols, B, bool(ca.depends_on(to_sx(B), to_sx(np.concatenate([t, q]))))


def check_motor_positions(plant: Plant, around: State) -> None:
    """Checks the motor positions of a plant with actuators: their number, and that their Jacobian is B^T.

    Args:
        around: The check samples random poses near this state.

    Raises:
        PlantError: The plant gives none and B is not constant, their shape is wrong, or the Jacobian is not B^T.
    """
    random = np.random.default_rng(1)
    for i in range(STATES):
        q = around.q + (0.3 * random.standard_normal(len(around.q)) if i else 0.0)
        t = around.t + i
        _checked_positions(plant, q, t)
        J, limit = motor_jacobian(plant, q)
        B = _actuation(plant, q, t)
        difference = np.abs(J - B.T).max(axis=1) / max(float(np.abs(B).max()), float(np.abs(J).max()))
        worst = int(np.argmax(difference))
        if not difference[worst] <= limit:
            raise PlantError(
                f"{type(plant).__name__}.motor_positions: not conjugate to '{list(plant.actuators)[worst]}': its "
                f"gradient is {np.round(J[worst], 6).tolist()}, the actuator's column of B "
                f"{np.round(B[:, worst], 6).tolist()} at q={np.round(q, 4)}, t={t:g} "
                "(both must agree, so that u^T rho' is the power of the inputs)"
            )


def motor_jacobian(plant: Plant, q: Array) -> tuple[Array, float]:
    """Jacobian of the motor positions, shape (m, n), and its accuracy relative to the largest entry.

    It is exact where the plant's code can be traced, else it comes from central differences.
    """
    symbols = inputs({"q": (len(q),)})
    try:
        rho = np.asarray(trace(partial(motor_positions, plant), symbols["q"]), dtype=object)
        return Kernel.compile("motor_jacobian", symbols, {"J": jacobian(rho, symbols["q"])})(q)[0], CONJUGATE
    except (TraceError, PlantError):
        pass
    # near the optimum for central differences, the cube root of the unit roundoff: truncation and rounding alike
    steps = 1e-5 * np.maximum(1.0, np.abs(q))
    return slopes(lambda at: _checked_positions(plant, at, 0.0), q, steps), DIFFERENCES


def displacement_unit(plant: Plant, actuator: str) -> str:
    """Unit of the displacement conjugate to an actuator: `rad` for `N m`, `m` for `N`, else `J/(unit)`."""
    effort = plant.actuators[actuator]
    return {"N m": "rad", "N": "m"}.get(effort, f"J/({effort})")


def _derived(plant: Plant, q: Array) -> Array:
    rho: Array = constant_actuation(plant).T @ q
    return rho


def _checked_positions(plant: Plant, q: Array, t: float) -> Array:
    """The motor positions, with a PlantError for anything that the plant's code does wrong."""
    state = State(t, q, np.zeros(len(q)))
    written: Array | None = plant_values.value(plant, "motor_positions", state)
    return _derived(plant, q) if written is None else written


def _actuation(plant: Plant, q: Array, t: float) -> Array:
    return np.asarray(plant_values.value(plant, "actuation", State(t, q, np.zeros(len(q)))))
