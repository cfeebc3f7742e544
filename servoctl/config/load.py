"""Reads and checks a config, from a file or by the name of a shipped config.

A config with wrong values is repaired, so that its other values can be checked too.

Design: a wrong value is removed; a field without a default gets a substitute. Problems found in the result are reported
only for fields that were not wrong. The result must never run.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from servoctl.config.document import Document, FieldPath, Problem
from servoctl.config.dump import dump
from servoctl.config.fields import LIST, MAPPING, SCALAR
from servoctl.config.file_reader import read_document, shown
from servoctl.config.files import find_config, with_absolute_files
from servoctl.config.overrides import Override, apply_numbers, apply_overrides, setting
from servoctl.config.problems import validate
from servoctl.config.schema import Config
from servoctl.errors import ConfigError

ROUNDS = 4  # repeated checks: removing a value can uncover another problem

_LARGE = 1e300
_SUBSTITUTES: dict[str, Any] = {
    "name": "nameless", "q": 0.0, "law": "none", "duration": 1.0, "initial": {"q": 0.0}, "run": {"duration": 1.0},
    "fix": [], "actuator": "nothing", "coordinate": "nothing", "bus": "nothing", "protocol": "nothing", "node": 0,
    "torque_limit": _LARGE, "torque_rate_limit": _LARGE, "speed_limit": _LARGE, "position_limits": [-_LARGE, _LARGE],
    "period": 0.001, "buses": {}, "drives": [],
}  # fmt: skip
"""Field without a default -> a valid value."""


def repaired(values: Mapping[str, Any], wrong: Iterable[FieldPath]) -> Config | None:
    """The config without its wrong values; None if too little is left.

    Args:
        values: Top level of a config.
        wrong: Fields that are known to be wrong, including those that break a rule.
    """
    left = copy.deepcopy(dict(values))
    for path in sorted(set(wrong), key=len, reverse=True):
        _remove(left, path)
    for _ in range(ROUNDS):
        try:
            return Config.model_validate(left)
        except ValidationError as errors:
            for error in errors.errors(include_url=False):
                path = tuple(part for part in error["loc"] if part not in (SCALAR, LIST, MAPPING))
                if error["type"] == "missing":
                    _substitute(left, path)
                else:
                    _remove(left, (*path, *error.get("ctx", {}).get("at", ())))
    return None


def _remove(values: Any, path: FieldPath) -> None:
    """Removes a value; an entry of a list becomes an empty mapping, so that the others keep their index."""
    node = values
    for part in path[:-1]:
        node = _under(node, part)
    if path and isinstance(node, dict):
        node.pop(path[-1], None)
    elif path and isinstance(node, list) and isinstance(path[-1], int) and path[-1] < len(node):
        node[path[-1]] = {}


def _substitute(values: Any, path: FieldPath) -> None:
    """Fills a missing field, or removes its section if there is no substitute."""
    node = values
    for part in path[:-1]:
        node = _under(node, part)
    if isinstance(node, dict) and path[-1] in _SUBSTITUTES:
        node[path[-1]] = copy.deepcopy(_SUBSTITUTES[str(path[-1])])
    elif len(path) > 1:
        _remove(values, path[:-1])


def _under(node: Any, part: str | int) -> Any:
    if isinstance(node, dict):
        return node.get(part)
    return node[part] if isinstance(node, list) and isinstance(part, int) and part < len(node) else None


@dataclass(frozen=True)
class LoadedConfig:
    """A config and its source."""

    path: Path  # the file
    config: Config  # checked values, with all defaults
    document: Document  # values as written, with their lines
    wrong: tuple[Problem, ...] = ()  # its problems; empty unless loaded with `partly=True`
    # messages about `--set` arguments that do not fit; empty unless loaded with `partly=True`
    refused: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the file, without its suffix."""
        return self.path.stem

    @property
    def folder(self) -> Path:
        """The folder that class paths in files are relative to."""
        return self.path.parent

    @property
    def text(self) -> str:
        """YAML of the config as it ran, for a run folder: all its files have absolute paths."""
        return dump(with_absolute_files(self.config, self.folder))

    @property
    def lines(self) -> Mapping[FieldPath, int]:
        """Path -> line in the file, counted from 1; without fields that are overridden by `--set`."""
        return self.document.lines

    def overridden(self, overrides: Sequence[str]) -> "LoadedConfig":
        """The same config with further values replaced.

        Args:
            overrides: `PATH=VALUE`, as after `--set`.

        Raises:
            ConfigError: The changed config is wrong; lists all problems.
        """
        return _checked(self.path, *apply_overrides(self.document, overrides), like=self)

    def of_folder(self, classes: Path | None) -> "LoadedConfig":
        """The config of a run folder, with the folder of its Python files.

        Args:
            classes: The folder, whatever the config says; None: as the config says, relative to the working folder.
        """
        moved = replace(self, path=(classes or Path()).absolute() / self.path.name)
        if classes is None:
            return moved
        named = {"plant.class": self.config.plant.class_}
        named |= {f"task.{entry.name}.class": entry.class_ for entry in self.config.task}
        named["law.class"] = None if isinstance(self.config.law, str) else self.config.law.class_
        files = {path: Path(name) for path, name in named.items() if name is not None and ".py:" in name}
        return moved.overridden([setting(path, f"{moved.folder / file.name}") for path, file in files.items()])

    def with_numbers(self, numbers: Mapping[str, float]) -> "LoadedConfig":
        """The same config with other numbers; a fast form of `overridden` for sweeps.

        Args:
            numbers: Path as after `--set` -> number.

        Raises:
            ConfigError: The changed config is wrong; lists all problems.
        """
        return _checked(self.path, *apply_numbers(self.document, numbers), like=self)

    def where(self, *path: str | int) -> str:
        """Start of a message about a field: `file.yaml:12: law.limits`.

        Args:
            path: Keys and list indices from the top; a task entry by index or name.
        """
        return self.document.where(*self.document.indexed(path))


def load_config(source: str | Path, overrides: Sequence[Override] = (), partly: bool = False) -> LoadedConfig:
    """Read and check a config.

    Args:
        source: A path, or the bare name of a shipped config.
        overrides: `PATH=VALUE`, as after `--set`, and paths of files, as after `--set-file`; the last one wins.
        partly: Whether to return a wrong config if most of it can be read, so that later checks can add to its
            problems. Such a config must never run.

    Raises:
        ConfigError: The config is wrong; lists all problems in order of lines, those of overrides last.
    """
    path = find_config(source)
    return _checked(path, *apply_overrides(read_document(path, shown(path)), overrides), partly=partly)


def _checked(
    path: Path, document: Document, refused: Sequence[str], like: LoadedConfig | None = None, partly: bool = False
) -> LoadedConfig:
    config, problems = validate(document.values, None if like is None else (like.document.values, like.config))
    problems = [*document.problems, *problems]
    sentences = [*document.report(problems), *refused]
    if not sentences and config is not None:
        return LoadedConfig(path, config, document)

    config = repaired(document.values, [problem.path for problem in problems]) if partly else None
    if config is None:
        raise ConfigError(sentences)
    return LoadedConfig(path, config, document, tuple(problems), tuple(refused))
