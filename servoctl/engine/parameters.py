"""Reads the parameters of a frozen dataclass as one vector, and makes copies with other values.

Design: parameters are the `float` and `tuple[float, ...]` fields. Everything else (`int`, `str`, `bool`, tuple lengths)
is structural: it decides what the code does, so a change means tracing again. Copies skip `__post_init__`, because its
checks cannot compare symbols.
"""

import copy
import dataclasses
import re
import typing
from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np

from servoctl.types import Array


@cache
def annotated(kind: type) -> dict[str, bool]:
    """Parameter fields of a dataclass -> whether the field is a tuple."""
    try:
        hints = typing.get_type_hints(kind)
    except (NameError, TypeError):
        hints = {}
    found: dict[str, bool] = {}
    for field in dataclasses.fields(kind):
        annotation = hints.get(field.name, field.type)
        text = str(annotation).replace(" ", "").removeprefix("typing.").lower()
        if annotation is float or text == "float":
            found[field.name] = False
        elif text == "tuple[float,...]":
            found[field.name] = True
    return found


def parameter_fields(thing: Any) -> dict[str, int | None]:
    """Name -> None for a float field, the length for a tuple of floats; {} if `thing` is not a dataclass.

    Also {} if it says `has_made_values`: a trace would keep them while the parameters that they follow from change.
    """
    if not dataclasses.is_dataclass(thing) or getattr(thing, "has_made_values", False) is True:
        return {}
    kind = thing if isinstance(thing, type) else type(thing)
    return {name: len(getattr(thing, name)) if many else None for name, many in annotated(kind).items()}


def parameter_names(thing: Any) -> list[str]:
    """`m1`, or `m[0]`, `m[1]` for a tuple field, in the order of `parameter_values`; `armature.u1` by actuator."""
    names: list[str] = []
    for name, length in parameter_fields(thing).items():
        if name in getattr(thing, "per_actuator", ()):
            names += [f"{name}.{actuator}" for actuator in thing.actuators]
        else:
            names += [name] if length is None else [f"{name}[{i}]" for i in range(length)]
    return names


def field_of(name: str) -> str:
    """The field of one of `parameter_names`: `m` of `m[0]`, `armature` of `armature.u1`."""
    return re.split(r"[.\[]", name, maxsplit=1)[0]


def parameter_values(thing: Any) -> Array:
    """All parameters in one vector, of floats or of symbols."""
    values: list[Any] = []
    for name, length in parameter_fields(thing).items():
        value = getattr(thing, name)
        values += [value] if length is None else list(value)
    kind = object if any(not isinstance(v, (int, float, np.number)) for v in values) else float
    return np.array(values, dtype=kind)


def with_parameters(thing: Any, values: Sequence[Any] | Array) -> Any:
    """A copy with these parameters, in the order of `parameter_values`; the values are not checked."""
    fields = parameter_fields(thing)
    if not fields:
        return thing
    other, position = copy.copy(thing), 0
    for name in cached_values(other):
        del other.__dict__[name]  # they follow from the old parameters
    for name, length in fields.items():
        count = 1 if length is None else length
        part = list(values[position : position + count])
        object.__setattr__(other, name, part[0] if length is None else tuple(part))
        position += count
    return other


def cached_values(thing: Any) -> list[str]:
    """Names of the attributes that a `cached_property` keeps."""
    kept = getattr(thing, "__dict__", {})
    return [name for name in kept if isinstance(getattr(type(thing), name, None), cached_property)]


def structure(thing: Any) -> tuple[Any, ...]:
    """Key of everything except the parameters: class, structural fields, attributes set by `__post_init__`."""
    parameters, kind = parameter_fields(thing), thing if isinstance(thing, type) else type(thing)
    names = dict.fromkeys([*_field_names(kind), *getattr(thing, "__dict__", {})])
    for name in cached_values(thing):
        del names[name]
    rest = tuple((name, _hashable(getattr(thing, name))) for name in names if name not in parameters)
    return (type(thing), rest, tuple(parameters.items()))


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()


class SameStructure:
    """Key of a cache: things that differ only in parameters are equal, so they share what is derived from them."""

    def __init__(self, thing: Any) -> None:
        self.thing, self._structure = thing, structure(thing)

    def __hash__(self) -> int:
        return hash(self._structure)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameStructure) and self._structure == other._structure


def _hashable(value: Any) -> Any:
    """The value in a form that can be hashed and compared."""
    if isinstance(value, np.ndarray):
        return value.shape, tuple(value.ravel().tolist())
    if isinstance(value, dict):
        return tuple((key, _hashable(item)) for key, item in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value
