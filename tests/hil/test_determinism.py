"""A run in lock-step is reproducible to the bit: the same seed leaves the same frames and the same columns."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hil.frame import Frame
from hil.recorder import read_frames
from servoctl.run_folder import load_run
from tests.faces import column_bytes, on_drives, with_frames
from tests.hil.emulation import SHORT

CONFIG, DURATION = "coordinated_robots", 0.2
NOISY = "hil.emulation.encoder_noise=2e-5"
"""What makes a run depend on its seed."""

TWO_BUSES = ("hil.buses.other={interface: emulated}", *(f"hil.drives.u{i}.bus=other" for i in (4, 5, 6)))


def in_memory(*overrides: str) -> tuple[list[tuple[int, bool, Frame, int]], dict[str, bytes]]:
    """Frames and columns of a run; on the virtual machine, whose numbers no compiler changes."""
    ended, frames = with_frames(CONFIG, NOISY, *TWO_BUSES, *overrides, duration=DURATION)
    assert ended.exit_code == 0
    return frames, column_bytes(ended.trajectory)


@pytest.mark.slow
def test_two_runs_in_one_process_are_equal_to_the_bit_and_another_seed_is_not() -> None:
    frames, first = in_memory("run.seed=3")
    again, second = in_memory("run.seed=3")
    assert len(frames) > 1000 and frames == again and {bus for bus, *_ in frames} == {0, 1}
    assert {name for name in first if first[name] != second[name]} == set()
    others, third = in_memory("run.seed=4")
    assert others != frames and third["true_q.theta1"] != first["true_q.theta1"]


@pytest.mark.slow
def test_run_folders_of_two_processes_are_equal_to_the_bit_whatever_the_hash_seed(tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    assert on_drives(CONFIG, NOISY, *TWO_BUSES, out=one, duration=DURATION).exit_code == 0
    changes = [word for change in (NOISY, *TWO_BUSES, *SHORT) for word in ("--set", change)]
    subprocess.run(
        [sys.executable, "-m", "servoctl", "hil", CONFIG, "--duration", str(DURATION), *changes,
         "--engine", "vm", "--out", str(two)],
        check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": "1"},
    )  # fmt: skip
    assert (one / "can.blf").read_bytes() == (two / "can.blf").read_bytes()
    assert sum(1 for _ in read_frames(one)) > 1000
    first, second = column_bytes(load_run(one)), column_bytes(load_run(two))
    assert {name for name in first if first[name] != second[name]} == set()
