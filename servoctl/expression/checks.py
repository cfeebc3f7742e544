"""Checks an expression against the names of a plant, and reads constants such as `60*deg`; the unit of an equation."""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from numbers import Real
from typing import Any

from servoctl.errors import ExpressionError, remedy
from servoctl.expression.equation import ARITY, CONSTANTS, NEGATIVE, RESERVED, Expression, Name, Number, parse

_UNIT_AFTER_NUMBER = re.compile(r"\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s+([A-Za-z]\w*)\s*")  # `5 s`


def check_names(
    expression: Expression,
    coordinates: Collection[str],
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
    times = list(dict.fromkeys([*signals, *dict(expression.signals)]))
    words = [*coordinates, *parameters, *times, "t", *ARITY, *CONSTANTS]
    lengths = {name: length for name, length in parameters.items() if length is not None}
    numbers = (
        dict.fromkeys(parameters.keys() - lengths, "one number")
        | dict.fromkeys(times, "a column of a reference")
        | dict.fromkeys(coordinates, "a coordinate")
    )
    problems = []
    for name in dict.fromkeys([*coordinates, *parameters]):
        if name in RESERVED:
            what = "of a coordinate or parameter, but a word of every equation (rename it)"
            problems.append(f"{name!r} is the name {what}")
        elif words.count(name) > 1:
            groups = {"a coordinate": coordinates, "a parameter": parameters, "a column of a reference": times}
            both = " and of ".join(kind for kind, group in groups.items() if name in group)
            problems.append(f"{name!r} is the name of {both} (rename one of them)")
    for name in sorted(expression.rates - {*coordinates, *times}):
        kind = "a parameter" if name in parameters else "not a coordinate"
        problems.append(f"der({name}): {name!r} is {kind} ({remedy(name, [*coordinates, *times])})")
    for name in sorted(expression.plain - numbers.keys()):
        of = [
            each for each in coordinates if name in (f"{each}_dot", f"{each}dot", f"d{each}", f"d_{each}", f"v{each}")
        ]
        hint = f"the rate of {of[0]} is der({of[0]})" if of else remedy(name, words)
        unknown = f"unknown word {name!r} ({hint})"
        problems.append(_choice(name, lengths[name]) if name in lengths else unknown)
    for name, index in sorted(expression.indexed):
        if name in numbers:
            problems.append(f"{name}[{index}]: {name!r} is {numbers[name]} and has no index (write {name})")
        elif name not in lengths:
            problems.append(f"{name}[{index}]: unknown word {name!r} ({remedy(name, parameters)})")
        elif index >= lengths[name]:
            problems.append(f"{name}[{index}]: {_choice(name, lengths[name])}")
    return problems


def _choice(name: str, length: int) -> str:
    ends = " to ".join(dict.fromkeys((f"{name}[0]", f"{name}[{length - 1}]"))) if length else "there is none"
    return f"{name!r} has {length} values (choose one: {ends})"


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
        if words := sorted(expression.names | ({"t"} if expression.uses_time else set())):
            raise ExpressionError(
                f"a number is expected, {words[0]!r} is no constant ({remedy(words[0], CONSTANTS)})",
                value.find(words[0]),
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

    def leaf(step: Number | Name) -> str:
        if isinstance(step, Number) or step == Name("t"):
            return _PURE
        unit = coordinates.get(step.name, _UNKNOWN) if step.element is None else _UNKNOWN
        return per_second(unit) if step.rate else unit

    unit = expression.fold(leaf, _applied)
    return _UNKNOWN if unit == _PURE else unit


def _applied(word: str, parts: list[str]) -> str:
    if word in _KEEPING:  # the unit of a sum is that of the terms that have one
        known = set(parts) - {_PURE, _UNKNOWN}
        return known.pop() if len(known) == 1 else _UNKNOWN if known or _UNKNOWN in parts else _PURE
    if word in _ANGLES:
        return "rad"
    if word == "*" and _PURE in parts:
        return parts[1 - parts.index(_PURE)]
    if word == "/":
        return parts[0] if parts[1] == _PURE else _PURE if parts[0] == parts[1] != _UNKNOWN else _UNKNOWN
    return _UNKNOWN if word in ("*", "**", "sqrt") and set(parts) != {_PURE} else _PURE


def foreign_word(expression: Expression, coordinates: Mapping[str, str], unit: str) -> tuple[str, str] | None:
    """A unit word that stands where another unit belongs, and that unit: `60*deg` beside a coordinate in metres.

    Rates count as what they are the rate of, because `5*mm` is also written for 5 mm/s.

    Args:
        expression: The equation.
        coordinates: Name of each coordinate -> its unit.
        unit: Unit of the whole; empty: not known.
    """
    pairs: list[tuple[str, str]] = []

    def leaf(step: Number | Name) -> tuple[str, str]:
        """The unit, and the unit word that it comes from."""
        if isinstance(step, Number) or step == Name("t"):
            word = step.word if isinstance(step, Number) and step.word in _WORDS else ""
            return _WORDS.get(word, _PURE), word
        return coordinates.get(step.name, _UNKNOWN) if step.element is None else _UNKNOWN, ""

    def apply(operation: str, operands: list[tuple[str, str]]) -> tuple[str, str]:
        if operation in _KEEPING and (pair := _foreign(operands)):
            pairs.append(pair)
        result = _applied(operation, [unit for unit, _ in operands])
        carries = result not in (_PURE, _UNKNOWN) and operation in (*_KEEPING, "*", "/")
        return result, next((word for _, word in operands if carries and word), "")

    whole = expression.fold(leaf, apply)
    return pairs[0] if pairs else _foreign([whole, (unit.partition("/s")[0], "")])


def _foreign(terms: list[tuple[str, str]]) -> tuple[str, str] | None:
    """A unit word among terms that are added, and the other unit of one of them."""
    for unit, word in terms:
        for other, said in terms:
            if word and not said and other not in (_PURE, _UNKNOWN, unit):
                return word, other
    return None


def per_second(unit: str) -> str:
    """Unit of the rate of a quantity, `-` for one without a unit; empty for an unknown one."""
    if not unit:
        return ""
    base, _, order = unit.partition("/s")
    base = "1" if base == "-" else base
    return f"{base}/s" if "/s" not in unit else f"{base}/s^{int(order.lstrip('^') or 1) + 1}"
