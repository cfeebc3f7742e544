"""Pictures and films of runs."""

import itertools
import re
import shutil
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image

import servoctl as sc
from servoctl.errors import MissingPackageError, RunFolderError
from servoctl.report import DPI, FIGURES, PRINTED, figure, gives, plot, report
from servoctl.report.film import RATE, _scene, film
from servoctl.report.mechanism import Mechanism, view
from servoctl.report.page import Thinner
from servoctl.report.style import NAMED, chosen, colours, envelope, spread
from servoctl.report.timing import stage_spans
from servoctl.run_folder.trajectory import Trajectory


def two_arms(rows=200, **more):
    """Two arms of five links lift an object: made up, but shaped like a run."""
    t = np.linspace(0.0, 2 * np.pi, rows)
    columns, units = {"t": t}, {"t": "s", "residual": "m/s^2"}
    unit = {"theta1": "rad", "theta2": "rad", "lift": "m"}
    for prefix, wave, per in (("q", np.sin, ""), ("v", np.cos, "/s")):
        for k, name in enumerate(unit):
            columns[f"{prefix}.{name}"] = k + wave(t + k)
            units[f"{prefix}.{name}"] = unit[name] + per
    for k in range(6):
        columns[f"u.u{k + 1}"] = k * np.cos(t)
        units[f"u.u{k + 1}"] = "N m"
    for k, name in enumerate(("object_x", "object_y", "level")):
        columns[f"violation.{name}"] = 0.1 * np.exp(-(k + 5) * t)
        units[f"violation.{name}"] = "rad" if name == "level" else "m"
    for name in ("loop_x", "loop_y"):
        columns[f"passive.{name}"] = np.where(t < 1.0, 0.0, -1e-12 * t)
        units[f"passive.{name}"] = "m"
    columns |= {"rank": np.full(rows, 3), "residual": np.full(rows, 1e-15), "pivot_min": np.full(rows, 0.1)}
    columns |= {"status": np.zeros(rows, int)} | more
    height = 0.5 * (1 - np.cos(t))
    link = np.linspace(0.0, 1.0, 6)
    arm = np.stack([np.broadcast_to(link, (rows, 6)), height[:, None] * link + np.sin(np.pi * link)], axis=-1)
    corners = np.array([[1.0, 0.0], [2.0, 0.0], [2.0, 0.3], [1.0, 0.3], [1.0, 0.0]])
    box = corners + np.stack([0 * t, height], axis=-1)[:, None, :]
    drawing = {"left": arm, "right": [3.0, 0.0] + [-1.0, 1.0] * arm, "object": box, "t": t}
    metadata = {"config": "coordinated_robots", "engine": "c", "status": "completed"}
    return Trajectory(columns, units, metadata, drawing)


@cache
def drawn_of(name):
    """A picture of the two arms, drawn once for the tests that only look at it."""
    return figure(two_arms(), name)


def without_drawing(run):
    return Trajectory(run.columns, run.units, run.metadata)


def only(run, *prefixes):
    columns = {name: x for name, x in run.columns.items() if name.split(".")[0] in ("t", *prefixes)}
    return Trajectory(columns, run.units, run.metadata)


def lines(drawn):
    """Name -> (x, y) of every named line; an axes label first where a name occurs in several panels."""
    return {
        (axes.get_ylabel(), line.get_gid()): line.get_xydata().T
        for axes in drawn.axes
        for line in axes.get_lines()
        if line.get_gid()
    }


def texts(drawn):
    return [text.get_text() for axes in drawn.axes for text in axes.texts]


def png_size(path):
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    return tuple(int.from_bytes(content[k : k + 4], "big") for k in (16, 20))


