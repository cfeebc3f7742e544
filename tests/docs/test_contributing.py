"""CONTRIBUTING names rooms, files and tests that there are, and the citation is that of this version."""

import re
from pathlib import Path

import yaml

import servoctl
from tests.test_packaging import LEVELS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / ".github/CONTRIBUTING.md").read_text()


def test_every_room_is_in_the_table() -> None:
    table = TEXT.partition("## The rooms")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([\w.]+)`", table))
    single_files = {
        "servoctl.types",
        "servoctl.errors",
        "servoctl.version",
        "servoctl.input_file",
        "servoctl.__main__",
    }
    for room in {room for level in LEVELS for room in level} - single_files:
        assert room in named or room.removeprefix("servoctl.") in named, room
    for name in (name for name in named if name.startswith(("hil.", "servoctl."))):
        place = ROOT / name.replace(".", "/")
        assert place.is_dir() or place.with_suffix(".py").is_file(), name


def test_every_path_that_it_names_is_there() -> None:
    paths = re.findall(r"(?<![\w/])((?:tests|servoctl|hil|plants|configs|\.docs|\.ci)/[\w./]*[\w/])", TEXT)
    paths = [path for path in paths if "NAME" not in path]
    assert len(paths) > 15
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_file_that_a_page_names_is_there() -> None:
    named = {
        path
        for page in [*(ROOT / ".docs" / "pages").rglob("*.md"), ROOT / "README.md"]
        for path in re.findall(r"`((?:servoctl|hil|plants|configs|tests)/[\w./]+\.\w+)`", page.read_text())
    }
    assert len(named) > 10
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / ".github/CITATION.cff").read_text())
    assert citation["version"] == servoctl.__version__
    assert citation["license"] == "BSD-3-Clause"
