"""Reads and checks a config, from a file or by the name of a shipped config."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from servoctl.config.document import Document, FieldPath
from servoctl.config.files import find_config, with_absolute_files
from servoctl.config.overrides import Override, apply_numbers, apply_overrides, setting
from servoctl.config.problems import validate
from servoctl.config.schema import Config
from servoctl.config.yaml_loader import CORE, PREFIX, read_document, shown
from servoctl.errors import ConfigError


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 or YAML 1.2 could read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = '"' if _LINE_BREAKS.search(data) else None
        return self.represent_scalar(PREFIX + "str", data, style=style)


_LINE_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Line breaks that PyYAML reads back differently, unless they are in double quotes."""

_Dumper.add_representer(str, _Dumper.represent_str)
for _kind in CORE[:-1]:
    _Dumper.add_implicit_resolver(_kind.tag, _kind.pattern, list(_kind.first))


def dump(config: Config) -> str:
    """YAML of the config as it ran: with all defaults, with evaluated numbers, without fields that are None."""
    values = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


@dataclass(frozen=True)
class LoadedConfig:
    """A config and its source."""

    path: Path  # the file
    config: Config  # checked values, with all defaults
    document: Document  # values as written, with their lines

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


def load_config(source: str | Path, overrides: Sequence[Override] = ()) -> LoadedConfig:
    """Read and check a config.

    Args:
        source: A path, or the bare name of a shipped config.
        overrides: `PATH=VALUE`, as after `--set`, and paths of files, as after `--set-file`; the last one wins.

    Raises:
        ConfigError: The config is wrong; lists all problems in order of lines, those of overrides last.
    """
    path = find_config(source)
    return _checked(path, *apply_overrides(read_document(path, shown(path)), overrides))


def _checked(path: Path, document: Document, refused: Sequence[str], like: LoadedConfig | None = None) -> LoadedConfig:
    config, problems = validate(document.values, None if like is None else (like.document.values, like.config))
    sentences = [*document.report([*document.problems, *problems]), *refused]
    if sentences or config is None:
        raise ConfigError(sentences)
    return LoadedConfig(path, config, document)
