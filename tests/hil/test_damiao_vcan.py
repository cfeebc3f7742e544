"""Six Damiao drives of a shipped config on a real SocketCAN interface with CAN FD: every stage, in two processes.

A loop at 1 kHz exchanges 12,000 frames a second. A kernel in user mode carries 10,000 on its one CPU, which loop and
drives share. With the tick in C they keep a period of 5 ms on an idle machine, but not always one of 10 ms while a
second such kernel runs: so the period is longer here.
"""

from pathlib import Path

import pytest
from interfaces import keys_of
from wall_clock import emulated, looping, summary_of

from hil.recorder import read_events, read_frames

pytestmark = [pytest.mark.slow, pytest.mark.vcan]

SLOWER = [
    "hil.period=0.03", "law.correction={baumgarte: {alpha: 4, beta: 4}}",
    "hil.safety={stale: 0.4, lost: 0.5, drive_watchdog: 0.6, stop_time: 0.5, zero_time: 0.3, ramp_time: 0.6, "
    "engage_tolerance: 0.05, tracking: 1, late_ticks: 1000, late_share: 0.99}",
]  # fmt: skip


def test_six_drives_go_through_every_stage(tmp_path: Path) -> None:
    with keys_of("socketcan") as keys:
        bus = f"{{interface: socketcan, channel: {keys['channel']}, bitrate: 1000000, fd: true, data_bitrate: 5000000}}"
        changes = [word for change in (f"hil.buses.main={bus}", *SLOWER) for word in ("--set", change)]
        config = Path("two_arms_damiao")
        with emulated(tmp_path, config, "--vcan", *changes):
            armed = ("--armed", "--stage", "full", "--duration", "0.6")
            with looping(tmp_path, config, *armed, *changes) as loop:
                assert loop.end() == 0, loop.said
    summary = summary_of(tmp_path)
    assert summary["status"] == "done"
    assert all(summary["drives"][f"u{i}"]["confirmed_off"] for i in range(1, 7))
    modes = [event["text"] for event in read_events(tmp_path / "run") if event["event"] == "stage"]
    modes = [mode for mode in modes if mode != "quick stop"]  # at this period one step of torque outdoes what brakes
    assert modes == ["enabling", "zero", "ramp", "full", "stopping", "disabling", "over"]
    frames = [(sent, frame) for _, sent, frame, _ in read_frames(tmp_path / "run")]
    assert all(frame.fd and frame.brs for _, frame in frames)
    answers = [frame.id for sent, frame in frames if not sent]
    assert min(answers.count(host) for host in range(17, 23)) > 30
