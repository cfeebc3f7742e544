"""Reads a run folder, also of a run that still goes on or was killed."""

import contextlib
import zipfile
import zlib
from collections.abc import Callable, Container
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from servoctl.errors import RunFolderError
from servoctl.run_folder import metadata
from servoctl.run_folder.files import CONTINUATION, DRAWING, FILES, STREAM, SUMMARY, TABLE, from_arrow
from servoctl.run_folder.trajectory import ALWAYS, SOMETIMES, Trajectory
from servoctl.types import Array, Status

Keep = Callable[[str, Array], Array | None]
"""Name and values of a column -> the values to keep; None: the column is left out."""


def load_run(folder: str | PathLike[str], keep: Keep = lambda name, values: values) -> Trajectory:
    """Reads all rows of a run folder that are on disk, also of a run that still goes on or was killed.

    Args:
        folder: The run folder.
        keep: Receives one column at a time and returns the values to keep, for runs larger than the memory.

    Raises:
        RunFolderError: The folder does not exist, holds no run, or has a damaged file.
    """
    folder = Path(folder)
    try:
        if not folder.is_dir():
            why = "is a file (give the run folder)" if folder.exists() else "no such folder (check the path)"
            raise RunFolderError(f"{folder}: {why}")
        present = {name for name in FILES if (folder / name).is_file()}
        if not present & {SUMMARY, TABLE, STREAM}:
            raise RunFolderError(
                f"{folder}: not a run folder (which has {SUMMARY} and {TABLE}, or {STREAM} while the run goes on)"
            )
        summary = read_summary(folder) if SUMMARY in present else {}
        values = {key: summary[key] for key in (*ALWAYS, *SOMETIMES, "events") if key in summary}
        if TABLE in present:
            columns, stored, units = _read(folder / TABLE, keep)
            values |= stored
        elif STREAM in present:
            columns, stored, units = _read(folder / STREAM, keep)
            values = stored | values  # those of the stream were written at the start of the run
        else:
            columns, units = {}, {}
        drawing = _read_drawing(folder / DRAWING) if DRAWING in present else {}
    except RunFolderError:
        raise
    except OSError as error:
        raise RunFolderError(f"{folder}: cannot be read: {error.strerror or error} (check its permissions)") from error
    return Trajectory(columns, units, values, drawing)


def _read(path: Path, keep: Keep) -> tuple[dict[str, Array], dict[str, Any], dict[str, str]]:
    """Columns, metadata and units of a table."""
    import pyarrow as pa

    columns: dict[str, Array] = {}
    try:
        schema, column = _of_parquet(path) if path.name == TABLE else _of_stream(path)
        for name in schema.names:
            if (kept := keep(name, from_arrow(column(name)))) is not None:
                columns[name] = kept
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        has_stream = path.name == TABLE and path.with_name(STREAM).exists()
        remedy = f"delete it to load {STREAM} instead" if has_stream else "restore it from a copy, or run again"
        raise RunFolderError(f"{path}: is damaged: {str(error).splitlines()[0]} ({remedy})") from error
    for name, values in columns.items():
        if values.dtype.kind not in "iuf":
            raise RunFolderError(
                f"{path}: column {name}: expected numbers, got {values.dtype} (restore it from a copy, or run again)"
            )
    if columns and "t" not in columns:
        raise RunFolderError(f"{path}: column t is missing (restore it from a copy, or run again)")
    parts = schema.metadata or {}
    stored, units, statuses = (
        metadata.decoded(parts.get(f"servoctl.{key}".encode(), b"")) for key in ("run", "units", "status")
    )
    if "status" in columns and statuses:
        columns["status"] = _current_codes(path, columns["status"], metadata.statuses(path, statuses))
    return columns, metadata.checked(path, stored), metadata.units(path, units)


def read_summary(folder: Path) -> dict[str, Any]:
    """`summary.json` without its nulls; empty if it is damaged.

    Raises:
        RunFolderError: A value has a kind that no version of servoctl writes.
        OSError: The file cannot be read.
    """
    path = folder / SUMMARY
    return metadata.checked(path, metadata.decoded(path.read_bytes()), metadata.SUMMARY)


def _of_parquet(path: Path) -> tuple[Any, Callable[[str], Any]]:
    """The schema, and a function that reads a column."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    return file.schema_arrow, lambda name: file.read([name])[name]


def _of_stream(path: Path) -> tuple[Any, Callable[[str], Any]]:
    """The same of all complete batches: a killed process may leave the last batch, or the header, incomplete."""
    import pyarrow as pa

    with open(path, "rb") as raw:
        start = raw.read(8)
    length = int.from_bytes(start[4:], "little")
    if CONTINUATION.startswith(start[:4]) and (len(start) < 8 or path.stat().st_size < 8 + length):
        return pa.schema([]), pa.table({}).column
    stream, batches = pa.ipc.open_stream(pa.memory_map(str(path))), list[Any]()
    with contextlib.suppress(pa.ArrowException, OSError, EOFError):
        batches.extend(stream)
    return stream.schema, pa.Table.from_batches(batches, stream.schema).column


def _current_codes(path: Path, codes: Array, statuses: dict[int, str]) -> Array:
    """The status codes of this version, from the names that the file stores with its codes."""
    out = codes.copy()
    for code, name in statuses.items():
        if name in Status.__members__:
            out[codes == code] = Status[name].code
        elif np.any(codes == code):
            raise RunFolderError(f"{path}: status: {name} is unknown to this version (update servoctl)")
    return out


def _read_drawing(path: Path) -> dict[str, Array]:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            drawing = {name: np.asarray(array) for name, array in arrays.items()}
        for name, array in drawing.items():
            _check_drawn(name, array, drawing)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise RunFolderError(f"{path}: is damaged: {error} (delete it to load the run without it)") from error
    return drawing


ANY, SOME, SPACE = range(10**9), range(1, 10**9), (2, 3)  # lengths of an axis


def _check_drawn(name: str, array: Array, drawing: dict[str, Array]) -> None:
    """Raises ValueError if an array does not fit its drawing, see `Trajectory.drawing`."""
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name}: expected numbers, got {array.dtype}")
    frames = drawing["t"].size if "t" in drawing else 0
    kind, dot, frame = name.partition(".")
    by_kind: dict[str, list[Container[int]]] = {
        "t": [(frames,)], "energy": [(frames,)], "task.": [ANY, SPACE], "solid.": [ANY, (3,)], "faces.": [ANY, (5,)],
        "pose.": [(frames,), (12,)], "axes.": [(frames,), (12,)], "shape.": [(frames,), (7,)], "obstacle.": [(7,)],
        "enclosure.": [(7,)],
    }  # fmt: skip
    lengths = by_kind.get(kind + dot, [(frames,), SOME, SPACE])
    good = array.ndim == len(lengths) and all(n in fitting for n, fitting in zip(array.shape, lengths, strict=True))
    if kind + dot == "solid.":
        good = good and {f"faces.{frame}", f"pose.{frame}"} <= drawing.keys()
    if kind + dot == "faces.":  # four indices of points and a colour
        points = len(drawing.get(f"solid.{frame}", ()))
        good = good and array.dtype.kind in "iu" and bool((array >= 0).all() and (array[:, :4] < points).all())
    if not good:
        raise ValueError(f"{name}: unexpected shape {array.shape} for {frames} frames")
