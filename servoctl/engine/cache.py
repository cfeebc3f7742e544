"""Keeps compiled libraries and traced functions in a folder of the user.

Design: a file's name has the key of its source and the checksum of its content. A file appears by one rename, so many
processes may write at once, and a damaged file is detected before it is loaded. Loading a library runs its code, so
folder and file must belong to the user, and nobody else may write to them. Without a usable folder everything is
compiled each time.
"""

import hashlib
import os
import stat
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

LIMIT = 200_000_000  # size limit of the folder [byte]; the least recently used files are removed first
SUFFIXES = (".so", ".trace")  # endings of the files: compiled libraries, and traced functions
STALE = 3600.0  # [s] temporary files older than this are removed

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def folder() -> Path | None:
    """$SERVOCTL_CACHE, else `servoctl` in the user's cache folder; None if the user has no home folder."""
    named = os.environ.get("SERVOCTL_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "servoctl"
    try:
        return Path.home() / ".cache" / "servoctl"
    except RuntimeError:
        return None


def refusal() -> str | None:
    """Why the folder is not used, and what to do; None if it is used, or does not exist yet."""
    path = folder()
    if path is None:
        return "the user has no home folder (set SERVOCTL_CACHE)"
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{path}: cannot be read: {error.strerror} (set SERVOCTL_CACHE to a folder of your own)"
    if not stat.S_ISDIR(status.st_mode):
        return f"{path}: is no folder (set SERVOCTL_CACHE to a folder of your own)"
    if not _is_mine(status):
        return f"{path}: belongs to another user (set SERVOCTL_CACHE to a folder of your own)"
    if status.st_mode & OTHERS_WRITE:
        return f"{path}: other users may write to it (chmod go-w, or set SERVOCTL_CACHE to a folder of your own)"
    return None


class CacheFile(NamedTuple):
    """A file of the folder."""

    path: Path
    content: bytes


def find(key: str, suffix: str = ".so") -> CacheFile | None:
    """The file of a key; None if there is none. Removes files that are damaged, or that others may have written."""
    directory = folder() if refusal() is None else None
    if directory is None:
        return None
    try:
        names = _names_by_key(directory, directory.stat().st_mtime_ns).get(key, ())
    except OSError:  # there is no folder yet
        return None
    for path in (directory / name for name in names if name.endswith(suffix)):
        with suppress(OSError):
            content = path.read_bytes() if _is_safe(path) else None
            if content is not None and path.stem == f"{key}-{_checksum(content)}":
                with suppress(OSError):
                    os.utime(path)
                return CacheFile(path, content)
        drop(path)
    return None


def put(key: str, built: Path) -> Path:
    """Copies a library into the folder; returns the copy, or `built` if the folder cannot be used."""
    return put_bytes(key, built.read_bytes(), ".so") or built


def put_bytes(key: str, content: bytes, suffix: str) -> Path | None:
    """Writes a file into the folder; returns its path, or None if the folder cannot be used."""
    directory = folder()
    if directory is None:
        return None
    kept = directory / f"{key}-{_checksum(content)}{suffix}"
    temporary = directory / f"{kept.stem}.{os.getpid()}.tmp"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if refusal() is not None:
            return None
        drop(temporary)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        os.replace(temporary, kept)
    except OSError:
        drop(temporary)
        return None
    _names_by_key.cache_clear()  # a change within one step of the file system's clock
    _limit_size(directory, kept)
    return kept


def lock_file(key: str) -> Path:
    """Path of a temporary file by which one process at a time works for a key.

    Raises:
        OSError: There is no folder, and none can be made.
    """
    directory = folder()
    if directory is None:
        raise FileNotFoundError("the user has no home folder")
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return directory / f"{key}-lock.tmp"


def drop(path: Path) -> None:
    """Removes a file; does nothing if it cannot."""
    with suppress(OSError):
        path.unlink()


def size() -> tuple[int, int]:
    """Number of files and their size [byte]."""
    entries = _entries(folder())
    return len(entries), sum(entry[1] for entry in entries)


def clear() -> tuple[int, int]:
    """Removes every file; returns the number of those removed and their size [byte]."""
    before = size()
    for _, _, path in _entries(folder()):
        drop(Path(path))
    left = size()
    return before[0] - left[0], before[1] - left[1]


def _is_mine(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def _is_safe(path: Path) -> bool:
    """Whether a path is a regular file of the user that nobody else may write to; reading a pipe would never end."""
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and _is_mine(status) and not status.st_mode & OTHERS_WRITE


def _names(directory: Path) -> list[str]:
    """Names of the files in the folder; pathlib's patterns take three times as long in a large folder."""
    try:
        return os.listdir(directory)
    except OSError:
        return []


@lru_cache(1)
def _names_by_key(directory: Path, changed: int) -> dict[str, list[str]]:
    """Key -> names of its files in the folder as it was changed last [ns]: thousands of names take long to list."""
    names: dict[str, list[str]] = {}
    for name in sorted(_names(directory)):
        names.setdefault(name.partition("-")[0], []).append(name)
    return names


def _entries(directory: Path | None) -> list[tuple[float, int, str]]:
    """Last use, size and path of the files that this module wrote, least recently used first."""
    entries = []
    for name in [] if directory is None else _names(directory):
        if name.endswith((*SUFFIXES, ".tmp")) and "-" in name:
            path = os.path.join(str(directory), name)
            try:
                status = os.lstat(path)
            except OSError:  # another process removed it
                continue
            entries.append((status.st_mtime, status.st_size, path))
    return sorted(entries)


def _limit_size(directory: Path, kept: Path) -> None:
    """Removes old temporary files, and the least recently used files until the rest is within the limit."""
    entries = _entries(directory)
    total = sum(entry[1] for entry in entries)
    for used, length, path in entries:
        temporary = path.endswith(".tmp")
        is_old = temporary and time.time() - used > STALE
        if path != str(kept) and (is_old or (total > LIMIT and not temporary)):
            drop(Path(path))
            total -= length


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
