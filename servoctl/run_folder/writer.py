"""Writes a run folder while the run goes on: rows into an Arrow stream, which becomes Parquet at the end."""

import contextlib
import glob
import itertools
import os
import threading
import time
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

import numpy as np

from servoctl.errors import RunFolderError, WriteError
from servoctl.run_folder.files import CONFIG, END_OF_STREAM, FILES, STREAM, SUMMARY, replace, to_arrow
from servoctl.run_folder.trajectory import Trajectory
from servoctl.run_folder.whole import (
    ended_by,
    say_end,
    schema_metadata,
    write_drawing,
    write_summary,
    write_table,
    writing,
)
from servoctl.types import Array

Written = TypeVar("Written")


class Place:
    """The folder of a run that goes on.

    Args:
        path: An existing folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path  # where it lay when it was last looked for
        self._inode = path.stat().st_ino

    def follow(self) -> Path:
        """Looks for the folder, which a later run may have moved aside.

        Raises:
            WriteError: It is neither there nor aside.
        """
        aside = self.path.parent.glob(f"{glob.escape(self.path.name)}.*")
        for path in itertools.chain([self.path], aside):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == self._inode:
                    self.path = path
                    return path
        raise WriteError(f"{self.path}: the folder was moved or deleted during the run")

    def write(self, write: Callable[[Path], Written]) -> Written:
        """Writes a file into the folder, again if a later run moves the folder aside meanwhile."""
        path = self.follow()
        try:
            return write(path)
        except OSError:
            if self.follow() == path:
                raise
            return write(self.path)


def claim(path: Path) -> Path | None:
    """Makes the folder for one run alone, even if several begin at once; returns where an earlier run was moved to."""
    moved_to: Path | None = None
    while True:
        with contextlib.suppress(FileNotFoundError):  # another run has just moved it
            moved_to = _move_aside(path) or moved_to
        path.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError, FileNotFoundError):  # another run has just begun here
            (path / SUMMARY).touch(exist_ok=False)
            return moved_to


def _move_aside(path: Path) -> Path | None:
    if not any((path / name).exists() for name in FILES):
        return None
    if Path.cwd().is_relative_to(path):
        raise WriteError(f"{path}: holds a run, and is or contains the working folder (choose another folder)")
    for number in itertools.count(1):
        aside = path.with_name(f"{path.name}.{number}")
        if not os.path.lexists(aside):
            break
    return path.rename(aside)


FLUSH_INTERVAL = 0.5  # [s] longest time for which rows stay in memory only


class RunFolder:
    """Writes a run while it goes on; a context manager, made by `create`.

    An exception inside the context closes the folder with status `failed`, Ctrl-C with status `interrupted`.
    """

    def __init__(self, path: Path, metadata: dict[str, Any], units: dict[str, str], clock: Callable[[], float]) -> None:
        self._place = Place(path)
        self.moved_to: Path | None = None  # where an earlier run at this path was moved to; None: there was none
        self._metadata = metadata | {"status": "running"}
        self._units = dict(units)
        self._clock = clock
        self._flushed = clock()
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
        """Creates the folder, with `summary.json` (`status: running`) and `config.yaml`.

        An earlier run at this path is moved to the first free of `<path>.1`, `<path>.2`, ...

        Args:
            path: The folder; its parents are created too.
            config_text: The config as it runs, with all defaults.
            metadata: What is known of the run at its start: see `Trajectory.metadata`.
            units: Column -> unit.
            clock: Monotonic time [s].

        Raises:
            RunFolderError: The path is a file, or cannot be written.
        """
        path = Path(os.path.abspath(path))
        with writing(path):
            if path.exists() and not path.is_dir():
                raise WriteError(f"{path}: is a file (give the name of a folder)")
            moved_to = claim(path)
            folder = cls(path, metadata, units, clock)
            folder.moved_to = moved_to
            folder._begin(config_text)
        return folder

    @property
    def path(self) -> Path:
        """The folder, where it lies now."""
        return self._place.path

    def _begin(self, config_text: str) -> None:
        """Writes the first summary and the config."""
        start = Trajectory({}, self._units, self._metadata)
        try:
            self._place.write(lambda path: write_summary(path, start))
        except OSError:
            with contextlib.suppress(OSError):
                (self._place.follow() / SUMMARY).unlink()  # the empty file of `claim` would be taken for a run
            raise
        try:
            self._place.write(lambda path: replace(path / CONFIG, lambda file: file.write(config_text.encode())))
        except OSError as error:
            self.give_up({"status": "failed", "error": f"{CONFIG}: cannot be written: {error.strerror or error}"})
            raise

    def append(self, columns: dict[str, Array]) -> None:
        """Adds rows; they are on disk at the latest `FLUSH_INTERVAL` after the previous flush.

        Args:
            columns: Name -> values, shape (rows,) or scalar, copied; the same names each time. The first call sets the
                types.

        Raises:
            RunFolderError: The folder is closed, or rows cannot be written.
        """
        with self._lock:
            if self._closed:
                raise RunFolderError(f"{self.path}: append: the folder is closed")
            if self._error is not None:
                raise self._error
            if not columns:
                return
            rows = {name: np.array(x, ndmin=1) for name, x in columns.items()}
            self._columns = self._columns or {name: x.dtype for name, x in rows.items()}
            types = self._columns.items()
            self._pending.append(
                {name: rows[name].astype(kind, casting="same_kind", copy=False) for name, kind in types}
            )
            due = self._flushed + FLUSH_INTERVAL - self._clock()
            if due <= 0:
                self._flush()
            elif self._timer is None:  # writes the rows even if no further row comes
                self._timer = threading.Timer(due, self._flush_late)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Writes all rows to disk now.

        Raises:
            RunFolderError: Rows cannot be written.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            self._flush()

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
        with self._lock, writing(self.path):
            if self._closed:
                raise RunFolderError(f"{self.path}: close: the folder is closed")
            self._flush()
            metadata = self._metadata | {"status": "completed"} | (trajectory_metadata or {})
            columns: dict[str, Array] = {}
            if self._stream is not None:
                if not self._stream.closed:
                    self._stream.write(END_OF_STREAM)
                    self._stream.close()
                columns = self._place.write(lambda path: write_table(path, schema_metadata(metadata, self._units)))
            trajectory = Trajectory(columns, self._units, metadata, drawing or {})
            if drawing:
                self._place.write(lambda path: write_drawing(path, drawing))
            self._place.write(lambda path: write_summary(path, trajectory))
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
        with contextlib.suppress(OSError):
            self._place.follow()
        say_end(self.path, self._metadata | trajectory_metadata, self._units)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flushed = self._clock()
        chunks, size = self._pending, self._size
        if not chunks:
            return
        with writing(self.path):
            self._place.follow()  # a run without a folder ends now: its rows would be lost
            try:
                self._pending = []
                self._write(chunks)
            except BaseException:  # Ctrl-C too: removes the incomplete batch, and keeps its rows for the next flush
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
                self._error = error  # raised by the next append: an exception in this thread would be lost

    def _write(self, chunks: list[dict[str, Array]]) -> None:
        import pyarrow as pa

        arrays = [to_arrow(np.concatenate([chunk[name] for chunk in chunks])) for name in self._columns]
        batch = pa.record_batch(arrays, names=list(self._columns))
        if self._stream is None:
            self._stream = open(self.path / STREAM, "xb", buffering=0)  # noqa: SIM115 (open for the length of the run)
        parts = [memoryview(batch.serialize())]
        if self._size == 0:
            schema = batch.schema.with_metadata(schema_metadata(self._metadata, self._units))
            parts.insert(0, memoryview(schema.serialize()))
        size = self._size + sum(len(part) for part in parts)
        for part in parts:
            while part:
                part = part[self._stream.write(part) :]
        self._size = size


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
    with RunFolder.create(folder, config_text, trajectory.metadata, trajectory.units) as run:
        run.append(trajectory.columns)
        run.close(trajectory.metadata, trajectory.drawing)
    return run.path
