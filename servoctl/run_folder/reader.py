"""Reading a run folder, also one whose run is still going on or was killed."""

import contextlib
import json
import zipfile
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from servoctl.errors import RunFolderError
from servoctl.run_folder.files import CONTINUATION, DRAWING, FILES, STREAM, SUMMARY, TABLE, arrays_of
from servoctl.trajectory import SAID, SAID_SOMETIMES, Trajectory
from servoctl.types import Array, Status


def load(folder: str | PathLike[str]) -> Trajectory:
    """`Trajectory.load`."""
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
        summary = _decoded((folder / SUMMARY).read_bytes()) if SUMMARY in present else {}
        keys = [key for key in (*SAID, *SAID_SOMETIMES, "events") if summary.get(key) is not None]
        said = {key: summary[key] for key in keys}
        if TABLE in present:
            columns, own, units = _read(folder / TABLE, _read_parquet)
            said |= own
        elif STREAM in present:
            columns, own, units = _read(folder / STREAM, _read_stream)
            said = own | said  # the stream's own were written at the start of the run
        else:
            columns, units = {}, {}
        drawing = _read_drawing(folder / DRAWING) if DRAWING in present else {}
    except RunFolderError:
        raise
    except OSError as error:
        raise RunFolderError(f"{folder}: cannot be read: {error.strerror or error} (check its permissions)") from error
    return Trajectory(columns, units, said, drawing)


def _read(path: Path, read: Callable[[Path], Any]) -> tuple[dict[str, Array], dict[str, Any], dict[str, str]]:
    """Columns, what the run says of itself, and units."""
    import pyarrow as pa

    try:
        table = read(path)
        columns = arrays_of(table)
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        other = path.name == TABLE and path.with_name(STREAM).exists()
        remedy = f"delete it to load {STREAM} beside it" if other else "restore it from a copy, or run again"
        raise RunFolderError(f"{path}: is damaged: {str(error).splitlines()[0]} ({remedy})") from error
    metadata = table.schema.metadata or {}
    said, units, statuses = (
        _decoded(metadata.get(f"servoctl.{key}".encode(), b"")) for key in ("run", "units", "status")
    )
    if "status" in columns and statuses:
        columns["status"] = _our_codes(path, columns["status"], statuses)
    return columns, said, units


def _read_parquet(path: Path) -> Any:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        return file.read()


def _read_stream(path: Path) -> Any:
    """All complete batches; a killed process may have left the last one, or the header, cut off."""
    import pyarrow as pa

    with open(path, "rb") as raw:
        start = raw.read(8)
    length = int.from_bytes(start[4:], "little")
    if CONTINUATION.startswith(start[:4]) and (len(start) < 8 or path.stat().st_size < 8 + length):
        return pa.table({})
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
        batches: list[Any] = []
        with contextlib.suppress(pa.ArrowException, OSError, EOFError):
            batches.extend(stream)
        return pa.Table.from_batches(batches, stream.schema)


def _our_codes(path: Path, codes: Array, statuses: dict[str, Any]) -> Array:
    """The codes in today's order of severity; the file's own dictionary says what they were when it was written."""
    out = codes.copy()
    for code, (name, _) in statuses.items():
        if name in Status.__members__:
            out[codes == int(code)] = Status[name].code
        elif np.any(codes == int(code)):
            raise RunFolderError(f"{path}: status: {name} is unknown to this version (update servoctl)")
    return out


def _decoded(text: bytes) -> dict[str, Any]:
    """A JSON object; empty where it is damaged, since nothing in it is needed to load the rows."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _read_drawing(path: Path) -> dict[str, Array]:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise RunFolderError(f"{path}: is damaged: {error} (delete it to load the run without it)") from error