def test_report_writes_one_file_per_picture(tmp_path):
    files = report(two_arms(), tmp_path / "new" / "folder")
    assert [file.name for file in files] == [
        f"{name}.png" for name in ("overview", "path", "coordinates", "inputs", "violations")
    ]
    width, height = png_size(files[0])
    assert (width, height) == (11 * DPI, round(7.6 * DPI))
    assert width >= 1200
    assert all(png_size(file)[0] >= 1200 for file in files)


def test_missing_quantities_are_not_drawn(tmp_path):
    files = report(only(two_arms(), "q", "v"), tmp_path)
    assert [file.stem for file in files] == ["overview", "path", "coordinates"]
    assert report(Trajectory({}), tmp_path) == []
    assert report(Trajectory({"t": np.empty(0), "q.x": np.empty(0), "v.x": np.empty(0)}), tmp_path) == []


def test_lines_carry_the_data_to_the_bit():
    run = two_arms()
    drawn = lines(drawn_of("inputs"))
    for k in range(6):
        t, u = drawn["u [N m]", f"u{k + 1}"]
        assert np.array_equal(t, run.t)
        assert np.array_equal(u, run[f"u.u{k + 1}"])


def test_coordinates_are_grouped_by_unit():
    run = two_arms()
    drawn = lines(drawn_of("coordinates"))
    assert list(drawn) == [
        ("q [rad]", "theta1"),
        ("q [rad]", "theta2"),
        ("q [m]", "lift"),
        ("v [rad/s]", "theta1"),
        ("v [rad/s]", "theta2"),
        ("v [m/s]", "lift"),
    ]
    assert np.array_equal(drawn["v [m/s]", "lift"][1], run["v.lift"])


def test_errors_are_drawn_by_unit_and_rows_at_round_off_are_counted():
    run = two_arms()
    drawn = drawn_of("violations")
    assert [axes.get_ylabel() for axes in drawn.axes] == ["error [m]", "error [rad]"]
    assert {axes.get_yscale() for axes in drawn.axes} == {"linear"}
    found = lines(drawn)
    assert np.array_equal(found["error [m]", "object_x"][1], run["violation.object_x"])
    assert not any("loop" in name for _, name in found)
    assert "2 rows below 1e-9: round-off" in texts(drawn)


def test_rows_of_the_mechanism_are_dashed_and_the_title_says_so():
    loose = {"passive.loop_y": np.linspace(0.0, -1e-3, 200)}
    axes = figure(two_arms(**loose), "violations").axes[0]
    styles = {line.get_gid(): line.get_linestyle() for line in axes.get_lines() if line.get_gid()}
    assert (styles["object_x"], styles["loop_y"]) == ("-", "--")
    assert axes.get_title(loc="left") == "Task error (dashed: mechanism constraints)"


def test_a_run_at_round_off_has_a_sentence_in_place_of_lines(tmp_path):
    zero = {f"violation.{name}": np.zeros(200) for name in ("object_x", "object_y", "level")}
    run = only(two_arms(**zero), "q", "v", "violation")
    assert "violations.png" in [file.name for file in report(run, tmp_path)]
    drawn = figure(run, "violations")
    assert lines(drawn) == {} and texts(drawn) == ["3 rows below 1e-9: round-off"]


def test_the_mechanism_is_drawn_at_several_instants_from_light_to_dark():
    run = two_arms()
    axes = drawn_of("path").axes[0]
    arms = [
        line for line in axes.get_lines() if str(line.get_gid()).startswith("left") and "trace" not in line.get_gid()
    ]
    assert len(arms) == 8
    light = [sum(matplotlib.colors.to_rgb(line.get_color())) for line in arms]
    assert light == sorted(light, reverse=True)
    assert np.array_equal(arms[0].get_xydata(), run.drawing["left"][0])
    assert np.array_equal(arms[-1].get_xydata(), run.drawing["left"][-1])


