"""How options of a protocol are read: into a dataclass or a pydantic model, with all problems at once."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from hil.drives.settings import SensorSettings
from servoctl.config.document import Problem, in_words
from servoctl.config.fields import NumberField
from servoctl.errors import ConfigError
from servoctl.expression.suggest import remedy

T = TypeVar("T")
Reader = Callable[[Any], Any]
"""Converts the value of an option; raises ValueError with a sentence."""


def option(expected: str, read: Reader, default: Any = MISSING) -> Any:
    """A field of an options dataclass.

    Args:
        expected: The expected value with its unit, for the error if it is missing.
        read: Checks and converts the value in the config.
        default: Value if the config has none; without a default, the option is required.
    """
    metadata = {"expected": expected, "read": read}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def number(expected: str, default: Any = MISSING, **bounds: Any) -> Any:
    """An option that is a number or a constant expression; `bounds` are those of `servoctl.config`'s `NumberField`."""
    return option(expected, NumberField(expected, **bounds).read, default)


def flag(expected: str, default: Any = MISSING) -> Any:
    """An option that is true or false."""

    def read(value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise ValueError(f"expected true or false, got {in_words(value)}")

    return option(expected, read, default)


def word(expected: str, known: Iterable[str], default: Any = MISSING) -> Any:
    """An option that is one of some words."""
    known = tuple(known)

    def read(value: Any) -> str:
        if isinstance(value, str) and value in known:
            return value
        raise ValueError(f"expected {expected}, got {in_words(value)} ({remedy(str(value), known)})")

    return option(expected, read, default)


def read_options(kind: type[T], values: Any) -> tuple[T | None, list[Problem]]:
    """The options, or their problems.

    Args:
        kind: A dataclass whose fields were made by `option`, or a pydantic model.
        values: Option -> value in the config.
    """
    if issubclass(kind, BaseModel):
        return _read_model(kind, values)
    known: dict[str, Field[Any]] = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    problems = [
        Problem((name,), f"no such option ({remedy(str(name), known)})") for name in values if name not in known
    ]
    converted = {}
    for name, each in known.items():
        if name not in values:
            if each.default is MISSING:
                problems.append(Problem((name,), f"is missing (give {each.metadata['expected']})"))
            continue
        try:
            converted[name] = each.metadata["read"](values[name])
        except ValueError as error:
            problems.append(Problem((name,), str(error)))
    return (None, problems) if problems else (kind(**converted), [])


def _read_model(kind: type[T], values: Mapping[str, Any]) -> tuple[T | None, list[Problem]]:
    """The same for a pydantic model; unknown options are problems, whatever its settings say."""
    assert issubclass(kind, BaseModel)
    known = {field.alias or name: field for name, field in kind.model_fields.items()}
    problems = [
        Problem((name,), f"no such option ({remedy(str(name), known)})") for name in values if name not in known
    ]
    model = None
    try:
        model = kind.model_validate({name: value for name, value in values.items() if name in known})
    except ValidationError as errors:
        for error in errors.errors(include_url=False):
            path = error["loc"] or ("protocol",)
            field = known.get(str(path[0]))
            meaning = (field.description if field is not None else None) or "see the documentation of its package"
            if error["type"] == "missing":
                problems.append(Problem(path, f"is missing (give {meaning})"))
            else:
                what = error["msg"][:1].lower() + error["msg"][1:]
                problems.append(Problem(path, f"{what}, got {in_words(error['input'])} ({meaning})"))
    return (None, problems) if problems else (model, [])


def options_of(kind: type[T], settings: SensorSettings) -> T:
    """The options of a node, converted.

    Raises:
        ConfigError: An option is unknown, missing or wrong; the error has all problems.
    """
    options, problems = read_options(kind, settings.options)
    if options is None:
        raise ConfigError(in_sentences(settings, problems))
    return options


def in_sentences(settings: SensorSettings, problems: Iterable[Problem]) -> list[str]:
    """Problems of a node as sentences: `<node>: <field>: <problem>`."""
    return [f"{settings.name}: {'.'.join(map(str, problem.path))}: {problem.what}" for problem in problems]
