"""The emulator is written apart from what it tests: it shares no driver with the loop, its observer no codec either.

Emulated drives and drivers use the same tables of frames: where a number lies, ids, codes. What a table says is judged
by others: golden frames of the makers' documents and packages. The observer reads the loop's commands by tables of its
own, in `test_contract.py` those of every protocol, so that an error in a codec shows there too.
"""

import ast
from pathlib import Path

import pytest

import hil.emulator

FILES = sorted(Path(hil.emulator.__file__).parent.glob("*.py"))
MAY_KNOW = ("hil.frame", "hil.bus", "hil.drives.settings", "hil.emulator", "hil.loop.clock", "hil.loop.virtual_time")
TABLES = "hil.codecs"
TWINS = {"canopen", "cia402", "impedance", "mit", "moteus", "odrive", "robstride"}
"""Files that may know the tables of frames."""


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


@pytest.mark.parametrize("name", ["commands", "readers"])
def test_the_observer_shares_no_code_with_the_drives(name: str) -> None:
    text = (Path(hil.emulator.__file__).parent / f"{name}.py").read_text()
    for module in ("odrive", "cia402", "canopen", "impedance", "mit", "moteus", "robstride", "objects"):
        assert f"hil.emulator.{module} " not in text
    assert "hil.codecs" not in text
    for conversion in ("motor_torque(", "joint_torque(", "motor_rate(", "joint_rate("):
        assert f"drive.{conversion}" not in text, "units are converted by its own arithmetic"
