"""A config file, or a shipped config's name -> everything that it says, checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from servoctl.config.document import Document, FieldPath, Problem
from servoctl.config.file_reader import read_document
from servoctl.config.overrides import Override, apply_numbers, apply_overrides
from servoctl.config.problems import validate
from servoctl.config.schema import Config
from servoctl.config.shipped import find_config
from servoctl.config.shown import shown
from servoctl.errors import ConfigError


@dataclass(frozen=True)
class LoadedConfig:
    """A config and where it came from.

    Attributes:
        path: The file.
        config: Its checked values, every default filled in.
        document: Its values as they were written, and their places.
        wrong: What is wrong with it; empty but for `load_config(partly=True)`.
        refused: Sentences on `--set` arguments that do not fit it; empty likewise.
    """

    path: Path
    config: Config
    document: Document
    wrong: tuple[Problem, ...] = ()
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
    def lines(self) -> Mapping[FieldPath, int]:
        """Path -> line in the file, counted from 1; without the fields that `--set` wrote."""
        return self.document.lines

    def overridden(self, overrides: Sequence[str]) -> "LoadedConfig":
        """The same config with further values replaced.

        Args:
            overrides: `PATH=VALUE`, as after `--set`.

        Raises:
            ConfigError: What comes of it is wrong; every problem at once.
        """
        return _checked(self.path, *apply_overrides(self.document, overrides), like=self)

    def with_numbers(self, numbers: Mapping[str, float]) -> "LoadedConfig":
        """As `overridden`, fast, for a config that is taken with one number after another.

        Args:
            numbers: Path, as after `--set`, -> number.

        Raises:
            ConfigError: What comes of it is wrong; every problem at once.
        """
        return _checked(self.path, *apply_numbers(self.document, numbers), like=self)

    def where(self, *path: str | int) -> str:
        """Start of a sentence about a field: `file.yaml:12: law.limits`.

        Args:
            path: Keys and list indices from the top; a task entry by its index or its name.
        """
        return self.document.where(*self.document.indexed(path))


def load_config(source: str | Path, overrides: Sequence[Override] = (), partly: bool = False) -> LoadedConfig:
    """Read and check a config.

    Args:
        source: A path, or the bare name of a shipped config.
        overrides: `PATH=VALUE`, as after `--set`, and paths of files, as after `--set-file`; the last one wins.
        partly: Whether a wrong config is returned where enough of it is right, for the rest to be checked beside what
            `wrong` and `refused` say; it must never run.

    Raises:
        ConfigError: The config is wrong; every problem at once, in order of lines, those of overrides last.
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
    from servoctl.config.repair import mended

    rest = mended(document.values, [problem.path for problem in problems]) if partly else None
    if rest is None:
        raise ConfigError(sentences)
    return LoadedConfig(path, rest, document, tuple(problems), tuple(refused))
