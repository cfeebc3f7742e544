"""A run in lock-step is reproducible to the bit; a recorded one is played before a real bus opens."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hil.frame import Frame
from hil.recorder import read_frames
from hil.session import golden
from hil.session.start import Request, start
from servoctl.errors import RigError
from servoctl.run_folder import load_run
from tests.faces import column_bytes, on_drives, with_frames
from tests.hil.emulation import SHORT
from tests.hil.golden import record

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


REAL = ("hil.buses.main.interface=socketcan", "hil.buses.main.channel=none0")


def test_the_recorded_frames_are_those_of_a_run_on_emulated_drives(tmp_path: Path) -> None:
    """If what is sent was changed on purpose: `python -m tests.hil.golden`."""
    record(tmp_path / "run")
    assert (tmp_path / "run" / "can.blf").read_bytes() == (golden.RECORDED / "can.blf").read_bytes()


@pytest.mark.parametrize("engine", ["auto", "vm"])
def test_the_run_that_is_played_sends_the_same_frames_on_every_engine(engine: str) -> None:
    assert golden.first_difference(engine=engine) == ""


def test_a_package_of_the_user_that_is_called_plants_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plants", ModuleType("plants"))
    monkeypatch.delitem(sys.modules, "plants.two_mass_spring", raising=False)
    assert golden.first_difference() == ""


@pytest.mark.parametrize(
    "change",
    ["law.correction.baumgarte.alpha=8.0001", "hil.drives.F.gear=50.0001", "hil.drives.F.offset=1e-6"],
)
def test_the_first_frame_that_differs_is_named(change: str) -> None:
    difference = golden.first_difference((change,))
    assert difference.startswith("frame ") and "expected 02E#" in difference and "sent 02E#" in difference


def request(**options: Any) -> Request:
    return Request("two_mass_spring_drive", REAL, **options)


def test_no_real_bus_opens_where_a_frame_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden, "first_difference", lambda engine: "frame 7: expected A, sent B")
    monkeypatch.setattr("hil.session.start.open_buses", lambda *arguments: pytest.fail("a bus was opened"))
    with pytest.raises(RigError, match=r"does not compute what was tested: .* differs: frame 7: expected A, sent B"):
        start(request(stage="zero", armed=True))


@pytest.mark.parametrize("options", [{}, {"calibrate": True, "armed": True}], ids=["shadow", "calibrate"])
def test_nothing_is_played_where_nothing_is_enabled(monkeypatch: pytest.MonkeyPatch, options: Any) -> None:
    monkeypatch.setattr("hil.session.start.require_equal", lambda engine: pytest.fail("a run was played"))
    with pytest.raises(RigError, match=r"bus main: .*SocketCAN|none0"):
        start(request(**options))
