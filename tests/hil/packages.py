"""Packages of protocols, installed without a network, and that of the page about a protocol of one's own."""

import importlib
import re
import struct
import sys
import tomllib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from hil.frame import Frame
from hil.protocols.registry import entries, protocol
from tests.hil.command_observer import READERS, CommandReader

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


PAGE = Path(__file__).parents[2] / ".docs" / "pages" / "howto" / "own_protocol.md"
DRIVE = "{actuator: F, bus: main, protocol: acme, node: 3, gear: 50, torque_limit: 5, torque_rate_limit: 1000, "
DRIVE += "speed_limit: 1, position_limits: [-0.3, 0.3]}"
QUICK = (f"hil.drives=[{DRIVE}]", "hil.safety.zero_time=0.02", "hil.safety.ramp_time=0.02")


def block(file: str) -> str:
    found = re.search(
        rf'^```\w+ title="acme/{re.escape(file)}"\n(.*?)^```$', PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    assert found is not None
    return found[1]


class AcmeReader(CommandReader):
    """The commands of the page's table."""

    @property
    def identities(self) -> Collection[int]:
        return [0x200 + self.drive.node]

    def read(self, frame: Frame) -> None:
        if len(frame.data) != 8:
            self.wrong(f"a command of {len(frame.data)} bytes", frame)
        elif frame.data[0] == 1:
            self.torque(struct.unpack("<f", frame.data[4:])[0], frame)
            self.enable()
        else:
            self.disable()


@pytest.fixture
def acme(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of the page, as its `pyproject.toml` says."""
    monkeypatch.setitem(READERS, "acme", AcmeReader)
    project = tomllib.loads(block("pyproject.toml"))["project"]
    points = project["entry-points"]["servoctl.drives"]
    install(project["name"], project["version"], points, {"acme_drive.py": block("acme_drive.py")})
