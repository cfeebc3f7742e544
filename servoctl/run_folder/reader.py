"""Reading a run folder, also one whose run is still going on or was killed."""

import contextlib
import zipfile
import zlib
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from servoctl.errors import RunFolderError
from servoctl.run_folder import metadata
from servoctl.run_folder.files import CONTINUATION, DRAWING, FILES, STREAM, SUMMARY, TABLE, arrays_of
from servoctl.run_folder.trajectory import SAID, SAID_SOMETIMES, Trajectory
from servoctl.types import Array, Status

Keep = Callable[[str, Array], Array | None]
"""What becomes of a column that is read, by its name; None: it is left out."""


def load_run(folder: str | PathLike[str], keep: Keep | None = None) -> Trajectory:
    """Reads a run folder, also one whose run still goes on or was killed: all rows that reached the disk.

    Args:
        folder: The run folder.
        keep: Takes one whole column at a time and returns what is kept of it, for runs that do not fit into memory;
            None keeps all.

    Raises:
        RunFolderError: There is no such folder, it holds no run, or a file in it is damaged.
    """
    folder = Path(folder)
    try:
        if not folder.is_dir():
            what = "is a file (give the run folder)" if folder.exists() else "no such folder (check the path)"
            raise RunFolderError(f"{folder}: {what}")
        present = {name for name in FILES if (folder / name).is_file()}
        if not present & {SUMMARY, TABLE, STREAM}:
            raise RunFolderError(
                f"{folder}: not a run folder (which has {SUMMARY} and {TABLE}, or {STREAM} while the run goes on)"
            )
        summary = read_summary(folder) if SUMMARY in present else {}
        said = {key: summary[key] for key in (*SAID, *SAID_SOMETIMES, "events") if key in summary}
        if TABLE in present:
            columns, own, units = _read(folder / TABLE, _open_parquet, keep)
            said |= own
        elif STREAM in present:
            columns, own, units = _read(folder / STREAM, _open_stream, keep)
            said = own | said  # the stream's own were written at the start of the run
        else:
            columns, units = {}, {}
        drawing = _read_drawing(folder / DRAWING) if DRAWING in present else {}
    except RunFolderError:
        raise
    except OSError as error:
        raise RunFolderError(f"{folder}: cannot be read: {error.strerror or error} (check its permissions)") from error
    return Trajectory(columns, units, said, drawing)


def _read(
    path: Path, opened: Callable[[Path], Any], keep: Keep | None
) -> tuple[dict[str, Array], dict[str, Any], dict[str, str]]:
    """Columns, what the run says of itself, and units."""
    import pyarrow as pa

    try:
        with opened(path) as (schema, read):
            columns = arrays_of(read(None)) if keep is None else _kept(schema.names, read, keep)
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        other = path.name == TABLE and path.with_name(STREAM).exists()
        remedy = f"delete it to load {STREAM} beside it" if other else "restore it from a copy, or run again"
        raise RunFolderError(f"{path}: is damaged: {str(error).splitlines()[0]} ({remedy})") from error
    for name, values in columns.items():
        if values.dtype.kind not in "iuf":
            raise RunFolderError(
                f"{path}: column {name}: expected numbers, got {values.dtype} (restore it from a copy, or run again)"
            )
    if columns and "t" not in columns:
        raise RunFolderError(f"{path}: column t is missing (restore it from a copy, or run again)")
    parts = schema.metadata or {}
    said, units, statuses = (
        metadata.decoded(parts.get(f"servoctl.{key}".encode(), b"")) for key in ("run", "units", "status")
    )
    if "status" in columns and statuses:
        columns["status"] = _our_codes(path, columns["status"], metadata.statuses(path, statuses))
    return columns, metadata.checked(path, said), metadata.units(path, units)


def read_summary(folder: Path) -> dict[str, Any]:
    """`summary.json` without what is null; empty where it is damaged.

    Raises:
        RunFolderError: A value in it is of another kind than any version of servoctl writes.
        OSError: It cannot be read.
    """
    path = folder / SUMMARY
    summary = metadata.decoded(path.read_bytes())
    return metadata.checked(path, summary, {**metadata.KINDS, **metadata.METRIC_GROUPS})


def _kept(names: list[str], read: Callable[[list[str] | None], Any], keep: Keep) -> dict[str, Array]:
    """One column in memory at a time."""
    kept = {name: keep(name, arrays_of(read([name]))[name]) for name in names}
    return {name: x for name, x in kept.items() if x is not None}


@contextlib.contextmanager
def _open_parquet(path: Path) -> Iterator[tuple[Any, Callable[[list[str] | None], Any]]]:
    """The schema, and what reads some columns or all."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        yield file.schema_arrow, lambda names: file.read(names)


@contextlib.contextmanager
def _open_stream(path: Path) -> Iterator[tuple[Any, Callable[[list[str] | None], Any]]]:
    """All complete batches; a killed process may have left the last one, or the header, cut off."""
    import pyarrow as pa

    with open(path, "rb") as raw:
        start = raw.read(8)
    length = int.from_bytes(start[4:], "little")
    if CONTINUATION.startswith(start[:4]) and (len(start) < 8 or path.stat().st_size < 8 + length):
        yield pa.schema([]), lambda names: pa.table({})
        return
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
        batches: list[Any] = []
        with contextlib.suppress(pa.ArrowException, OSError, EOFError):
            batches.extend(stream)
        table = pa.Table.from_batches(batches, stream.schema)
        yield stream.schema, lambda names: table if names is None else table.select(names)


def _our_codes(path: Path, codes: Array, statuses: dict[int, str]) -> Array:
    """The codes in today's order of severity; the file's own dictionary says what they were when it was written."""
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
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise RunFolderError(f"{path}: is damaged: {error} (delete it to load the run without it)") from error
    problem = _unlike_a_drawing(drawing)
    if problem is not None:
        raise RunFolderError(f"{path}: is damaged: {problem} (delete it to load the run without it)")
    return drawing


def _unlike_a_drawing(drawing: dict[str, Array]) -> str | None:
    """What is wrong with the arrays of a drawing, as `Trajectory.drawing` describes them."""
    frames = drawing["t"].size if "t" in drawing else 0
    for name, array in drawing.items():
        if array.dtype.kind not in "iuf":
            return f"{name}: expected numbers, got {array.dtype}"
        if name in ("t", "energy"):
            good = array.shape == (frames,)
        elif name.startswith("task."):
            good = array.ndim == 2 and array.shape[1] in (2, 3)
        else:
            good = array.ndim == 3 and array.shape[0] == frames and array.shape[1] > 0 and array.shape[2] in (2, 3)
        if not good:
            return f"{name}: unexpected shape {array.shape} for {frames} frames"
    return None
