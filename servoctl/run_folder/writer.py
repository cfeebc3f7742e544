"""Writing a run folder while the run goes on."""

import contextlib
import dataclasses
import glob
import itertools
import json
import os
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np

from servoctl.errors import RunFolderError
from servoctl.run_folder.files import (
    CONFIG,
    DRAWING,
    END_OF_STREAM,
    FILES,
    STREAM,
    SUMMARY,
    TABLE,
    arrays_of,
    replace,
    to_arrow,
)
from servoctl.run_folder.reader import load_run
from servoctl.run_folder.trajectory import Trajectory, plain
from servoctl.types import Array, Status

FLUSH_INTERVAL = 0.5
"""Longest time that rows wait in memory [s]."""

RESERVE = 2048
"""Room in the first summary [byte]: enough to say, in place, how a run ended on a disk that is full."""


class RunFolder:
    """Writes a run as it goes; use it as a context manager.

    Leaving the context by an exception closes the folder with the status `failed`, or `interrupted` for Ctrl-C.

    Attributes:
        path: The folder.
        moved_to: Where an earlier run at this place is now; None where there was none.
    """

    def __init__(self, path: Path, metadata: dict[str, Any], units: dict[str, str], clock: Callable[[], float]) -> None:
        """Takes over an existing folder; `create` makes one."""
        self.path = path
        self.moved_to: Path | None = None
        self._metadata = metadata | {"status": "running"}
        self._units = dict(units)
        self._clock = clock
        self._flushed = clock()
        self._inode = path.stat().st_ino
        self._columns: dict[str, np.dtype[Any]] = {}
        self._pending: list[dict[str, Array]] = []
        self._stream: BinaryIO | None = None
        self._size = 0  # bytes of the stream up to its last complete batch
        self._timer: threading.Timer | None = None
        self._error: RunFolderError | None = None
        self._lock = threading.RLock()
        self._closed = False

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        config_text: str,
        metadata: dict[str, Any],
        units: dict[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Makes the folder, with `summary.json` (`status: running`) and `config.yaml` in it.

        An earlier run at this place is moved to the first free of `<path>.1`, `<path>.2`, ...

        Args:
            path: The folder; parents are made too.
            config_text: The config as it runs, defaults filled in.
            metadata: What is known of the run beforehand: see `Trajectory.metadata`.
            units: Column -> unit.
            clock: Monotonic time [s].

        Raises:
            RunFolderError: The path is a file, or cannot be written.
        """
        path = Path(os.path.abspath(path))
        with _writing(path):
            if path.exists() and not path.is_dir():
                raise RunFolderError(f"{path}: is a file (give the name of a folder)")
            moved_to = _move_aside(path)
            path.mkdir(parents=True, exist_ok=True)
            folder = cls(path, metadata, units, clock)
            folder.moved_to = moved_to
            _write_summary(path, Trajectory({}, folder._units, folder._metadata), RESERVE)
            try:
                replace(path / CONFIG, lambda file: file.write(config_text.encode()))
            except OSError as error:
                folder.give_up({"status": "failed", "error": f"{CONFIG}: cannot be written: {error.strerror or error}"})
                raise
        return folder

    def append(self, columns: dict[str, Array]) -> None:
        """Takes rows over; they are on disk at the latest `FLUSH_INTERVAL` after the previous flush.

        Args:
            columns: Name -> values, shape (rows,) or scalar. The first call decides names and types.

        Raises:
            RunFolderError: The columns are not those of the first call or differ in length, the folder is closed, or
                rows could not be written.
        """
        with self._lock:
            if self._closed:
                raise RunFolderError(f"{self.path}: append: the folder is closed")
            if self._error is not None:
                raise self._error
            if not columns:
                return
            self._pending.append(self._checked(columns))
            due = self._flushed + FLUSH_INTERVAL - self._clock()
            if due <= 0:
                self._flush()
            elif self._timer is None:  # in case that no further row comes
                self._timer = threading.Timer(due, self._flush_late)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Brings every row to disk now.

        Raises:
            RunFolderError: Rows could not be written.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            self._flush()

    def close(
        self, trajectory_metadata: dict[str, Any] | None = None, drawing: dict[str, Array] | None = None
    ) -> Trajectory:
        """Turns the stream into Parquet, and writes the drawing, if there is one, and the final summary.

        Args:
            trajectory_metadata: What the run says of itself at the end, on top of what was known at its start;
                `status` is `completed` where it does not say.
            drawing: As in `Trajectory.drawing`.

        Raises:
            RunFolderError: A file cannot be written; the rows are then still in the stream.
        """
        with self._lock, _writing(self.path):
            if self._closed:
                raise RunFolderError(f"{self.path}: close: the folder is closed")
            self._flush()
            self._follow()
            metadata = self._metadata | {"status": "completed"} | (trajectory_metadata or {})
            columns: dict[str, Array] = {}
            if self._stream is not None:
                if not self._stream.closed:
                    self._stream.write(END_OF_STREAM)
                    self._stream.close()
                columns = _write_table(self.path, _schema_metadata(metadata, self._units))
            trajectory = Trajectory(columns, self._units, metadata, drawing or {})
            if drawing:
                write_drawing(self.path, drawing)
            _write_summary(self.path, trajectory)
            (self.path / STREAM).unlink(missing_ok=True)
            self._closed = True
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
        why = str(error) if isinstance(error, RunFolderError) else f"{type(error).__name__}: {error}"
        end = {"status": "failed", "error": why}
        if isinstance(error, KeyboardInterrupt | SystemExit):
            end = {"status": "interrupted"}
        try:
            self.close(end)
        except RunFolderError as second:  # must not hide the first
            error.add_note(f"the run folder could not be closed: {second}")
            self.give_up(end)

    def give_up(self, trajectory_metadata: dict[str, Any]) -> None:
        """Says in the summary how the run ended where the folder cannot be finished; never raises.

        Args:
            trajectory_metadata: As of `close`, with its `status`.
        """
        with contextlib.suppress(OSError):
            self._follow()
        say_end(self.path, self._metadata | trajectory_metadata, self._units)

    def _checked(self, columns: dict[str, Array]) -> dict[str, Array]:
        """Copies of the columns, since the caller may use its arrays again."""
        rows = {name: np.array(x, ndmin=1) for name, x in columns.items()}
        types = self._columns or {name: x.dtype for name, x in rows.items()}
        if rows.keys() != types.keys():
            wrong = ", ".join(sorted(rows.keys() ^ types.keys()))
            raise RunFolderError(f"{self.path}: append: columns differ from those of the first call in: {wrong}")
        shape = next((x.shape for x in rows.values()), (0,))
        for name, x in rows.items():
            if x.ndim != 1 or x.shape != shape:
                raise RunFolderError(f"{self.path}: append: {name}: expected shape {shape[:1]}, got {x.shape}")
            fits = x.dtype == types[name] or np.can_cast(x.dtype, types[name], "same_kind")
            if not fits or x.dtype.kind not in "biuf":
                raise RunFolderError(f"{self.path}: append: {name}: expected {types[name]} numbers, got {x.dtype}")
        self._columns = types
        return {name: rows[name].astype(dtype, copy=False) for name, dtype in types.items()}

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flushed = self._clock()
        chunks, size = self._pending, self._size
        if not chunks:
            return
        with _writing(self.path):
            try:
                self._pending = []
                self._write(chunks)
            except BaseException:  # Ctrl-C too: cut the torn batch off, and keep its rows for the next flush
                self._pending, self._size = chunks, size
                if self._stream is not None:
                    self._stream.truncate(size)
                    self._stream.seek(size)
                raise

    def _flush_late(self) -> None:
        with self._lock:
            try:
                if not self._closed:
                    self._flush()
            except RunFolderError as error:
                self._error = error  # the next append raises it: a thread has nobody to tell

    def _write(self, chunks: list[dict[str, Array]]) -> None:
        import pyarrow as pa

        arrays = [to_arrow(np.concatenate([chunk[name] for chunk in chunks])) for name in self._columns]
        batch = pa.record_batch(arrays, names=list(self._columns))
        if self._stream is None:
            self._follow()
            self._stream = open(self.path / STREAM, "xb", buffering=0)  # noqa: SIM115 (open for the length of the run)
        parts = [memoryview(batch.serialize())]
        if self._size == 0:
            schema = batch.schema.with_metadata(_schema_metadata(self._metadata, self._units))
            parts.insert(0, memoryview(schema.serialize()))
        size = self._size + sum(len(part) for part in parts)
        for part in parts:
            while part:
                part = part[self._stream.write(part) :]
        self._size = size

    def _follow(self) -> None:
        """A later run at the same place moves this one aside while it is going on: stay with our own folder."""
        home = self.path.parent
        for path in itertools.chain([self.path], home.glob(f"{glob.escape(self.path.name)}.*")):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == self._inode:
                    self.path = path
                    return
        raise RunFolderError(f"{self.path}: the folder was moved or deleted during the run")


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turns what the system and Arrow say on a failed write into a RunFolderError."""
    import pyarrow as pa

    try:
        yield
    except RunFolderError:
        raise
    except (OSError, pa.ArrowException) as error:
        place = getattr(error, "filename", None) or path
        reason = getattr(error, "strerror", None) or error
        raise RunFolderError(f"{place}: cannot be written: {reason} (free the place, or choose another)") from error


def _move_aside(path: Path) -> Path | None:
    if not any((path / name).exists() for name in FILES):
        return None
    if Path.cwd().is_relative_to(path):
        raise RunFolderError(f"{path}: holds a run, and is or holds the working folder (choose another place)")
    for number in itertools.count(1):
        aside = path.with_name(f"{path.name}.{number}")
        if not os.path.lexists(aside):
            break
    return path.rename(aside)


def _write_summary(path: Path, trajectory: Trajectory, room: int = 0) -> None:
    summary = trajectory.summary()
    text = (json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode().ljust(room)
    try:
        replace(path / SUMMARY, lambda file: file.write(text))
    except OSError:
        short = {key: summary.get(key) for key in ("schema", "config", "status")} | {"error": _error_of(trajectory)}
        if not _overwrite(path / SUMMARY, text, json.dumps(short).encode()):
            raise


def _error_of(trajectory: Trajectory) -> str | None:
    """What went wrong, short enough for the room that there is."""
    error = trajectory.metadata.get("error")
    return None if error is None else str(error)[:400]


def _overwrite(path: Path, *texts: bytes) -> bool:
    """Puts the first text that fits where the file lies already, which a full disk allows; whether one did."""
    with contextlib.suppress(OSError), open(path, "r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        for text in texts:
            if len(text) <= size:
                file.seek(0)
                whole = file.write(text.ljust(size)) == size
                os.fsync(file.fileno())
                return whole
    return False


def say_end(folder: Path, metadata: dict[str, Any], units: dict[str, str] | None = None) -> None:
    """Says in `summary.json` how a run ended whose folder nobody could finish; never raises.

    The rows stay where they are; the metrics are those of the rows that can be read.

    Args:
        folder: The run folder.
        metadata: What the run says of itself at its end, `status` and `error` among it.
        units: Column -> unit; None: as the folder has them.
    """
    try:
        run = load_run(folder)
    except Exception:  # damaged, whatever that makes of it: its end can be said all the same
        run = Trajectory({}, units or {}, {})
    run = dataclasses.replace(run, metadata=run.metadata | metadata)
    with contextlib.suppress(OSError, ValueError, LookupError):
        _write_summary(folder, run)


def write_drawing(folder: Path, drawing: dict[str, Array]) -> None:
    """Writes the drawing of a run into its folder.

    Args:
        folder: The run folder.
        drawing: As in `Trajectory.drawing`.

    Raises:
        RunFolderError: It cannot be written.
    """
    with _writing(folder):
        replace(folder / DRAWING, lambda file: _write_arrays(file, drawing))


def _write_arrays(file: BinaryIO, arrays: dict[str, Array]) -> None:
    """What `numpy.savez_compressed` writes, under any names: its own reserves some."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def _write_table(folder: Path, metadata: dict[bytes, bytes]) -> dict[str, Array]:
    """The stream as Parquet; returns its columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pa.memory_map(str(folder / STREAM)) as file, pa.ipc.open_stream(file) as stream:
        table = stream.read_all().replace_schema_metadata(metadata)
        replace(folder / TABLE, lambda out: pq.write_table(table, out, compression="zstd", use_dictionary=False))
        return arrays_of(table)


def _schema_metadata(metadata: dict[str, Any], units: dict[str, str]) -> dict[bytes, bytes]:
    """Units, statuses and what the run says of itself, as they travel with the columns."""
    statuses = {str(status.code): [status.name, status.value] for status in Status}
    parts = {"run": plain(metadata), "units": plain(units), "status": statuses}
    return {
        f"servoctl.{key}".encode(): json.dumps(part, ensure_ascii=False, allow_nan=False).encode()
        for key, part in parts.items()
    }


def save(trajectory: Trajectory, folder: str | PathLike[str], config_text: str = "") -> Path:
    """Writes a run folder; one that is already there is moved aside.

    Args:
        trajectory: The run.
        folder: Where to.
        config_text: The config as it ran, for `config.yaml`.

    Returns:
        The folder.

    Raises:
        RunFolderError: The folder cannot be written.
    """
    with RunFolder.create(folder, config_text, trajectory.metadata, trajectory.units) as run:
        run.append(trajectory.columns)
        run.close(trajectory.metadata, trajectory.drawing)
    return run.path
