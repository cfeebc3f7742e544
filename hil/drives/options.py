"""The options of a protocol: a frozen dataclass, read from a config's mapping with every problem at once."""

from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, field, fields
from typing import Any, TypeVar

from hil.drives.settings import SensorSettings
from servoctl.config.document import Problem, in_words
from servoctl.config.fields import NumberField
from servoctl.errors import ConfigError
from servoctl.expression.suggest import remedy

T = TypeVar("T")
Reader = Callable[[Any], Any]
"""Gives the value of an option; raises ValueError with a sentence."""


def option(expected: str, read: Reader, default: Any = MISSING) -> Any:
    """A field of a class of options.

    Args:
        expected: What to give, with its unit, for the error where it is missing.
        read: Checks a value that was given.
        default: What holds where none is given; without one the option is required.
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


def read_options(kind: type[T], given: Any) -> tuple[T | None, list[Problem]]:
    """The options, or what is wrong with them.

    Args:
        kind: A dataclass whose fields were made by `option`.
        given: What the config says: key -> value.
    """
    known: dict[str, Field[Any]] = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    problems = [Problem((name,), f"no such option ({remedy(str(name), known)})") for name in given if name not in known]
    values = {}
    for name, each in known.items():
        if name not in given:
            if each.default is MISSING:
                problems.append(Problem((name,), f"is missing (give {each.metadata['expected']})"))
            continue
        try:
            values[name] = each.metadata["read"](given[name])
        except ValueError as error:
            problems.append(Problem((name,), str(error)))
    return (None, problems) if problems else (kind(**values), [])


def options_of(kind: type[T], settings: SensorSettings) -> T:
    """The options of a node.

    Raises:
        ConfigError: One is unknown, missing or wrong; carries every problem.
    """
    options, problems = read_options(kind, settings.options)
    if options is None:
        raise ConfigError(in_sentences(settings, problems))
    return options


def in_sentences(settings: SensorSettings, problems: Iterable[Problem]) -> list[str]:
    """Problems of a node as sentences."""
    return [f"{settings.name}: {'.'.join(map(str, problem.path))}: {problem.what}" for problem in problems]
