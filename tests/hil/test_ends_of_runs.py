"""What a run in lock-step leaves: rows until the machine rests, its events, every frame."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from rigs import RACK, Played, lift, play

from hil.emulator.emulator import Emulator
from hil.recorder import read_frames
from hil.recorder.files import read_events


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Played, Path]:
    folder = tmp_path_factory.mktemp("run") / "run"
    return play(lift(RACK), stop_at=0.3, out=folder), folder


def test_rows_go_on_until_drives_are_off_brakes_closed_and_the_machine_rests(ended: tuple[Played, Path]) -> None:
    played, _ = ended
    assert played["true_on.F"][-1] == 0 and played["true_brake.F"][-1] == 1 and abs(played["true_v.x"][-1]) < 1e-6
    over = played.rows_in("over")
    assert over[-1] and not played["sent.F"][over].any()
    assert (np.diff(played["t"]) < 0.003).all(), "no gap between the last tick and the rows after it"


def test_rows_go_on_no_longer_than_the_config_says() -> None:
    times = {}
    for after in (0, 0.3):
        played = play("S", f"hil.emulation.after={after}", stop_at=0.1)  # its hinges have no brakes
        times[after] = float(played["t"][-1])
        assert played.rows_in("over").any() and played.exit_code == 130
    assert times[0.3] - times[0] == pytest.approx(0.3, abs=0.003)


def test_joints_that_move_again_while_another_brake_closes_are_stopped_before_they_go_off() -> None:
    """The host stalls while the vertical axis of a SCARA is braked: its hinges drift under their last torques."""
    played = play("S", faults=[{"kind": "stall", "at": 0.4255, "for": 0.231}], duration=0.185)
    limits = [drive.settings.speed_limit for drive in played.run.setup.drives[:3]]
    fastest = np.max(np.abs(played.group("true_v")[:, :3]) / limits, axis=1)
    on = np.stack([played[f"true_on.{name}"] for name in ("tau1", "tau2", "tau3")]).any(axis=0)
    drifting = played.rows_in("braking") & (fastest > 0.01)
    assert drifting.any(), "the stall is in the stage that it is meant for"
    assert np.all(on[drifting]) and not on[-1] and fastest[-1] < 0.01
    assert played.unconfirmed == ()


def test_events_are_lines_with_time_event_subject_reaction_and_text(ended: tuple[Played, Path]) -> None:
    played, folder = ended
    events = read_events(folder)
    assert all({"t", "event", "subject", "reaction", "text"} <= set(event) for event in events)
    assert {event["reaction"] for event in events} <= {"note", "warn", "stop", "disable"}
    stages = [event["text"] for event in events if event["event"] == "stage"]
    assert stages[:4] == ["enabling", "zero", "ramp", "full"] and stages[-1] == "over"
    (asked,) = [event for event in events if event["event"] == "interrupted"]
    assert asked["reaction"] == "stop" and asked["t"] < events[-1]["t"]
    assert len(events) == len(played.events)


def test_the_log_of_frames_holds_every_frame_from_power_on_to_the_end(tmp_path: Path) -> None:
    wire: Counter[tuple[int, bytes]] = Counter()

    def begin(emulator: Emulator) -> None:
        emulator.wires["main"].taps.append(lambda frame, sender: wire.update([(frame.id, frame.data)]))

    played = play("mixed", out=tmp_path / "run", stop_at=0.1, begin=begin)
    logged = Counter((frame.id, frame.data) for _, _, frame, _ in read_frames(tmp_path / "run"))
    assert sum(wire.values()) > 1000
    assert not logged - wire
    # what ends on the wire at the instant of the last row has not been received
    assert sum((wire - logged).values()) <= len(played.run.setup.drives)
