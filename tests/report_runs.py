"""Run folders that the tests of the page look at, and the browser that opens it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import servoctl as sc
from servoctl.runs.run import Run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
FAULTS = (
    "hil.faults=[{kind: stall, at: 0.1, for: 0.004, since: engaged}, "
    "{kind: drive_fault, at: 0.2, since: engaged, drive: u3}]"
)


def simulated(name: str, folder: Path, *overrides: str) -> Path:
    """A shipped config, run."""
    run: Run = sc.load(name, overrides, engine="vm")
    run.simulate(folder)
    return folder


def caught(folder: Path) -> Path:
    """A run on emulated drives, one of which fails; the command ends with 3."""
    command = [sys.executable, "-m", "servoctl", "hil", "coordinated_robots", "--out", str(folder), "--duration", "0.5"]
    done = subprocess.run([*command, "--set", FAULTS], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    return folder


@contextmanager
def browser(tmp_path: Path, **settings: Any) -> Iterator[tuple[Any, list[str]]]:
    """A page of headless Chromium with a profile of its own, and what went wrong in it; skips where there is none."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    from playwright.sync_api import sync_playwright

    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    problems: list[str] = []
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(tmp_path / "profile"), executable_path=CHROMIUM, args=ARGUMENTS,
            **{"viewport": {"width": 1300, "height": 900}, **settings},
        )  # fmt: skip
        page = context.new_page()
        page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda asked: None if own(asked.url) else problems.append(f"asked for {asked.url}"))
        yield page, problems
        context.close()


def own(url: str) -> bool:
    return url.startswith(("file:", "data:", "blob:", "about:"))


def artefacts(tmp_path: Path) -> Path:
    """Where screenshots are kept."""
    folder = Path(os.environ.get("SERVOCTL_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
