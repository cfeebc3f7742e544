"""The folder of compiled libraries.

Design: a file's name holds the key of what it was made from and the checksum of its content, so that one rename puts it
there whole, many processes may do so at once, and a damaged file is known before it is loaded. A folder that cannot be
written costs a compilation each time, nothing else.
"""

import hashlib
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

LIMIT = 200_000_000
"""Most that the folder holds [byte]; what was used longest ago goes first."""

STALE = 3600.0
"""A temporary file older than this was left behind [s]."""


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


def find(key: str) -> Path | None:
    """The library of a key; a damaged one is removed."""
    place = folder()
    if place is None:
        return None
    for path in sorted(place.glob(f"{key}-*.so")):
        with suppress(OSError):
            if path.stem == f"{key}-{_checksum(path)}":
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


def _entries(place: Path | None) -> list[tuple[float, int, Path]]:
    """Last use, size and path of the folder's own files, those used longest ago first."""
    entries = []
    for path in [] if place is None else [*place.glob("*-*.so"), *place.glob("*-*.tmp")]:
        with suppress(OSError):  # another process removed it
            found = path.stat()
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
