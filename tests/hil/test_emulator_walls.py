"""The emulator is written apart from what it tests: it shares no codec and no driver with the loop.

Of the registers of a moteus it shares how they are written and read: the maker's own package judges both ends.
"""

import ast
from pathlib import Path

import pytest

import hil.emulator

FILES = sorted(Path(hil.emulator.__file__).parent.glob("*.py"))
MAY_KNOW = ("hil.frame", "hil.bus", "hil.drives.settings", "hil.emulator", "hil.loop.clock", "hil.loop.virtual_time")
SHARED = {"moteus": {"hil.codecs"}}
"""File -> what else it may know."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_the_emulator_imports_neither_codecs_nor_drivers(file: Path) -> None:
    imported = {
        node.module
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("hil")
    }
    assert {name for name in imported if not name.startswith(MAY_KNOW)} == SHARED.get(file.stem, set())


@pytest.mark.parametrize("name", ["commands", "readers"])
def test_the_observer_shares_no_code_with_the_drives(name: str) -> None:
    text = (Path(hil.emulator.__file__).parent / f"{name}.py").read_text()
    for module in ("odrive", "cia402", "canopen", "mit", "objects", "states", "pdo"):
        assert f"hil.emulator.{module} " not in text
    for conversion in ("motor_torque(", "joint_torque(", "motor_rate(", "joint_rate("):
        assert f"drive.{conversion}" not in text, "units are converted by its own arithmetic"
