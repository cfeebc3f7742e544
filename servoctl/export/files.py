"""Writes an export without overwriting a user's work.

Design: the first line of a file has a digest of the rest. A file without it, or changed since, is never replaced. An
unchanged file of an earlier export is replaced on request.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from servoctl.errors import ConfigError

_MARK = "written by servoctl export; an edited file is not replaced; digest {}"
_MARKED = re.compile(r"(?:/\*|#) " + _MARK.format("([0-9a-f]{16})") + r"(?: \*/)?\n")


def write(texts: Mapping[str, str], folder: Path, force: bool = False) -> list[Path]:
    """Writes files, all or none, and returns their paths.

    Args:
        texts: File name -> content.
        folder: Where to write; made if it does not exist.
        force: Whether unchanged files of an earlier export are replaced.

    Raises:
        ConfigError: A file exists that may not be replaced, or the folder cannot be written.
    """
    paths = {folder / name: _marked(name, text) for name, text in texts.items()}
    try:
        refused = [reason for path, text in paths.items() if (reason := _refusal(path, text, force))]
        if refused:
            raise ConfigError(refused)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".servoctl-", dir=folder) as fresh:
            for path, text in paths.items():
                (Path(fresh) / path.name).write_text(text, encoding="utf-8", newline="\n")
            for path in paths:
                os.replace(Path(fresh) / path.name, path)
    except OSError as error:
        why = f"--out: {error.filename or folder}: cannot be written: {error.strerror or error}"
        raise ConfigError(f"{why} (free disk space, or choose another --out)") from error
    return list(paths)


def _marked(name: str, text: str) -> str:
    mark = _MARK.format(_digest(text))
    return (f"/* {mark} */\n" if name.endswith((".c", ".h")) else f"# {mark}\n") + text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _refusal(path: Path, text: str, force: bool) -> str | None:
    """Why a file may not be written; None if it may."""
    if not path.exists() and not path.is_symlink():
        return None
    if not path.is_file() or path.is_symlink():
        return f"{path}: is there already, and is no file of an export (choose another --out)"
    there = path.read_bytes().decode("utf-8", "replace")
    if there == text:
        return None
    mark = _MARKED.match(there)
    if mark is None:
        return f"{path}: is there already, and was not written by servoctl export (choose another --out)"
    if mark[1] != _digest(there[mark.end() :]):
        return f"{path}: was changed since it was exported (move it away, or choose another --out)"
    return None if force else f"{path}: an earlier export is there (--force replaces it, or choose another --out)"
