"""`--set PATH=VALUE` and `--set-file FILE`: values that replace those of the config file."""

import copy
import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import Any

from servoctl.config.document import NAMED_LISTS, Document, FieldPath
from servoctl.config.yaml_loader import MAX_DEPTH, NotYamlError, ParsedValue, read_document, read_value, shown
from servoctl.errors import ConfigError, remedy
from servoctl.tree.fields import in_words

NAMES = ("name", "actuator", "coordinate")  # keys that identify an entry of a list


def overlay(document: Document, file: Path) -> Document:
    """The config with the values of a file merged into it.

    Mappings are merged key by key. Lists whose entries all have the same key of `NAMES` are merged by that name: an
    entry with a known name is merged, a new name is appended. All other values are replaced. null removes an optional
    field.

    Args:
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


ERRORS = (("realism", "parameter_error"), ("law", "uncertainty"))
"""Mappings by parameters, such as `armature.u1`, which contain dots too."""

PATHS = (("tune", "search"), ("tune", "uncertainty"), ("tune", "constraints"), ("tune", "objective", "minimise"))
"""Mappings whose keys are paths or metrics, which contain dots."""

RANGE_KEYS = ("low", "high", "scale", "step")


class _RefusedError(Exception):
    """An override cannot be applied; the message is the reason."""


Override = str | Path  # `PATH=VALUE`, as after `--set`; or a file, as after `--set-file`


def apply_overrides(document: Document, overrides: Sequence[Override]) -> tuple[Document, list[str]]:
    """The document after all overrides, in order, and a message for each override that cannot be applied.

    Args:
        overrides: Each is `PATH=VALUE`, or the path of a YAML file to merge into the config. PATH is keys joined by
            dots. An entry of a list is addressed by its name (a drive by its actuator or coordinate) or its index.
            VALUE is YAML; an empty VALUE is null, which removes an optional field. Missing mappings along the path are
            created.
    """
    refused = []
    for override in overrides:
        try:
            document = overlay(document, override) if isinstance(override, Path) else _replaced(document, override)
        except ConfigError as error:
            refused += [f"--set-file {problem}" for problem in error.problems]
        except _RefusedError as error:
            refused.append(f"--set {override}: {error}")
    return document, refused


def apply_values(document: Document, values: Mapping[str, Any]) -> tuple[Document, list[str]]:
    """`apply_overrides` for path -> value; faster for numbers, because no YAML is read."""
    refused = []
    for path, value in values.items():
        override = setting(path, value)
        try:
            if is_number(value) and math.isfinite(value):
                document = _with(document, override, _parts(path), ParsedValue(_plain(value), {}, ()))
            else:
                document = _replaced(document, override)
        except _RefusedError as error:
            refused.append(f"--set {override}: {error}")
    return document, refused


def written(number: float) -> str:
    """Text of a number that YAML reads back to the same bits; whole numbers as integers."""
    return repr(_plain(number))


def setting(path: str, value: Any) -> str:
    """`PATH=VALUE` as after `--set`; the value is a number, text, true, false, or a list of these."""
    return f"{path}={written(value) if is_number(value) else json.dumps(value)}"


def is_number(value: Any) -> bool:
    """Whether a value is a number; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _plain(number: float) -> float | int:
    number = float(number)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _replaced(document: Document, override: str) -> Document:
    words, equals, text = override.partition("=")
    parts = _parts(words) if equals else []
    try:
        return _with(document, override, parts, read_value(text))
    except NotYamlError as error:
        raise _RefusedError(error.what) from error


def _parts(words: str) -> list[str]:
    return words.strip().split(".")


def _joined(values: Mapping[str, Any], parts: list[str]) -> list[str]:
    """The parts of a path, with the parts of a key that contains dots joined again.

    `tune.search.law.damping.low` -> `tune`, `search`, `law.damping`, `low`.
    """
    sections = [*PATHS, *ERRORS, *([("tune", "sensitivity", parts[2])] if len(parts) > 3 else [])]
    for section in sections:
        depth = len(section)
        if tuple(parts[:depth]) != section:
            continue
        node: Any = values
        for key in section:
            node = node.get(key) if isinstance(node, Mapping) else None
        rest = parts[depth:]
        if isinstance(node, Mapping) and rest and rest[0] in node:
            return parts
        existing = [n for n in range(len(rest), 1, -1) if isinstance(node, Mapping) and ".".join(rest[:n]) in node]
        in_range = section == PATHS[0] and len(rest) > 1 and rest[-1] in RANGE_KEYS
        end = existing[0] if existing else len(rest) - in_range
        return [*section, *([".".join(rest[:end])] if rest else []), *rest[end:]]
    return parts


def _with(document: Document, override: str, parts: list[str], reading: ParsedValue) -> Document:
    """The document with a value at a path; unchanged parts are shared with the old document."""
    if not all(parts) or not parts:
        raise _RefusedError("expected PATH=VALUE (as in run.duration=5 or task.object_x.correction.p_feedback.P=0.2)")
    if len(parts) > MAX_DEPTH:
        raise _RefusedError(f"a path of {len(parts)} keys (no config is nested deeper than {MAX_DEPTH})")
    values, path, first_new = _assigned(document.values, _joined(document.values, parts), reading.value)
    new_problems = tuple(problem._replace(path=(*path, *problem.path)) for problem in reading.problems)
    return Document(
        document.file,
        values,
        document.lines,
        {**_outside(document.settings, path), path: f"--set {override}", path[:first_new]: f"--set {override}"},
        tuple(problem for problem in document.problems if problem.path[: len(path)] != path) + new_problems,
    )


def _outside(settings: Mapping[FieldPath, str], path: FieldPath) -> dict[FieldPath, str]:
    depth = len(path)
    return {field: source for field, source in settings.items() if field[:depth] != path}


def _assigned(values: Mapping[str, Any], parts: list[str], value: Any) -> tuple[dict[str, Any], FieldPath, int]:
    """Values with one replaced, its path, and the length of the path to the first key that was created."""
    changed = dict(values)
    node: Any = changed
    path: FieldPath = ()
    first_new = len(parts)
    for part, below in pairwise(parts):
        key = _key(node, part, path)
        path = (*path, key)
        if isinstance(node, dict) and node.get(part) is None:
            named = path in NAMED_LISTS or parts[0] == "log"  # columns of a log may have numbers as names
            if below.isdecimal() and not named:
                field = ".".join(map(str, path))
                raise _RefusedError(f"{field} is not in the config, so it has no entry {below!r} (set {field}=[...])")
            node[part] = [] if path in NAMED_LISTS else {}
            first_new = min(first_new, len(path))
        else:
            node[key] = copy.copy(node[key])
        node = node[key]
    key = _key(node, parts[-1], path)
    node[key] = value
    return changed, (*path, key), first_new


def _key(node: Any, part: str, path: FieldPath) -> str | int:
    """Key or index of a part of a path at this node."""
    field = ".".join(map(str, path))
    if isinstance(node, dict):
        return part
    if not isinstance(node, list):
        raise _RefusedError(f"{field} is {in_words(node)} and has no key {part!r} (set {field} as a whole)")
    by = "name" if path in NAMED_LISTS else identifier(node)
    names = [entry.get(by) if isinstance(entry, dict) and by is not None else None for entry in node]
    if part in names:
        return names.index(part)
    if re.fullmatch("[0-9]{1,6}", part) and int(part) < len(node):
        return int(part)
    known = [name for name in names if isinstance(name, str)] if by is not None else map(str, range(len(node)))
    raise _RefusedError(f"{field} has no entry {part!r} ({remedy(part, known)})")
