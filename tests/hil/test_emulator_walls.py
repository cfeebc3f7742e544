"""The emulator is written apart from what it tests: it shares no driver with the loop, its observer no codec either.

Emulated drives and drivers use the same tables of frames: where a number lies, ids, codes. Each of these tables is
judged by frames of somebody else's implementation, and by golden frames. The observer reads the loop's commands by
tables of its own, in `test_contract.py` those of every protocol, so that an error in a codec shows there too.
"""

import ast
import re
from pathlib import Path

import pytest

import hil.codecs
import hil.emulator

FILES = sorted(Path(hil.emulator.__file__).parent.glob("*.py"))
MAY_KNOW = ("hil.frame", "hil.bus", "hil.drives.settings", "hil.emulator", "hil.loop.clock", "hil.loop.clock")
TABLES = "hil.codecs"
TWINS = {"canopen", "cia402", "impedance", "mit", "moteus", "odrive", "robstride"}
"""Files that may know the tables of frames."""

JUDGES = {
    "cia402": (("test_codec_cia402",), "canopen"),
    "mit": (("test_codec_mit", "test_damiao"), "damiao_motor"),
    "moteus": (("test_codec_moteus",), "moteus"),
    "odrive": (("test_codec_odrive",), "odrive_database"),
    "robstride": (("test_codec_robstride",), "robstride"),
}
"""Table -> tests that judge it, and whose implementation does; `field` knows no protocol."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_the_emulator_imports_no_driver_and_only_its_drives_the_tables_of_frames(file: Path) -> None:
    imported = {
        node.module
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("hil")
    }
    foreign = {name for name in imported if not name.startswith(MAY_KNOW)}
    assert {name for name in foreign if not name.startswith(TABLES)} == set()
    assert bool(foreign) == (file.stem in TWINS)


def test_every_table_is_judged_by_the_implementation_of_somebody_else() -> None:
    tables = {file.stem for file in Path(hil.codecs.__file__).parent.glob("*.py")} - {"__init__", "field"}
    assert set(JUDGES) == tables
    for test, package in ((test, package) for tests, package in JUDGES.values() for test in tests):
        text = Path(__file__).with_name(f"{test}.py").read_text()
        assert re.search(rf"(from|import) {package}\b|importorskip\(\"{package}\b", text), test


@pytest.mark.parametrize("name", ["commands", "readers"])
def test_the_observer_shares_no_code_with_the_drives(name: str) -> None:
    text = (Path(hil.emulator.__file__).parent / f"{name}.py").read_text()
    for module in ("odrive", "cia402", "canopen", "impedance", "mit", "moteus", "robstride", "objects"):
        assert f"hil.emulator.{module} " not in text
    assert "hil.codecs" not in text
    for conversion in ("motor_torque(", "joint_torque(", "motor_rate(", "joint_rate("):
        assert f"drive.{conversion}" not in text, "units are converted by its own arithmetic"
