"""The live page in a real browser: it opens, shows what moves, stops the run, and speaks to nobody else."""

import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_page import ALPHA, LIVE, address_of
from wall_clock import Child, looping, summary_of, wait_until

pytest.importorskip("playwright", reason="playwright is not installed (pip install playwright)")

pytestmark = pytest.mark.slow

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WORDS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
SHOTS = os.environ.get("SERVOCTL_SCREENSHOTS")
"""Where pictures are kept; nowhere where it is not set."""


@pytest.fixture
def browser() -> Iterator[Any]:
    if BROWSER is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=BROWSER, args=WORDS)
        yield found
        found.close()


class Opened:
    """A page, and whatever of it was wrong."""

    def __init__(self, browser: Any, loop: Child, scheme: str = "light") -> None:
        self.port, token = address_of(loop)
        self.page = browser.new_page(viewport={"width": 1400, "height": 1000}, color_scheme=scheme)
        self.wrong: list[str] = []
        self.hosts: set[str] = set()
        self.page.on(
            "console", lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(re.sub(r"^\w+://([^/]*)/.*", r"\1", request.url)))
        self.page.goto(f"http://127.0.0.1:{self.port}/{token}/")

    def _hear(self, said: Any) -> None:
        if said.type in ("error", "warning"):
            self.wrong.append(said.text)

    def shot(self, name: str) -> None:
        if SHOTS:
            self.page.screenshot(path=Path(SHOTS) / f"live-{name}.png", full_page=True)

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).inner_text())

    def wait(self, condition: str) -> None:
        """Until it is true; asked from outside, for the page's policy lets no text be evaluated in it."""
        wait_until(lambda: self.page.evaluate(condition), lambda: f"{condition}: {self.page.inner_text('body')}")

    def check(self) -> None:
        assert not self.wrong
        assert self.hosts == {f"127.0.0.1:{self.port}"}


def test_the_page_shows_what_moves_changes_a_gain_and_its_button_stops_the_run(browser: Any, tmp_path: Path) -> None:
    words = ["--view", "--duration", "600", "--set", f"hil.live={LIVE}"]
    with looping(tmp_path, Path("two_mass_spring_drive"), *words) as loop:
        opened = Opened(browser, loop)
        opened.wait("document.querySelector('#stage').textContent === 'full'")
        before = float(opened.text("#time"))
        opened.wait(f"Number(document.querySelector('#time').textContent) > {before + 1}")
        assert not opened.page.evaluate("document.body.classList.contains('stale')")
        assert opened.page.evaluate("strips[0].table[0].length") > 10  # points of the plot of violations
        assert opened.page.evaluate("plots.plots.every((plot) => plot.root.querySelector('canvas').width > 100)")
        drawn = "[...document.querySelector('#machine canvas').getContext('2d').getImageData(0, 0, 300, 300).data]"
        assert opened.page.evaluate(f"{drawn}.some((x) => x > 0)")
        assert "of 10" in opened.text("#torques")
        assert re.search(r"main\s+\d+ %", opened.text("#buses"))
        assert "full" in opened.text("#events")
        field = opened.page.locator("#gains input[type=number]")
        field.fill("99")
        field.press("Enter")
        opened.wait("document.querySelector('#answer').textContent.includes('[1, 20], got 99')")
        opened.wrong = [said for said in opened.wrong if "422" not in said]  # the browser's own note on the refusal
        field.fill("12")
        field.press("Enter")
        opened.wait("document.querySelector('#gains .force').textContent === 'in force 12'")
        assert f"{ALPHA}: gain, by the operator (8 -> 12 within 0.5 s)" in opened.text("#events")
        opened.shot("running")
        opened.page.evaluate("scrollTo(0, document.body.scrollHeight)")
        assert opened.page.locator("#stop").bounding_box()["y"] < 60  # always in sight
        opened.page.click("#stop")
        opened.wait("document.querySelector('#banner').textContent.startsWith('Loop ended: interrupted')")
        assert loop.end() == 130
        assert "the operator stops the run (stop button of the live page)" in opened.text("#events")
        assert opened.page.evaluate("document.body.classList.contains('stale')")
        assert opened.page.locator("#stop").is_disabled()
        opened.shot("ended")
        opened.check()
    assert summary_of(tmp_path)["status"] == "interrupted"


def test_old_data_are_said_to_be_old_and_the_escape_key_stops_the_run(browser: Any, tmp_path: Path) -> None:
    with looping(tmp_path, Path("two_mass_spring_drive"), "--view", "--duration", "600") as loop:
        opened = Opened(browser, loop, "dark")
        opened.wait("document.querySelector('#stage').textContent === 'full'")
        loop.process.send_signal(signal.SIGSTOP)
        opened.wait("document.querySelector('#banner').textContent.startsWith('No data since')")
        assert opened.page.evaluate("document.body.classList.contains('stale')")
        opened.shot("no-data-dark")
        loop.process.send_signal(signal.SIGCONT)
        opened.wait("document.querySelector('#banner').textContent === ''")
        opened.page.keyboard.press("Escape")
        opened.wait("document.querySelector('#banner').textContent.startsWith('Loop ended: interrupted')")
        assert loop.end() == 130
        opened.check()
