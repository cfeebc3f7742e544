"""Ranges of axes: in no picture do a few extreme values hide the others."""

import re
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servoctl.report import figure
from servoctl.report.compare import overlay
from servoctl.report.page import BINS, Thinner
from servoctl.report.panels import leave_out_runaway
from servoctl.report.scales import calm_range, histogram_edges, scale_of
from servoctl.report.style import blank, drawing_style, log_scale, name_all_lines, show_scale, write
from servoctl.run_folder.trajectory import Trajectory
from servoctl.study.points import Vary
from servoctl.study.sweep import Study
from servoctl.study.sweep_files import draw
from servoctl.types import Array

T = np.linspace(0.0, 2.0, 201)
UNITS = {"q.x": "m", "v.x": "m/s", "u.F": "N", "violation.row": "m"}


def run(**columns: Array) -> Trajectory:
    """Columns by name, `q_x` for `q.x`."""
    return Trajectory({"t": T, **{name.replace("_", "."): x for name, x in columns.items()}}, UNITS)


def away(x: Array, last: float = 1e10) -> Array:
    """The line with another last value."""
    return np.append(x[:-1], last)


@pytest.mark.parametrize("value", [-7.5, 7.5])
def test_round_off_of_a_constant_input_does_not_fill_its_panel(value: float) -> None:
    inputs = figure(run(q_x=T, v_x=T, u_F=value + 1e-13 * np.sin(T)), "inputs").axes[0]
    low, high = inputs.get_ylim()
    assert high - low == pytest.approx(0.75) and low < value < high


def test_the_last_sample_of_a_diverged_run_does_not_flatten_the_rest() -> None:
    trajectory = run(q_x=away(np.sin(T)), v_x=np.cos(T), u_F=away(3.0 + np.sin(T), -4e9))
    coordinates, velocities = figure(trajectory, "coordinates").axes
    assert coordinates.get_ylim() == pytest.approx((-0.08, 1.08), abs=1e-3)
    assert coordinates.get_title(loc="right") == "beyond the axis: 1e+10 at 2 s"
    assert velocities.get_title(loc="right") == ""
    inputs = figure(trajectory, "inputs").axes[0]
    assert inputs.get_ylim() == pytest.approx((2.92, 4.08), abs=1e-3)
    assert inputs.get_title(loc="right") == "beyond the axis: -4e+09 at 2 s"
    phase = figure(trajectory, "path").axes[0]
    assert phase.get_xlim()[1] < 1.2 and phase.get_ylim()[1] < 1.2


def test_a_peak_in_the_middle_and_a_large_end_stay_in_the_picture() -> None:
    peak = np.sin(T)
    peak[100] = 400.0
    assert calm_range([peak]) is None
    assert calm_range([away(np.sin(T), 40.0)]) is None  # less than 50 times the rest
    assert calm_range([away(1e-16 * np.sin(T), 1.0)]) is None  # at rest before: rounding is no scale
    assert calm_range([away(np.zeros(201), 5.0)]) is None
    found = calm_range([away(np.sin(T), 1e6), 20.0 * np.cos(T)])
    assert found is not None and (found.row, found.value) == (200, 1e6)
    assert (found.low, found.high) == pytest.approx((20.0 * np.cos(2.0), 20.0))


def test_a_violation_that_diverges_at_the_end_leaves_the_axis() -> None:
    size = away(1e-3 * (2.0 + np.sin(T)))
    axes = figure(run(q_x=T, v_x=T, violation_row=size), "violations").axes[0]
    assert axes.get_ylim()[1] < 4e-3
    assert axes.get_title(loc="right") == "beyond the axis: 1e+10 at 2 s"


def test_a_mechanism_that_breaks_apart_is_drawn_until_then() -> None:
    arm = np.zeros((201, 2, 2))
    arm[:, 1] = np.stack([np.cos(T), np.sin(T)], axis=1)
    arm[-1] *= 1e9
    drawing = {"t": T, "arm": arm}
    axes = figure(Trajectory({"t": T, "q.x": T, "v.x": T}, UNITS, {}, drawing), "path").axes[0]
    assert max(np.abs([*axes.get_xlim(), *axes.get_ylim()])) < 3.0
    assert axes.get_title(loc="left").endswith("t = 0 to 1.99 s, then it runs away)")


def test_compared_runs_keep_the_range_of_the_run_that_does_not_diverge() -> None:
    runs = {"good": run(q_x=5.0 * np.sin(T), v_x=T), "bad": run(q_x=away(np.sin(T)), v_x=T)}
    axes = overlay(runs, "q").axes[0]
    assert axes.get_ylim() == pytest.approx((-0.4, 5.4), abs=0.01)
    assert axes.get_title(loc="right") == "beyond the axis: bad 1e+10 at 2 s"


def test_limits_are_inside_an_axis_that_leaves_values_out() -> None:
    with drawing_style():
        axes = blank(4, 3).add_subplot()
        axes.axhline(9.0, gid="limit F 9")
        leave_out_runaway(axes, {"": (T, [away(np.sin(T))])})
    assert axes.get_ylim() == pytest.approx((-0.72, 9.72))


def test_limits_are_hatched_and_only_passive_rows_are_dashed() -> None:
    trajectory = Trajectory({"t": T, "q.x": T, "v.x": T, "u.F": np.sin(T)}, UNITS, {"torque_limits": {"F": 1.5}})
    lines = figure(trajectory, "inputs").axes[0].get_lines()
    limits = [line for line in lines if str(line.get_gid()).startswith("limit ")]
    assert [line.get_linestyle() for line in limits] == ["-", "-"]
    assert [type(line.get_path_effects()[0]).__name__ for line in limits] == ["withTickedStroke"] * 2


