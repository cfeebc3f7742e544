"""A class and its parameters from a config -> an instance; every wrong parameter is reported."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from servoctl.assembly.values import Problems
from servoctl.engine.parameters import annotated, parameter_fields
from servoctl.errors import ConfigError, ServoctlError, in_one_line
from servoctl.expression import constant
from servoctl.expression.suggest import remedy, suggestion

T = TypeVar("T")

LISTED = 12  # largest number of parameters that an error lists


def instantiate(kind: type[Any], parameters: Mapping[str, Any], problems: Problems, *path: str | int) -> Any:
    """An instance of a dataclass with these fields; None, and problems noted, if it cannot be made."""
    before = len(problems.found)
    given = _fields(kind, parameters, problems, *path)
    if len(problems.found) > before:
        return None
    try:
        instance = kind(**given)
    except ServoctlError as error:
        problems.add(error, *path, "parameters")
        return None
    except TypeError as error:
        problems.add(f"{kind.__name__} cannot be made: {error}", *path, "class")
        return None
    except (Exception, SystemExit) as error:  # raised by the class's own checks
        problems.add(f"{kind.__name__} refuses its parameters: {in_one_line(error)}", *path, "parameters")
        return None
    for name in parameter_fields(instance):
        if not _finite(getattr(instance, name)):
            problems.add(f"expected finite numbers, got {getattr(instance, name)!r}", *path, "parameters", name)
    return instance


def replaced_parameters(thing: T, parameters: Mapping[str, Any], problems: Problems, *path: str | int) -> T:
    """A copy of a dataclass instance with these parameters, without those that are wrong."""
    fields, given = float_fields(type(thing)), {}
    for name, value in parameters.items():
        if name not in fields:
            problems.add(f"there is no such parameter ({_nearest(name, fields)})", *path, "parameters", name)
            continue
        try:
            given[name] = _converted(value, fields[name], None)
            dataclasses.replace(thing, **{name: given[name]})  # type: ignore[type-var]
        except ServoctlError as error:
            given.pop(name, None)
            problems.add(error, *path, "parameters", name)
    return dataclasses.replace(thing, **given)  # type: ignore[type-var]


def _nearest(name: str, known: Iterable[str]) -> str:
    """A hint that does not list the many parameters of a robot."""
    known = list(known)
    return suggestion(name, known) or f"known: {', '.join(known[:LISTED])}{', ...' if len(known) > LISTED else ''}"


def float_fields(kind: type[Any]) -> dict[str, bool]:
    """Parameter fields of a class -> whether the field is a tuple."""
    return annotated(kind) if dataclasses.is_dataclass(kind) else {}


def _fields(kind: type[Any], parameters: Mapping[str, Any], problems: Problems, *path: str | int) -> dict[str, Any]:
    """Values of the fields, each as the field's type."""
    if not dataclasses.is_dataclass(kind):
        if parameters:
            what = f"{kind.__name__} has no parameters (decorate it with @dataclass(frozen=True))"
            problems.add(what, *path, "parameters")
        return {}
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    floats, given = float_fields(kind), {}
    for name, value in parameters.items():
        if name not in fields:
            problems.add(f"{kind.__name__} has no such parameter ({remedy(name, fields)})", *path, "parameters", name)
            continue
        try:
            given[name] = _converted(value, floats.get(name), fields[name].type)
        except ServoctlError as error:
            problems.add(error, *path, "parameters", name)
    for name, field in fields.items():
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if not optional and name not in parameters:
            problems.add(f"{kind.__name__} needs the parameter '{name}' (it has no default)", *path, "parameters")
    return given


def _converted(value: Any, many: bool | None, annotation: Any) -> Any:
    """A config's value as the field's type; `many`: whether a parameter is a tuple, None for other fields."""
    if many is False:
        return constant(value)
    if many is True:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"expected a list of numbers, got {value!r}")
        return tuple(constant(item) for item in value)
    wanted = {"int": int, "str": str, "bool": bool}.get(getattr(annotation, "__name__", str(annotation)))
    if wanted is int and isinstance(value, float) and value.is_integer():
        return int(value)
    # True is an int in Python; in a config it is a mistake
    if wanted is not None and (not isinstance(value, wanted) or (wanted is int and isinstance(value, bool))):
        word = {"int": "an integer", "str": "text", "bool": "true or false"}[wanted.__name__]
        raise ConfigError(f"expected {word}, got {value!r}")
    return tuple(value) if isinstance(value, list) else value


def _finite(value: Any) -> bool:
    """Whether all numbers of a field are finite after the class's own `__post_init__`."""
    try:
        return bool(np.isfinite(np.asarray(value, dtype=float)).all())
    except (TypeError, ValueError, OverflowError):
        return False
