"""Plain values -> config; pydantic's errors -> messages of this project."""

import re
from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import ValidationError

from servoctl.config.document import Problem
from servoctl.config.schema import Config
from servoctl.errors import remedy, suggestion
from servoctl.tree.fields import FAULT, LIST, MAPPING, SCALAR, in_words, numbers_of
from servoctl.tree.rules import FieldPath, Section, alternatives, at_path, below, fields_of, rough_section, sections_in

S = TypeVar("S", bound=Section)

_EXPECTED = {
    "model_type": "a mapping",
    "dataclass_type": "a mapping",
    "dict_type": "a mapping",
    "tuple_type": "a list",
    "string_type": "text",
    "bool_type": "true or false",
    "too_short": "a list with at least one value",
}


def json_schema() -> dict[str, Any]:
    """JSON Schema of a config, with description and unit of every field."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema(by_alias=True)}
    return schema | {"title": "servoctl config"}


def validate(
    kind: type[S], values: Mapping[str, Any], known: Mapping[str, Any] = MappingProxyType({})
) -> tuple[S | None, list[Problem]]:
    """The sections of a class from plain values, None if a field is wrong; and all problems.

    Args:
        known: Sections whose values are not checked again.
    """
    section: Any
    problems: list[Problem] = []
    try:
        section = sound = kind.model_validate({**values, **known})
    except ValidationError as wrong:
        section, sound = rough_section(kind, {**values, **known}), None
        # a list is not too short because its values are wrong
        told = (
            error for error in wrong.errors(include_url=False) if error["type"] != "too_short" or not error["input"]
        )
        problems = [_with_default(error) for error in told]
    sections = sorted(sections_in(section), key=lambda each: len(each[0]))
    broken = [below(at, each.broken()) for at, each in sections if not at or at[0] not in known]
    misfits = [each.misfits(section, at) for at, each in sections]
    return sound, problems + [Problem(*each) for each in chain(*broken, *misfits)]


_WITHOUT_KEY = {
    ("hil", "safety", "stop_damping"): "a stop brakes by the model's inertia, with no damping to set: leave it out; "
    "stop_time, torque_limit, torque_rate_limit and speed_limit decide how it stops: servoctl check",
}
"""What to do in place of keys that one may look for."""


def _with_default(error: Mapping[str, Any]) -> Problem:
    """The problem of an error; that of a key without a value says what to do if the key has a default."""
    problem = _problem(error)
    empty = error["input"] is None and problem.what.endswith("got nothing")
    if empty and any(field is not None and not field.is_required() for _, field in at_path(Config, problem.path)):
        return Problem(problem.path, f"{problem.what} (leave the key out for its default)")
    return problem


def _problem(error: Mapping[str, Any]) -> Problem:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    or_else = " or a mapping" if error["loc"][-1:] == (SCALAR,) else ""
    path: FieldPath = tuple(part for part in error["loc"] if part not in (SCALAR, LIST, MAPPING, "[key]"))
    if kind == FAULT:
        return Problem((*path, *context["at"]), context["what"])
    if kind == "missing":
        fields = [field for _, field in at_path(Config, path) if field is not None]
        description = next((field.description for field in fields if field.description), "it has no default")
        return Problem(path, f"missing ({description})")
    if path in _WITHOUT_KEY:
        return Problem(path, f"unknown key ({_WITHOUT_KEY[path]})")
    if kind == "value_error":  # raised by the class of a section: `<field>: <what>`
        field, _, what = str(context["error"]).partition(": ")
        return Problem((*path, field), what)
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        kinds = [kind for annotation, _ in at_path(Config, path[:-1]) for kind in alternatives(annotation)]
        known = [key for kind in kinds if isinstance(kind, type) for key in fields_of(kind)]
        return Problem(path, f"unknown key ({remedy(str(path[-1]), known)})")
    if kind == "literal_error":
        known = [word.strip("'") for word in re.findall(r"'[^']*'|-?\d+", context["expected"])]
        hint = suggestion(value, known) if isinstance(value, str) else ""
        expected = known[0] if len(known) == 1 else f"one of {', '.join(known)}"
        return Problem(path, f"expected {expected}{or_else}, got {in_words(value)}" + (f" ({hint})" if hint else ""))
    if kind == "too_short" and isinstance(value, Mapping):
        return Problem(path, f"expected a mapping with at least one key, got {in_words(value)}")
    return Problem(path, f"expected {_EXPECTED.get(kind, error['msg'])}{or_else}, got {in_words(value)}")


def unit_of(path: str) -> str:
    """The unit in brackets at the end of a field's description; empty if there is none.

    Args:
        path: As after `--set`.
    """
    keys = path.split(".")
    if keys[-1].isdigit():
        keys.pop()  # the list says the unit of its entries
    for annotation, field in at_path(Config, tuple(keys)):
        words = [field.description or ""] if field is not None else []
        for text in [*words, *(number.expected for number in numbers_of(annotation))]:
            if found := re.search(r"\[(?!lower, upper)([^][]*)\][^][]*$", text):
                return found[1]
    return ""
