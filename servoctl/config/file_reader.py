"""Reads a config file; nothing is checked but that it is one YAML mapping."""

from pathlib import Path

from servoctl.config.document import Document, in_words
from servoctl.config.yaml_loader import NotYamlError, read_value
from servoctl.errors import ConfigError


def shown(path: Path) -> str:
    """A path relative to the current folder, if it is below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


MAX_BYTES = 1_000_000


def read_document(path: Path, shown: str) -> Document:
    """Read a config file.

    Args:
        path: The file.
        shown: Its name in messages.

    Raises:
        ConfigError: The file cannot be read, or is not one YAML mapping.
    """
    try:
        reading = read_value(_text(path, shown))
    except NotYamlError as error:
        raise ConfigError(f"{shown}:{error.line}: {error.what}") from error
    if reading.value is None and not reading.problems:
        raise ConfigError(f"{shown}: empty (a config has plant, initial, task, law and run)")
    if not isinstance(reading.value, dict):
        got = in_words(reading.value)
        raise ConfigError(f"{shown}: expected a mapping with plant, initial, task, law and run, got {got}")
    return Document(shown, reading.value, reading.lines, {}, reading.problems)


def _text(path: Path, shown: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except IsADirectoryError as error:
        raise ConfigError(f"{shown}: is a directory (name the config file in it)") from error
    except FileNotFoundError as error:
        raise ConfigError(f"{shown}: no such file (check the path)") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{shown}: cannot be read: {reason.lower()} (check the path and its permissions)") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{shown}: larger than {MAX_BYTES} bytes (is this a config?)")
    if b"\0" in content:
        raise ConfigError(f"{shown}: binary, byte {content.index(0)} is zero (a config is UTF-8 text)")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown}: not UTF-8 at byte {error.start} (save the file as UTF-8)") from error
