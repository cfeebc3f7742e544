"""A table of numbers from a CSV or Parquet file, and what is wrong with it, by row and column; the curve through it.

Design: the standard library reads CSV, because it keeps rows and text as written: pyarrow guesses types, and its errors
name neither. Commas separate the columns of a reference. Its semicolons and tabs are refused: such files often have
decimal commas, which nobody can tell from separators. A log comes from another program as it is: its separator is that
of the first line, and it may have no names.
"""

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from servoctl.errors import ConfigError, counted, in_one_line, no_such
from servoctl.input_file import Stamp, read_regular, stamp
from servoctl.reference.curve import Curve, Extrapolation
from servoctl.types import Array

LARGEST = 500_000_000  # [bytes] largest size of a file

THINNER = "write fewer rows: a spline needs few"

SHOWN = 3  # largest number of wrong cells of a column that a message lists

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True)
class Table:
    """Columns as the file has them; only those that are asked for must hold numbers."""

    columns: Mapping[str, Sequence[object]]  # name -> cells, text or numbers, in order
    rows: Sequence[int]  # number of each row in the file, as an editor counts lines
    word: str = "row"  # what messages call it
    remedy: str = ""  # what to do about a wrong cell, for messages

    def numbers(self, column: str) -> Array:
        """The cells of a column as finite numbers.

        Raises:
            ConfigError: A cell is not a finite number; names row and column.
        """
        values, wrong = np.zeros(len(self.rows)), []
        for i, cell in enumerate(self.columns[column]):
            value = _number(cell)
            if value is None or not np.isfinite(value):
                wrong.append(f"{self.word} {self.rows[i]}, column {column!r}: {_what(cell, value, self.remedy)}")
            else:
                values[i] = value
        if wrong:
            more = [f"column {column!r}: {len(wrong) - SHOWN} more cells are wrong"] if len(wrong) > SHOWN else []
            raise ConfigError([*wrong[:SHOWN], *more])
        return values


def read_table(path: Path, foreign: bool = False) -> Table:
    """The table of a file.

    Args:
        path: Parquet if the file starts as such files do, else CSV: UTF-8, commas, names of the columns in row 1.
        foreign: Whether another program wrote it: the separator is found, and without names the columns are 1, 2, ...

    Raises:
        ConfigError: The file is missing, empty or of another kind, or its header is wrong; lists all problems.
    """
    own = ("paths are relative to the config's folder", THINNER)
    remedies = ("check the path", "give a part of it") if foreign else own
    content = read_regular(path, LARGEST, "a CSV or Parquet file", *remedies)
    if not content.removeprefix(codecs.BOM_UTF8).strip():
        raise ConfigError(f"{path}: empty (a row of column names and rows of numbers are expected)")
    try:
        return _parquet(content) if content.startswith(b"PAR1") else _csv(content, foreign)
    except ConfigError as error:
        raise ConfigError([f"{path}: {problem}" for problem in str(error).splitlines()]) from error


def _parquet(content: bytes) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # without threads, which may still run when the process ends, and abort it
        read = pq.ParquetFile(io.BytesIO(content), pre_buffer=False).read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"not a readable Parquet file: {in_one_line(error)}") from error
    _check_header(read.column_names)
    if read.num_rows == 0:
        raise ConfigError("no row (rows of numbers are expected)")
    columns: dict[str, Sequence[object]] = {}
    for name in read.column_names:
        column = read.column(name)
        kinds = pa.types
        plain = kinds.is_integer, kinds.is_floating, kinds.is_decimal, kinds.is_boolean, kinds.is_null, kinds.is_string
        known = any(is_kind(column.type) for is_kind in plain)
        # dates of other years, lists and the like may have no value in Python
        columns[name] = column.to_pylist() if known else [str(column.type)] * read.num_rows
    return Table(columns, range(1, read.num_rows + 1))


