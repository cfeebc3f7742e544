"""The page in a real browser: it opens, plays, zooms, and makes no requests."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servoctl.report.page import write
from servoctl.report.timing import of_task
from servoctl.run_folder import load_run, save
from servoctl.run_folder.trajectory import Trajectory
from tests.chromium import Tab, tab
from tests.report_runs import caught, simulated

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("runs")
    return {
        "robots": simulated("coordinated_robots", home / "robots", "run.duration=2"),
        "stiff": simulated("coordinated_robots", home / "stiff", "run.duration=2", "law.correction.baumgarte.beta=30"),
        "scara": simulated("scara", home / "scara", "run.duration=4"),
        "caught": caught(home / "caught"),
    }


@contextmanager
def opened(browser: Any, folders: list[Path], tmp_path: Path, **settings: Any) -> Iterator[Tab]:
    """The page of these runs, ready; it asks for files only."""
    with tab(browser, "file:", **settings) as found:
        found.page.goto(write(folders, tmp_path / "report.html").as_uri())
        found.until("window.page !== undefined")
        yield found


@pytest.fixture(scope="module")
def shown(
    browser: Any, runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Tab]]:
    """The page of a run, opened once for the tests that find what they need whatever another has done with it."""
    with ExitStack() as tabs:
        yield cache(lambda name: tabs.enter_context(opened(browser, [runs[name]], tmp_path_factory.mktemp(name))))


@pytest.mark.parametrize("name", ["robots", "scara", "caught"])
def test_the_browser_reads_the_numbers_of_the_run_at_three_instants(
    name: str, shown: Callable[[str], Tab], runs: dict[str, Path]
) -> None:
    run, found = load_run(runs[name]), shown(name)
    page = found.page
    for i in (0, len(run) // 2, len(run) - 1):
        page.evaluate("t => window.page.player.set(t)", run.t[i])
        for column in (f"q.{run.coordinates[0]}", f"u.{run.actuators[-1]}", f"violation.{run.rows[0]}"):
            seen = page.evaluate(
                "([c]) => { const { columns } = window.page.content.runs[0];"
                " return columns[c][nearest(columns.t, window.page.player.time)]; }",
                [column],
            )
            expected = of_task(run, run[column]) if column.startswith("violation.") else run[column]
            np.testing.assert_equal(seen, np.float32(expected[i]))
    found.shot(f"page_{name}")


def test_play_scrub_zoom_and_keys_move_everything_together(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    with opened(browser, [runs["robots"]], tmp_path) as found:
        page = found.page
        time = "window.page.player.time"

        page.keyboard.press(" ")
        found.until(f"{time} > 0.1")
        page.keyboard.press(" ")
        stopped = page.evaluate(time)
        assert not page.evaluate("window.page.player.playing") and 0.1 < stopped < 2
        page.keyboard.press("ArrowRight")
        assert page.evaluate(time) == pytest.approx(stopped + 0.01, abs=1e-3)  # a row

        page.evaluate(
            "{ const s = document.getElementById('scrub'); s.value = 500; s.dispatchEvent(new Event('input')); }"
        )
        assert page.evaluate(time) == pytest.approx(1.0, abs=0.01)
        value = page.locator(".u-legend .u-value").nth(1).inner_text()
        theta = load_run(runs["robots"])["q.theta1"][100]
        assert value.split() == [f"{theta:.4g}", "rad"]

        box = page.locator(".u-over").first.bounding_box()
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 0.25 * box["width"], y)  # hovering scrubs
        assert page.evaluate(time) == pytest.approx(0.5, abs=0.02)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.75 * box["width"], y, steps=4)
        page.mouse.up()
        scales = "window.page.group.plots.map(p => [p.u.scales.x.min, p.u.scales.x.max])"
        found.until(f"({scales}).every(([a, b]) => Math.abs(a - 0.5) < 0.03 && Math.abs(b - 1.5) < 0.03)")
        found.shot("page_zoomed")
        page.mouse.dblclick(box["x"] + 0.5 * box["width"], y)
        found.until(f"({scales}).every(([a, b]) => a === 0 && b === 2)")


def test_the_animation_draws_the_pose_of_the_time_shown(shown: Callable[[str], Tab]) -> None:
    def picture(time: float) -> str:
        page.evaluate("t => window.page.player.set(t)", time)
        return str(page.evaluate("() => document.getElementById('scene').toDataURL()"))

    page = shown("robots").page
    start = picture(0.0)
    assert picture(2.0) != start and picture(0.0) == start


def test_an_obstacle_is_drawn_strong_while_its_bound_holds_the_inputs(browser: Any, tmp_path: Path) -> None:
    folder = simulated("arm_obstacle", tmp_path / "run", "run.duration=2")
    held = load_run(folder)["bound_active.disc"] > 0.5
    with opened(browser, [folder], tmp_path) as found:
        holds = "x => window.page.scene.runs[0].drawing.holds('disc', x)"
        assert [found.page.evaluate(holds, 0.005 * i + 0.001) for i in range(0, 400, 10)] == held[0:400:10].tolist()
        assert re.search(r"bound\s+unit\s+smallest h\s+holds \[s\]\s+violated \[s\]\s+disc", found.text("body"))


def test_the_floor_and_its_directions_are_in_the_picture(shown: Callable[[str], Tab]) -> None:
    found = shown("scara")
    corners = (
        "() => { const { low, high, cell, at } = window.page.scene, [lx, ly, lz] = low, [hx, hy] = high;"
        " return [[lx, ly, lz], [lx + 1.25 * cell, ly, lz], [lx, ly + 1.25 * cell, lz], [lx, ly, lz + 1.25 * cell],"
        " [hx, ly, lz], [lx, hy, lz], [hx, hy, lz]].map((p) => at(...p)); }"
    )
    seen = np.array(found.page.evaluate(corners))
    box = found.page.locator("#scene").bounding_box()
    assert (seen > 4.0).all() and (seen < np.array([box["width"], box["height"]]) - 4.0).all(), seen
    low, high, cell = (np.array(found.page.evaluate(f"window.page.scene.{name}")) for name in ("low", "high", "cell"))
    assert ((high - low)[:2] / cell) % 1.0 == pytest.approx([0.0, 0.0], abs=1e-6)  # whole cells


def test_a_drawing_in_space_turns(shown: Callable[[str], Tab]) -> None:
    found = shown("scara")
    page = found.page
    before = page.evaluate("window.page.scene.look.azimuth")
    box = page.locator("#scene").bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 120, steps=4)
    page.mouse.up()
    assert page.evaluate("window.page.scene.look.azimuth") != before
    found.shot("page_turned")


def test_a_drive_that_may_be_on_is_in_red_and_a_long_event_ends_in_dots(browser: Any, tmp_path: Path) -> None:
    said, long = "u: THE DRIVE DID NOT CONFIRM THAT IT IS OFF: use the emergency stop", "too many words " * 40
    events = [
        {"t": 1.0, "event": "starved", "reaction": "stop", "text": long},
        {"t": 6.0, "event": "not_confirmed", "reaction": "warn", "text": said},  # after the last row, at 4.99 s
    ]
    t = np.arange(0, 5, 0.01)
    save(Trajectory({"t": t, "q.x": t, "v.x": 0 * t}, {}, {"events": events, "error": long}), tmp_path / "run")
    with opened(browser, [tmp_path / "run"], tmp_path) as found:
        page = found.page
        assert page.evaluate("[...document.querySelectorAll('.run .bad')].map(e => e.textContent)").count(said) == 1
        assert page.locator("tr.bad").count() == 2
        assert page.evaluate("window.page.group.plots[0].spec.marks.map(m => m.colour)") == ["--bad", "--bad"]
        assert page.evaluate("window.page.group.plots[0].spec.marks.map(m => m.t)") == [1.0, t[-1]]
        pixels = "({ ctx, bbox: b }) => [...ctx.getImageData(b.left + b.width - 1, b.top, 3, b.height).data]"
        edge = np.reshape(page.evaluate(f"({pixels})(window.page.group.plots[0].u)"), (-1, 4))
        assert np.any((edge[:, 0] > edge[:, 1] + 60) & (edge[:, 3] > 0))  # the second one is drawn, at the very end
        room = 300.0
        shown = page.evaluate("x => fitting(window.page.group.plots[0].u.ctx, ...x)", [long, room])
        width = page.evaluate("x => window.page.group.plots[0].u.ctx.measureText(x).width", shown)
        assert shown.endswith("…") and long.startswith(shown[:-1]) and 0.9 * room < width <= room
        assert page.evaluate("x => fitting(window.page.group.plots[0].u.ctx, ...x)", ["short", room]) == "short"


def test_several_runs_share_plots_and_table_and_can_be_hidden(
    browser: Any, runs: dict[str, Path], tmp_path: Path
) -> None:
    with opened(browser, [runs["robots"], runs["stiff"]], tmp_path) as found:
        page = found.page
        lines = "window.page.group.plots[0].u.series.slice(1)"
        assert page.evaluate(f"{lines}.length") == 10
        assert page.locator("#tables thead th").all_inner_texts()[:4] == ["", "unit", "robots", "stiff"]
        settled = page.locator("#tables tr", has_text=": settled").first.locator("td").all_inner_texts()
        assert settled[1] == "s" and "[s]" not in settled[0], "a unit of its own, not that of the task"
        page.locator("input[data-run=stiff]").uncheck()
        assert page.evaluate(f"{lines}.map(s => s.show)") == 5 * [True] + 5 * [False]
        found.shot("page_two_runs")


def test_a_fault_is_shown_on_the_time_axis_and_in_the_table(
    browser: Any, runs: dict[str, Path], tmp_path: Path
) -> None:
    with opened(browser, [runs["caught"]], tmp_path, color_scheme="dark") as found:
        page = found.page
        marks = page.evaluate("window.page.group.plots[0].spec.marks.filter(m => m.colour === '--bad')")
        fault = next(e for e in load_run(runs["caught"]).metadata["events"] if e["reaction"] == "stop")
        assert [mark["t"] for mark in marks] == [fault["t"]] and marks[0]["text"].startswith("u3: the drive reports")
        page.locator("tr.bad button").first.click()
        assert page.evaluate("window.page.player.time") == pytest.approx(fault["t"])
        found.shot("page_dark")


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    with opened(browser, [runs["caught"]], tmp_path, viewport={"width": 390, "height": 844}, has_touch=True) as found:
        page = found.page
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        found.shot("page_phone")


DASH_OF_LIMITS = """() => {
  const { u } = window.page.group.plots.find((plot) => plot.spec.limits?.length);
  let dash = null;
  u.ctx.setLineDash([7, 4]);  // as the last line has left it
  u.ctx.stroke = function () { dash = this.getLineDash(); };
  drawLimits(u, { limits: [{ value: 8.1, side: 1 }] });
  delete u.ctx.stroke;
  return dash;
}"""
TICKS = "window.page.group.plots[{}].u.axes[1]._values"


def with_last(run: Trajectory, value: float) -> Trajectory:
    """The run with other last coordinates, velocities, inputs and violations, and a drawing that flies off."""
    columns = {name: np.array(x) for name, x in run.columns.items()}
    for name, x in columns.items():
        if name.startswith(("q.", "v.", "u.", "violation.")):
            x[-1] = value
    drawing = {name: np.array(points) for name, points in run.drawing.items()}
    for points in drawing.values():
        if points.ndim == 3:
            points[-1] *= value
    return Trajectory(columns, run.units, run.metadata, drawing)


def test_no_label_of_an_axis_is_cut(browser: Any, tmp_path: Path) -> None:
    t = np.arange(0, 5, 0.01)
    columns = {"t": t, "q.x": 2e5 + 3e4 * np.sin(t), "v.x": 1e-6 * np.cos(t), "u.F": 123456.0 + 2 * np.sin(9 * t)}
    save(Trajectory(columns, {}, {}), tmp_path / "run")
    with opened(browser, [tmp_path / "run"], tmp_path) as found:
        page = found.page
        assert page.evaluate(TICKS.format(0)) == ["1.8e5", "2.0e5", "2.2e5"]
        assert page.evaluate(TICKS.format(1)) == ["-1.0e-6", "-0.5e-6", "0", "0.5e-6", "1.0e-6"]
        assert page.evaluate(TICKS.format(2))[:2] == ["1.23454e5", "1.23455e5"]
        fits = (
            "window.page.group.plots.every(({ u }) => { const { _values, _size, ticks, gap, font } = u.axes[1];"
            " u.ctx.font = font[0];"
            " return _values.every((s) => u.ctx.measureText(s).width / devicePixelRatio <= _size - ticks.size - gap);"
            " })"
        )
        assert page.evaluate(fits)
        assert page.evaluate("tickLabels([0.25, 0.5, 0.75])") == ["0.25", "0.50", "0.75"]


def test_a_diverged_run_is_shown_until_it_diverges(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    save(with_last(load_run(runs["robots"]), 1e10), tmp_path / "run")
    with opened(browser, [tmp_path / "run"], tmp_path) as found:
        page = found.page
        y = "window.page.group.plots[{}].u.scales.y"
        assert page.evaluate(f"{y.format(0)}.max") < 2.0
        assert (
            "beyond the axis: 1.00e+10 at 2 s (zoom in to see it)" in page.locator("#plots .panel").first.inner_text()
        )
        assert page.evaluate("window.page.scene.extent") < 5.0
        page.evaluate("window.page.group.setRange([1.9, 2])")
        assert page.evaluate(f"{y.format(0)}.max") > 1e9


def test_one_exact_sample_and_ticks_that_are_never_late_do_not_set_the_scale(browser: Any, tmp_path: Path) -> None:
    t = np.arange(0, 5, 0.01)
    size = 1e-3 * np.exp(-0.2 * t)
    size[7] = 3e-17
    columns = {"t": t, "q.x": t, "rank": 0 * t + 1, "residual": size, "lateness": 0.0 * t}
    save(Trajectory(columns, {}, {}), tmp_path / "run")
    with opened(browser, [tmp_path / "run"], tmp_path) as found:
        page = found.page
        assert page.evaluate("window.page.group.plots.find(p => p.spec.log).u.scales.y.min") == pytest.approx(1e-4)
        span = page.evaluate("(({ min, max }) => max - min)(histograms[0].plots[0].u.scales.x)")
        assert 0 < span < 0.05  # [ms]


def test_round_off_of_a_constant_input_does_not_fill_its_panel(browser: Any, tmp_path: Path) -> None:
    t = np.arange(0, 5, 0.01)
    save(Trajectory({"t": t, "q.x": t, "u.F": 7.5 + 1e-13 * np.sin(t)}, {}, {}), tmp_path / "run")
    with opened(browser, [tmp_path / "run"], tmp_path) as found:
        y = found.page.evaluate("(({ min, max }) => [min, max])(window.page.group.plots[1].u.scales.y)")
        assert y == pytest.approx([6.75, 8.25])


def test_limits_are_hatched_and_dashes_are_the_second_run(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    limited = simulated("coordinated_robots_limited", tmp_path / "limited", "run.duration=0.5")
    with opened(browser, [limited, runs["stiff"]], tmp_path) as found:
        page = found.page
        text = page.locator("section[aria-label=Inputs]").inner_text()
        assert "hatched: limits" in text and "dashed" not in text
        assert page.evaluate(DASH_OF_LIMITS) == []


def test_at_400_pixels_every_value_of_a_table_is_visible(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    with opened(browser, [runs["caught"]], tmp_path, viewport={"width": 400, "height": 844}) as found:
        page = found.page
        ends = page.evaluate(
            "[...document.querySelectorAll('#tables table td')].map((cell) => cell.getBoundingClientRect().right)"
        )
        assert len(ends) > 100 and max(ends) <= 400
        cut = "[...document.querySelectorAll('#tables .scroll')].filter((box) => box.scrollWidth > box.clientWidth)"
        assert page.evaluate(f"{cut}.filter((box) => box.querySelector('table')).length") == 0
        assert "drift" in page.evaluate(
            "[...document.querySelectorAll('#tables td[data-head]')].map((cell) => cell.dataset.head)"
        )


def test_diagnostics_are_folded_until_they_are_asked_for(shown: Callable[[str], Tab]) -> None:
    found = shown("robots")
    section = found.page.locator("section[aria-label='Rank, pivot and residual of the law']")
    assert not section.locator(".panel").first.is_visible()
    section.locator("summary").click()
    panel = section.locator(".panel").first
    assert panel.is_visible()
    found.page.wait_for_timeout(200)
    drawn = section.locator("canvas").first.bounding_box()["width"]
    assert drawn > 0.9 * panel.bounding_box()["width"]


@pytest.mark.parametrize("size", [(1300, 700), (400, 844)])
def test_the_animation_stays_visible_while_the_plots_scroll(
    size: tuple[int, int], browser: Any, runs: dict[str, Path], tmp_path: Path
) -> None:
    width, height = size
    with opened(browser, [runs["robots"]], tmp_path, viewport={"width": width, "height": height}) as found:
        page = found.page
        page.evaluate("document.querySelectorAll('#plots details').forEach((box) => { box.open = true; })")
        page.evaluate("document.querySelector('#plots section:last-child').scrollIntoView({ block: 'end' })")
        box = page.locator("#player").bounding_box()
        assert page.evaluate("scrollY") > 500
        assert box["y"] >= -1 and box["y"] + box["height"] <= height


def test_a_folder_without_rows_opens_in_the_browser(browser: Any, tmp_path: Path) -> None:
    save(Trajectory({"t": np.empty(0)}, {}, {"status": "failed", "error": "no first step"}), tmp_path / "run")
    with opened(browser, [tmp_path / "run"], tmp_path) as found:
        page = found.page
        assert "the run has no rows" in page.locator("#top").inner_text()


def test_a_run_that_goes_on_is_not_called_bad(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    summary = json.loads((runs["robots"] / "summary.json").read_text())
    save(load_run(runs["robots"]), tmp_path / "run")
    (tmp_path / "run/summary.json").write_text(json.dumps(summary | {"status": "running"}))
    with opened(browser, [tmp_path / "run"], tmp_path) as found:
        assert "the run has not ended, or was killed" in found.page.locator("#top").inner_text()
        assert found.page.locator(".badge").inner_text() == "not ended"
        assert found.page.locator(".badge.bad").count() == 0


def test_a_run_that_ends_at_its_first_row_has_a_short_time_axis(browser: Any, tmp_path: Path) -> None:
    save(
        Trajectory({"t": np.zeros(1), "q.x": np.ones(1)}, {"t": "s", "q.x": "m"}, {"status": "stopped"}),
        tmp_path / "run",
    )
    with opened(browser, [tmp_path / "run"], tmp_path) as found:
        assert "0 s · 1 row" in found.page.locator("#top").inner_text().replace("\n", " ")
        low, high = found.page.evaluate("(({ min, max }) => [min, max])(window.page.group.plots[0].u.scales.x)")
        assert low <= 0 < high <= 1  # not the 100 s of an axis that knows no better


def test_what_the_model_does_not_explain_has_a_section(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    run = load_run(runs["robots"])
    columns = dict(run.columns) | {"disturbance.object_x": np.sin(run.t)}
    columns |= {"estimate.disturbance.theta1": np.cos(run.t), "estimate.sigma.theta1": np.full(len(run), 0.1)}
    units = dict(run.units) | {"estimate.disturbance.theta1": "rad/s^2"}
    save(Trajectory(columns, units, run.metadata), tmp_path / "run")
    with opened(browser, [tmp_path / "run"], tmp_path) as found:
        section = found.page.locator("section[aria-label='What the model does not explain']")
        said = section.inner_text()
        assert "Disturbance that the observer sees, by task row" in said
        assert "Disturbance that the estimator sees, by coordinate [rad/s^2]" in said
        assert "theta1 + 2 sigma" in said
        assert "dotted: 2 sigma around it" in said
        found.shot("page_disturbance")
