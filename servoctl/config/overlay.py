"""`--set-file FILE`: merges a YAML file into a config, key by key."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servoctl.config.document import Document, FieldPath
from servoctl.config.file_reader import read_document, shown

NAMES = ("name", "actuator", "coordinate")  # keys that identify an entry of a list


def overlay(document: Document, file: Path) -> Document:
    """The config with the values of a file merged into it.

    Mappings are merged key by key. Lists whose entries all have the same key of `NAMES` are merged by that name: an
    entry with a known name is merged, a new name is appended. All other values are replaced. null removes an optional
    field.

    Args:
        document: The config so far.
        file: A YAML file with the structure of a config, or of a part of it.

    Raises:
        ConfigError: The file cannot be read, or is not one YAML mapping.
    """
    above = read_document(file, shown(file))
    merge = _Merge(document, above)
    values = merge.mapping(document.values, above.values, (), ())
    problems = tuple(problem._replace(path=merge.moved(problem.path)) for problem in above.problems)
    kept = tuple(problem for problem in document.problems if not merge.replaces(problem.path))
    return Document(document.file, values, merge.lines, merge.settings, kept + problems)


def identifier(entries: Any) -> str | None:
    """The key of `NAMES` that all entries of a list have; None if there is none."""
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, Mapping) for entry in entries):
        return None
    return next((key for key in NAMES if all(isinstance(entry.get(key), str) for entry in entries)), None)


class _Merge:
    """Merges the values of two documents, and records file and line of each value."""

    def __init__(self, below: Document, above: Document) -> None:
        self.lines, self.settings = dict(below.lines), dict(below.settings)
        self._above = above
        self._paths: dict[FieldPath, FieldPath] = {(): ()}  # path in the upper file -> path in the result
        self._replaced: set[FieldPath] = set()

    def mapping(self, below: Any, above: Mapping[str, Any], to: FieldPath, at: FieldPath) -> dict[str, Any]:
        """Merges two mappings; `to` is the path in the result, `at` the path in the upper file."""
        merged = dict(below)
        for key, value in above.items():
            merged[key] = self._value(merged.get(key), value, (*to, key), (*at, key))
        return merged

    def _value(self, below: Any, above: Any, to: FieldPath, at: FieldPath) -> Any:
        self._paths[at] = to
        if isinstance(below, Mapping) and isinstance(above, Mapping):
            return self.mapping(below, above, to, at)
        key = identifier(above)
        if key is not None and identifier(below) == key:
            return self._entries(below, above, key, to, at)
        self._replace(above, to, at)
        return above

    def _entries(self, below: list[Any], above: list[Any], key: str, to: FieldPath, at: FieldPath) -> list[Any]:
        merged, places = list(below), {entry[key]: place for place, entry in enumerate(below)}
        for number, entry in enumerate(above):
            place = places.setdefault(entry[key], len(merged))
            self._paths[(*at, number)] = (*to, place)
            if place < len(merged):
                merged[place] = self.mapping(merged[place], entry, (*to, place), (*at, number))
            else:
                merged.append(entry)
                self._replace(entry, (*to, place), (*at, number))
        return merged

    def _replace(self, value: Any, to: FieldPath, at: FieldPath) -> None:
        """Records that a value, with all its parts, comes from the upper file."""
        self._replaced.add(to)
        depth = len(to)
        for places in (self.lines, self.settings):
            for path in [path for path in places if path[:depth] == to]:
                del places[path]
        for path, line in self._above.lines.items():
            if path[: len(at)] == at:
                self._paths[path] = (*to, *path[len(at) :])
                self.settings[self._paths[path]] = f"{self._above.file}:{line}"

    def moved(self, path: FieldPath) -> FieldPath:
        """Path in the result of a path in the upper file."""
        for length in range(len(path), -1, -1):
            if path[:length] in self._paths:
                return (*self._paths[path[:length]], *path[length:])
        return path

    def replaces(self, path: FieldPath) -> bool:
        """Whether the value at this path of the result, or a section around it, comes from the upper file."""
        return any(path[:length] in self._replaced for length in range(len(path) + 1))
