"""Files that a user names: regular ones of a bounded size only, so that no name hangs or fills the memory."""

import os
import stat
from pathlib import Path

from servoctl.errors import ConfigError

Stamp = tuple[int, int]  # time of the last change [ns] and size of a file


def stamp(file: Path) -> Stamp:
    """The stamp of a file, which tells whether it has changed; zeros where there is none."""
    try:
        status = file.stat()
    except (OSError, ValueError):  # ValueError: the path has a null character
        return 0, 0
    return status.st_mtime_ns, status.st_size


def read_regular(path: Path, largest: int, expected: str, missing: str = "", large: str = "") -> bytes:
    """The content of a file.

    Args:
        largest: Largest size [bytes].
        expected: What it should be, for messages: "an XML file".
        missing, large: Remedies for a file that is not there, or is larger; "": none.

    Raises:
        ConfigError: It is missing, is no regular file, cannot be read, or is larger.
    """
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
        content = b""
        if kind == stat.S_IFREG:
            with path.open("rb") as file:
                content = file.read(largest + 1)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such file{_in_brackets(missing)}") from error
    except OSError as error:
        raise ConfigError(f"{path}: it cannot be read: {error.strerror}") from error
    except ValueError as error:  # the path has a null character
        raise ConfigError(f"{str(path)!r}: it cannot be read: {error}") from error
    if kind != stat.S_IFREG:
        what = "a folder" if kind == stat.S_IFDIR else "not a regular file"
        raise ConfigError(f"{path}: it is {what} (expected {expected})")
    if len(content) > largest:
        raise ConfigError(f"{path}: the file is larger than {largest / 1e6:g} MB{_in_brackets(large)}")
    return content


def _in_brackets(remedy: str) -> str:
    return f" ({remedy})" if remedy else ""
