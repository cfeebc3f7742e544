"""The compiled modules of the loop: in use where they could be made, and the same to the bit as the Python they are."""

import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import hil.emulator.wire
from hil.drives.sample import Sample
from hil.frame import Frame
from hil.recorder import read_frames
from servoctl import compiled
from servoctl.run_folder import load_run
from tests.hil.test_determinism import columns

ROOT = compiled.ROOT


def test_a_machine_with_a_compiler_runs_what_was_compiled() -> None:
    if not compiled.PLACE.exists() or os.environ.get("SERVOCTL_COMPILED") == "0":
        pytest.skip("nothing was compiled: not installed here, or asked to be left out")
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    assert compiled.AS_PYTHON == ""
    assert hil.emulator.wire.__file__ is not None and hil.emulator.wire.__file__.endswith(".so")


@pytest.mark.slow
@pytest.mark.skipif(bool(compiled.AS_PYTHON), reason=compiled.AS_PYTHON)
@pytest.mark.parametrize("config", ["coordinated_robots", "two_mass_spring_drive", "scara_drive"])
def test_a_run_is_the_same_to_the_bit_in_python(config: str, tmp_path: Path) -> None:
    kept = []
    for asked in ("1", "0"):
        out = tmp_path / asked
        command = [sys.executable, "-m", "servoctl", "hil", config, "--duration", "0.2", "--out", str(out)]
        run = subprocess.run(
            command, env={**os.environ, "SERVOCTL_COMPILED": asked}, capture_output=True, text=True, cwd=ROOT
        )
        assert run.returncode == 0, run.stdout + run.stderr
        trajectory = load_run(out)
        assert trajectory.metadata["compiled_loop"] is (asked == "1")
        kept.append((list(read_frames(out)), columns(trajectory)))
    assert len(kept[0][0]) > 1000 and kept[0] == kept[1]


@pytest.mark.skipif(bool(compiled.AS_PYTHON), reason=compiled.AS_PYTHON)
def test_numbers_of_every_kind_come_out_the_same_in_python() -> None:
    said = [
        subprocess.run(
            [sys.executable, "-m", "tests.hil.compiled_or_not"],
            env={**os.environ, "SERVOCTL_COMPILED": asked}, capture_output=True, text=True, check=True, cwd=ROOT,
        ).stdout.splitlines()
        for asked in ("1", "0")
    ]  # fmt: skip
    assert len(said[0]) > 8500
    assert [pair for pair in zip(*said, strict=True) if pair[0] != pair[1]] == []


@pytest.mark.parametrize("value", [Frame(5, b"ab", extended=True, time=7), Sample(1.0, 2.0, 3.0, 4)])
def test_values_can_be_copied_and_sent_to_another_process(value: object) -> None:
    assert copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The packages, compiled modules included, elsewhere."""
    if compiled.AS_PYTHON:
        pytest.skip(compiled.AS_PYTHON)
    for package in ("hil", "servoctl"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "web", "tmp*"))
    return tmp_path


def said_in(tree: Path) -> str:
    """Which file a module comes from there, and why it is not compiled."""
    program = "import hil.emulator.wire as w; from servoctl import compiled; print(w.__file__, compiled.AS_PYTHON)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_edited_module_and_all_others_run_as_they_are_written(tree: Path) -> None:
    assert f"{tree}/servoctl/_compiled" in said_in(tree)
    with open(tree / "hil" / "frame.py", "a") as file:
        file.write("# edited\n")
    assert said_in(tree).startswith(f"{tree}/hil/emulator/wire.py changed since they were compiled: hil/frame.py")


def test_damaged_or_foreign_compiled_modules_are_not_used(tree: Path) -> None:
    place, suffix = tree / compiled.PLACE.relative_to(ROOT), EXTENSION_SUFFIXES[0]
    as_python = f"{tree}/hil/emulator/wire.py"
    library = place / f"{compiled.SHARED}{suffix}"
    library.write_text("for another machine")
    assert said_in(tree).startswith(f"{as_python} {library}: ")
    library.rename(place / f"{compiled.SHARED}.cpython-311-another.so")
    assert said_in(tree).startswith(f"{as_python} not all there: {compiled.SHARED} (pip install")
    manifest = place / "manifest.json"
    for content in ("{}", "{", json.dumps({"sources": {"hil/gone.py": ""}, "problem": ""})):
        manifest.write_text(content)
        assert said_in(tree).startswith(f"{as_python} not compiled for {place.name} (pip install")
    manifest.write_text(json.dumps({"sources": {}, "problem": "error: command 'cc' failed"}))
    assert said_in(tree) == f"{as_python} error: command 'cc' failed ({compiled.AGAIN})\n"
