"""Checks an expression against the names of a plant, and reads constant expressions such as `60*deg`."""

import math
from collections.abc import Iterable, Iterator, Mapping
from numbers import Real
from typing import Any

from servoctl.errors import ExpressionError
from servoctl.expression.parser import parse
from servoctl.expression.suggest import remedy
from servoctl.expression.tree import ARITY, CONSTANTS, RESERVED, Expression


def check_names(
    expression: Expression,
    coordinates: Iterable[str],
    parameters: Mapping[str, int | None],
    signals: Iterable[str] = (),
) -> list[str]:
    """Problems of an expression's names, one sentence each; empty if every name is one of the plant's.

    Args:
        expression: Result of `parse`.
        coordinates: Names of the plant's coordinates.
        parameters: Parameter name -> None for a number, its length for a tuple.
        signals: Names of further functions of time; those of the expression itself are known.
    """
    names = dict.fromkeys([*signals, *dict(expression.signals)])
    return list(_name_problems(expression, list(coordinates), parameters, list(names)))


def _name_problems(
    expression: Expression, coordinates: list[str], parameters: Mapping[str, int | None], signals: list[str]
) -> Iterator[str]:
    words = [*coordinates, *parameters, *signals, "t", *ARITY, *CONSTANTS]
    for name in dict.fromkeys(word for word in words if word in (*coordinates, *parameters)):
        if name in RESERVED:
            yield f"{name!r} is the name of a coordinate or parameter, but a word of every equation (rename it)"
        elif words.count(name) > 1:
            yield f"{name!r} is the name of a coordinate and of a parameter (rename one of them)"
    for name in sorted(expression.rates):
        if name not in (*coordinates, *signals):
            known = "a parameter" if name in parameters else "not a coordinate"
            yield f"der({name}): {name!r} is {known} ({remedy(name, [*coordinates, *signals])})"
    for name in sorted(expression.plain - {*coordinates, *signals}):
        if name not in parameters:
            yield f"unknown word {name!r} ({remedy(name, words)})"
        elif (length := parameters[name]) is not None:
            yield f"{name!r} has {length} values (choose one: {_choice(name, length)})"
    for name, index in sorted(expression.indexed):
        if name in coordinates:
            yield f"{name}[{index}]: {name!r} is a coordinate and has no index (write {name})"
        elif name in signals:
            yield f"{name}[{index}]: {name!r} is a column of a reference and has no index (write {name})"
        elif name not in parameters:
            yield f"{name}[{index}]: unknown word {name!r} ({remedy(name, parameters)})"
        elif (length := parameters[name]) is None:
            yield f"{name}[{index}]: {name!r} is one number and has no index (write {name})"
        elif index >= length:
            yield f"{name}[{index}]: {name!r} has {length} values (choose one: {_choice(name, length)})"


def _choice(name: str, length: int) -> str:
    return " to ".join(dict.fromkeys((f"{name}[0]", f"{name}[{length - 1}]"))) if length else "there is none"


def constant(value: Any) -> float:
    """Value of a number, or of a constant expression such as `60*deg`, `2*pi`, `5*ms`.

    Args:
        value: A number, or text of numbers, `pi`, unit words, operators and functions. Angles come out in rad,
            times in s, lengths in m.

    Raises:
        ExpressionError: The value is of another kind, or not finite.
    """
    if isinstance(value, str):
        expression = parse(value)
        words = sorted(expression.names | ({"t"} if expression.uses_time else set()))
        if words:
            raise ExpressionError(
                f"a number is expected, {words[0]!r} is none ({remedy(words[0], CONSTANTS)})", value.find(words[0])
            )
        return float(expression.evaluate({}))
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ExpressionError(f"a number is expected, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ExpressionError(f"a finite number is expected, got {number}")
    return number
