"""Keeps the rows of a sweep or of a search on disk, each as soon as it is known, so that `--resume` can continue.

Design: one JSON object per line, appended and never changed. The first line says what the rows are of; only the same
sweep or search can continue. A killed process leaves at most one incomplete last line, which is dropped. Numbers are
written so that they are read back to the bit.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from servoctl.assembly.classes import hashes_of
from servoctl.assembly.run import Run
from servoctl.errors import ConfigError, RunFolderError
from servoctl.run_folder.files import SUMMARY, lock, study_folder, unwritable
from servoctl.study.metrics import Row
from servoctl.version import VERSION


class RowStore:
    """The rows of one sweep; a context manager that closes the file.

    Args:
        folder: The folder; without `resume`, it is created if it is missing.
        identity: What identifies it, as by `identity_of`.
        planned: Number of rows when it is complete; None: there may always be more.
        resume: Whether to keep existing rows; False: they are replaced, unless they belong to an unfinished sweep.

    Raises:
        ConfigError: With `resume`: there are no rows, or those of another sweep. Without: those of an unfinished one,
            or the folder holds a single run, whose files would be overwritten.
        RunFolderError: The file is damaged, in use by another program, or cannot be written.
    """

    file, noun, kind = "sweep.jsonl", "sweep", "runs"  # its name, what it is of, and what a row is of, in the plural

    def __init__(self, folder: Path, identity: dict[str, Any], planned: int | None, resume: bool) -> None:
        self.path = folder / self.file
        if resume and not self.path.exists():
            raise self._nothing_to_resume()
        study_folder(folder)
        self.rows: list[Row] = []  # the rows so far, in order
        self.seconds = 0.0  # [s] time that they took, in all sessions together
        try:
            self._file: BinaryIO = open(self.path, "a+b", buffering=0)  # noqa: SIM115 (open for the sweep)
        except OSError as error:
            raise unwritable(folder, error) from error
        try:
            busy = f"{self.path}: another program works on this {self.noun} (wait until it ends, or stop it)"
            lock(self._file, busy)
            self._begin(identity, planned, resume)
            (folder / SUMMARY).unlink(missing_ok=True)  # an earlier summary would contradict the new files
        except OSError as error:
            self._file.close()
            raise error if isinstance(error, RunFolderError) else unwritable(folder, error) from error
        except BaseException:
            self._file.close()
            raise

    def _begin(self, identity: dict[str, Any], planned: int | None, resume: bool) -> None:
        self._file.seek(0)
        *lines, _ = self._file.read().split(b"\n")  # a complete line ends with a newline
        if not resume:
            self._refuse_unfinished(lines, planned)
            lines = []
        elif not lines and planned is not None:
            raise self._nothing_to_resume()
        entries = [self._read(number, line) for number, line in enumerate(lines, 1)]
        if entries:
            self._check_same(entries[0], identity)
            for number, entry in enumerate(entries[1:]):
                row: Any = entry.get("row")
                seconds: Any = entry.get("seconds")
                valid = isinstance(row, dict) and isinstance(seconds, float) and (planned is None or number < planned)
                valid = valid and isinstance(row.get("status"), str) and entry.get("run") == number
                if not valid or not self.fits(row):
                    raise self._damaged(number + 2)
                self.rows.append(row)
                self.seconds = seconds
        self._file.truncate(sum(len(line) + 1 for line in lines))
        self._header = None if entries else identity

    def fits(self, row: Row) -> bool:
        """Whether a row could have been written."""
        return True

    def _nothing_to_resume(self) -> ConfigError:
        return ConfigError(f"--resume: {self.path.parent} holds no {self.noun} that can continue (leave --resume out)")

    def _refuse_unfinished(self, lines: Sequence[bytes], planned: int | None) -> None:
        runs = None if planned is None else _runs(lines)
        if len(lines) > 1 and (planned is None or (runs is not None and len(lines) <= runs)):
            count = f"{len(lines) - 1}{'' if runs is None else f' of {runs}'} {self.kind}"
            raise ConfigError(
                f"{self.path}: holds {count} of a {self.noun} (continue with --resume, or choose another --out)"
            )

    def _check_same(self, before: dict[str, Any], now: dict[str, Any]) -> None:
        if (change := difference(before, now)) is not None:
            raise ConfigError(
                f"--resume: {self.path}: is of another {self.noun}: {change} (give the same arguments, or "
                "another --out without --resume)"
            )

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
            f"{self.path}: line {number} is damaged (restore the file, or run the {self.noun} again with another --out)"
        )

    def add(self, row: Row, seconds: float = 0.0) -> None:
        """Writes the next row.

        Args:
            row: The row.
            seconds: Time that it has taken so far, in all sessions together [s].

        Raises:
            RunFolderError: The row cannot be written; the rows before it are kept.
        """
        try:
            if self._header is not None:  # written with the first row: a sweep without runs leaves no header
                self._write(self._header)
                self._header = None
            self._write({"run": len(self.rows), "seconds": seconds, "row": row})
        except OSError as error:
            raise unwritable(self.path.parent, error) from error
        self.rows.append(row)
        self.seconds = seconds

    def _write(self, entry: dict[str, Any]) -> None:
        line = memoryview(json.dumps(entry, default=lambda number: number.item()).encode() + b"\n")
        while line:
            line = line[self._file.write(line) :]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()


def identity_of(run: Run, **details: Any) -> dict[str, Any]:
    """What identifies a study: version, details, hashes of the config's files, and the config, without its lengths.

    Raises:
        ConfigError: The run was not loaded from a config.
    """
    if run.loaded is None:
        raise ConfigError("a study needs a config (take a run from servoctl.load)")
    values = run.loaded.config.model_dump(mode="json", by_alias=True, exclude_none=True)
    for length in ("trials", "refine"):
        values.get("tune", {}).pop(length, None)
    identity = {"servoctl": VERSION, **details, "files": hashes_of(run.loaded), "config": values}
    return dict(json.loads(json.dumps(identity)))


def difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """The first difference of two nested mappings, as in `seed was 1, is 2`; None: they are equal."""
    old, new = dict(_flat(before)), dict(_flat(now))
    for name in [*old, *new]:
        if old.get(name) != new.get(name):
            return f"{name} was {old.get(name, 'not there')}, is {new.get(name, 'not there')}"
    return None


def _flat(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path -> value of everything in a nested mapping."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _flat(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node


def _runs(lines: Sequence[bytes]) -> int | None:
    """Number of runs of the complete sweep, from the first line; None if that is not readable."""
    try:
        runs = json.loads(lines[0])["runs"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return runs if isinstance(runs, int) else None
