"""Writes the files of a run folder that are written in one piece: summary, drawing and table."""

import contextlib
import dataclasses
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from servoctl.errors import RunFolderError
from servoctl.run_folder.files import DRAWING, STREAM, SUMMARY, TABLE, from_arrow, replace, unwritable
from servoctl.run_folder.reader import decoded, load_run
from servoctl.run_folder.trajectory import Trajectory
from servoctl.run_folder.values import plain
from servoctl.types import Array, Status


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns errors of the system and of Arrow during a write into RunFolderError."""
    import pyarrow as pa

    try:
        yield
    except RunFolderError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise unwritable(getattr(error, "filename", None) or path, error) from error


def write_summary(path: Path, trajectory: Trajectory) -> None:
    """Writes `summary.json`.

    Raises:
        OSError: It cannot be written.
    """
    text = json.dumps(trajectory.summary(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    replace(path / SUMMARY, lambda file: file.write(text.encode()))


def ended_by(error: BaseException) -> dict[str, Any]:
    """Status and error of a run that this exception ends."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return {"status": "interrupted"}
    why = str(error) if isinstance(error, RunFolderError) else f"{type(error).__name__}: {error}"
    return {"status": "failed", "error": why}


def say_end(folder: Path, metadata: dict[str, Any], units: dict[str, str] | None = None) -> None:
    """Writes the end of a run into `summary.json` when its folder cannot be closed; never raises.

    The rows stay where they are; the metrics are those of the readable rows. On a full disk the summary of the start
    stays, with the new status.

    Args:
        folder: The run folder.
        metadata: Metadata of the run at its end, including `status` and `error`.
        units: Column -> unit; None: those in the folder.
    """
    try:
        run = load_run(folder)
    except Exception:  # however damaged the folder is, its end can still be written
        run = Trajectory({}, units or {}, {})
    run = dataclasses.replace(run, metadata=run.metadata | metadata)
    with contextlib.suppress(OSError, ValueError, LookupError):
        try:
            write_summary(folder, run)
        except OSError:
            _say_status(folder / SUMMARY, metadata)
            raise


def _say_status(path: Path, end: dict[str, Any]) -> None:
    """Overwrites a summary in place: what it says, with the status of the end, and its error if there is room."""
    size, known = path.stat().st_size, {key: value for key, value in decoded(path.read_bytes()).items() if value}
    for keys in (("status", "error"), ("status",)):
        text = json.dumps(known | {key: end[key] for key in keys if key in end}, ensure_ascii=False).encode()
        if len(text) <= size:
            with open(path, "r+b", buffering=0) as file:
                file.write(text.ljust(size, b"\n"))
            return


def write_drawing(folder: Path, drawing: dict[str, Array]) -> None:
    """Writes the drawing of a run into its folder.

    Args:
        folder: The run folder.
        drawing: See `Trajectory.drawing`.

    Raises:
        RunFolderError: The drawing cannot be written.
    """
    with writing(folder):
        replace(folder / DRAWING, lambda file: _write_arrays(file, drawing))


def _write_arrays(file: BinaryIO, arrays: dict[str, Array]) -> None:
    """Writes the format of `numpy.savez_compressed`, which reserves some names; here any name is allowed."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def write_table(folder: Path, metadata: dict[bytes, bytes]) -> dict[str, Array]:
    """Converts the stream to Parquet; returns its columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pa.memory_map(str(folder / STREAM)) as file, pa.ipc.open_stream(file) as stream:
        table = stream.read_all().replace_schema_metadata(metadata)
        replace(folder / TABLE, lambda out: pq.write_table(table, out, compression="zstd", use_dictionary=False))
        return {name: from_arrow(table[name]) for name in table.column_names}


def schema_metadata(metadata: dict[str, Any], units: dict[str, str]) -> dict[bytes, bytes]:
    """Units, statuses and metadata of the run, in the form that is stored with the columns."""
    statuses = {str(status.code): [status.name, status.value] for status in Status}
    parts = {"run": plain(metadata), "units": plain(units), "status": statuses}
    return {
        f"servoctl.{key}".encode(): json.dumps(part, ensure_ascii=False, allow_nan=False).encode()
        for key, part in parts.items()
    }
