"""Reads the parameters of a frozen dataclass as one vector, and makes copies with other values.

Design: parameters are the fields that are a `float` or a tuple of floats, and those of every `Part` in a field.
Everything else (`int`, `str`, `bool`, tuple lengths) is structural: it decides what the code does, so a change means
tracing again. Copies skip `__post_init__`, because its checks cannot compare symbols.
"""

import copy
import dataclasses
import re
import typing
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property, lru_cache
from itertools import islice
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from servoctl.types import Array

EACH = object()
"""Marks an annotated field that takes numbers by name and, made ready, is a tuple of floats: a parameter."""


class Part:
    """A frozen dataclass whose parameters are those of the thing that has it, in a field or in a tuple in a field.

    Attributes:
        label: Start of the paths of its parameters, as in `allocation.lower`; empty: they have their own names.
    """

    label: ClassVar[str]


def path_in(part: Part, name: str) -> str:
    """The path of a parameter of a part in the thing that has the part."""
    return f"{part.label}.{name}" if part.label else name


def parts(thing: Any) -> list[Part]:
    """The parts of a thing, in the order of their parameters."""
    return [part for parts in _parts(thing).values() for part in parts]


def _parts(thing: Any) -> dict[str, tuple[Part, ...]]:
    """Field -> the parts in it."""
    found: dict[str, tuple[Part, ...]] = {}
    for name, value in getattr(thing, "__dict__", {}).items():
        if isinstance(value, Part):
            found[name] = (value,)
        elif type(value) is tuple and value and isinstance(value[0], Part) and all(isinstance(p, Part) for p in value):
            found[name] = value
    return found


class Numbers(NamedTuple):
    """The numbers of a parameter field, as its annotation says."""

    many: bool  # whether the field is a tuple of them; else it is one
    size: int | None = None  # number of a tuple's entries; None: any


_TUPLE = re.compile(r"tuple\[float(,float)*(,\.\.\.)?\]")  # annotation of a parameter that is several numbers


@cache
def annotated(kind: type) -> dict[str, Numbers]:
    """Parameter fields of a class -> their numbers; empty if it is no dataclass."""
    if not dataclasses.is_dataclass(kind):
        return {}
    try:
        hints, marked = typing.get_type_hints(kind), typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        hints = marked = {}
    found: dict[str, Numbers] = {}
    for field in dataclasses.fields(kind):
        annotation = hints.get(field.name, field.type)
        text = str(annotation).replace(" ", "").removeprefix("typing.").lower()
        if annotation is float or text == "float":
            found[field.name] = Numbers(many=False)
        elif _TUPLE.fullmatch(text):
            found[field.name] = Numbers(True, None if text.endswith("...]") else text.count("float"))
        elif EACH in getattr(marked.get(field.name), "__metadata__", ()):
            found[field.name] = Numbers(many=True)
    return found


def parameter_fields(thing: Any) -> dict[str, int | None]:
    """Name -> None for a float field, the length for a tuple of floats; {} if `thing` is not a dataclass.

    Parameters of parts follow, under their path. Also {} if it says `has_made_values`: a trace would keep them while
    the parameters that they follow from change.
    """
    if not _has_parameters(thing):
        return {}
    found = own_fields(thing)
    for part in parts(thing):
        found |= {path_in(part, name): length for name, length in parameter_fields(part).items()}
    return found


def makes_values(thing: Any, *others: str) -> bool:
    """Whether the `__post_init__` of a user's dataclass sets attributes that are no arguments of its constructor.

    They may follow from its parameters, which are then no inputs of compiled functions; a change is traced again.

    Args:
        others: Names of attributes that servoctl sets.
    """
    if not dataclasses.is_dataclass(thing) or type(thing).__module__.startswith("servoctl."):
        return False
    known = {field.name for field in dataclasses.fields(thing) if field.init}.union(others, cached_values(thing))
    return hasattr(thing, "__post_init__") and not known.issuperset(thing.__dict__)


def _has_parameters(thing: Any) -> bool:
    # `dataclasses.is_dataclass` takes five times as long
    return hasattr(thing, "__dataclass_fields__") and getattr(thing, "has_made_values", False) is not True