def _csv(content: bytes, foreign: bool) -> Table:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"byte {error.start} is not UTF-8 text (a CSV or Parquet file is expected)") from error
    if "\0" in text:
        raise ConfigError("byte 0 in the text (a CSV or Parquet file is expected)")
    separator = _separator(text) if foreign else ","
    if separator == " ":
        text = re.sub(r"[ \t]+", " ", re.sub(r"(?m)^[ \t]+|[ \t]+$", "", text))
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        lines = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise ConfigError(f"not a CSV file: {error}") from error
    if not lines:
        raise ConfigError("no row with text (a row of column names and rows of numbers are expected)")
    word, header = "line" if foreign else "row", [name.strip() for name in lines[0][1]]
    if header[0].startswith("#"):  # numpy.savetxt writes the header as a comment
        header = [name for name in (header[0][1:].strip(), *header[1:]) if name or separator != " "]
    above = "header"
    if foreign and all(_number(name) is not None for name in header):
        header, above = [str(i + 1) for i in range(len(header))], "first line"
    else:
        _check_header(header)
        lines = lines[1:]
    for number, row in lines:
        right = len(row) == len(header)
        first = number == lines[0][0]
        if (first or not right) and all(_number(cell.replace(",", ".")) is None for cell in row):
            shown = separator.join(row)[:60]
            remedy = "keep one row of names and the rows of numbers: delete comments, units and titles"
            raise ConfigError(f"{word} {number}: it has no number: {shown} ({remedy})")
        if not right:
            cells = counted(len(row), "cell")
            raise ConfigError(f"{word} {number}: {cells}, but the {above} has {len(header)} (one cell per column)")
    if not lines:
        raise ConfigError("no row below the header (rows of numbers are expected)")
    columns = {name: [row[i] for _, row in lines] for i, name in enumerate(header)}
    remedy = " (correct the line, or delete it)" if foreign else ""
    return Table(columns, [number for number, _ in lines], word, remedy)


def _separator(text: str) -> str:
    """The separator of the first line with text."""
    first = next(line for line in text.splitlines() if line.strip())
    return next((sign for sign in (";", "\t", ",") if sign in first.strip()), " ")


def _check_header(names: Sequence[str]) -> None:
    """Raises ConfigError if the names are numbers, not separated by commas, empty or not distinct."""
    if all(_NUMBER.fullmatch(name) for name in names):
        shown = ",".join(names)[:60]
        raise ConfigError(f"row 1: numbers, not names of columns: {shown} (write a header such as t,x,y above)")
    if len(names) == 1:
        for sign, word in ((";", "semicolons"), ("\t", "tabs")):
            if sign in names[0]:
                raise ConfigError(f"row 1: columns separated by {word} (separate them by commas; decimals have points)")
    problems = [f"row 1: column {i + 1} has no name (write one)" for i, name in enumerate(names) if not name]
    for name, times in Counter(names).items():
        if times > 1 and name:
            problems.append(f"row 1: {times} columns are named {name!r} (rename all but one)")
    if problems:
        raise ConfigError(problems)


def _number(cell: object) -> float | None:
    """The number that a cell holds, which may be NaN or infinite; None if it holds anything else."""
    if isinstance(cell, (int, float, Decimal)) and not isinstance(cell, bool):
        return float(cell)
    text = cell.strip() if isinstance(cell, str) else ""
    # float() alone would take 1_000 and digits of other scripts
    return float(text) if _NUMBER.fullmatch(text) or _NOT_FINITE.fullmatch(text) else None


def _what(cell: object, value: float | None, remedy: str) -> str:
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return f"empty (a number is expected){remedy}"
    if value is None and isinstance(cell, str) and _number(cell.replace(",", ".")) is not None:
        return f"{cell!r} has a decimal comma (write points)"
    return f"{cell!r} is not a number{remedy}" if value is None else f"{value:g} is not finite{remedy}"


Degree = Literal["cubic", "quintic"]
DEGREES: dict[str, int] = {"cubic": 3, "quintic": 5}  # kind of spline -> degree of its polynomials


