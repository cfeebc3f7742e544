"""Unit words that stand where another unit belongs, such as `60*deg` for a coordinate in metres."""

from collections.abc import Iterator, Mapping
from typing import Any

from servoctl.config.load import LoadedConfig
from servoctl.errors import ExpressionError
from servoctl.expression import foreign_word, parse
from servoctl.mechanics.plant import Plant


def unit_word_warnings(loaded: LoadedConfig, plant: Plant) -> list[str]:
    """One sentence for each of them in a config as it is written."""
    found = []
    for place, text, unit in _texts(loaded.document.values, plant):
        try:
            foreign = foreign_word(parse(text), plant.coordinates, unit)
        except ExpressionError:  # refused elsewhere
            continue
        if foreign is not None:
            word, other = foreign
            found.append(f"{place}: {text!r} has the unit word {word!r} where {other} belongs (give it in {other})")
    return found


def _texts(values: Mapping[str, Any], plant: Plant) -> Iterator[tuple[str, str, str]]:
    """Place, text, and the unit that belongs there; empty for equations, whose terms say it."""
    initial = values.get("initial")
    for field in ("q", "v"):
        given = initial.get(field) if isinstance(initial, Mapping) else None
        for name, value in given.items() if isinstance(given, Mapping) else ():
            yield f"initial.{field}.{name}", str(value), plant.coordinates.get(name, "")
    for section in ("task", "bounds"):
        entries = values.get(section)
        for i, entry in enumerate(entries if isinstance(entries, list) else []):
            for field in ("holonomic", "nonholonomic"):
                if isinstance(entry, Mapping) and isinstance(entry.get(field), str):
                    yield f"{section}.{entry.get('name', i)}.{field}", entry[field], ""
            limits = entry.get("position") if isinstance(entry, Mapping) else None
            for name, pair in limits.items() if isinstance(limits, Mapping) else ():
                for value in pair if isinstance(pair, list) else [pair]:
                    yield f"bounds.{entry.get('name', i)}.position.{name}", str(value), plant.coordinates.get(name, "")
