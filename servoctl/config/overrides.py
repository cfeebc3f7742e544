"""`--set PATH=VALUE` and `--set-file FILE`: values that replace those of the config file."""

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import count, zip_longest
from numbers import Real
from pathlib import Path
from typing import Any

from servoctl.config.document import (
    MAX_DEPTH,
    NAMED_LISTS,
    Document,
    NotYamlError,
    Problem,
    read_document,
    read_value,
    shown,
)
from servoctl.config.schema import Config
from servoctl.errors import ConfigError, remedy
from servoctl.tree.fields import DotMark, in_words
from servoctl.tree.rules import FieldPath, alternatives, at_path, fields_of, is_marked

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
    places: dict[FieldPath, FieldPath] = {}
    for at, to, value in _changes(document.values, above.values, (), (), places):
        below = {path[len(at) :]: line for path, line in above.sources.items() if path[: len(at)] == at}
        document = _with(document, to, value, {(*to, *path): f"{above.file}:{line}" for path, line in below.items()})
    return replace(document, problems=document.problems + tuple(_moved(each, places) for each in above.problems))


def identifier(entries: Any) -> str | None:
    """The key of `NAMES` that all entries of a list have; None if there is none."""
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, Mapping) for entry in entries):
        return None
    return next((key for key in NAMES if all(isinstance(entry.get(key), str) for entry in entries)), None)


def _changes(
    below: Any, above: Any, at: FieldPath, to: FieldPath, places: dict[FieldPath, FieldPath]
) -> Iterator[tuple[FieldPath, FieldPath, Any]]:
    """Path in the upper file, path in the result, and value, of all that the upper file replaces or adds.

    Args:
        at, to: Path of `above` in the upper file, and in the result.
        places: Takes the path in the result of each path in the upper file, down to those of the changes.
    """
    places[at] = to
    key = identifier(above)
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        for name, value in above.items():
            yield from _changes(below.get(name), value, (*at, name), (*to, name), places)
    elif key is not None and identifier(below) == key:
        entries = {entry[key]: (place, entry) for place, entry in enumerate(below)}
        new = count(len(below))
        for number, value in enumerate(above):
            place, entry = entries[value[key]] if value[key] in entries else (next(new), None)
            entries[value[key]] = place, entry
            yield from _changes(entry, value, (*at, number), (*to, place), places)
    else:
        yield at, to, above


def _moved(problem: Problem, places: Mapping[FieldPath, FieldPath]) -> Problem:
    """A problem of the upper file at its place in the result."""
    path = problem.path
    length = next(length for length in range(len(path), -1, -1) if path[:length] in places)
    return problem._replace(path=(*places[path[:length]], *path[length:]))


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
            where = "--set-file " if isinstance(override, Path) else f"--set {override}: "
            refused += [where + problem for problem in error.problems]
    return document, refused


def written(number: float) -> str:
    """Text of a number that YAML reads back to the same bits; whole numbers as integers."""
    number = float(number)
    return repr(int(number) if number.is_integer() and abs(number) < 2**53 else number)


def setting(path: str, value: Any) -> str:
    """`PATH=VALUE` as after `--set`; the value is a number, text, true, false, or a list of these."""
    return f"{path}={written(value) if is_number(value) else json.dumps(value)}"


