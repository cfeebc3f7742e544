"""Names of the files in a run folder, writing them whole, and what stands at the ends of an Arrow stream."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from servoctl.errors import ConfigError, RunFolderError
from servoctl.types import Array

CONFIG, SUMMARY, DRAWING = "config.yaml", "summary.json", "drawing.npz"
STREAM, TABLE = "trajectory.arrows", "trajectory.parquet"
FILES = (SUMMARY, CONFIG, STREAM, TABLE, DRAWING, "can.blf", "events.jsonl")

END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
CONTINUATION = b"\xff\xff\xff\xff"

_PLAIN = {"double": np.dtype(np.float64), "int64": np.dtype(np.int64)}
"""Arrow types whose buffers are NumPy's. Arrow's own conversions import pandas where there is one: half a second."""


def replace(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file so that it is there in full or not at all."""
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
    """A folder for what many runs give, made where it is missing.

    Raises:
        ConfigError: The files of a single run would be overwritten.
        RunFolderError: The folder cannot be made.
    """
    place = Path(folder)
    held = [name for name in (TABLE, STREAM) if (place / name).exists()]
    if held:
        raise ConfigError(f"--out {folder}: holds a run ({held[0]}; choose another place)")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(place, error) from error
    return place


def unwritable(place: Path, error: OSError) -> RunFolderError:
    """That a folder cannot be written, as a person reads it."""
    why = error.strerror or error
    return RunFolderError(f"{place}: cannot be written: {why} (free the place, or choose another)")


def to_arrow(values: Array) -> Any:
    """An array as Arrow's."""
    import pyarrow as pa

    for name, dtype in _PLAIN.items():
        if values.dtype == dtype:
            kind = pa.float64() if name == "double" else pa.int64()
            return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values.tobytes())])
    return pa.array(values)


def arrays_of(table: Any) -> dict[str, Array]:
    """The columns of an Arrow table, copied."""
    return {name: _array(column) for name, column in zip(table.column_names, table.columns, strict=True)}


def _array(column: Any) -> Array:
    dtype = _PLAIN.get(str(column.type))
    if dtype is None or column.null_count:
        return np.array(column.to_numpy())
    parts = [
        np.frombuffer(chunk.buffers()[1], dtype, len(chunk), chunk.offset * dtype.itemsize)
        for chunk in column.chunks
        if len(chunk)
    ]
    return np.concatenate([np.empty(0, dtype), *parts])
