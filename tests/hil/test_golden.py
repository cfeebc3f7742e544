"""A recorded run is played before a real bus opens, and must send the same frames."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hil.session import golden
from hil.session.start import Request, start
from servoctl.errors import RigError
from tests.hil.golden import record

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
