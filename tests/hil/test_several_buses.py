"""Drives on several buses: each bus keeps its rate while another is configured, and runs are as accurate as on one."""

from pathlib import Path

import pytest

from hil.drives import Feedback
from hil.frame import Frame
from hil.recorder import read_frames
from hil.recorder.columns import STAGES
from hil.rig.dispatch import Dispatch
from hil.session.accuracy import explained_errors
from hil.session.start import Request, start
from servoctl.config import load_config
from tests.faces import column_bytes, on_drives
from tests.hil.emulation import SHORT
from tests.hil.test_dispatch import Heard, Rig

MS = 1_000_000
EMULATED = "{interface: emulated, bitrate: 1000000}"


class LoopDrive(Heard):
    """A drive that waits for SYNC, and for a heartbeat in each period."""

    feedback = Feedback.SYNC

    def alive_frames(self) -> tuple[Frame, ...]:
        return (Frame(0x77F),)


def spread(names: str) -> tuple[str, ...]:
    """Overrides that put each of the six drives of the robots on the bus with its letter."""
    drives = load_config("coordinated_robots").document.values["hil"]["drives"]
    written = [{**drive, "bus": name} for drive, name in zip(drives, names, strict=True)]
    buses = ", ".join(f"{name}: {EMULATED}" for name in dict.fromkeys(names))
    return (f"hil.drives={written}", f"hil.buses={{{buses}}}")


@pytest.mark.slow
@pytest.mark.parametrize(("names", "period"), [("aaabbb", 0.00125), ("ababab", 0.0025), ("aabbcc", 0.0025)])
def test_a_run_on_several_buses_is_as_accurate_as_on_one(names: str, period: float) -> None:
    begun = start(
        Request("coordinated_robots", (*spread(names), *SHORT, f"hil.period={period}"), duration=0.1, engine="vm")
    )
    ended = begun.run(None, lambda event: None)
    summary = ended.trajectory.summary()
    assert (ended.exit_code, summary["status"], summary["faults"], ended.unconfirmed) == (0, "done", [], ())
    assert set(summary["bus"]) == set(names)
    working = ended.trajectory["stage"] == STAGES.index("full")
    for row, bound in explained_errors(begun.setup, ended.trajectory).items():
        assert abs(ended.trajectory[f"violation.{row}"][working]).max() <= bound


@pytest.mark.slow
def test_a_run_on_two_buses_is_reproducible_to_the_bit(tmp_path: Path) -> None:
    kept = []
    for name in ("one", "two"):
        ended = on_drives("coordinated_robots", *spread("aaabbb"), out=tmp_path / name, duration=0.02)
        kept.append((list(read_frames(tmp_path / name)), column_bytes(ended.trajectory)))
    assert len(kept[0][0]) > 1000 and kept[0] == kept[1]


def test_before_the_loop_sync_and_heartbeats_are_sent_once_per_period_for_any_number_of_calls() -> None:
    rig = Rig()
    sent: list[tuple[int, int]] = []
    dispatch = Dispatch(
        rig.buses, [LoopDrive("a")], rig.clock, lambda bus, _, frame, time: sent.append((time, frame.id))
    )
    for _ in range(40):  # as often as objects are read: every 0.25 ms
        due = dispatch.service(2 * MS)
        assert rig.clock.now() < due <= rig.clock.now() + 2 * MS
        rig.clock.sleep_until(rig.clock.now() + MS // 4)
    assert sent == [(2 * i * MS, identity) for i in range(5) for identity in (0x080, 0x77F)]
