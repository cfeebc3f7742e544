"""The live page in a real browser: it opens, shows what moves, stops the run, and speaks to nobody else."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import Tab, tab
from tests.hil.live_page import ALPHA, LIVE, address_of
from tests.hil.wall_clock import Child, looping, summary_of

pytestmark = pytest.mark.slow

STROKE = "[{name: stroke, position: {x1: [-0.3, 0.3]}, acceleration: 8, rate: 40}]"


@contextmanager
def opened(browser: Any, loop: Child, scheme: str = "light") -> Iterator[Tab]:
    """The live page of a loop; it asks nobody but its own server."""
    port, token = address_of(loop)
    place = f"http://127.0.0.1:{port}/"
    with tab(browser, place, viewport={"width": 1400, "height": 1000}, color_scheme=scheme) as live:
        live.page.goto(f"{place}{token}/")
        yield live


def test_the_page_shows_what_moves_changes_a_gain_and_its_button_stops_the_run(browser: Any, tmp_path: Path) -> None:
    words = ["--view", "--duration", "600", "--set", f"hil.live={LIVE}"]
    with looping(tmp_path, Path("two_mass_spring_drive"), *words) as loop, opened(browser, loop) as live:
        page = live.page
        live.until("document.querySelector('#stage').textContent === 'full'")
        before = float(live.text("#time"))
        live.until(f"Number(document.querySelector('#time').textContent) > {before + 1}")
        assert not page.evaluate("document.body.classList.contains('stale')")
        assert page.evaluate("strips[0].table[0].length") > 10  # points of the plot of violations
        assert page.evaluate("plots.plots.every((plot) => plot.root.querySelector('canvas').width > 100)")
        drawn = "[...document.querySelector('#machine canvas').getContext('2d').getImageData(0, 0, 300, 300).data]"
        assert page.evaluate(f"{drawn}.some((x) => x > 0)")
        assert "of 10 N" in live.text("#torques")
        assert re.search(r"distance\S+ m", live.text("#violation"))
        assert not page.locator("#unexplained").is_visible()  # there is no observer
        assert re.search(r"F\s+[\d.]+", live.text("#ages"))
        assert "full" in live.text("#events")
        field = page.locator("#gains input[type=number]")
        field.fill("99")
        field.press("Enter")
        live.until("document.querySelector('#answer').textContent.includes('[1, 20], got 99')")
        live.wrong = [said for said in live.wrong if "422" not in said]  # the browser's own note on the refusal
        field.fill("12")
        field.press("Enter")
        live.until("document.querySelector('#gains .force').textContent === 'now 12 1/s'")
        assert f"{ALPHA}: the operator asks for another gain (8 -> 12 within 0.5 s)" in live.text("#events")
        live.shot("live-running")
        page.set_viewport_size({"width": 1400, "height": 600})
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        assert page.locator("#stop").bounding_box()["y"] < 60  # always in sight
        assert page.evaluate("scrollY") > 100
        head, machine = (page.locator(name).bounding_box() for name in (".top", "#machine"))
        assert head["height"] <= machine["y"] < head["height"] + 60  # beside the plots, whatever is scrolled to
        page.click("#stop")
        live.until("document.querySelector('#banner').textContent.startsWith('Loop ended: interrupted')")
        assert live.text("#status") == ""  # there is no law after the end, whose state would be an alarm
        assert loop.end() == 130
        assert "the operator stops the run (stop button of the live page)" in live.text("#events")
        assert page.evaluate("document.body.classList.contains('stale')")
        assert page.locator("#stop").is_disabled()
        live.shot("live-ended")
    assert summary_of(tmp_path)["status"] == "interrupted"


def test_old_data_are_marked_as_old_and_the_escape_key_stops_the_run(browser: Any, tmp_path: Path) -> None:
    words = ["--view", "--duration", "600", "--set", "law.observer=auto", "--set", f"bounds={STROKE}"]
    with looping(tmp_path, Path("two_mass_spring_drive"), *words) as loop, opened(browser, loop, "dark") as live:
        live.until("document.querySelector('#stage').textContent === 'full'")
        live.until(
            "strips.some((strip) => strip.plot.root.parentNode.id === 'disturbance' && strip.table[1].some((d) => d))"
        )
        assert "Disturbance: what the model does not explain" in live.text("#unexplained")
        assert re.search(r"distance\s*\S+ m/s\^2$", live.text("#disturbance"))
        assert re.search(r"stroke\s+0\.\d+ m\s*$", live.text("#bounds"))
        loop.process.send_signal(signal.SIGSTOP)
        live.until("document.querySelector('#banner').textContent.startsWith('No data for')")
        assert live.page.evaluate("document.body.classList.contains('stale')")
        live.shot("live-no-data-dark")
        loop.process.send_signal(signal.SIGCONT)
        live.until("document.querySelector('#banner').textContent === ''")
        live.page.keyboard.press("Escape")
        live.until("document.querySelector('#banner').textContent.startsWith('Loop ended: interrupted')")
        assert loop.end() == 130


def test_a_drive_that_may_be_on_stands_first_in_red_after_the_end(browser: Any, tmp_path: Path) -> None:
    words = ["--view", "--duration", "600", "--set", "hil.faults=[{kind: silent, at: 1, drive: F}]"]
    with looping(tmp_path, Path("two_mass_spring_drive"), *words) as loop, opened(browser, loop) as live:
        live.until("document.querySelector('#banner').textContent.includes('Loop ended: stopped')")
        assert live.text("#banner").startswith("F: THE DRIVE DID NOT CONFIRM THAT IT IS OFF: use the emergency stop")
        assert live.page.locator("#banner.bad").count() == 1
        assert "DID NOT CONFIRM" in live.page.locator("#events .event-stop").first.inner_text()
        loop.end()


TALL = "parseFloat(getComputedStyle(document.querySelector('.axis p span')).fontSize)"
"""Size of an axis' name [px]: letters of 10 mm, read from two metres, need 38 px at 96 px per inch."""


