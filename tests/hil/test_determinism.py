"""A run in lock-step is reproducible to the bit: the same seed leaves the same frames and the same columns."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hil.frame import Frame
from hil.recorder import InMemory, read_frames
from hil.session.start import Request, start
from servoctl.run_folder import load_run
from servoctl.run_folder.trajectory import Trajectory
from tests.hil.emulation import SHORT

CONFIG, DURATION = "coordinated_robots", 0.2
NOISY = ("hil.emulation.encoder_noise=2e-5", *SHORT)
"""What makes a run depend on its seed, and short."""


def in_memory(*overrides: str) -> tuple[list[tuple[int, bool, Frame, int]], dict[str, bytes]]:
    """Frames and columns of a run; on the virtual machine, which is there without a compiler."""
    begun = start(Request(CONFIG, (*NOISY, *overrides), duration=DURATION, engine="vm"))
    kept: list[InMemory] = []
    usual = InMemory.close

    def close(self: InMemory, *arguments: object) -> Trajectory:
        kept.append(self)
        return usual(self, *arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InMemory, "close", close)
        ended = begun.run(None, lambda event: None)
    assert ended.exit_code == 0 and len(kept) == 1
    return kept[0].frames, columns(ended.trajectory)


def columns(trajectory: Trajectory) -> dict[str, bytes]:
    return {name: np.ascontiguousarray(column).tobytes() for name, column in trajectory.columns.items()}


@pytest.mark.slow
def test_two_runs_in_one_process_are_equal_to_the_bit_and_another_seed_is_not() -> None:
    frames, first = in_memory("run.seed=3")
    again, second = in_memory("run.seed=3")
    assert len(frames) > 1000 and frames == again
    assert {name for name in first if first[name] != second[name]} == set()
    others, third = in_memory("run.seed=4")
    assert others != frames and third["true_q.theta1"] != first["true_q.theta1"]


@pytest.mark.slow
def test_run_folders_of_two_processes_are_equal_to_the_bit_whatever_the_hash_seed(tmp_path: Path) -> None:
    changes = [word for change in NOISY for word in ("--set", change)]
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-m", "servoctl", "hil", CONFIG, "--duration", str(DURATION), *changes,
             "--engine", "vm", "--out", str(tmp_path / seed)],
            check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
    one, two = tmp_path / "1", tmp_path / "2"
    assert (one / "can.blf").read_bytes() == (two / "can.blf").read_bytes()
    assert sum(1 for _ in read_frames(one)) > 1000
    first, second = columns(load_run(one)), columns(load_run(two))
    assert {name for name in first if first[name] != second[name]} == set()
