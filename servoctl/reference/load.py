"""A file -> the curve through its rows, or everything that is wrong with the file and with what is asked of it."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from servoctl.errors import ConfigError
from servoctl.expression.suggest import remedy
from servoctl.reference.curve import Curve, Extrapolation
from servoctl.reference.table import Table, read_table
from servoctl.types import Array

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
        rows = "1 row" if len(times) == 1 else f"{len(times)} rows"
        raise ConfigError(f"{rows} (a {kind} spline needs at least {degree + 1})")
    since = times - times[0]  # times since 1970 would lose half their digits in the basis
    if extrapolate == "periodic":
        values = np.concatenate([values[:-1], values[:1]])
    basis = make_interp_spline(since, values, k=degree, bc_type="periodic" if extrapolate == "periodic" else None)
    taylor = [basis(since[:-1], nu=j) / factorial for j, factorial in enumerate(_factorials(degree))]
    coefficients = np.stack([values[:-1], *taylor[1:]], axis=-1)  # at the knots the curve has the rows to the bit
    return Curve(np.asarray(times, dtype=float), coefficients, degree - 1, extrapolate)


def _factorials(degree: int) -> Array:
    """0! ... degree!."""
    return np.cumprod([1.0, *range(1, degree + 1)])


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
    try:
        status = path.stat()
        stamp = status.st_mtime_ns, status.st_size
    except (OSError, ValueError):  # ValueError: the path has a null character
        stamp = 0, 0
    return _file_curve(path, stamp, time, None if columns is None else tuple(columns), kind, extrapolate)


@lru_cache(maxsize=64)  # a sweep or a search loads the same file for every run
def _file_curve(
    path: Path,
    stamp: tuple[int, int],
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
    """Columns that are asked for and not there."""
    there = list(table.columns)
    faults = [] if time in there else [("time", f"there is no column {time!r} ({remedy(time, there)})")]
    faults += [
        ("columns", f"there is no column {name!r} ({remedy(name, there)})") for name in names if name not in there
    ]
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


def _seam_faults(names: Sequence[str], values: Array) -> list[Fault]:
    """Columns whose first and last row differ."""
    faults = []
    for i, name in enumerate(names):
        first, last = values[0, i], values[-1, i]
        if abs(last - first) > SEAM * max(1e-300, float(np.abs(values[:, i]).max())):
            differ = f"column {name!r} starts at {first:.9g} and ends at {last:.9g}"
            faults.append(("extrapolate", f"{differ} (periodic needs equal first and last rows)"))
    return faults
