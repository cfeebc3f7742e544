"""Checks the metadata of a run when it is read back: each JSON value must be of the right kind.

Design: all readers of a run folder rely on these kinds, so they are checked once, here. An unlisted key is accepted as
it is: a later version may have written it.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from sys import float_info
from typing import Any, NamedTuple

from servoctl.errors import RunFolderError


class Kind(NamedTuple):
    """A kind of value."""

    words: str  # its name in messages
    fits: Callable[[Any], bool]  # whether a value is of this kind


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= float_info.max


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


TEXT = Kind("text", lambda value: isinstance(value, str))
NUMBER = Kind("a number", _is_number)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
OBJECT = Kind("an object", lambda value: isinstance(value, dict))
OBJECTS = Kind("an object of objects", lambda value: OBJECT.fits(value) and all(map(OBJECT.fits, value.values())))
NUMBERS = Kind("an object of numbers", lambda value: OBJECT.fits(value) and all(map(_is_number, value.values())))
TABLE = Kind(
    "an object of objects of numbers", lambda value: OBJECTS.fits(value) and all(map(NUMBERS.fits, value.values()))
)
PAIRS = Kind(
    "an object of pairs of numbers",
    lambda value: OBJECT.fits(value) and all(_is_list(pair, _is_number) and len(pair) == 2 for pair in value.values()),
)
NAMES = Kind("a list of texts", _is_names)
GROUPS = Kind("an object of lists of texts", lambda value: OBJECT.fits(value) and all(map(_is_names, value.values())))
SPAN = Kind("two times, or none", lambda value: _is_list(value, _is_number) and len(value) in (0, 2))
EVENTS = Kind("a list of objects, each with its time t", lambda value: _is_list(value, _is_event))
METRICS = Kind(
    "an object of metrics, which are numbers",
    lambda value: OBJECTS.fits(value) and all(map(_is_metrics, value.values())),
)


def _is_list(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(fits, value))


def _is_event(value: Any) -> bool:
    return isinstance(value, dict) and (value.get("t") is None or _is_number(value["t"]))


def _is_metrics(value: Any) -> bool:
    return all(metric is None or _is_number(metric) for metric in value.values())


KINDS = (
    dict.fromkeys(("config", "servoctl", "engine", "status", "error", "stage", "tick", "sparse_rows"), TEXT)
    | dict.fromkeys(
        ("duration", "steps", "evaluations", "wall_time", "realtime_factor", "settling_band", "energy_drift"), NUMBER
    )
    | dict.fromkeys(("emulated", "lockstep"), FLAG)
    | dict.fromkeys(("timing", "bus", "counts", "emulator", "recorder", "realism"), OBJECT)
    | dict.fromkeys(("warnings", "stages", "left_out", "observer", "realtime"), NAMES)
    | {
        "tasks": GROUPS,
        "task_span": SPAN,
        "events": EVENTS,
        "drives": OBJECTS,
        "torque_limits": NUMBERS,
        "law_limits": PAIRS,
        "funnels": TABLE,
    }
    | {"bus_bits": OBJECT, "faults": Kind("a list", lambda value: isinstance(value, list))}
)
"""Key of the metadata -> kind of its value; null is allowed for every key."""


METRIC_GROUPS = dict.fromkeys(("tasks", "passive", "inputs"), METRICS)  # further keys of `summary.json`


def decoded(text: bytes) -> dict[str, Any]:
    """A JSON object; empty if the text is damaged, since the rows can be read without it."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def checked(path: Path, values: Mapping[str, Any], kinds: Mapping[str, Kind] = KINDS) -> dict[str, Any]:
    """The metadata of a run without its nulls.

    Args:
        path: The file, for messages.
        values: Key -> value.
        kinds: Key -> kind of its value.

    Raises:
        RunFolderError: A value has a kind that no version of servoctl writes.
    """
    for key, value in values.items():
        kind = kinds.get(key)
        if kind is not None and value is not None and not kind.fits(value):
            raise _wrong(path, key, kind.words, value)
    return {key: value for key, value in values.items() if value is not None}


def units(path: Path, values: Mapping[str, Any]) -> dict[str, str]:
    """Column -> unit.

    Raises:
        RunFolderError: A unit is no text.
    """
    for column, unit in values.items():
        if not isinstance(unit, str):
            raise _wrong(path, f"units.{column}", TEXT.words, unit)
    return dict(values)


def statuses(path: Path, values: Mapping[str, Any]) -> dict[int, str]:
    """Code -> name of a status, in the version that wrote the file.

    Raises:
        RunFolderError: An entry is not a code with its name.
    """
    names = {}
    for code, entry in values.items():
        name = entry[0] if isinstance(entry, list) and entry else entry
        if not code.isdecimal() or len(code) > 9 or not isinstance(name, str):
            raise _wrong(path, f"status.{code}", 'a code and its name, as in "0": ["OK", ...]', entry)
        names[int(code)] = name
    return names


def _wrong(path: Path, key: str, words: str, value: Any) -> RunFolderError:
    shown = json.dumps(value)
    shown = shown if len(shown) < 60 else f"{shown[:57]}..."
    return RunFolderError(f"{path}: {key}: expected {words}, got {shown} (restore it from a copy, or run again)")
