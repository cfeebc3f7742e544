"""Checks an expression against the names of a plant, and reads constants such as `60*deg`; the unit of an equation."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from numbers import Real
from typing import Any

from servoctl.errors import ExpressionError
from servoctl.expression.parser import parse
from servoctl.expression.suggest import remedy
from servoctl.expression.tree import ARITY, CONSTANTS, NEGATIVE, RESERVED, Apply, Expression, Index, Name, Number, Rate

_UNIT_AFTER_NUMBER = re.compile(r"\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s+([A-Za-z]\w*)\s*")  # `5 s`


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
        unit = _UNIT_AFTER_NUMBER.fullmatch(value)
        if unit is not None and unit[2] not in CONSTANTS:
            raise ExpressionError(
                f"{unit[2]!r} is no unit word (write {unit[1]} alone, in the unit of the key)", unit.start(2)
            )
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


_PURE, _UNKNOWN = "1", ""
_ANGLES = frozenset({"asin", "acos", "atan", "atan2"})
_KEEPING = frozenset({"+", "-", "min", "max", "abs", NEGATIVE})
_WORDS = {"deg": "rad", "rad": "rad", "mm": "m"}  # unit word of a length or an angle -> unit


def unit_of(expression: Expression, coordinates: Mapping[str, str]) -> str:
    """Unit of the value; empty if it is not known, because parameters or products of coordinates are among its terms.

    A number, and time, has the unit of the terms beside it, and none as a factor.

    Args:
        expression: The equation.
        coordinates: Name of each coordinate -> its unit.
    """
    stack: list[str] = []
    for step in expression.steps:
        match step:
            case Number():
                stack.append(_PURE)
            case Name("t"):
                stack.append(_PURE)
            case Name(name):
                stack.append(coordinates.get(name, _UNKNOWN))
            case Rate(name):
                stack.append(per_second(coordinates.get(name, _UNKNOWN)))
            case Index():
                stack.append(_UNKNOWN)
            case Apply(word, count):
                parts = stack[-count:]
                del stack[-count:]
                stack.append(_applied(word, parts))
    unit = stack.pop()
    return _UNKNOWN if unit == _PURE else unit


def _applied(word: str, parts: list[str]) -> str:
    if word in _KEEPING:
        return _shared(parts)
    if word in _ANGLES:
        return "rad"
    if word == "*" and _PURE in parts:
        return parts[1 - parts.index(_PURE)]
    if word == "/":
        return parts[0] if parts[1] == _PURE else _PURE if parts[0] == parts[1] != _UNKNOWN else _UNKNOWN
    if word in ("*", "**"):
        return _PURE if set(parts) == {_PURE} else _UNKNOWN
    return _PURE


def _shared(parts: list[str]) -> str:
    """The unit of a sum: that of the terms that have one."""
    known = set(parts) - {_PURE, _UNKNOWN}
    if len(known) == 1:
        return known.pop()
    return _UNKNOWN if known or _UNKNOWN in parts else _PURE


def foreign_word(expression: Expression, coordinates: Mapping[str, str], unit: str = "") -> tuple[str, str] | None:
    """A unit word that stands where another unit belongs, and that unit: `60*deg` beside a coordinate in metres.

    Rates count as what they are the rate of, because `5*mm` is also written for 5 mm/s.

    Args:
        expression: The equation.
        coordinates: Name of each coordinate -> its unit.
        unit: Unit of the whole; empty: not known.
    """
    stack: list[tuple[str, str]] = []  # unit, and the unit word that it comes from
    for step in expression.steps:
        match step:
            case Number(_, word):
                stack.append((_WORDS.get(word, _PURE), word if word in _WORDS else ""))
            case Name(name) | Rate(name):
                stack.append((coordinates.get(name, _UNKNOWN), ""))
            case Index():
                stack.append((_UNKNOWN, ""))
            case Apply(word, count):
                parts = stack[-count:]
                del stack[-count:]
                if word in _KEEPING and (found := _foreign(parts)):
                    return found
                unit_here = _applied(word, [of for of, _ in parts])
                said = next((said for _, said in parts if said), "") if word in (*_KEEPING, "*", "/") else ""
                stack.append((unit_here, "" if unit_here == _PURE else said))
    return _foreign([*stack, (unit.partition("/s")[0], "")])


def _foreign(terms: list[tuple[str, str]]) -> tuple[str, str] | None:
    """A unit word among terms that are added, and the other unit of one of them."""
    for unit, word in terms:
        for other, said in terms:
            if word and not said and other not in (_PURE, _UNKNOWN, unit):
                return word, other
    return None


def per_second(unit: str) -> str:
    """Unit of the rate of a quantity; empty for an unknown one."""
    if not unit:
        return ""
    base, _, order = unit.partition("/s")
    return f"{base}/s" if "/s" not in unit else f"{base}/s^{int(order.lstrip('^') or 1) + 1}"
