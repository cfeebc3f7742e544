"""The type column of the config reference: what a field accepts, in words."""

import re
from dataclasses import is_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from servoctl.tree.fields import Equation, NumberField, PerName, PerRow

SIMPLE = {bool: "true or false", int: "integer", float: "number", str: "text", Any: "number, text or list"}


def kind_of(annotation: Any, metadata: tuple[Any, ...] = ()) -> str:
    """The type of a field: `positive time [s]`, `list of text`, `name -> number`."""
    for each in metadata:
        if isinstance(each, PerRow):
            return kind_of(PerName[Annotated[float, each.number]])
        if isinstance(each, NumberField):
            return re.sub(r"^an? |,? or \[lower, upper\]$| \(.*\)$", "", each.expected)
        if isinstance(each, Equation):
            return "equation with der()" if each.rates else "equation"
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kind_of(inside[0], inside[1:])
    if origin in (Union, UnionType):
        return _one_of([kind_of(each) for each in inside if each is not type(None)])
    if origin is Literal:
        return "word" if all(isinstance(each, str) for each in inside) else " or ".join(map(str, inside))
    if origin is tuple:
        kind = kind_of(inside[0])
        return "list of sections" if kind == "section" else f"list of {kind}"
    if origin is dict:
        return f"name -> {kind_of(inside[1])}"
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or is_dataclass(annotation)):
        return "section"
    return SIMPLE.get(annotation, "number, text or list")


def _one_of(kinds: list[str]) -> str:
    """`number, or a list, or by name` for a number, a list of numbers and a mapping of them; else all of them."""
    first, *others = dict.fromkeys(part for kind in kinds for part in kind.split(", or "))
    short = {f"list of {first}": "a list", f"name -> {first}": "by name"}
    return ", or ".join(dict.fromkeys([first, *(short.get(other, other) for other in others)]))