def spline(times: Array, values: Array, kind: Degree = "cubic", extrapolate: Extrapolation = "hold") -> Curve:
    """The spline through rows.

    Args:
        times: Strictly increasing, shape (rows,) [s].
        values: Shape (rows, columns).
        kind: `cubic`, C2, or `quintic`, C4.
        extrapolate: With `periodic` first and last row are equal, and the spline is as smooth across the seam.

    Raises:
        ConfigError: There are too few rows.
    """
    from scipy.interpolate import make_interp_spline  # a third of a second: only who has a file pays it

    degree = DEGREES[kind]
    if len(times) <= degree:
        raise ConfigError(f"{counted(len(times), 'row')} (a {kind} spline needs at least {degree + 1})")
    since = times - times[0]  # times since 1970 would lose half their digits in the basis
    if extrapolate == "periodic":
        values = np.concatenate([values[:-1], values[:1]])
    basis = make_interp_spline(since, values, k=degree, bc_type="periodic" if extrapolate == "periodic" else None)
    factorials = np.cumprod([1.0, *range(1, degree + 1)])
    taylor = [basis(since[:-1], nu=j) / factorial for j, factorial in enumerate(factorials)]
    coefficients = np.stack([values[:-1], *taylor[1:]], axis=-1)  # at the knots the curve has the rows to the bit
    return Curve(np.asarray(times, dtype=float), coefficients, degree - 1, extrapolate)


QUATERNION = ("qx", "qy", "qz", "qw")  # columns that hold an orientation if all four are there
NORM_ERROR = 0.01  # largest difference of a quaternion's norm from 1: more is no rounding of the file
SEAM = 1e-9  # largest difference of the ends of a periodic column, relative to the column's largest value
COINCIDENT = 1e-6  # times count as one if they are closer than this, relative to the median distance of the rows
Fault = tuple[str, str]  # field of the reference, what is wrong


NOT_FINITE = "the curve through {} is not finite (are times and values in SI units?)"


def finite_curve(make: Callable[[], Curve]) -> Curve | None:
    """A curve; None if its numbers are too large, or its times too close, for a finite one."""
    with np.errstate(all="ignore"):
        try:
            curve = make()
        except ConfigError:
            raise
        except ValueError:  # of SciPy, about differences that are not finite
            return None
    return curve if np.isfinite(curve.coefficients).all() and np.isfinite(curve.end - curve.start) else None


def file_curve(
    path: Path, time: str, columns: Sequence[str] | None, kind: Degree, extrapolate: Extrapolation
) -> tuple[tuple[str, ...], Curve | None, tuple[Fault, ...]]:
    """The spline through the rows of a file; a file that has not changed since is not read again.

    Args:
        path: CSV or Parquet.
        time: Column with the times [s].
        columns: Columns to use; None: all others.
        kind: Of the spline.
        extrapolate: Beyond the first and the last row.

    Returns:
        Names of the columns, the curve, what is wrong; there is no curve if anything is.
    """
    return _file_curve(path, stamp(path), time, None if columns is None else tuple(columns), kind, extrapolate)


@lru_cache(maxsize=64)  # a sweep or a search loads the same file for every run
def _file_curve(
    path: Path,
    _: Stamp,
    time: str,
    columns: tuple[str, ...] | None,
    kind: Degree,
    extrapolate: Extrapolation,
) -> tuple[tuple[str, ...], Curve | None, tuple[Fault, ...]]:
    try:
        table = read_table(path)
    except ConfigError as error:
        return (), None, tuple(("file", problem) for problem in str(error).splitlines())
    names = tuple(name for name in table.columns if name != time) if columns is None else columns
    faults = _missing(table, time, names)
    if not faults:
        try:
            times, values = _numbers(table, (time, *names))
            faults += _time_faults(table, time, times)
            values, wrong = _continuous(table, names, values)
            faults += wrong
            if extrapolate == "periodic":
                times, values = _full_turn(names, times, values)
            faults += _seam_faults(names, values) if extrapolate == "periodic" and not wrong else []
            if not faults:
                curve = finite_curve(lambda: spline(times, values, kind, extrapolate))
                if curve is not None:
                    return names, curve, ()
                faults.append(("file", NOT_FINITE.format("its rows")))
        except ConfigError as error:
            faults += [("file", problem) for problem in str(error).splitlines()]
    return names, None, tuple((field, f"{path.name}: {what}") for field, what in faults)


