"""The unit of an equation, where all of its terms that have a known one share it."""

from collections.abc import Mapping

from servoctl.expression.tree import NEGATIVE, Apply, Expression, Index, Name, Number, Rate

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