def own_fields(thing: Any) -> dict[str, int | None]:
    """`parameter_fields` without those of parts."""
    kind: Any = type(thing)
    return {name: len(getattr(thing, name)) if many else None for name, (many, _) in annotated(kind).items()}


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
    _collect(thing, values)
    kind = object if any(not isinstance(v, (int, float, np.number)) for v in values) else float
    return np.array(values, dtype=kind)


def _collect(thing: Any, values: list[Any]) -> None:
    if not _has_parameters(thing):
        return
    kind: Any = type(thing)
    for name, (many, _) in annotated(kind).items():
        value = getattr(thing, name)
        values += value if many else [value]
    for part in parts(thing):
        _collect(part, values)


def with_parameters(thing: Any, values: Sequence[Any] | Array) -> Any:
    """A copy with these parameters, in the order of `parameter_values`; the values are not checked."""
    return _with(thing, iter(values))


def _with(thing: Any, values: Iterator[Any]) -> Any:
    if not _has_parameters(thing):
        return thing
    other = copy.copy(thing)
    for name in cached_values(other):
        del other.__dict__[name]  # they follow from the old parameters
    for name, length in own_fields(thing).items():
        part = tuple(islice(values, 1 if length is None else length))
        object.__setattr__(other, name, part[0] if length is None else part)
    for name, parts in _parts(thing).items():
        made = tuple(_with(part, values) for part in parts)
        object.__setattr__(other, name, made if type(getattr(thing, name)) is tuple else made[0])
    return other


def contents(thing: Any) -> dict[str, Any]:
    """Fields and attributes of an instance; what a `cached_property` keeps follows from the others."""
    kind: Any = type(thing)
    every = {name: getattr(thing, name) for name in _field_names(kind)} | getattr(thing, "__dict__", {})
    cached = cached_values(thing)
    return {name: value for name, value in every.items() if name not in cached}


def cached_values(thing: Any) -> list[str]:
    """Names of the attributes that a `cached_property` keeps."""
    kept = getattr(thing, "__dict__", {})
    return [name for name in kept if isinstance(getattr(type(thing), name, None), cached_property)]


def structural(thing: Any) -> dict[str, Any]:
    """Field or attribute -> its value, of everything except the parameters.

    Of a tuple of parameters it is the length; of a part its class and its own structure.
    """
    kind: Any = type(thing)
    parameters, parts = annotated(kind) if _has_parameters(thing) else {}, _parts(thing)
    found: dict[str, Any] = {}
    for name, value in contents(thing).items():
        if name in parts:
            found[name] = tuple((type(part), structural(part)) for part in parts[name])
        elif name not in parameters:
            found[name] = value
        elif parameters[name].many:
            found[name] = len(value)
    return found


def structure(thing: Any) -> tuple[Any, ...]:
    """Key of everything except the parameters: class, structural fields, attributes set by `__post_init__`."""
    return type(thing), _hashable(structural(thing))


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


T = TypeVar("T")

FORGETTING: list[Callable[[], None]] = []
"""What `forget_derived` calls."""


def derived(make: Callable[[SameStructure], T]) -> Callable[[SameStructure], T]:
    """A function with a cache of what it derives from the code of things, until `forget_derived`."""
    cached = lru_cache(maxsize=64)(make)
    FORGETTING.append(cached.cache_clear)
    return cached


def forget_derived() -> None:
    """Derives again what is asked for: code may read globals and attributes of its class, which may have changed."""
    for forget in FORGETTING:
        forget()


_ATOMS = (float, int, str, bool, type(None), type)


def _hashable(value: Any) -> Any:
    """The value in a form that can be hashed and compared."""
    if isinstance(value, np.ndarray):
        return value.shape, tuple(value.ravel().tolist())
    if isinstance(value, dict):
        return tuple([(key, item if type(item) in _ATOMS else _hashable(item)) for key, item in value.items()])
    if isinstance(value, (list, tuple)):
        return tuple([item if type(item) in _ATOMS else _hashable(item) for item in value])
    return value
