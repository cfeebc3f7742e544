"""Files of references with a sentence for all that is wrong; splines and profiles against their definitions."""

import math
import os
from pathlib import Path

import casadi as ca
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.interpolate import CubicSpline, make_interp_spline

from servoctl.engine.symbol import Symbol
from servoctl.errors import ConfigError
from servoctl.reference.curve import Curve, Signal, waypoint_curve
from servoctl.reference.table import Table, file_curve, read_table, spline
from servoctl.types import Array

GOOD = "t,x,y\n0,1,5\n0.5,2,6\n1,2.5,7\n1.5,2,8\n2,1,9\n"


def written(folder: Path, content: str | bytes, name: str = "path.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def problems(path: Path, **wanted: object) -> list[tuple[str, str]]:
    """(field, sentence) of everything that is wrong with a reference."""
    options = {"time": "t", "columns": None, "kind": "cubic", "extrapolate": "hold", **wanted}
    return list(file_curve(path, **options)[2])  # type: ignore[arg-type]


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_table(path)
    return str(caught.value).removeprefix(f"{path}: ")


def numbers(table: Table) -> dict[str, list[float]]:
    return {name: table.numbers(name).tolist() for name in table.columns}


def test_columns_and_rows_are_as_written(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, "t, x \n 0 ,1e-3\n\n1,-.5\n+2.,3E2\n"))
    assert numbers(table) == {"t": [0, 1, 2], "x": [1e-3, -0.5, 300]}
    assert list(table.rows) == [2, 4, 5]


@pytest.mark.parametrize("prefix", [b"\xef\xbb\xbf", b"# "])
def test_byte_order_marks_and_headers_that_are_comments_are_read(tmp_path: Path, prefix: bytes) -> None:
    assert list(read_table(written(tmp_path, prefix + GOOD.encode())).columns) == ["t", "x", "y"]


def test_line_ends_of_windows_and_quoted_cells_are_read(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, '"t","x"\r\n"0","1"\r\n1,2\r\n'))
    assert numbers(table) == {"t": [0, 1], "x": [1, 2]}


def test_parquet_is_known_by_its_content(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": [0.0, 1.0], "n": [1, 2], "note": ["a", "b"]}), tmp_path / "path.dat")
    table = read_table(tmp_path / "path.dat")
    assert [table.numbers("t").tolist(), table.numbers("n").tolist()] == [[0, 1], [1, 2]]
    with pytest.raises(ConfigError, match="row 1, column 'note': 'a' is not a number"):
        table.numbers("note")


ONE_HEADER = "(keep one row of names and the rows of numbers: delete comments, units and titles)"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "empty (a row of column names and rows of numbers are expected)"),
        (b"\xef\xbb\xbf", "empty (a row of column names and rows of numbers are expected)"),
        (b",\n,,\n", "no row with text (a row of column names and rows of numbers are expected)"),
        (b" \n\n", "empty (a row of column names and rows of numbers are expected)"),
        (b"t,x\n", "no row below the header (rows of numbers are expected)"),
        (b"0,1\n1,2\n", "row 1: numbers, not names of columns: 0,1 (write a header such as t,x,y above)"),
        (b"t;x\n0;1\n", "row 1: columns separated by semicolons (separate them by commas; decimals have points)"),
        (b"t\tx\n0\t1\n", "row 1: columns separated by tabs (separate them by commas; decimals have points)"),
        (b"t,x,x\n0,1,2\n", "row 1: 2 columns are named 'x' (rename all but one)"),
        (b"t,,x\n0,1,2\n", "row 1: column 2 has no name (write one)"),
        (b"t,x\n0,1\n1\n", "row 3: 1 cell, but the header has 2 (one cell per column)"),
        (b"t,x\n0,1\n1,2,3\n", "row 3: 3 cells, but the header has 2 (one cell per column)"),
        (b"# of 3 May, rig 2\nt,x,y\n0,1,2\n", f"row 2: it has no number: t,x,y {ONE_HEADER}"),
        (b"path of the rig\nt,x\n0,1\n", f"row 2: it has no number: t,x {ONE_HEADER}"),
        (b"t,x\ns,m\n0,1\n", f"row 2: it has no number: s,m {ONE_HEADER}"),
        (b"t,x\n0,1\n# the end\n", f"row 3: it has no number: # the end {ONE_HEADER}"),
        (b"t,x\n0,\xff\n", "byte 6 is not UTF-8 text (a CSV or Parquet file is expected)"),
        (b"t,x\n0,1\0\n", "byte 0 in the text (a CSV or Parquet file is expected)"),
        (b't,x\n0,"1\n', "not a CSV file: unexpected end of data"),
        ("t,x\n0,1\n".encode("utf-16"), "byte 0 is not UTF-8 text (a CSV or Parquet file is expected)"),
    ],
)
def test_files_that_are_no_table_are_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    assert refusal(written(tmp_path, content)) == sentence


