"""Writes a run folder while the run goes on: rows into an Arrow stream, which becomes Parquet at the end.

Summary, drawing and table are written in one piece.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import weakref
import zipfile
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np

from servoctl.errors import RunFolderError, WriteError
from servoctl.run_folder.files import (
    CONFIG,
    DRAWING,
    END_OF_STREAM,
    FILES,
    STREAM,
    SUMMARY,
    TABLE,
    from_arrow,
    lock,
    replace,
    to_arrow,
    unwritable,
)
from servoctl.run_folder.metrics import plain
from servoctl.run_folder.reader import decoded, load_run
from servoctl.run_folder.trajectory import Trajectory
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


def claim(path: Path) -> contextlib.ExitStack:
    """Makes the folder for one run alone, until the result is closed; an earlier run in this place is moved aside.

    Raises:
        WriteError: Another run is being written there.
        RunFolderError: The folder is not that of a run, or must not be moved.
    """
    while True:
        path.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as held:
            if os.name == "posix":
                folder = os.open(path, os.O_RDONLY)
                held.callback(os.close, folder)
                lock(folder, f"{path}: another run is being written there (choose another folder, or wait for its end)")
                if not os.path.samestat(os.stat(path), os.fstat(folder)):
                    continue  # another run has just moved it aside
            if not _moved_aside(path):
                return held.pop_all()


def _moved_aside(path: Path) -> bool:
    """Moves a folder that holds a run to the first free of `<path>.1`, `<path>.2`, ...; False: it holds none."""
    there = [name for name in FILES if (path / name).exists()]
    if not there:
        return False
    if there == [CONFIG]:  # a user's own folder: a run writes its summary first
        raise RunFolderError(f"{path}: holds no run, but a {CONFIG}, which a run would replace (choose another folder)")
    if Path.cwd().is_relative_to(path):
        raise RunFolderError(f"{path}: holds a run, and is or contains the working folder (choose another folder)")
    names = (path.with_name(f"{path.name}.{number}") for number in itertools.count(1))
    path.rename(next(name for name in names if not os.path.lexists(name)))
    return True


class RunFolder:
    """Writes a run while it goes on; a context manager.

    The folder begins with `summary.json` (`status: running`) and `config.yaml`. An earlier run in this place is moved
    to the first free of `<path>.1`, `<path>.2`, ... An exception inside the context closes the folder with status
    `failed`, Ctrl-C with status `interrupted`.

    Args:
        path: The folder; its parents are created too.
        config_text: The config as it runs, with all defaults.
        metadata: What is known of the run at its start: see `Trajectory.metadata`.
        units: Column -> unit.

    Raises:
        RunFolderError: The path is a file, cannot be written, or is that of a run that goes on.
    """

    def __init__(
        self, path: str | PathLike[str], config_text: str, metadata: dict[str, Any], units: dict[str, str]
    ) -> None:
        self.path = Path(os.path.abspath(path))
        self._metadata = metadata | {"status": "running"}
        self._units = dict(units)
        self._columns: dict[str, np.dtype[Any]] = {}
        self._unwritten: list[Any] = []  # batches that are not in the stream
        self._stream: BinaryIO | None = None
        self._closed = False
        with writing(self.path):
            if self.path.exists() and not self.path.is_dir():
                raise WriteError(f"{self.path}: is a file (give the name of a folder)")
            self._release = weakref.finalize(self, claim(self.path).close)
            write_summary(self.path, Trajectory({}, self._units, self._metadata))
            try:
                replace(self.path / CONFIG, lambda file: file.write(config_text.encode()))
            except OSError as error:
                self.give_up({"status": "failed", "error": f"{CONFIG}: cannot be written: {error.strerror or error}"})
                raise

    def append(self, columns: dict[str, Array]) -> None:
        """Writes rows.

        Args:
            columns: Name -> values, shape (rows,) or scalar; the same names each time. The first call sets the types.

        Raises:
            RunFolderError: The folder is closed or gone, or the rows cannot be written; the next call tries it again.
        """
        import pyarrow as pa

        if self._closed:
            raise RunFolderError(f"{self.path}: append: the folder is closed")
        if not columns:
            return
        rows = {name: np.array(x, ndmin=1) for name, x in columns.items()}
        self._columns = self._columns or {name: x.dtype for name, x in rows.items()}
        arrays = [to_arrow(rows[name].astype(kind, casting="same_kind")) for name, kind in self._columns.items()]
        self._unwritten.append(pa.record_batch(arrays, names=list(self._columns)))
        self._write()

    def close(
        self, trajectory_metadata: dict[str, Any] | None = None, drawing: dict[str, Array] | None = None
    ) -> Trajectory:
        """Converts the stream to Parquet, and writes the drawing, if there is one, and the final summary.

        Args:
            trajectory_metadata: Metadata known at the end of the run, added to those of its start; `status` is
                `completed` if it is not among them.
            drawing: See `Trajectory.drawing`.

        Raises:
            RunFolderError: A file cannot be written; the rows are then still in the stream.
        """
        if self._closed:
            raise RunFolderError(f"{self.path}: close: the folder is closed")
        self._write()
        metadata = self._metadata | {"status": "completed"} | (trajectory_metadata or {})
        columns: dict[str, Array] = {}
        with writing(self.path):
            if self._stream is not None:
                if not self._stream.closed:
                    self._stream.write(END_OF_STREAM)
                    self._stream.close()
                columns = write_table(self.path, schema_metadata(metadata, self._units))
            trajectory = Trajectory(columns, self._units, metadata, drawing or {})
            if drawing:
                write_drawing(self.path, drawing)
            write_summary(self.path, trajectory)
            (self.path / STREAM).unlink(missing_ok=True)
        self._closed = True
        self._release()
        return trajectory

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed:
            return
        if error is None:
            self.close()
            return
        end = ended_by(error)
        try:
            self.close(end)
        except RunFolderError as second:  # this error must not hide the first one
            error.add_note(f"the run folder could not be closed: {second}")
            self.give_up(end)

    def give_up(self, trajectory_metadata: dict[str, Any]) -> None:
        """Writes the end of the run into the summary when the folder cannot be closed; never raises.

        Args:
            trajectory_metadata: As for `close`, including `status`.
        """
        if self._stream is not None:
            self._stream.close()
        say_end(self.path, self._metadata | trajectory_metadata, self._units)
        self._release()

    def _write(self) -> None:
        """Writes the batches that are not in the stream yet, all of them or none."""
        with writing(self.path):
            if not self.path.is_dir():  # a run without a folder ends now: its rows would be lost
                raise WriteError(f"{self.path}: the folder was moved or deleted during the run")
            parts = [memoryview(batch.serialize()) for batch in self._unwritten]
            if parts and self._stream is None:
                self._stream = open(self.path / STREAM, "xb", buffering=0)  # noqa: SIM115 (open for the whole run)
            if not parts or self._stream is None:
                return
            size = self._stream.tell()
            if size == 0:
                schema = self._unwritten[0].schema.with_metadata(schema_metadata(self._metadata, self._units))
                parts.insert(0, memoryview(schema.serialize()))
            batches, self._unwritten = self._unwritten, []
            try:
                for part in parts:
                    while part:
                        part = part[self._stream.write(part) :]
            except BaseException:  # Ctrl-C too: an incomplete batch would hide those behind it
                self._unwritten = batches
                self._stream.truncate(size)
                self._stream.seek(size)
                raise


def save(trajectory: Trajectory, folder: str | PathLike[str], config_text: str = "") -> Path:
    """Writes a run folder; an existing one is moved aside.

    Args:
        trajectory: The run.
        folder: Path of the folder.
        config_text: Content of `config.yaml`.

    Returns:
        The folder.

    Raises:
        RunFolderError: The folder cannot be written.
    """
    with RunFolder(folder, config_text, trajectory.metadata, trajectory.units) as run:
        run.append(trajectory.columns)
        run.close(trajectory.metadata, trajectory.drawing)
    return run.path
