"""Checks the metadata of a run when it is read back: each JSON value must be of the right kind.

Design: all readers of a run folder rely on these kinds, so they are checked once, here. An unlisted key is accepted as
it is: a later version may have written it.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from sys import float_info
from typing import Any

from servoctl.errors import RunFolderError


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= float_info.max


def _is_list(value: Any, fits: Callable[[Any], bool], *lengths: int) -> bool:
    return isinstance(value, list) and all(map(fits, value)) and (not lengths or len(value) in lengths)


FITS: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "a number": _is_number,
    "a number or null": lambda value: value is None or _is_number(value),
    "true or false": lambda value: isinstance(value, bool),
    "an object": lambda value: isinstance(value, dict),
    "a list": lambda value: isinstance(value, list),
    "a list of texts": lambda value: _is_list(value, lambda name: isinstance(name, str)),
    "two numbers": lambda value: _is_list(value, _is_number, 2),
    "two times, or none": lambda value: _is_list(value, _is_number, 0, 2),
}
"""A kind in words -> whether a value is of this kind."""

Kind = str | dict[str, Any] | list[Any]
"""One of `FITS`; an object with kinds by key, where `*` is any key; or a list, of values of its one kind."""

METRICS: Kind = {"*": {"*": "a number or null"}}

KINDS: dict[str, Kind] = {
    **dict.fromkeys(("config", "servoctl", "engine", "status", "error", "stage", "tick", "sparse_rows"), "text"),
    **dict.fromkeys(("duration", "steps", "evaluations", "wall_time", "realtime_factor"), "a number"),
    **dict.fromkeys(("settling_band", "energy_drift"), "a number"),
    **dict.fromkeys(("emulated", "lockstep"), "true or false"),
    **dict.fromkeys(("timing", "bus", "bus_bits", "counts", "emulator", "recorder", "realism"), "an object"),
    **dict.fromkeys(("warnings", "stages", "left_out", "realtime"), "a list of texts"),
    "tasks": {"*": "a list of texts"},
    "task_span": "two times, or none",
    "events": [{"t": "a number or null"}],
    "faults": "a list",
    "drives": {"*": "an object"},
    "torque_limits": {"*": "a number"},
    "law_limits": {"*": "two numbers"},
    "funnels": {"*": {"*": "a number"}},
}
"""Key of the metadata -> kind of its value; null is allowed for every key."""

SUMMARY = KINDS | dict.fromkeys(("tasks", "passive", "inputs"), METRICS)
"""The same of `summary.json`."""


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
    known = {key: value for key, value in values.items() if value is not None}
    for key, value in known.items():
        _check(path, key, value, kinds.get(key))
    return known


def units(path: Path, values: Mapping[str, Any]) -> dict[str, str]:
    """Column -> unit; errors as of `checked`."""
    _check(path, "units", values, {"*": "text"})
    return dict(values)


def statuses(path: Path, values: Mapping[str, Any]) -> dict[int, str]:
    """Code -> name of a status, in the version that wrote the file; errors as of `checked`."""
    names = {}
    for code, entry in values.items():
        name = entry[0] if isinstance(entry, list) and entry else entry
        if not code.isdecimal() or len(code) > 9 or not isinstance(name, str):
            raise _wrong(path, f"status.{code}", 'a code and its name, as in "0": ["OK", ...]', entry)
        names[int(code)] = name
    return names


def _check(path: Path, key: str, value: Any, kind: Kind | None) -> None:
    if isinstance(kind, str) and not FITS[kind](value):
        raise _wrong(path, key, kind, value)
    if isinstance(kind, list):
        _check(path, key, value, "a list")
        for index, each in enumerate(value):
            _check(path, f"{key}.{index}", each, kind[0])
    if isinstance(kind, dict):
        _check(path, key, value, "an object")
        for name, each in value.items():
            _check(path, f"{key}.{name}", each, kind.get(name, kind.get("*")))


def _wrong(path: Path, key: str, words: str, value: Any) -> RunFolderError:
    shown = json.dumps(value)
    shown = shown if len(shown) < 60 else f"{shown[:57]}..."
    return RunFolderError(f"{path}: {key}: expected {words}, got {shown} (restore it from a copy, or run again)")
