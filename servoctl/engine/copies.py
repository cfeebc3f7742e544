"""Statements in C that fill an array from others, where the values do not lie in one already."""

import re
from collections.abc import Sequence

SHORT, EQUAL = 8, 48
"""Stretches up to this length are written out, and the same of equal values: gcc takes as long for shorter loops."""

_PLACE = re.compile(r"(\w+)\[(\d+)\]")


def copies(name: str, values: Sequence[str], width: int = 1) -> list[str]:
    """Statements that fill an array: a loop for each stretch of equal values, or at even distances in another array.

    Args:
        name: The array.
        values: What it holds.
        width: Of its rows: values of one column are compared with each other.
    """
    return [line for column in range(width) for line in _column(name, values[column::width], width, column)]


def _column(name: str, values: Sequence[str], width: int, column: int) -> list[str]:
    """The statements for every `width`-th entry of an array, from this one on."""
    places = [_place(value) for value in values]
    times = f"{width} * " if width > 1 else ""
    lines, first = [], 0
    while first < len(values):
        last, step = _stretch(places, first)
        (array, index), count, start = places[first], last - first, width * first + column
        if count <= (EQUAL if index is None else SHORT):
            lines += [f"{name}[{width * i + column}] = {values[i]};" for i in range(first, last)]
        else:
            own = f"{name}[{start} + {times}k]" if start else f"{name}[{times}k]"
            value = array if index is None else f"{array}[{index} + {step} * k]"
            lines.append(f"for (int k = 0; k < {count}; ++k) {own} = {value};")
        first = last
    return lines


def lying(values: Sequence[str]) -> str | None:
    """Where the values lie one behind the other in an array: `d5_0 + 7`; None if they do not."""
    array, index = _place(values[0]) if values else ("", None)
    if index is None or any(value != f"{array}[{index + k}]" for k, value in enumerate(values)):
        return None
    return f"{array} + {index}" if index else array


def _place(value: str) -> tuple[str, int | None]:
    """Array and index of a value that is an entry of an array; of any other the value and None."""
    found = _PLACE.fullmatch(value)
    return (value, None) if found is None else (found[1], int(found[2]))


def _stretch(places: Sequence[tuple[str, int | None]], first: int) -> tuple[int, int]:
    """The end of the stretch of equal values or of places at even distances that begins here, and the distance."""
    array, index = places[first]
    last, step = first + 1, 0
    if index is not None and last < len(places) and places[last][0] == array:
        step = (places[last][1] or 0) - index
    while last < len(places) and places[last] == (array, None if index is None else index + step * (last - first)):
        last += 1
    return last, step
