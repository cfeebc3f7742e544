"""Names of the files in a run folder, safe replacement of a file, and conversion between Arrow and NumPy."""

import json
import os
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from servoctl.errors import ConfigError, WriteError
from servoctl.types import Array

CONFIG, SUMMARY, DRAWING = "config.yaml", "summary.json", "drawing.npz"
STREAM, TABLE = "trajectory.arrows", "trajectory.parquet"
FILES = (SUMMARY, CONFIG, STREAM, TABLE, DRAWING, "can.blf", "events.jsonl")

END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
CONTINUATION = b"\xff\xff\xff\xff"

Writer = Callable[[BinaryIO], object]
"""Writes the content of a file."""


def replace(path: Path, write: Writer) -> None:
    """Writes a file in full or not at all: into a temporary file, which is synchronised and renamed."""
    part = path.with_name(f".{path.name}.part")
    try:
        with open(part, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def study_folder(folder: str | os.PathLike[str]) -> Path:
    """A folder for the results of many runs; created if it is missing.

    Raises:
        ConfigError: The folder holds a single run, whose files would be overwritten.
        RunFolderError: The folder cannot be created.
    """
    path = Path(folder)
    for name in (TABLE, STREAM):
        if (path / name).exists():
            raise ConfigError(f"--out {folder}: holds a run ({name}; choose another folder)")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error
    return path


def write_files(folder: Path, files: Iterable[tuple[str, Writer | bytes]]) -> list[str]:
    """Writes files by name, in order; each in full or not at all. Their folders are created if they are missing.

    Args:
        files: Name of a file, and its content or what writes it.

    Returns:
        Names of the files; a folder inside once, for all files in it.

    Raises:
        RunFolderError: A file cannot be written.
    """
    names: dict[str, None] = {}
    for name, content in files:
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace(path, partial(_write, content))
        except OSError as error:
            raise unwritable(path, error) from error
        below, slash, _ = name.rpartition("/")
        names[below + slash or name] = None
    return list(names)


def _write(content: Writer | bytes, file: BinaryIO) -> None:
    if callable(content):
        content(file)
    else:
        file.write(content)


def save_study(folder: Path, config: str, summary: dict[str, Any], files: Iterable[tuple[str, Writer]]) -> list[str]:
    """Writes the results of many runs, as `write_files` does: the config, the files, and last the summary.

    Returns:
        Names of the files, without the config.
    """
    last = json.dumps(summary, indent=2) + "\n"
    _, *names = write_files(folder, chain([(CONFIG, config.encode())], files, [(SUMMARY, last.encode())]))
    return names


def unwritable(path: Path, error: Exception) -> WriteError:
    """The error of a file or folder that cannot be written."""
    why = getattr(error, "strerror", None) or error
    return WriteError(f"{path}: cannot be written: {why} (free disk space, or choose another folder)")


def lock(file: int | BinaryIO, message: str) -> None:
    """Locks a file or folder until it is closed, where the system has such locks.

    Raises:
        WriteError: Another program has locked it; with this message.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise WriteError(message) from error
    except (ImportError, OSError):  # Windows, or a file system without locks
        return


def to_arrow(values: Array) -> Any:
    """Numbers as an Arrow array, from their bytes: Arrow's own conversions import pandas, which takes half a second."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values.tobytes())])


def from_arrow(column: Any) -> Array:
    """A copy of an Arrow column, from its bytes if it has numbers alone."""
    import pyarrow as pa

    kind = column.type
    if column.null_count or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return np.array(column.to_numpy())
    dtype = np.dtype(kind.to_pandas_dtype())
    parts = [
        np.frombuffer(chunk.buffers()[1], dtype, len(chunk), chunk.offset * dtype.itemsize)
        for chunk in column.chunks
        if len(chunk)
    ]
    return np.concatenate([np.empty(0, dtype), *parts])
