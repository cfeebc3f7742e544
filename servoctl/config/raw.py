"""Parts of a config as written, for the rules: a part of the wrong shape is empty, because its own field reports it."""

from collections.abc import Iterable, Mapping
from typing import Any

_MAPPING = (dict, Mapping)  # asked 50 times a run of a sweep; a dict is known without the slow check of Mapping


def mapping(value: Any, *keys: str) -> Mapping[str, Any]:
    """The mapping under these keys; empty if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, _MAPPING) else None
    return value if isinstance(value, _MAPPING) else {}


def task_entries(values: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """Index and content of the task entries that are mappings."""
    task = values.get("task")
    return [(i, entry) for i, entry in enumerate(task) if isinstance(entry, Mapping)] if isinstance(task, list) else []


def given(part: Mapping[str, Any], keys: Iterable[str]) -> list[str]:
    """Those of the keys that have a value."""
    return [key for key in keys if part.get(key) is not None]


def has_robot(values: Mapping[str, Any]) -> bool:
    """Whether the plant is a robot from a file."""
    return bool(given(mapping(values, "plant"), ("robot", "robots")))