def test_the_path_of_an_end_is_drawn_and_of_a_closed_outline_that_of_its_middle():
    run = two_arms()
    drawn = lines(drawn_of("path"))
    assert np.array_equal(drawn["y [m]", "left trace"].T, run.drawing["left"][:, -1])
    middle = drawn["y [m]", "object trace"]
    assert np.allclose(middle[0], 1.5, rtol=1e-15)
    assert np.allclose(middle[1], 0.15 + 0.5 * (1 - np.cos(run.t)), atol=1e-15)


def test_a_point_that_never_moves_has_a_support():
    axes = drawn_of("path").axes[0]
    stands = [tuple(point) for line in axes.get_lines() if line.get_marker() == 6 for point in line.get_xydata()]
    assert stands == [(0.0, 0.0), (3.0, 0.0)]


def test_a_support_that_drifts_as_constraints_do_is_one_as_on_the_page():
    run = two_arms()
    run.drawing["left"] = run.drawing["left"] + 1e-7 * run.t[:, None, None]
    axes = figure(run, "path").axes[0]
    assert sum(len(line.get_xdata()) for line in axes.get_lines() if line.get_marker() == 6) == 2


def test_a_drawing_that_is_flat_in_space_keeps_its_true_axes():
    points = np.zeros((4, 3, 3))
    points[..., 0] = np.arange(3)
    points[..., 2] = np.arange(4)[:, None]
    seen = view({"arm": points})
    assert seen.labels == ("x [m]", "z [m]")
    assert np.array_equal(seen.matrix, [[1, 0, 0], [0, 0, 1]])


def test_a_drawing_in_space_is_not_distorted():
    seen = view({"arm": np.random.default_rng(0).normal(size=(5, 3, 3))})
    assert np.allclose(seen.matrix @ seen.matrix.T, np.eye(2), atol=1e-15)  # orthographic
    assert seen.matrix[1, 2] > 0  # z is up
    assert seen.labels is None


def test_directions_of_space_are_labelled_with_their_length(tmp_path):
    rng = np.random.default_rng(0)
    run = two_arms()
    run = Trajectory(run.columns, run.units, run.metadata, {"arm": rng.uniform(size=(9, 4, 3)), "t": np.arange(9.0)})
    drawn = figure(run, "path")
    assert {"x", "y", "z", "each 0.2 m"} <= set(texts(drawn))


def test_frames_that_are_not_finite_are_skipped(tmp_path):
    run = two_arms()
    run.drawing["left"][-50:] = np.nan
    machine = Mechanism(run)
    t, kept = machine.t, machine.lines
    assert len(t) == 150
    assert np.isfinite(kept["right"]).all()
    run.drawing["left"][:] = np.nan
    assert len(report(run, tmp_path, names=["overview", "path"])) == 2  # phase pictures instead
    assert sum(gives(run, name) for name in FIGURES) == 5


def test_without_a_drawing_the_path_is_velocity_over_coordinate():
    run = without_drawing(two_arms())
    drawn = figure(run, "path")
    assert [axes.get_xlabel() for axes in drawn.axes] == ["theta1 [rad]", "theta2 [rad]", "lift [m]"]
    q, v = lines(drawn)["der(lift) [m/s]", "lift"]
    assert np.array_equal(q, run["q.lift"])
    assert np.array_equal(v, run["v.lift"])


def test_the_overview_has_four_panels_and_the_name_of_the_run():
    drawn = drawn_of("overview")
    titles = [axes.get_title(loc="left") for axes in drawn.axes]
    assert [title.split(" (")[0] for title in titles if title] == ["Path", "Coordinates", "Inputs", "Task error"]
    assert drawn.get_suptitle() == "coordinated_robots"
    assert drawn.texts[-1].get_text() == "6.283 s, 200 rows, engine c, completed"


def test_panels_do_not_overlap():
    drawn = drawn_of("overview")
    drawn.draw_without_rendering()
    boxes = [axes.get_tightbbox() for axes in drawn.axes]
    for k, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:k])
        assert box.x1 <= drawn.bbox.x1
        assert box.y1 <= drawn.bbox.y1