def test_a_histogram_of_ticks_that_are_never_late_is_some_microseconds_wide() -> None:
    thinner = Thinner(100, counted=("lateness",))
    thinner("lateness", np.zeros(500))
    edges, counts = thinner.counts["lateness"]
    assert edges[0] > -2e-5 and edges[-1] < 2e-5 and counts.sum() == 500
    k = int(np.argmax(counts))
    assert edges[k] < 0.0 < edges[k + 1]  # not at an edge, where drawing may move it to either side
    drawn = figure(Trajectory({"t": T, "q.x": T, "lateness": 0.0 * T}, UNITS), "timing").axes[0]
    assert max(np.abs(drawn.get_xlim())) < 0.02  # [ms]


@pytest.mark.parametrize("value", [0.0, 1e-3, 1e-3 * (1 + 1e-15)])
def test_equal_values_up_to_rounding_have_a_histogram(value: float) -> None:
    x = np.array([1e-3 if value else 0.0, value])
    assert np.histogram(x, histogram_edges(x, BINS))[0].sum() == 2


@pytest.mark.parametrize(
    ("values", "kind", "ends", "beyond"),
    [
        ([1e-17, *np.geomspace(1e-3, 1.0, 24)], "log", (1e-3, 1.0), (1, 0)),  # one was exact
        ([0.0, *np.geomspace(1e-3, 1.0, 24)], "log", (1e-3, 1.0), (1, 0)),
        ([1e-17, *np.linspace(0.5, 1.0, 24)], "linear", (0.0, 1.0), (0, 0)),
        ([1e10, *np.linspace(0.5, 1.0, 24)], "linear", (0.5, 1.0), (0, 1)),  # one ran away
        ([1e-9, 1e-8, *np.geomspace(1e-7, 1.0, 23)], "log", (1e-9, 1.0), (0, 0)),  # far, but not apart
        ([1e-17, 1.0], "log", (1e-17, 1.0), (0, 0)),  # too few to judge
        ([-1.0, 2.0, 3.0], "linear", (-1.0, 3.0), (0, 0)),
    ],
)
def test_outliers_do_not_set_the_scale(
    values: list[float], kind: str, ends: tuple[float, float], beyond: tuple[int, int]
) -> None:
    found = scale_of(np.array(values))
    assert (found.kind, found.below, found.above) == (kind, *beyond)
    assert (found.low, found.high) == pytest.approx(ends, rel=1e-9, abs=1e-12)


def test_the_text_at_an_axis_counts_the_values_beyond_it() -> None:
    with drawing_style():
        axes = blank(4, 3).add_subplot()
        show_scale(axes, scale_of(np.array([1e10, *np.linspace(0.5, 1.0, 24)])))
    assert axes.get_ylim() == pytest.approx((0.46, 1.04))
    assert axes.get_title(loc="right") == "1 above this axis"


@pytest.mark.parametrize("named", [False, True])
def test_a_picture_that_is_written_has_room_for_the_labels_of_its_axes(named: bool) -> None:
    """Those of `tune` and `sweep` were cut off at the left edge."""
    with drawing_style():
        drawn = blank(4, 3, "a title")
        drawn.add_subplot().barh(["law correction baumgarte alpha"], [1.0])
        if named:
            name_all_lines(drawn)
        write(drawn, BytesIO())
    box = drawn.get_tightbbox(drawn.canvas.get_renderer())  # type: ignore[attr-defined]
    assert 0.0 < box.x0 < 0.2 and 3.8 < box.x1 < 4.0 and box.y0 > 0.0 and box.y1 < 3.0


def test_the_colour_scale_of_a_sweep_comes_from_the_runs_that_are_done() -> None:
    """One of 25 runs came out exact; the rest keeps its colours, and the bar has an arrow."""
    values = np.append(1e-18, np.geomspace(1e-3, 1.0, 24))
    x, y = (grid.ravel() for grid in np.meshgrid(np.arange(5.0), np.arange(5.0), indexing="ij"))
    varies = Vary("a=0:4:5", "a", 0.0, 4.0, 5), Vary("b=0:4:5", "b", 0.0, 4.0, 5)
    columns: dict[str, list[Any]] = {"a": list(x), "b": list(y), "rms": list(values), "status": ["done"] * 25}
    drawn = draw(Study("s", "", varies, "grid", 0, 25, columns, ("rms",), 1.0), "rms")
    assert drawn.axes[0].collections[0].get_clim() == pytest.approx((1e-3, 1.0))
    assert drawn.axes[0].collections[0].colorbar.extend == "min"


def test_pictures_in_the_docs_are_not_white_in_dark_mode() -> None:
    style = (Path(__file__).parents[1] / ".docs" / "pages" / "style.css").read_text()
    (rule,) = re.findall(r'\[data-md-color-scheme="slate"\] \.md-typeset img \{(.*?)\}', style, re.DOTALL)
    assert "invert(1)" in rule and "background" not in rule


@pytest.mark.parametrize("axis", ["x", "y"])
@pytest.mark.parametrize(("ends", "labels"), [((3, 40), ["5", "10", "20"]), ((0.002, 40), ["0.01", "0.1", "1", "10"])])
def test_the_numbers_of_a_logarithmic_axis_are_plain_and_apart(
    axis: Any, ends: tuple[float, float], labels: list[str]
) -> None:
    axes = blank(4, 3).add_subplot()
    log_scale(axes, axis)
    axes.set(**{f"{axis}lim": ends})
    scaled, part = (axes.xaxis, 0) if axis == "x" else (axes.yaxis, 1)
    places = {text.get_text(): text.get_position()[part] for text in scaled.get_ticklabels(which="both")}
    inside = {text: place for text, place in places.items() if text and ends[0] <= place <= ends[1]}
    assert sorted(inside, key=lambda text: inside[text]) == labels