def _missing(table: Table, time: str, names: Sequence[str]) -> list[Fault]:
    there = list(table.columns)
    faults = [] if time in there else [("time", no_such("column", time, there))]
    faults += [("columns", no_such("column", name, there)) for name in names if name not in there]
    if not names:
        faults.append(("columns", f"no column besides {time!r} (a reference needs at least one)"))
    return faults


def _numbers(table: Table, names: Sequence[str]) -> tuple[Array, Array]:
    """Times and values; raises ConfigError with the wrong cells of all columns."""
    columns, wrong = [], []
    for name in names:
        try:
            columns.append(table.numbers(name))
        except ConfigError as error:
            wrong += str(error).splitlines()
    if wrong:
        raise ConfigError(wrong)
    return columns[0], np.stack(columns[1:], axis=1)


def _time_faults(table: Table, time: str, times: Array) -> list[Fault]:
    """The first row whose time does not come after the one before, or only by rounding."""
    steps = np.diff(times)
    late = np.flatnonzero(steps <= COINCIDENT * max(0.0, np.median(steps))) if len(steps) else steps
    if not len(late):
        return []
    i = int(late[0]) + 1
    before = f"row {table.rows[i]}: {time} = {times[i]:.16g} follows {times[i - 1]:.16g}"
    more = f", and {len(late) - 1} more such rows" if len(late) > 1 else ""
    return [("file", f"{before}{more} (times must increase from row to row)")]


def _continuous(table: Table, names: Sequence[str], values: Array) -> tuple[Array, list[Fault]]:
    """The values with the signs of quaternions continuous; -p is the orientation of p."""
    if not set(QUATERNION) <= set(names):
        return values, []
    places = [names.index(name) for name in QUATERNION]
    p = values[:, places]
    norms = np.linalg.norm(p, axis=1)
    wrong = np.flatnonzero(np.abs(norms - 1) > NORM_ERROR)
    if len(wrong):
        row, norm = table.rows[int(wrong[0])], norms[int(wrong[0])]
        return values, [("columns", f"row {row}: the norm of {', '.join(QUATERNION)} is {norm:.4g} (1 is expected)")]
    signs = np.cumprod(np.concatenate([[1.0], np.where(np.sum(p[1:] * p[:-1], axis=1) < 0, -1.0, 1.0)]))
    values = values.copy()
    values[:, places] = p * signs[:, None]
    return values, []


def _full_turn(names: Sequence[str], times: Array, values: Array) -> tuple[Array, Array]:
    """The rows of a period; two periods where each is a full turn, which ends at the other sign of its quaternion."""
    places = [names.index(name) for name in QUATERNION if name in names]
    if len(places) < len(QUATERNION) or values[0, places] @ values[-1, places] >= 0.0:
        return times, values
    again = values[1:].copy()
    again[:, places] *= -1.0
    return np.concatenate([times, times[1:] + (times[-1] - times[0])]), np.concatenate([values, again])


def _seam_faults(names: Sequence[str], values: Array) -> list[Fault]:
    """Columns whose first and last row differ."""
    faults = []
    for i, name in enumerate(names):
        first, last = values[0, i], values[-1, i]
        if abs(last - first) > SEAM * max(1e-300, float(np.abs(values[:, i]).max())):
            differ = f"column {name!r} starts at {first:.9g} and ends at {last:.9g}"
            faults.append(("extrapolate", f"{differ} (periodic needs equal first and last rows)"))
    return faults