def test_lines_are_named_at_their_ends_without_covering_each_other():
    drawn = drawn_of("inputs")
    names = {text.get_text(): text.get_window_extent() for text in drawn.axes[0].texts}
    assert list(names) == ["u1", "u2", "u3", "u4", "u5", "u6"]
    boxes = sorted(names.values(), key=lambda box: box.y0)
    assert all(low.y0 + 0.8 * low.height <= high.y0 for low, high in itertools.pairwise(boxes))


def test_of_many_lines_some_are_labelled_and_the_others_counted():
    run = two_arms()
    crowd = {"t": run.t} | {f"{p}.x{k}": np.sin(run.t + k) for p in "qv" for k in range(50)}
    drawn = figure(Trajectory(crowd), "coordinates")
    assert texts(drawn).count("and 44 more") == 2
    assert len(texts(drawn)) == 2 * (NAMED - 1)
    assert len(lines(drawn)) == 100


def test_names_that_matplotlib_would_hide_or_set_as_formulas_are_shown():
    t = np.arange(3.0)
    drawn = figure(Trajectory({"t": t, "q._hidden": t, "v._hidden": t, "u.a": t}), "coordinates")
    assert texts(drawn) == ["_hidden", "_hidden"]


def test_a_bound_that_holds_the_inputs_is_drawn_thick_and_named_once():
    t = np.arange(4.0)
    drawn = figure(Trajectory({"t": t, "bound.disc": t[::-1], "bound_active.disc": (t > 1.5) * 1.0}), "bounds")
    thick = [line for line in drawn.axes[0].get_lines() if line.get_linewidth() == 4]
    assert [np.nanmin(line.get_xdata()[np.isfinite(line.get_ydata())]) for line in thick] == [2.0]
    assert texts(drawn) == ["disc"]


def on_drives(rows=300):
    t = np.linspace(0.0, 3.0, rows)
    late = np.where(np.arange(rows) == 100, 2e-3, 1e-5)
    more = {"lateness": late, "age.axle1": np.full(rows, 1e-3), "age.axle2": np.linspace(0.0, 2e-3, rows)}
    run = two_arms(rows, t=t, **more)
    run.metadata["events"] = [
        {"t": 0.5, "event": "stage", "reaction": "note", "text": "ramp"},
        {"t": 2.0, "event": "drive_fault", "reaction": "stop", "text": "axle1: $over$ current"},
        {"t": 2.5, "event": "lost", "reaction": "disable", "text": "axle2: silent"},
    ]
    return run


def test_timing_counts_every_tick_and_marks_every_event(tmp_path):
    run = on_drives()
    assert [file.name for file in report(run, tmp_path, names=["timing"])] == ["timing.png"]
    drawn = figure(run, "timing")
    counted, late, ages_counted, ages = drawn.axes
    assert [sum(patch.get_data().values.sum() for patch in axes.patches) for axes in (counted, ages_counted)] == [
        300,
        600,
    ]
    data = lines(drawn)
    assert data["lateness [ms]", "lateness"][1].tobytes() == (1e3 * run["lateness"]).tobytes()
    assert data["age [ms]", "axle2"][1].tobytes() == (1e3 * run["age.axle2"]).tobytes()
    for axes in (late, ages):
        marks = [[segment[0, 0] for segment in marks.get_segments()] for marks in axes.collections]
        assert marks == [[0.5], [2.0, 2.5]]
    assert late.get_title(loc="left") == "first stop at 2 s: axle1: $over$ current"
    assert "None" not in texts(drawn)


def test_a_machine_at_rest_stands_on_no_supports():
    """Every joint and every corner was drawn as one, in shadow for example."""

    def supports(run):
        (axes,) = figure(run, "path").axes
        return sum(len(line.get_xdata()) for line in axes.get_lines() if line.get_marker() == 6)

    run = two_arms()
    assert supports(run) == 2  # the feet of the arms
    run.drawing.update({name: x[:1].repeat(len(x), axis=0) for name, x in run.drawing.items() if name != "t"})
    assert supports(run) == 0