def test_a_person_at_the_machine_reads_a_calibration_from_two_metres(browser: Any, tmp_path: Path) -> None:
    words = ["--view", "--calibrate", "--duration", "10"]
    with looping(tmp_path, Path("arm_on_drives"), *words) as loop, opened(browser, loop) as live:
        live.until("document.querySelector('#hand-title').textContent === 'Move joint1, first to its positive side'")
        live.until("document.querySelector('#hand-title').textContent === 'joint1 moves'")
        assert live.page.evaluate(TALL) > 38
        width = "parseFloat(document.querySelector('#axis-joint1 .bar i').style.width)"
        live.until(f"{width} > 10")  # the range seen, in per cent of the limits
        assert not live.page.locator("#violation").is_visible()
        assert live.page.locator("#machine canvas").bounding_box()["height"] > 500
        live.shot("live-calibrate")
        live.page.set_viewport_size({"width": 1000, "height": 1000})
        size = "parseFloat(getComputedStyle(p).fontSize)"
        lines = f"[...document.querySelectorAll('.axis p')].map(p => p.offsetHeight / {size})"
        assert max(live.page.evaluate(lines)) < 1.5  # name, range seen and position with its unit are on one line
        inside = "[...document.querySelectorAll('.axis p')].every(p => p.scrollWidth <= p.clientWidth)"
        assert live.page.evaluate(inside)
        live.page.click("#stop")
        assert loop.end() == 130


def test_a_person_at_the_machine_sees_when_it_may_be_guided(browser: Any, tmp_path: Path) -> None:
    words = ["--view", "--stage", "float", "--duration", "600"]
    with looping(tmp_path, Path("two_mass_spring_drive"), *words) as loop, opened(browser, loop) as live:
        live.until("document.querySelector('#hand-title').textContent === 'Guide by hand'")
        assert live.page.evaluate(TALL) > 38
        assert "of 5 N" in live.text("#axis-F")  # half of torque_limit
        live.shot("live-float")
        live.page.click("#stop")
        assert loop.end() == 130
