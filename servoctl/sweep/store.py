"""The rows of a sweep on disk, each from the moment that its run has ended, so that a sweep can go on.

Design: one JSON object a line, appended and never changed. The first says which sweep it is; a sweep goes on only as
the one that it began as. A process that is killed leaves at most its last line cut off, which is dropped. Numbers are
written so that they are read back to the bit.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from servoctl.assembly.run import Run
from servoctl.errors import ConfigError, RunFolderError
from servoctl.run_folder.files import study_folder, unwritable
from servoctl.sweep.points import Vary
from servoctl.version import VERSION

FILE = "sweep.jsonl"

Row = dict[str, Any]


class RowStore:
    """The rows of one sweep; a context that closes the file.

    Attributes:
        path: The file.
        rows: Those that there are, in order.
        seconds: What they took, in all sessions together [s].
    """

    def __init__(self, folder: Path, identity: dict[str, Any], planned: int, resume: bool) -> None:
        """Opens the rows of a sweep, or begins them.

        Args:
            folder: That there is.
            identity: Which sweep it is, as `identity_of` has it.
            planned: How many runs it has.
            resume: Whether rows that are there are kept; else those of a sweep that is not at its end are in the way.

        Raises:
            ConfigError: `resume`, and there is nothing, or another sweep; or not, and there is an unfinished one.
            RunFolderError: The file is damaged, in use by another program, or cannot be written.
        """
        self.path = folder / FILE
        self.rows: list[Row] = []
        self.seconds = 0.0
        try:
            self._file: BinaryIO = open(self.path, "a+b", buffering=0)  # noqa: SIM115 (open for the sweep)
        except OSError as error:
            raise unwritable(folder, error) from error
        try:
            _lock(self._file, self.path)
            self._begin(identity, planned, resume)
        except OSError as error:
            self._file.close()
            raise error if isinstance(error, RunFolderError) else unwritable(folder, error) from error
        except BaseException:
            self._file.close()
            raise

    @classmethod
    def open(cls, folder: Path, identity: dict[str, Any], planned: int, resume: bool) -> "RowStore":
        """The rows in a folder, which is made where it is missing and nothing is to go on there.

        Args:
            folder, identity, planned, resume: As the constructor's.

        Raises:
            ConfigError: As the constructor's; or the files of a single run would be overwritten.
            RunFolderError: As the constructor's; or the folder cannot be made.
        """
        if resume and not (folder / FILE).exists():
            raise ConfigError(f"--resume: {folder} holds no sweep that can go on (leave --resume out)")
        return cls(study_folder(folder), identity, planned, resume)

    def _begin(self, identity: dict[str, Any], planned: int, resume: bool) -> None:
        self._file.seek(0)
        *lines, _ = self._file.read().split(b"\n")  # a whole line has an end
        if not resume:
            runs = _runs(lines)
            if runs is not None and 1 < len(lines) <= runs:
                raise ConfigError(
                    f"{self.path}: holds {len(lines) - 1} of {runs} runs of a sweep (--resume goes on with it; or "
                    "another --out)"
                )
            lines = []
        elif not lines:
            raise ConfigError(f"--resume: {self.path.parent} holds no sweep that can go on (leave --resume out)")
        found = [self._read(number, line) for number, line in enumerate(lines, 1)]
        if found:
            _check_same(found[0], identity, self.path)
            for number, entry in enumerate(found[1:]):
                row: Any = entry.get("row")
                seconds: Any = entry.get("seconds")
                whole = isinstance(row, dict) and isinstance(seconds, float) and number < planned
                if not whole or entry.get("run") != number:
                    raise self._damaged(number + 2)
                self.rows.append(row)
                self.seconds = seconds
        self._file.truncate(sum(len(line) + 1 for line in lines))
        self._unsaid = None if found else identity

    def _read(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict):
            raise self._damaged(number)
        return entry

    def _damaged(self, number: int) -> RunFolderError:
        return RunFolderError(
            f"{self.path}: line {number} is damaged (restore the file, or sweep anew to another --out)"
        )

    def add(self, row: Row, seconds: float) -> None:
        """Keeps the row of the next run.

        Args:
            row: As `run_all` gives it.
            seconds: What the sweep has taken up to now, in all sessions together.

        Raises:
            RunFolderError: It cannot be written; those before are kept.
        """
        try:
            if self._unsaid is not None:  # with the first row, so that a sweep that never began leaves nothing
                self._write(self._unsaid)
                self._unsaid = None
            self._write({"run": len(self.rows), "seconds": seconds, "row": row})
        except OSError as error:
            raise unwritable(self.path.parent, error) from error
        self.rows.append(row)
        self.seconds = seconds

    def _write(self, entry: dict[str, Any]) -> None:
        line = memoryview(json.dumps(entry, default=lambda number: number.item()).encode() + b"\n")
        while line:
            line = line[self._file.write(line) :]

    def __enter__(self) -> "RowStore":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()


def identity_of(run: Run, varies: Sequence[Vary], sample: str, seed: int, planned: int) -> dict[str, Any]:
    """What a sweep must agree in to go on: version, engine, what is varied, the config, and the files of its classes.

    Raises:
        ConfigError: The run was not loaded from a config.
    """
    if run.loaded is None:
        raise ConfigError("sweep: this run has no config (take one from servoctl.load)")
    values = run.loaded.config
    classes = [values.plant.class_, *(task.class_ for task in values.task if task.class_)]
    files = [run.loaded.folder / path.partition(":")[0] for path in classes if path.partition(":")[0].endswith(".py")]
    said = {
        "servoctl": VERSION,
        "engine": run.engine,
        "vary": [[vary.path, vary.low, vary.high, vary.count, vary.log] for vary in varies],
        "sample": sample,
        "seed": None if sample == "grid" else seed,
        "runs": planned,
        "config": values.model_dump(mode="json", by_alias=True, exclude_none=True),
        "files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in files},
    }
    return dict(json.loads(json.dumps(said)))


def _check_same(before: dict[str, Any], now: dict[str, Any], path: Path) -> None:
    old, new = dict(_flat(before)), dict(_flat(now))
    for name in [*old, *new]:
        if old.get(name) != new.get(name):
            raise ConfigError(
                f"--resume: {path}: is of another sweep: {name} was {old.get(name, 'not there')}, is "
                f"{new.get(name, 'not there')} (give the same again, or another --out without --resume)"
            )


def _flat(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path -> value of everything in a nested mapping."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _flat(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node


def _runs(lines: Sequence[bytes]) -> int | None:
    """How many runs the first line says that the sweep has; None where it does not say."""
    try:
        runs = json.loads(lines[0])["runs"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return runs if isinstance(runs, int) else None


def _lock(file: BinaryIO, path: Path) -> None:
    """Raises RunFolderError where another program has the file; it is free again when that program ends."""
    try:
        import fcntl
    except ImportError:  # no such thing on this system
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RunFolderError(f"{path}: another program works on this sweep (wait for it, or end it)") from error