def test_missing_and_damaged_files_are_refused(tmp_path: Path) -> None:
    hint = "(paths are relative to the config's folder)"
    assert refusal(tmp_path / "none.csv") == f"there is no such file {hint}"
    assert refusal(tmp_path) == "it is a folder (expected a CSV or Parquet file)"
    os.mkfifo(tmp_path / "pipe.csv")
    for name in (tmp_path / "pipe.csv", Path("/dev/zero")):
        assert refusal(name) == "it is not a regular file (expected a CSV or Parquet file)"
    with pytest.raises(ConfigError, match=r"it cannot be read: .*embedded null"):
        read_table(tmp_path / "a\0b.csv")
    assert refusal(written(tmp_path, b"PAR1 and then nothing")).startswith("not a readable Parquet file: ")
    pq.write_table(pa.table({"t": pa.array([], pa.float64())}), tmp_path / "none.parquet")
    assert refusal(tmp_path / "none.parquet") == "no row (rows of numbers are expected)"


def quaternions(signs: list[float], norm: float = 1.0) -> str:
    rows = [
        f"{i},{sign * norm * math.sin(0.3 * i)},0,0,{sign * norm * math.cos(0.3 * i)}" for i, sign in enumerate(signs)
    ]
    return "\n".join(["t,qx,qy,qz,qw", *rows]) + "\n"


ORDER = "(times must increase from row to row)"
CELLS = {
    "nan": "nan is not finite", "-inf": "-inf is not finite", "1e999": "inf is not finite",
    "": "empty (a number is expected)", "fast": "'fast' is not a number", "1_000": "'1_000' is not a number",
    "0x10": "'0x10' is not a number", "٣": "'٣' is not a number", "1 2": "'1 2' is not a number",
}  # fmt: skip
"""Text of a cell -> what is wrong with it."""

