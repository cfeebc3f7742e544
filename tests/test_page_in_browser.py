"""The page in a real browser: it opens, plays, scrubs, zooms, and asks nobody for anything."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import Tab, tab
from report_runs import caught, simulated

from servoctl.report.page import write
from servoctl.trajectory import Trajectory

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


@pytest.mark.parametrize("name", ["robots", "scara", "caught"])
def test_the_browser_reads_the_numbers_of_the_run_at_three_instants(
    name: str, browser: Any, runs: dict[str, Path], tmp_path: Path
) -> None:
    run = Trajectory.load(runs[name])
    with opened(browser, [runs[name]], tmp_path) as found:
        page = found.page
        for i in (0, len(run) // 2, len(run) - 1):
            page.evaluate("t => window.page.player.set(t)", run.t[i])
            for column in (f"q.{run.coordinates[0]}", f"u.{run.actuators[-1]}", f"violation.{run.rows[0]}"):
                seen = page.evaluate(
                    "([c]) => { const { columns } = window.page.content.runs[0];"
                    " return columns[c][nearest(columns.t, window.page.player.time)]; }",
                    [column],
                )
                assert seen == np.float32(run[column][i])
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
        theta = Trajectory.load(runs["robots"])["q.theta1"][100]
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


def test_the_animation_draws_the_pose_of_the_time_shown(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    """The canvas has the first arm's colour where its elbow stands, and after the arm has moved elsewhere."""
    with opened(browser, [runs["robots"]], tmp_path) as found:
        page = found.page
        picture = "() => document.getElementById('scene').toDataURL()"
        start = page.evaluate(picture)
        page.evaluate("window.page.player.set(2)")
        end = page.evaluate(picture)
        page.evaluate("window.page.player.set(0)")
        assert start != end and page.evaluate(picture) == start


def test_a_drawing_in_space_turns(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    with opened(browser, [runs["scara"]], tmp_path) as found:
        page = found.page
        before = page.evaluate("window.page.scene.look.azimuth")
        box = page.locator("#scene").bounding_box()
        page.mouse.move(box["x"] + 100, box["y"] + 100)
        page.mouse.down()
        page.mouse.move(box["x"] + 200, box["y"] + 120, steps=4)
        page.mouse.up()
        assert page.evaluate("window.page.scene.look.azimuth") != before
        found.shot("page_turned")


def test_several_runs_share_plots_and_table_and_can_be_hidden(
    browser: Any, runs: dict[str, Path], tmp_path: Path
) -> None:
    with opened(browser, [runs["robots"], runs["stiff"]], tmp_path) as found:
        page = found.page
        lines = "window.page.group.plots[0].u.series.slice(1)"
        assert page.evaluate(f"{lines}.length") == 10
        assert page.locator("#tables thead th").all_inner_texts()[:4] == ["", "unit", "robots", "stiff"]
        page.locator("input[data-run=stiff]").uncheck()
        assert page.evaluate(f"{lines}.map(s => s.show)") == 5 * [True] + 5 * [False]
        found.shot("page_two_runs")


def test_a_fault_stands_on_the_time_axis_and_in_the_table(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    with opened(browser, [runs["caught"]], tmp_path, color_scheme="dark") as found:
        page = found.page
        marks = page.evaluate("window.page.group.plots[0].spec.marks.filter(m => m.colour === '--bad')")
        fault = next(e for e in Trajectory.load(runs["caught"]).metadata["events"] if e["reaction"] == "stop")
        assert [mark["t"] for mark in marks] == [fault["t"]] and marks[0]["text"].startswith("u3: the drive reports")
        page.locator("tr.bad button").first.click()
        assert page.evaluate("window.page.player.time") == pytest.approx(fault["t"])
        found.shot("page_dark")


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    with opened(browser, [runs["caught"]], tmp_path, viewport={"width": 390, "height": 844}, has_touch=True) as found:
        page = found.page
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        found.shot("page_phone")


def test_a_folder_without_rows_opens_too(browser: Any, tmp_path: Path) -> None:
    Trajectory({"t": np.empty(0)}, {}, {"status": "failed", "error": "no first step"}).save(tmp_path / "run")
    with opened(browser, [tmp_path / "run"], tmp_path) as found:
        page = found.page
        assert "the run has no rows" in page.locator("#top").inner_text()
