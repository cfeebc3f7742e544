"""Statements in C that fill an array from others, where the values do not lie in one already."""

import re
from collections.abc import Sequence

SHORT = 8
"""Stretches up to this length are written out."""

_PLACE = re.compile(r"(\w+)\[(\d+)\]")


def copies(name: str, values: Sequence[str], width: int = 1) -> list[str]:
    """Statements that fill an array: one loop for each stretch of values at even distances in another array.

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
        place, count, start = places[first], last - first, width * first + column
        if place is None or count <= SHORT:
            lines += [f"{name}[{width * i + column}] = {values[i]};" for i in range(first, last)]
        else:
            own = f"{name}[{start} + {times}k]" if start else f"{name}[{times}k]"
            lines.append(f"for (int k = 0; k < {count}; ++k) {own} = {place[0]}[{place[1]} + {step} * k];")
        first = last
    return lines


def lying(values: Sequence[str]) -> str | None:
    """Where the values lie one behind the other in an array: `d5_0 + 7`; None if they do not."""
    start = _place(values[0]) if values else None
    if start is None or any(value != f"{start[0]}[{start[1] + k}]" for k, value in enumerate(values)):
        return None
    return f"{start[0]} + {start[1]}" if start[1] else start[0]


def _place(value: str) -> tuple[str, int] | None:
    """Array and index of a value that is an entry of an array."""
    found = _PLACE.fullmatch(value)
    return None if found is None else (found[1], int(found[2]))


def _stretch(places: Sequence[tuple[str, int] | None], first: int) -> tuple[int, int]:
    """The end of the stretch of places at even distances that begins here, and the distance."""
    last, start = first + 1, places[first]
    following = places[last] if last < len(places) else None
    if start is None or following is None or following[0] != start[0]:
        return last, 0
    step = following[1] - start[1]
    while last < len(places) and places[last] == (start[0], start[1] + step * (last - first)):
        last += 1
    return last, step