def test_ages_of_drives_that_are_off_at_the_end_do_not_count():
    run = on_drives()
    run.columns["age.axle1"] = np.where(run.t < 2.0, 1e-3, run.t - 2.0)
    run.metadata["loop_end"] = 2.0
    ticks = np.count_nonzero(run.t < 2.0)
    counted, _late, ages_counted, ages = figure(run, "timing").axes
    counts = [sum(patch.get_data().values.sum() for patch in axes.patches) for axes in (counted, ages_counted)]
    assert counts == [ticks, 2 * ticks]
    (age,) = (line for line in ages.get_lines() if line.get_gid() == "axle1")
    assert np.nanmax(age.get_ydata()) == 1.0 and ages.get_xlim()[1] >= 3.0
    thinner = Thinner(100, counted=("age.",), loop_end=2.0)
    thinner("t", run.t)
    kept = thinner("age.axle1", run["age.axle1"])
    assert np.nanmax(kept) == 1e-3 and thinner.counts["age.axle1"][1].sum() == ticks


def test_stages_are_bands_and_violations_are_those_of_the_task():
    run = on_drives()
    run.columns["stage"] = np.where(run.t < 1.0, 0, np.where(run.t < 2.0, 1, 2))
    run.metadata["stages"] = ["ramp", "full", "stopping"]
    run.metadata["torque_limits"] = dict.fromkeys(run.actuators, 1.5 * np.abs(run.u).max())
    begin, stop = run.t[run.t >= 1.0][0], run.t[run.t >= 2.0][0]
    assert stage_spans(run) == [(0.0, begin, "ramp"), (begin, stop, "full"), (stop, 3.0, "stopping")]
    drawn = figure(run, "violations")
    for line in drawn.axes[0].get_lines():
        if line.get_gid() in run.group("violation"):
            seen = np.isfinite(line.get_ydata())
            assert (seen == ((run.t >= begin) & (run.t < stop))).all()
    assert {patch.get_gid() for patch in drawn.axes[0].patches} == {"stage ramp", "stage full", "stage stopping"}
    assert [line.get_xdata()[0] for line in drawn.axes[0].get_lines() if line.get_gid() == "first stop"] == [2.0]
    limits = [
        line for axes in figure(run, "inputs").axes for line in axes.get_lines() if "limit" in str(line.get_gid())
    ]
    assert sorted({line.get_ydata()[0] for line in limits}) == [-1.5 * np.abs(run.u).max(), 1.5 * np.abs(run.u).max()]
    run.metadata["torque_limits"] = dict.fromkeys(run.actuators, 40.0)
    (axes,) = figure(run, "inputs").axes
    assert not any("limit" in str(line.get_gid()) for line in axes.get_lines())
    assert axes.get_title(loc="right") == "limits far from the inputs: ±40"
    run.metadata["law_limits"] = {name: (-30.0, 50.0) for name in run.actuators}
    (axes,) = figure(run, "inputs").axes
    assert axes.get_title(loc="right") == "limits far from the inputs: -30, 40"


def test_timing_is_drawn_only_for_runs_with_timing(tmp_path):
    assert not gives(two_arms(), "timing")
    run = only(on_drives(), "age", "q", "v")
    assert len(figure(run, "timing").axes) == 2
    silent = on_drives()
    silent.columns["lateness"][:] = np.nan
    assert len(figure(silent, "timing").axes) == 2


def test_a_long_line_is_thinned_to_its_envelope():
    t = np.arange(1e6)
    x = np.random.default_rng(0).normal(size=1_000_000)
    x[123_456], x[654_321] = 99.0, -99.0
    thin_t, thin_x = envelope(t, x)
    assert len(thin_t) < 4000
    assert (thin_x.max(), thin_x.min()) == (99.0, -99.0)
    assert (thin_t[0], thin_t[-1]) == (t[0], t[-1])
    assert np.all(np.diff(thin_t) > 0)
    assert np.array_equal(x[thin_t.astype(int)], thin_x)


