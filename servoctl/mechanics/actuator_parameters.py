"""Plants with further parameters, one number per actuator, that change some of their methods.

`mechanics.friction` adds friction in the same way.

Design: the class of such a plant derives from the plant's own class, so it still is a `Robot` or a `LagrangianPlant`.
What is added is one more parameter field, which compiled code, identification and model errors treat like all others.

Rotors, with the inertia J of each at its actuator:

    M  ->  M + B diag(J) B^T,   Q  ->  Q - B diag(J) (dB^T/dt) v

A rotor has the speed B^T v, so its kinetic energy is J (B^T v)^2 / 2; both terms follow from it.

Source: the usual model of a geared motor, whose rotor turns about an axis that does not move (Featherstone 2008,
section 9.6, with the gyroscopic terms left out).
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np

from servoctl.engine.kernel import Kernel, directional
from servoctl.engine.parameters import SameStructure, contents, derived, parameter_values
from servoctl.engine.structured import Diagonal
from servoctl.errors import PlantError, ServoctlError, TraceError
from servoctl.mechanics.motors import traced_actuation
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.plant_values import dense_actuation
from servoctl.types import Array

Values = Mapping[str, tuple[float, ...]]  # field -> one number per actuator


def with_fields(plant: Plant, methods: Any, values: Values, what: str) -> Plant:
    """The plant with further fields.

    Args:
        plant: A plant without them.
        methods: The methods that change; they come before those of the plant's own class.
        what: What is added, for messages.

    Raises:
        PlantError: The plant has no actuators, or a parameter with the name of a new one.
    """
    kind = type(plant)
    taken = [name for name in contents(plant) if name in values]
    if taken:
        raise PlantError(f"{kind.__name__} has the parameter {taken[0]} already (rename it)")
    if not plant.actuators:
        raise PlantError(f"{kind.__name__} has no actuators, so there is no {what} at actuators (leave it out)")
    return _made(_class(kind, methods, tuple(values)), contents(plant) | dict(values))


def without_fields(plant: Plant, methods: Any, names: Collection[str]) -> Plant:
    """The plant that `with_fields` was given with these methods and fields; other plants themselves."""
    kind = type(plant)
    if kind.__bases__[0] is not methods:
        return plant
    return _made(kind.__bases__[1], contents(plant), names)


def _made(kind: Any, values: Mapping[str, Any], left_out: Collection[str] = ()) -> Plant:
    """A plant of a class with these fields and attributes, unchecked."""
    made: Plant = object.__new__(kind)
    for name, value in values.items():
        if name not in left_out:
            object.__setattr__(made, name, value)
    return made


@cache
def _class(kind: type[Plant], methods: Any, names: tuple[str, ...]) -> Any:
    """The class with further fields, one per class without, so that plants of one structure have one class."""
    none: tuple[float, ...] = ()
    fields = [(name, tuple[float, ...], dataclasses.field(default=none, kw_only=True)) for name in names]
    frozen = not dataclasses.is_dataclass(kind) or kind.__dataclass_params__.frozen
    return dataclasses.make_dataclass(kind.__name__, fields, bases=(methods, kind), frozen=frozen)


FIELD = "armature"  # [kg m^2, or kg] parameter of a plant with rotors: inertia of each at the actuator's own coordinate
STEP = 1e-5  # step of a central difference, relative to the state: near the cube root of the unit roundoff


class _Turning(Plant):
    """The methods that rotors change; the class of a plant with rotors has them before those of its own class."""

    per_actuator = (FIELD,)

    @cached_property
    def _bare(self) -> Plant:
        """The plant as it was given, whose force and energy may take M, which has no rotors there."""
        order: Any = type(self).__mro__
        kind = order[order.index(_Turning) + 1]
        added = set(order[0].__dataclass_fields__) - set(getattr(kind, "__dataclass_fields__", ()))
        return _made(kind, contents(self), added)

    def mass_matrix(self, q: Array, t: float) -> Array | Diagonal:
        plain: Any = super()
        M, J = plain.mass_matrix(q, t), np.array(armature_of(self))
        if isinstance(M, Diagonal) and self.actuation(q, t) is None:
            return Diagonal(M.values + J)
        B = dense_actuation(self, q, t)
        rotors = (B * J) @ B.T
        # the same numbers, from fewer expressions, and symmetric for certain
        turning: Array = np.asarray(M) + np.where(np.tri(len(q), dtype=bool), rotors, rotors.T)
        return turning

    def right_hand_side(self, q: Array, v: Array, t: float) -> Array:
        Q = np.asarray(self._bare.right_hand_side(q, v, t))
        rate = _rate(self, q, v, t)
        if rate is None:
            return Q
        turned: Array = Q - dense_actuation(self, q, t) @ (np.array(armature_of(self)) * rate)
        return turned

    def energy(self, q: Array, v: Array, t: float) -> Any:
        known = self._bare.energy(q, v, t)
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
        h = STEP * np.sqrt((1.0 + q @ q) / (1.0 + v @ v))
        ahead, behind = (dense_actuation(plant, q + s * v, t + s) for s in (h, -h))
        difference: Array = (ahead - behind).T @ v / (2.0 * h)
        return difference
    return None if kernel is None else kernel(t, q, v, parameter_values(plant))[0]


@derived
def _kernel(key: SameStructure) -> Kernel | ServoctlError | None:
    """(t, q, v, p) -> `(dB^T/dt) v`; None where B is constant, or why it cannot be traced."""
    try:
        symbols, B, varies = traced_actuation(key.thing)
    except (TraceError, PlantError) as error:
        return error
    if not varies:
        return None
    t, q, v, _ = symbols.values()
    speeds = np.asarray(B.T @ v, dtype=object)
    # along (q' = v, t' = 1) at a fixed v
    rate = directional(speeds, np.concatenate([q, t]), np.concatenate([v, np.array([1.0], dtype=object)]))
    return Kernel.compile("rotors", symbols, {"rate": rate})
