"""Pages in a real browser, for tests: headless Chromium, and whatever is wrong in a page."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
PATIENCE = 90.0
"""Time before a test gives up [s]."""

SHOTS = os.environ.get("SERVOCTL_SCREENSHOTS")
"""Where pictures of pages are kept; nowhere where it is not set."""


@contextmanager
def chromium() -> Iterator[Any]:
    """Playwright's browser; skips where there is none."""
    pytest.importorskip("playwright", reason="playwright is not installed (pip install playwright)")
    from playwright.sync_api import sync_playwright

    if PROGRAM is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)
        yield browser
        browser.close()


class Tab:
    """A page of a browser.

    Attributes:
        page: Playwright's page.
        wrong: Errors and warnings of its console, and requests to anything but its own.
    """

    def __init__(self, browser: Any, own: str, **settings: Any) -> None:
        """With addresses that begin with `own`."""
        allowed = (own, "data:", "blob:", "about:")
        self.wrong: list[str] = []
        self.page = browser.new_page(**{"viewport": {"width": 1300, "height": 900}, **settings})
        self.page.on("console", lambda said: self._note(said.text, said.type in ("error", "warning")))
        self.page.on("pageerror", lambda error: self._note(str(error), True))
        self.page.on("request", lambda asked: self._note(f"asks for {asked.url}", not asked.url.startswith(allowed)))

    def _note(self, text: str, bad: bool) -> None:
        if bad:
            self.wrong.append(text)

    def until(self, condition: str) -> None:
        """Waits; asked from outside, for the page's policy lets no text be evaluated in it."""
        end = time.monotonic() + PATIENCE
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, f"never came true: {condition}: {self.text('body')}"
            self.page.wait_for_timeout(20)

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).inner_text())

    def shot(self, name: str) -> None:
        """A picture, for who wants to look."""
        if SHOTS:
            self.page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)


@contextmanager
def tab(browser: Any, own: str, **settings: Any) -> Iterator[Tab]:
    """A page that is closed in the end, and in which nothing may go wrong."""
    opened = Tab(browser, own, **settings)
    try:
        yield opened
        assert opened.wrong == []
    finally:
        opened.page.close()
