"""The folder of compiled libraries.

Design: a file's name holds the key of what it was made from and the checksum of its content, so that one rename puts it
there whole, many processes may do so at once, and a damaged file is known before it is loaded. To load a library is to
run its code, so folder and file count only where they are the user's own and nobody else may write to them. A folder
that cannot be used costs a compilation each time, nothing else.
"""

import hashlib
import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path

LIMIT = 200_000_000
"""Most that the folder holds [byte]; what was used longest ago goes first."""

STALE = 3600.0
"""A temporary file older than this was left behind [s]."""

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def folder() -> Path | None:
    """$SERVOCTL_CACHE, else `servoctl` in the user's cache folder; None where the user has none."""
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
    """Why the folder is not used, and what to do; None where it is, or is still to be made."""
    place = folder()
    if place is None:
        return "the user has no home folder (set SERVOCTL_CACHE)"
    try:
        found = place.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{place}: cannot be read: {error.strerror} (set SERVOCTL_CACHE to a folder of your own)"
    if not stat.S_ISDIR(found.st_mode):
        return f"{place}: is no folder (set SERVOCTL_CACHE to a folder of your own)"
    if not _is_own(found):
        return f"{place}: belongs to another user (set SERVOCTL_CACHE to a folder of your own)"
    if found.st_mode & OTHERS_WRITE:
        return f"{place}: other users may write to it (chmod go-w, or set SERVOCTL_CACHE to a folder of your own)"
    return None


def find(key: str) -> Path | None:
    """The library of a key; one that is damaged, or that others may have written, is removed."""
    place = _usable()
    if place is None:
        return None
    for path in sorted(place.glob(f"{key}-*.so")):
        with suppress(OSError):
            if _is_safe(path) and path.stem == f"{key}-{_checksum(path)}":
                with suppress(OSError):
                    os.utime(path)
                return path
        drop(path)
    return None


def put(key: str, built: Path) -> Path:
    """Keeps a library; returns where it is now, which is where it was if it cannot be kept."""
    place = folder()
    if place is None:
        return built
    kept = place / f"{key}-{_checksum(built)}.so"
    temporary = place / f"{kept.stem}.{os.getpid()}.tmp"
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        if refusal() is not None:
            return built
        drop(temporary)
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        shutil.copyfile(built, temporary)
        os.replace(temporary, kept)
    except OSError:
        drop(temporary)
        return built
    _bound(place, kept)
    return kept


def drop(path: Path) -> None:
    """Removes a file, if that is allowed."""
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
        drop(path)
    left = size()
    return before[0] - left[0], before[1] - left[1]


def _usable() -> Path | None:
    return folder() if refusal() is None else None


def _is_own(found: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()


def _is_safe(path: Path) -> bool:
    """Whether a path is a regular file of the user's own that nobody else may write to; a fifo would never end."""
    found = path.lstat()
    return stat.S_ISREG(found.st_mode) and _is_own(found) and not found.st_mode & OTHERS_WRITE


def _entries(place: Path | None) -> list[tuple[float, int, Path]]:
    """Last use, size and path of the folder's own files, those used longest ago first."""
    entries = []
    for path in [] if place is None else [*place.glob("*-*.so"), *place.glob("*-*.tmp")]:
        with suppress(OSError):  # another process removed it
            found = path.lstat()
            entries.append((found.st_mtime, found.st_size, path))
    return sorted(entries)


def _bound(place: Path, kept: Path) -> None:
    """Removes what was left behind, and what was used longest ago, until the rest fits."""
    entries = _entries(place)
    total = sum(entry[1] for entry in entries)
    for used, length, path in entries:
        left_behind = path.suffix == ".tmp" and time.time() - used > STALE
        if path != kept and (left_behind or (total > LIMIT and path.suffix != ".tmp")):
            drop(path)
            total -= length


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]
