"""Rotors of the actuators: the inertia that each motor turns through its gear, and plants that have it.

    M  ->  M + B diag(J) B^T,   Q  ->  Q - B diag(J) (dB^T/dt) v

Design: a rotor has the speed B^T v, so its kinetic energy is J (B^T v)^2 / 2; both terms follow from it. `armature` is
one more parameter of the plant, see `actuator_parameters`.

Source: the usual model of a geared motor, whose rotor turns about an axis that does not move (Featherstone 2008,
section 9.6, with the gyroscopic terms left out).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.kernel import Kernel, directional, inputs
from servoctl.engine.parameters import SameStructure, parameter_values, with_parameters
from servoctl.engine.structured import Sparse
from servoctl.engine.symbol import is_symbolic, to_sx
from servoctl.engine.trace import trace
from servoctl.errors import PlantError, ServoctlError, TraceError
from servoctl.mechanics.actuator_parameters import with_fields, without_fields
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.plant_values import dense_actuation
from servoctl.types import Array

FIELD = "armature"  # [kg m^2, or kg] parameter of a plant with rotors: inertia of each at the actuator's own coordinate
STEP = 1e-5  # step of a central difference, relative to the state: near the cube root of the unit roundoff


class _Turning(Plant):
    """The methods that rotors change; the class of a plant with rotors has them before those of its own class."""

    per_actuator = (FIELD,)

    def mass_matrix(self, q: Array, t: float) -> Array | Sparse:
        plain: Any = super()
        M, J = plain.mass_matrix(q, t), np.array(armature_of(self))
        if isinstance(M, Sparse) and self.actuation(q, t) is None:
            on = M.rows == M.columns
            if int(on.sum()) == len(M):
                diagonal: Sparse = M.with_values(np.where(on, M.values + J[M.rows], M.values))
                return diagonal
        B = dense_actuation(self, q, t)
        rotors = (B * J) @ B.T
        # the same numbers, from fewer expressions, and symmetric for certain
        turning: Array = np.asarray(M) + np.where(np.tri(len(q), dtype=bool), rotors, rotors.T)
        return turning

    def right_hand_side(self, q: Array, v: Array, t: float) -> Array:
        Q = np.asarray(super().right_hand_side(q, v, t))
        rate = _rate(self, q, v, t)
        if rate is None:
            return Q
        turned: Array = Q - dense_actuation(self, q, t) @ (np.array(armature_of(self)) * rate)
        return turned

    def energy(self, q: Array, v: Array, t: float) -> Any:
        known = super().energy(q, v, t)
        if known is None:
            return None
        speeds = dense_actuation(self, q, t).T @ v
        return known + 0.5 * np.sum(np.array(armature_of(self)) * speeds**2)

    def __reduce__(self) -> tuple[Any, ...]:
        # the class is made at run time, so a copy is made from the plant without rotors
        return with_armature, (without_armature(self), armature_of(self))


def with_armature(plant: Plant, armature: Sequence[float]) -> Plant:
    """The plant with the inertia of rotors at its actuators.

    Args:
        plant: A plant; if it has rotors already, these take their place.
        armature: One inertia per actuator, at the actuator's own coordinate [kg m^2, kg where it gives a force].

    Raises:
        PlantError: The plant has no actuators, or a parameter `armature` of its own.
    """
    return with_fields(without_armature(plant), _Turning, {FIELD: tuple(armature)}, "rotor")


def armature_of(plant: Plant) -> tuple[float, ...] | None:
    """The inertia of each rotor that a plant has by `with_armature`; None without."""
    return getattr(plant, FIELD) if isinstance(plant, _Turning) else None


def without_armature(plant: Plant) -> Plant:
    """The plant that `with_armature` was given; other plants themselves."""
    return without_fields(plant, _Turning, (FIELD,))


def _rate(plant: Plant, q: Array, v: Array, t: Any) -> Array | None:
    """`(dB^T/dt) v`, shape (m,), on numbers or symbols; None where B is constant."""
    kernel = _kernel(SameStructure(plant))
    if isinstance(kernel, ServoctlError):
        if is_symbolic(q, v):
            raise kernel
        h = STEP * max(1.0, float(np.abs(q).max(initial=0.0))) / max(1.0, float(np.abs(v).max(initial=0.0)))
        ahead, behind = (np.asarray(dense_actuation(plant, q + s * v, t + s), dtype=float) for s in (h, -h))
        difference: Array = (ahead - behind).T @ v / (2.0 * h)
        return difference
    return None if kernel is None else kernel(t, q, v, parameter_values(plant))[0]


@lru_cache(maxsize=64)
def _kernel(key: SameStructure) -> Kernel | ServoctlError | None:
    """(t, q, v, p) -> `(dB^T/dt) v`; None where B is constant, or why it cannot be traced."""
    plant = key.thing
    n, count = len(plant.coordinates), len(parameter_values(plant))
    symbols = inputs({"t": (1,), "q": (n,), "v": (n,), "p": (count,)})
    t, q, v, p = symbols.values()
    try:
        B = np.asarray(trace(dense_actuation, with_parameters(plant, p), q, t[0]))
    except (TraceError, PlantError) as error:
        return error
    if not ca.depends_on(to_sx(B), to_sx(np.concatenate([t, q]))):
        return None
    speeds = np.asarray(B.T @ v, dtype=object)
    # along (q' = v, t' = 1) at a fixed v
    rate = directional(speeds, np.concatenate([q, t]), np.concatenate([v, np.array([1.0], dtype=object)]))
    return Kernel.compile("rotors", symbols, {"rate": rate})
