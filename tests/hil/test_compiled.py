"""The compiled modules of the loop: in use where they could be made, and the same to the bit as the Python they are."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hil.emulator.wire
from hil.recorder import read_frames
from servoctl import compiled
from servoctl.trajectory import Trajectory
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
        trajectory = Trajectory.load(out)
        assert trajectory.metadata["compiled_loop"] is (asked == "1")
        kept.append((list(read_frames(out)), columns(trajectory)))
    assert len(kept[0][0]) > 1000 and kept[0] == kept[1]


@pytest.mark.skipif(bool(compiled.AS_PYTHON), reason=compiled.AS_PYTHON)
def test_an_edited_module_and_all_others_run_as_they_are_written(tmp_path: Path) -> None:
    for package in ("hil", "servoctl"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "web"))
    program = "import hil.emulator.wire as w; from servoctl import compiled; print(w.__file__, compiled.AS_PYTHON)"

    def said() -> str:
        done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout

    assert f"{tmp_path}/servoctl/_compiled" in said()
    with open(tmp_path / "hil" / "frame.py", "a") as file:
        file.write("# edited\n")
    assert said().startswith(f"{tmp_path}/hil/emulator/wire.py changed since they were compiled: hil/frame.py")
