"""Reads a run folder, also of a run that still goes on or was killed.

Design: all readers rely on the kinds of the JSON values in the metadata, so they are checked once, here. An unlisted
key is accepted as it is: a later version may have written it.
"""

import contextlib
import json
import zipfile
import zlib
from collections.abc import Callable, Container, Mapping
from os import PathLike
from pathlib import Path
from sys import float_info
from typing import Any

import numpy as np

from servoctl.errors import RunFolderError
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
        for key, kind in STUDIES.items():
            if key in summary:
                raise RunFolderError(
                    f"{folder}: the folder of a {kind}, which has no rows of its runs (give a run folder)"
                )
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
            values = from_arrow(column(name))
            if values.dtype.kind not in "iuf":
                what = f"column {name}: expected numbers, got {values.dtype}"
                raise RunFolderError(f"{path}: {what} (restore it from a copy, or run again)")
            if (kept := keep(name, values)) is not None:
                columns[name] = kept
    except RunFolderError:
        raise
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        has_stream = path.name == TABLE and path.with_name(STREAM).exists()
        remedy = f"delete it to load {STREAM} instead" if has_stream else "restore it from a copy, or run again"
        raise RunFolderError(f"{path}: is damaged: {str(error).splitlines()[0]} ({remedy})") from error
    if columns and "t" not in columns:
        raise RunFolderError(f"{path}: column t is missing (restore it from a copy, or run again)")
    parts = schema.metadata or {}
    stored, units, statuses = (
        decoded(parts.get(f"servoctl.{key}".encode(), b"")) for key in ("run", "units", "status")
    )
    if "status" in columns and statuses:
        columns["status"] = _current_codes(path, columns["status"], _statuses(path, statuses))
    _check(path, "units", units, {"*": "text"})
    return columns, _checked(path, stored), units


def read_summary(folder: Path) -> dict[str, Any]:
    """`summary.json` without its nulls; empty if it is damaged.

    Raises:
        RunFolderError: A value has a kind that no version of servoctl writes.
        OSError: The file cannot be read.
    """
    path = folder / SUMMARY
    return _checked(path, decoded(path.read_bytes()), SUMMARY_KINDS)


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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= float_info.max


def _is_list(value: Any, fits: Callable[[Any], bool], *lengths: int) -> bool:
    return isinstance(value, list) and all(map(fits, value)) and (not lengths or len(value) in lengths)


FITS: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "a number": _is_number,
    "a number or null": lambda value: value is None or _is_number(value),
    "true or false": lambda value: isinstance(value, bool),
    "an object": lambda value: isinstance(value, dict),
    "a list": lambda value: isinstance(value, list),
    "a list of texts": lambda value: _is_list(value, lambda name: isinstance(name, str)),
    "two numbers": lambda value: _is_list(value, _is_number, 2),
    "two times, or none": lambda value: _is_list(value, _is_number, 0, 2),
}
"""A kind in words -> whether a value is of this kind."""

Kind = str | dict[str, Any] | list[Any]
"""One of `FITS`; an object with kinds by key, where `*` is any key; or a list, of values of its one kind."""

STUDIES = {"vary": "sweep", "trials": "search"}
"""Key of the summary of a study, which no run has -> what wrote it."""

METRICS: Kind = {"*": {"*": "a number or null"}}

KINDS: dict[str, Kind] = {
    **dict.fromkeys(("config", "servoctl", "engine", "status", "error", "stage", "tick", "sparse_rows"), "text"),
    **dict.fromkeys(("duration", "steps", "evaluations", "wall_time", "realtime_factor"), "a number"),
    **dict.fromkeys(("settling_band", "energy_drift"), "a number"),
    **dict.fromkeys(("emulated", "lockstep"), "true or false"),
    **dict.fromkeys(("timing", "bus", "bus_bits", "counts", "emulator", "recorder", "realism"), "an object"),
    **dict.fromkeys(("warnings", "notes", "stages", "left_out", "realtime"), "a list of texts"),
    "tasks": {"*": "a list of texts"},
    "task_span": "two times, or none",
    "events": [{"t": "a number or null"}],
    "faults": "a list",
    "drives": {"*": "an object"},
    "torque_limits": {"*": "a number"},
    "law_limits": {"*": "two numbers"},
    "funnels": {"*": {"*": "a number"}},
}
"""Key of the metadata -> kind of its value; null is allowed for every key."""

SUMMARY_KINDS = KINDS | dict.fromkeys(("tasks", "passive", "inputs"), METRICS)
"""The same of `summary.json`."""


def decoded(text: str | bytes) -> dict[str, Any]:
    """A JSON object; empty if the text is damaged, since the rows can be read without it."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _checked(path: Path, values: Mapping[str, Any], kinds: Mapping[str, Kind] = KINDS) -> dict[str, Any]:
    """The metadata of a run without its nulls.

    Args:
        path: The file, for messages.
        values: Key -> value.
        kinds: Key -> kind of its value.

    Raises:
        RunFolderError: A value has a kind that no version of servoctl writes.
    """
    known = {key: value for key, value in values.items() if value is not None}
    for key, value in known.items():
        _check(path, key, value, kinds.get(key))
    return known


def _statuses(path: Path, values: Mapping[str, Any]) -> dict[int, str]:
    """Code -> name of a status, in the version that wrote the file; errors as of `_checked`."""
    names = {}
    for code, entry in values.items():
        name = entry[0] if isinstance(entry, list) and entry else entry
        if not code.isdecimal() or len(code) > 9 or not isinstance(name, str):
            raise _wrong(path, f"status.{code}", 'a code and its name, as in "0": ["OK", ...]', entry)
        names[int(code)] = name
    return names


def _check(path: Path, key: str, value: Any, kind: Kind | None) -> None:
    if isinstance(kind, str) and not FITS[kind](value):
        raise _wrong(path, key, kind, value)
    if isinstance(kind, list):
        _check(path, key, value, "a list")
        for index, each in enumerate(value):
            _check(path, f"{key}.{index}", each, kind[0])
    if isinstance(kind, dict):
        _check(path, key, value, "an object")
        for name, each in value.items():
            _check(path, f"{key}.{name}", each, kind.get(name, kind.get("*")))


def _wrong(path: Path, key: str, words: str, value: Any) -> RunFolderError:
    shown = json.dumps(value)
    shown = shown if len(shown) < 60 else f"{shown[:57]}..."
    return RunFolderError(f"{path}: {key}: expected {words}, got {shown} (restore it from a copy, or run again)")
