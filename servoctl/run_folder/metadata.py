"""What a run says of itself, as it is read back: JSON of the right kinds, or a sentence.

Design: whatever reads a run folder counts on these kinds, so they are looked at once, here. A key that is not listed is
taken as it is: it may be a later version's.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from servoctl.errors import RunFolderError


class Kind(NamedTuple):
    """What a value must be.

    Attributes:
        words: For a person.
        fits: Whether a value is such.
    """

    words: str
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**1000


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


TEXT = Kind("text", lambda value: isinstance(value, str))
NUMBER = Kind("a number", _is_number)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
OBJECT = Kind("an object", lambda value: isinstance(value, dict))
OBJECTS = Kind("an object of objects", lambda value: OBJECT.fits(value) and all(map(OBJECT.fits, value.values())))
NUMBERS = Kind("an object of numbers", lambda value: OBJECT.fits(value) and all(map(_is_number, value.values())))
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
    dict.fromkeys(("config", "servoctl", "engine", "status", "error", "stage"), TEXT)
    | dict.fromkeys(
        ("duration", "steps", "evaluations", "wall_time", "realtime_factor", "settling_band", "energy_drift"), NUMBER
    )
    | dict.fromkeys(("emulated", "lockstep", "compiled_loop"), FLAG)
    | dict.fromkeys(("timing", "bus", "counts", "realtime", "emulator", "recorder", "realism"), OBJECT)
    | dict.fromkeys(("warnings", "stages", "left_out", "observer"), NAMES)
    | {"tasks": GROUPS, "task_span": SPAN, "events": EVENTS, "drives": OBJECTS, "torque_limits": NUMBERS}
    | {"bus_bits": OBJECT, "faults": Kind("a list", lambda value: isinstance(value, list))}
)
"""What a run says of itself; null stands for everything that it does not say."""


METRIC_GROUPS = dict.fromkeys(("tasks", "passive", "inputs"), METRICS)
"""What `summary.json` has under these names."""


def decoded(text: bytes) -> dict[str, Any]:
    """A JSON object; empty where it is damaged, since nothing in it is needed to load the rows."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def checked(path: Path, said: Mapping[str, Any], kinds: Mapping[str, Kind] = KINDS) -> dict[str, Any]:
    """What a run says of itself, without what is null.

    Args:
        path: Of the file, for messages.
        said: Key -> value.
        kinds: Key -> kind that its value must be of.

    Raises:
        RunFolderError: A value is of another kind than any version of servoctl writes.
    """
    for key, value in said.items():
        kind = kinds.get(key)
        if kind is not None and value is not None and not kind.fits(value):
            raise _wrong(path, key, kind.words, value)
    return {key: value for key, value in said.items() if value is not None}


def units(path: Path, said: Mapping[str, Any]) -> dict[str, str]:
    """Column -> unit.

    Raises:
        RunFolderError: As `checked`.
    """
    for column, unit in said.items():
        if not isinstance(unit, str):
            raise _wrong(path, f"units.{column}", TEXT.words, unit)
    return dict(said)


def statuses(path: Path, said: Mapping[str, Any]) -> dict[int, str]:
    """Code -> name of a status, as of the version that wrote the file.

    Raises:
        RunFolderError: As `checked`.
    """
    found = {}
    for code, entry in said.items():
        name = entry[0] if isinstance(entry, list) and entry else entry
        if not code.isdecimal() or len(code) > 9 or not isinstance(name, str):
            raise _wrong(path, f"status.{code}", 'a code and its name, as in "0": ["OK", ...]', entry)
        found[int(code)] = name
    return found


def _wrong(path: Path, key: str, words: str, value: Any) -> RunFolderError:
    shown = json.dumps(value)
    shown = shown if len(shown) < 60 else f"{shown[:57]}..."
    return RunFolderError(f"{path}: {key}: expected {words}, got {shown} (restore it from a copy, or run again)")
