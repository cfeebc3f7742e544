"""Plants with further parameters, one number per actuator, that change some of their methods.

Design: the class of such a plant derives from the plant's own class, so it still is a `Robot` or a `LagrangianPlant`.
What is added is one more parameter field, which compiled code, identification and model errors treat like all others.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from servoctl.engine.parameters import cached_values
from servoctl.errors import PlantError
from servoctl.mechanics.plant import Plant

Values = Mapping[str, tuple[float, ...]]  # field -> one number per actuator


def with_fields(plant: Plant, methods: Any, values: Values, what: str) -> Plant:
    """The plant with further fields.

    Args:
        plant: A plant without them.
        methods: The methods that change; they come before those of the plant's own class.
        values: The fields.
        what: What is added, for messages.

    Raises:
        PlantError: The plant has no actuators, or a parameter with the name of a new one.
    """
    kind = type(plant)
    taken = [name for name in _state(plant) if name in values]
    if taken:
        raise PlantError(f"{kind.__name__} has the parameter {taken[0]} already (rename it)")
    if not plant.actuators:
        raise PlantError(f"{kind.__name__} has no actuators, so there is no {what} at actuators (leave it out)")
    other: Plant = object.__new__(_class(kind, methods, tuple(values)))
    for name, value in (_state(plant) | dict(values)).items():
        object.__setattr__(other, name, value)
    return other


def without_fields(plant: Plant, methods: Any, names: Iterable[str]) -> Plant:
    """The plant that `with_fields` was given with these methods and fields; other plants themselves."""
    kind = type(plant)
    if kind.__bases__[0] is not methods:
        return plant
    bare: Plant = object.__new__(kind.__bases__[1])
    for name, value in _state(plant).items():
        if name not in names:
            object.__setattr__(bare, name, value)
    return bare


def _state(plant: Any) -> dict[str, Any]:
    """Fields of an instance and what `__post_init__` has added; what a `cached_property` keeps follows from these."""
    fields = dataclasses.fields(plant) if dataclasses.is_dataclass(plant) else ()
    state = {field.name: getattr(plant, field.name) for field in fields} | getattr(plant, "__dict__", {})
    return {name: value for name, value in state.items() if name not in cached_values(plant)}


@cache
def _class(kind: type[Plant], methods: Any, names: tuple[str, ...]) -> Any:
    """The class with further fields, one per class without, so that plants of one structure have one class."""
    none: tuple[float, ...] = ()
    fields = [(name, tuple[float, ...], dataclasses.field(default=none, kw_only=True)) for name in names]
    frozen = not dataclasses.is_dataclass(kind) or kind.__dataclass_params__.frozen
    return dataclasses.make_dataclass(kind.__name__, fields, bases=(methods, kind), frozen=frozen)
