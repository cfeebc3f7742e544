"""What the tests of protocols from packages share: packages that are installed without a network."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hil.protocols.registry import entries, protocol

Install = Callable[..., Path]
"""Installs a package: name, version, entry points (name -> place), files (path -> text)."""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs packages in a folder of their own on `sys.path`, until the test is over."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    before = set(sys.modules)

    def forget() -> None:
        importlib.invalidate_caches()
        entries.cache_clear()
        protocol.cache_clear()

    def add(name: str, version: str, points: dict[str, str], files: dict[str, str]) -> Path:
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = [f"{point} = {place}" for point, place in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[servoctl.drives]", *lines, ""]))
        for path, text in files.items():
            (site / path).write_text(text)
        forget()
        return site

    yield add
    for module in set(sys.modules) - before:
        if str(getattr(sys.modules[module], "__file__", None) or "").startswith(str(site)):
            del sys.modules[module]
    monkeypatch.undo()
    forget()