def is_number(value: Any) -> bool:
    """Whether a value is a number; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


@cache
def _dotted(parts: tuple[str, ...]) -> tuple[int, set[str]] | None:
    """Number of keys to a mapping whose keys may have dots, and the keys of the sections in it; None: there is none."""
    for depth in range(1, len(parts)):
        if any(is_marked(annotation, DotMark) for annotation, _ in at_path(Config, parts[:depth])):
            kinds = [kind for value, _ in at_path(Config, (*parts[:depth], "")) for kind in alternatives(value)]
            return depth, {key for kind in kinds if isinstance(kind, type) for key in fields_of(kind)}
    return None


def _joined(values: Mapping[str, Any], parts: list[str]) -> list[str]:
    """The parts of a path, with the parts of a key that contains dots joined again.

    `tune.search.law.damping.low` -> `tune`, `search`, `law.damping`, `low`.
    """
    if (dotted := _dotted(tuple(parts))) is None:
        return parts
    (depth, keys), node = dotted, values
    for key in parts[:depth]:
        known = node.get(key)
        node = known if isinstance(known, Mapping) else {}
    rest = parts[depth:]
    if rest[0] in node:
        return parts
    existing = [n for n in range(len(rest), 1, -1) if ".".join(rest[:n]) in node]
    end = existing[0] if existing else len(rest) - (len(rest) > 1 and rest[-1] in keys)
    return [*parts[:depth], ".".join(rest[:end]), *rest[end:]]


def _replaced(document: Document, override: str) -> Document:
    """The document with the value of an override at its path."""
    words, equals, text = override.partition("=")
    parts = words.strip().split(".")
    try:
        reading = read_value(text)
    except NotYamlError as error:
        raise ConfigError(error.what) from error
    if not equals or not all(parts):
        raise ConfigError("expected PATH=VALUE (as in run.duration=5 or task.object_x.correction.p_feedback.P=0.2)")
    if len(parts) > MAX_DEPTH:
        raise ConfigError(f"a path of {len(parts)} keys (no config is nested deeper than {MAX_DEPTH})")
    path, first_new = _resolved(document.values, _joined(document.values, parts))
    sources = dict.fromkeys((path, path[:first_new]), f"--set {override}")
    problems = tuple(problem._replace(path=(*path, *problem.path)) for problem in reading.problems)
    return _with(document, path, reading.values, sources, problems)


def _with(
    document: Document,
    path: FieldPath,
    value: Any,
    sources: Mapping[FieldPath, str],
    problems: tuple[Problem, ...] = (),
) -> Document:
    """The document with a value at a path; unchanged parts are shared with the old document.

    Args:
        sources: Path -> where the value there is written.
        problems: Problems of the value.
    """
    depth = len(path)
    others = {field: source for field, source in document.sources.items() if field[:depth] != path}
    kept = tuple(problem for problem in document.problems if problem.path[:depth] != path)
    values = _assigned(document.values, path, value)
    return Document(document.file, values, {**others, **sources}, kept + problems)


def _assigned(node: Any, path: FieldPath, value: Any) -> Any:
    """Nested values with one replaced or added."""
    if not path:
        return value
    key, *rest = path
    if isinstance(node, list) and key == len(node):
        return [*node, value]
    changed: Any = {} if node is None else copy.copy(node)
    below = changed.get(key) if isinstance(changed, dict) else changed[key]
    changed[key] = _assigned(below, tuple(rest), value)
    return changed


def _resolved(values: Mapping[str, Any], parts: list[str]) -> tuple[FieldPath, int]:
    """The path that the parts mean, and its length up to the first key that has no value."""
    node: Any = values
    path: FieldPath = ()
    first_new = len(parts)
    for part, below in zip_longest(parts, parts[1:]):
        key = _key(node, part, path)
        path = (*path, key)
        node = node.get(part) if isinstance(node, dict) else node[int(key)]
        if node is None and below is not None:
            named = path in NAMED_LISTS or parts[0] == "log"  # columns of a log may have numbers as names
            if below.isdecimal() and not named:
                field = ".".join(map(str, path))
                raise ConfigError(f"{field} is not in the config, so it has no entry {below!r} (set {field}=[...])")
            node = [] if path in NAMED_LISTS else {}
            first_new = min(first_new, len(path))
    return path, first_new


def _key(node: Any, part: str, path: FieldPath) -> str | int:
    """Key or index of a part of a path at this node."""
    field = ".".join(map(str, path))
    if isinstance(node, dict):
        return part
    if not isinstance(node, list):
        raise ConfigError(f"{field} is {in_words(node)} and has no key {part!r} (set {field} as a whole)")
    by = "name" if path in NAMED_LISTS else identifier(node)
    names = [entry.get(by) if isinstance(entry, dict) and by is not None else None for entry in node]
    if part in names:
        return names.index(part)
    if re.fullmatch("[0-9]{1,6}", part) and int(part) < len(node):
        return int(part)
    known = [name for name in names if isinstance(name, str)] if by is not None else map(str, range(len(node)))
    raise ConfigError(f"{field} has no entry {part!r} ({remedy(part, known)})")