def test_a_gap_in_a_long_line_stays_a_gap():
    x = np.ones(100_000)
    x[40_000:60_000] = np.nan
    t, thin = envelope(np.arange(100_000.0), x)
    assert np.isnan(thin[(t > 41_000) & (t < 59_000)]).all()
    assert np.isfinite(thin[(t < 39_000) | (t > 61_000)]).all()


def test_huge_numbers_and_a_run_of_one_row_do_not_break_a_picture():
    wild = np.ones(200)
    wild[10], wild[20], wild[30] = np.inf, np.nan, 1e308
    run = two_arms(**{"u.u1": wild, "q.lift": wild, "violation.level": wild, "u.u2": wild * np.nan})
    for drawn in (run, two_arms(rows=1)):
        names = [name for name in FIGURES if gives(drawn, name)]
        assert len(names) == 5
        for name in names:
            figure(drawn, name).draw_without_rendering()


def test_the_users_matplotlib_settings_have_no_effect_and_do_not_change(tmp_path):
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black"}):
        before = dict(matplotlib.rcParams)
        drawn = figure(two_arms(), "inputs")
        report(two_arms(), tmp_path, names=["inputs"])
        assert dict(matplotlib.rcParams) == before
    assert drawn.axes[0].get_facecolor() == (1.0, 1.0, 1.0, 1.0)
    assert drawn.axes[0].yaxis.label.get_fontsize() == 9


def test_labels_keep_their_distance_and_stay_inside():
    places = spread([0.0, 0.0, 0.5, 0.51, 1.0, 1.0], 0.1)
    assert np.all(np.diff(places) >= 0.1 - 1e-12)
    assert places[0] >= 0.0
    assert places[-1] <= 1.0 + 1e-12
    assert np.allclose(spread([0.1, 0.5, 0.9], 0.1), [0.1, 0.5, 0.9], atol=1e-15)  # nobody moves without need
    assert np.allclose(spread([0.5, 0.5], 0.2), [0.4, 0.6], atol=1e-15)
    assert np.allclose(np.diff(spread([0.5] * 30, 0.1)), 1 / 29, rtol=1e-12)  # no room: all move closer
    assert spread([], 0.1) == []


def test_colours_differ_for_any_number_of_lines():
    for count in (1, 8, 9, 60):
        names = [f"x{k}" for k in range(count)]
        assert len(set(colours(names).values())) == count
        assert chosen(names)[0] == "x0"
        assert len(chosen(names)) <= NAMED


def test_plot_writes_the_overview_to_the_given_path(tmp_path):
    drawn = plot(two_arms(), tmp_path / "run.pdf")
    assert drawn.get_suptitle() == "coordinated_robots"
    assert (tmp_path / "run.pdf").read_bytes().startswith(b"%PDF")
    assert plot(two_arms()).axes


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"overview\.png: cannot be written"):
        report(two_arms(), tmp_path / "file")


@pytest.mark.parametrize("name", ["violations", "run.jpg"])
def test_a_picture_of_another_kind_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(sc.errors.RunFolderError, match=r"ends in \.png or \.pdf"):
        sc.plot(sc.load("two_mass_spring", ["run.duration=0.1"], engine="vm").simulate(), tmp_path / name)
    assert not list(tmp_path.iterdir())


def swinging(seconds: float) -> Trajectory:
    """A rod that turns once."""
    t = np.linspace(0.0, seconds, 101)
    angle = 2 * np.pi * t / seconds
    tip = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    rod = np.stack([np.zeros_like(tip), tip], axis=1)
    return Trajectory({"t": t, "q.angle": angle, "v.angle": 0 * t}, {}, {"config": "rod"}, {"rod": rod, "t": t})