WRONG: list[tuple[str, dict[str, object], list[tuple[str, str]]]] = [
    *((f"{GOOD}2.5,{cell},3\n3,2,3\n", {}, [("file", f"row 7, column 'x': {what}")]) for cell, what in CELLS.items()),
    (f"{GOOD}2.5,fast,3\n3,2,3\n", {"columns": ("y",)}, []),
    (f"{GOOD}inf,1,1\n", {}, [("file", "row 7, column 't': inf is not finite")]),
    (
        "t,x\n" + "".join(f"{i},?\n" for i in range(9)), {},
        [*(("file", f"row {i}, column 'x': '?' is not a number") for i in (2, 3, 4)),
         ("file", "column 'x': 6 more cells are wrong")],
    ),
    (f"{GOOD}1.9,0,0\n1.9,0,0\n3,0,0\n", {}, [("file", f"row 7: t = 1.9 follows 2, and 1 more such rows {ORDER}")]),
    (f"{GOOD}2,0,0\n", {}, [("file", f"row 7: t = 2 follows 2 {ORDER}")]),
    (f"{GOOD}2.0000000000000004,0,0\n", {}, [("file", f"row 7: t = 2 follows 2 {ORDER}")]),
    (
        GOOD.replace("t,x,y", "Time,pos_x,pos_y"), {"time": "time", "columns": ("posx", "z")},
        [("time", "there is no column 'time' (did you mean 'Time'?)"),
         ("columns", "there is no column 'posx' (did you mean 'pos_x'?)"),
         ("columns", "there is no column 'z' (known: Time, pos_x, pos_y)")],
    ),
    ("t\n0\n1\n", {}, [("columns", "no column besides 't' (a reference needs at least one)")]),
    ("t,x\n0,1\n", {}, [("file", "1 row (a cubic spline needs at least 4)")]),
    (GOOD, {"kind": "quintic"}, [("file", "5 rows (a quintic spline needs at least 6)")]),
    (
        GOOD, {"extrapolate": "periodic"},
        [("extrapolate", "column 'y' starts at 5 and ends at 9 (periodic needs equal first and last rows)")],
    ),
    (GOOD, {"extrapolate": "periodic", "columns": ("x",)}, []),
    (
        quaternions([1.0] * 6, norm=0.5), {},
        [("columns", "row 2: the norm of qx, qy, qz, qw is 0.5 (1 is expected)")],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("content", "wanted", "said"), WRONG)
def test_a_table_that_is_no_reference_is_refused_by_row_and_column(
    tmp_path: Path, content: str, wanted: dict[str, object], said: list[tuple[str, str]]
) -> None:
    assert problems(written(tmp_path, content), **wanted) == [(field, f"path.csv: {what}") for field, what in said]


def test_a_full_turn_is_periodic_though_its_quaternion_ends_at_the_other_sign(tmp_path: Path) -> None:
    times, angles = np.linspace(0.0, 2.0, 41), np.linspace(0.0, 2.0 * np.pi, 41)
    rows = [f"{t},{np.cos(a)},0,0,{np.sin(a / 2)},{np.cos(a / 2)}" for t, a in zip(times, angles, strict=True)]
    rows[-1] = "2.0,1.0,0,0,0.0,1.0"  # as a robot writes it: the first row again
    file = written(tmp_path, "\n".join(["t,x,qx,qy,qz,qw", *rows]))
    _, curve, faults = file_curve(file, "t", None, "cubic", "periodic")
    assert not faults and curve is not None
    for t in (0.3, 1.9999, 2.0, 2.1, 3.7, 4.2):
        x, qz, qw = (curve.value(t, column) for column in (0, 3, 4))
        assert [x, qz, qw] == pytest.approx(
            [np.cos(np.pi * t), *(np.sin(np.pi * t / 2), np.cos(np.pi * t / 2))], abs=1e-5
        )


def test_signs_of_quaternions_become_continuous(tmp_path: Path) -> None:
    mixed = file_curve(written(tmp_path, quaternions([1, -1, -1, 1, -1, 1])), "t", None, "cubic", "hold")
    plain = file_curve(written(tmp_path, quaternions([1.0] * 6), "plain.csv"), "t", None, "cubic", "hold")
    assert mixed[1] is not None and plain[1] is not None
    t = np.linspace(0, 5, 101)
    for column in range(4):
        assert np.abs(mixed[1].value(t, column) - plain[1].value(t, column)).max() < 1e-14
    norm = np.sqrt(sum(np.asarray(mixed[1].value(t, column)) ** 2 for column in range(4)))
    assert np.abs(norm - 1).max() < 1e-2


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    before = file_curve(written(tmp_path, GOOD), "t", None, "cubic", "hold")[1]
    assert file_curve(tmp_path / "path.csv", "t", None, "cubic", "hold")[1] is before
    after = file_curve(written(tmp_path, GOOD.replace("2.5", "2.625")), "t", None, "cubic", "hold")[1]
    assert before is not None and after is not None and after != before and after.value(1.0, 0) == 2.625


@pytest.mark.parametrize("rows", ["-1.5e308,0\n-1e308,0\n0,1\n1e308,2\n1.7e308,2", "0,0\n1e-320,1\n2e-320,2\n1,0"])
def test_a_curve_that_is_not_finite_is_refused(tmp_path: Path, rows: str) -> None:
    sentence = "path.csv: the curve through its rows is not finite (are times and values in SI units?)"
    found = problems(written(tmp_path, f"t,x\n{rows}\n"))
    assert [what for field, what in found if field == "file"] == [sentence] or "increase" in found[0][1]


def test_dates_and_lists_of_parquet_are_refused_by_their_type(tmp_path: Path) -> None:
    times = pa.array([2**62 // 1000] * 5, pa.timestamp("ms"))  # the year 146 million, which Python has no date for
    pq.write_table(pa.table({"t": [0.0, 1.0, 2.0, 3.0, 4.0], "x": times}), tmp_path / "dates.parquet")
    assert problems(tmp_path / "dates.parquet")[0] == (
        "file", "dates.parquet: row 1, column 'x': 'timestamp[ms]' is not a number",
    )  # fmt: skip


def rows(count: int = 30, seed: int = 0, start: float = -1.3) -> tuple[Array, Array]:
    """Uneven times and smooth values of two columns."""
    random = np.random.default_rng(seed)
    times = start + np.concatenate([[0.0], np.cumsum(random.uniform(0.05, 0.4, count - 1))])
    return times, np.stack([np.sin(times), np.exp(-times) + random.normal(size=count)], axis=1)


def inside(curve: Curve) -> Array:
    """Times within the knots, the knots among them."""
    return np.concatenate([curve.knots, np.random.default_rng(2).uniform(curve.start, curve.end, 300)])


def test_a_cubic_spline_is_scipys_not_a_knot_spline() -> None:
    times, values = rows()
    curve, theirs = spline(times, values), CubicSpline(times, values, bc_type="not-a-knot")
    t = inside(curve)[:-1]
    for derivative, tolerance in ((0, 1e-12), (1, 1e-11), (2, 1e-10)):
        for column in (0, 1):
            found = curve.value(t, column, derivative)
            expected = theirs(t, derivative)[:, column]
            assert np.abs(found - expected).max() <= tolerance * max(1.0, np.abs(expected).max())


def test_a_periodic_cubic_spline_is_scipys() -> None:
    times, values = rows()
    values[-1] = values[0]
    curve, theirs = spline(times, values, extrapolate="periodic"), CubicSpline(times, values, bc_type="periodic")
    t = np.concatenate([inside(curve), inside(curve) + 3 * (times[-1] - times[0])])
    for derivative, tolerance in ((0, 1e-12), (1, 1e-11), (2, 1e-10)):
        expected = theirs(t, derivative)
        for column in (0, 1):
            found = curve.value(t, column, derivative)
            assert np.abs(found - expected[:, column]).max() <= 100 * tolerance * np.abs(expected[:, column]).max()


@pytest.mark.parametrize("extrapolate", ["hold", "periodic"])
@pytest.mark.parametrize(("kind", "smoothness"), [("cubic", 2), ("quintic", 4)])
def test_a_spline_goes_through_its_rows_and_is_as_smooth_as_it_says(
    kind: str, smoothness: int, extrapolate: str
) -> None:
    times, values = rows()
    values[-1] = values[0]
    curve = spline(times, values, kind, extrapolate)  # type: ignore[arg-type]
    assert curve.smoothness == smoothness
    knots = curve.knots[1:-1]
    assert np.array_equal(curve.value(times[:-1], 0), values[:-1, 0])
    assert np.allclose(curve.value(times[-1], 1), values[-1, 1], rtol=0, atol=1e-13)
    seam = [curve.start] if extrapolate == "periodic" else []
    for knot in [*knots, *seam]:
        for derivative in range(smoothness + 1):
            before, after = (curve.value(np.nextafter(knot, side), 1, derivative) for side in (-np.inf, np.inf))
            scale = np.abs(curve.value(curve.knots, 1, derivative)).max()
            assert abs(before - after) < 1e-8 * scale, (knot, derivative)


def test_a_quintic_spline_is_not_a_knot_at_two_knots_from_each_end() -> None:
    times, values = rows()
    curve = spline(times, values, "quintic")
    fifth = 120 * curve.coefficients[:, 1, 5]
    for knot in (1, 2, len(fifth) - 2, len(fifth) - 1):
        assert fifth[knot] == pytest.approx(fifth[knot - 1], rel=1e-6)
    theirs = make_interp_spline(times, values, k=5)
    t = inside(curve)[:-1]
    assert np.abs(curve.value(t, 1) - theirs(t)[:, 1]).max() < 1e-12 * np.abs(theirs(t)).max()


def test_times_since_1970_lose_no_accuracy() -> None:
    times, values = rows(start=0.0)
    far = spline(times * 0 + 1.75e9 + np.arange(30) * 0.25, values)
    near = spline(np.arange(30) * 0.25, values)
    t = np.linspace(0, 7.25, 59)  # exact in both
    assert np.abs(far.value(1.75e9 + t, 1) - near.value(t, 1)).max() < 1e-12


@pytest.mark.parametrize(("kind", "least"), [("cubic", 4), ("quintic", 6)])
def test_too_few_rows_are_refused_with_the_number_needed(kind: str, least: int) -> None:
    times, values = rows(least)
    spline(times, values, kind)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=rf"^1 row \(a {kind} spline needs at least {least}\)$"):
        spline(times[:1], values[:1], kind)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=rf"^{least - 1} rows \(a {kind} spline needs at least {least}\)$"):
        spline(times[:-1], values[:-1], kind)  # type: ignore[arg-type]


def test_hold_keeps_the_end_values_with_rate_zero_and_uses_the_spline_at_the_ends() -> None:
    times, values = rows()
    curve = spline(times, values)
    for t, value in ((times[0] - 1e-9, values[0]), (times[0] - 50, values[0]), (times[-1] + 1e-9, values[-1])):
        for column in (0, 1):
            assert curve.value(t, column) == pytest.approx(value[column], abs=1e-13)
            assert [curve.value(t, column, k) for k in (1, 2, 3, 4)] == [0, 0, 0, 0]
    assert curve.value(times[0], 1, 1) != 0 and curve.value(times[-1], 1, 1) != 0


def test_error_has_no_value_beyond_the_knots_except_for_rounded_times() -> None:
    times, values = rows()
    curve = spline(times, values, extrapolate="error")
    length = times[-1] - times[0]
    assert np.isfinite(curve.value(times[-1] + 1e-12 * length, 0)) and curve.covers(times[-1] + 1e-12 * length)
    for t in (times[0] - 1e-6 * length, times[-1] + 1e-6 * length):
        assert not curve.covers(t)
        assert all(math.isnan(curve.value(t, 0, k)) for k in (0, 1, 2))


PROFILES = [("quintic", 2), ("septic", 3), ("trapezoidal", 1)]


@pytest.mark.parametrize(("profile", "smoothness"), PROFILES)
def test_waypoint_profiles_are_at_rest_at_each_waypoint_and_smooth_between(profile: str, smoothness: int) -> None:
    times, values = rows(5)
    curve = waypoint_curve(times, values, profile, 0.3)  # type: ignore[arg-type]
    assert curve.smoothness == smoothness
    assert np.allclose(curve.value(times, 0), values[:, 0], rtol=0, atol=1e-14)
    for t in times:
        for derivative in range(1, smoothness + 1):
            beside = [curve.value(np.nextafter(t, side), 1, derivative) for side in (-np.inf, np.inf)]
            assert np.abs(beside).max() < 1e-7
    for knot in curve.knots[1:-1]:
        for derivative in range(smoothness + 1):
            before, after = (curve.value(np.nextafter(knot, side), 1, derivative) for side in (-np.inf, np.inf))
            assert before == pytest.approx(after, abs=1e-7)


@pytest.mark.parametrize("profile", [name for name, _ in PROFILES])
def test_waypoint_profiles_go_one_way(profile: str) -> None:
    curve = waypoint_curve(np.array([0.0, 2.0]), np.array([[1.0], [4.0]]), profile, 0.25)  # type: ignore[arg-type]
    value = curve.value(np.linspace(0, 2, 500), 0)
    assert (np.diff(value) >= 0).all() and curve.value(1.0, 0) == pytest.approx(2.5, abs=1e-14)


def test_a_quintic_profile_has_the_peak_velocity_of_minimum_jerk() -> None:
    curve = waypoint_curve(np.array([0.0, 2.0]), np.array([[0.0], [3.0]]), "quintic")
    assert curve.value(1.0, 0, 1) == pytest.approx(15 / 8 * 3 / 2, rel=1e-14)


@pytest.mark.parametrize("blend", [0.1, 0.25, 0.5])
def test_a_trapezoidal_profile_has_constant_acceleration_in_its_blends(blend: float) -> None:
    curve = waypoint_curve(np.array([1.0, 3.0]), np.array([[0.0], [1.0]]), "trapezoidal", blend)
    speed = 1 / (1 - blend) / 2  # [1/s], of a way of 1 in 2 s
    middle, bend = np.linspace(1 + 2 * blend, 3 - 2 * blend, 7)[1:-1], speed / (2 * blend)
    assert np.allclose(curve.value(middle, 0, 1), speed) if blend < 0.5 else curve.value(2.0, 0, 1) == pytest.approx(1)
    assert np.allclose(curve.value(np.linspace(1, 1 + 2 * blend, 6)[:-1], 0, 2), bend)
    assert np.allclose(curve.value(np.linspace(3 - 2 * blend, 3, 6)[1:-1], 0, 2), -bend)


@pytest.mark.parametrize("extrapolate", ["hold", "periodic", "error"])
def test_symbols_have_the_values_and_all_derivatives_of_numbers(extrapolate: str) -> None:
    times, values = rows()
    values[-1] = values[0]
    curve = spline(times, values, "quintic", extrapolate)  # type: ignore[arg-type]
    signal, t = Signal("path", "x", curve, 1), ca.SX.sym("t")
    chain = [signal(Symbol(t)).sx]
    for _ in range(4):
        chain.append(ca.jacobian(chain[-1], t))
    both = ca.Function("f", [t], [*chain, *(signal.rate(Symbol(t), k).sx for k in (1, 2, 3, 4))])
    for at in [*inside(curve)[:60], curve.start - 0.7, curve.end + 0.7]:
        expected = [signal(at), *(signal.rate(at, k) for k in (1, 2, 3, 4))]
        found = [float(each) for each in both(at)]
        assert np.allclose(found[:5], expected, rtol=1e-12, atol=1e-12, equal_nan=True)
        assert np.allclose(found[5:], expected[1:], rtol=1e-12, atol=1e-12, equal_nan=True)


def test_signals_are_equal_by_content() -> None:
    one, same = (Signal("path", "x", spline(*rows()), 0) for _ in range(2))
    assert one == same and hash(one) == hash(same)
    assert one != Signal("path", "x", spline(*rows(seed=1)), 0)
    assert one != Signal("path", "x", spline(*rows(), extrapolate="error"), 0)
    assert one != Signal("path", "x", spline(*rows()), 1)