def test_a_gif_lasts_as_long_as_the_run_and_moves(tmp_path: Path) -> None:
    with Image.open(film(swinging(1.0), tmp_path / "film.gif")) as image:
        assert image.n_frames == RATE  # type: ignore[attr-defined]
        first = np.asarray(image.convert("RGB"))
        image.seek(RATE // 2)
        assert np.any(np.asarray(image.convert("RGB")) != first)
        assert image.info["duration"] == 1000 // RATE


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")
def test_an_mp4_is_written_completely(tmp_path: Path) -> None:
    path = film(swinging(0.2), tmp_path / "film.mp4")
    assert path.read_bytes()[4:8] == b"ftyp"
    assert [file.name for file in tmp_path.iterdir()] == ["film.mp4"]


def test_without_ffmpeg_an_mp4_is_an_error_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPackageError, match=r"ffmpeg is not installed \(.* or use --gif\)"):
        film(swinging(1.0), tmp_path / "film.mp4")


def test_an_error_of_ffmpeg_is_told_in_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program := tmp_path / "ffmpeg").write_text("#!/bin/sh\necho Unknown encoder >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPackageError, match=r"^ffmpeg: Unknown encoder \(install a complete ffmpeg, or"):
        film(swinging(0.2), tmp_path / "film.mp4")


def test_a_spring_has_no_joints_and_one_row_is_singular() -> None:
    drawn = figure(
        sc.load("two_mass_spring", ["run.duration=0.01", "run.output_step=0.01"], engine="vm").simulate(), "path"
    )
    last = {line.get_gid(): line.get_marker() for line in drawn.axes[0].get_lines()}
    assert (last["spring"], last["mass1"]) == ("None", "o")
    run = two_arms(rows=1)
    assert figure(run, "overview").texts[-1].get_text() == "0 s, 1 row, engine c, completed"


def test_a_film_in_space_has_directions_and_a_length() -> None:
    run = swinging(0.1)
    run.drawing["arm"] = np.random.default_rng(0).normal(size=(len(run.drawing["t"]), 3, 3))
    _, axes = _scene(run, Mechanism(run))
    assert [text.get_text() for text in axes.texts] == ["x", "y", "z", "each 1 m"]
    assert all(
        axes.get_xlim()[0] < text.xy[0] < axes.get_xlim()[1] and axes.get_ylim()[0] < text.xy[1] for text in axes.texts
    )


def test_the_name_of_a_film_stands_in_its_corner_however_narrow_the_machine_is() -> None:
    """Over narrow axes it and the time were written into each other."""
    run = swinging(0.1)
    run.metadata["config"] = "a_machine_that_is_high"
    run.drawing["rod"] = run.drawing["rod"] * [0.01, 1.0]
    canvas, axes = _scene(run, Mechanism(run))
    canvas.draw()
    (name,) = canvas.figure.texts
    assert (name.get_text(), name.get_window_extent().x0) == ("a_machine_that_is_high", pytest.approx(14.08))
    assert axes.get_window_extent().width < name.get_window_extent().width


def test_a_run_without_drawing_has_no_film(tmp_path: Path) -> None:
    run = swinging(1.0)
    with pytest.raises(RunFolderError, match="the run has no drawing to animate"):
        film(Trajectory(run.columns), tmp_path / "film.gif")


def test_a_pdf_has_vectors_and_the_width_of_a_printed_page(tmp_path: Path) -> None:
    (overview, *_) = report(swinging(1.0), tmp_path, "pdf")
    content = overview.read_bytes()
    width = float(re.search(rb"/MediaBox \[ 0 0 ([\d.]+)", content)[1])  # type: ignore[index]
    assert overview.name == "overview.pdf" and width == pytest.approx(72 * PRINTED, abs=0.1)
    assert b"/Subtype /Image" not in content
