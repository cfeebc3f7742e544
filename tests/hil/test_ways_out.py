"""Runs that end early: at bring-up, by any signal, and by code of others that ends the program.

What a run in lock-step leaves: rows until the machine rests, its events, every frame, and its figures.
"""

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from hil.assembly.emulation import make_emulator
from hil.drives.base import DriveError
from hil.drives.cia402_setup import Objects
from hil.emulator.emulator import Emulator
from hil.loop.realtime import StopSignals
from hil.recorder import read_frames
from hil.recorder.files import read_events
from hil.safety import EventKind
from servoctl.errors import RigError
from tests.faces import exit_code, on_rig
from tests.hil.faults.carts.scenario import machine
from tests.hil.packages import DRIVE, QUICK, Install, block
from tests.hil.rigs import RACK, Played, lift, play, renewed


@pytest.mark.parametrize(
    ("name", "drive"),
    [
        ("coordinated_robots", "u1"),  # cia402
        ("coordinated_robots_moteus", "u1"),
        ("scara_drive", "tau1"),  # mit
        ("scara_robstride", "tau1"),
        ("two_mass_spring_drive", "F"),  # odrive
    ],
)
def test_a_bring_up_that_fails_ends_with_exit_3_and_its_own_sentence(
    name: str, drive: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = f"hil.faults=[{{kind: silent, drive: {drive}, since: power_on, at: 0.0}}]"
    assert exit_code("hil", name, "--engine", "vm", "--set", silent, "--out", tmp_path / "run") == 3
    out, err = capsys.readouterr()
    assert f"{drive}: the drive refuses, or does not answer in time" in err + out
    assert "bug" not in err and "frames sent" in out


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("kind: refuse_enable", "the drive refuses"),
        ("kind: encoder_jump, delta: 0.1", "the encoders contradict the start pose"),
    ],
)
def test_a_drive_that_does_not_enable_and_a_wrong_pose_end_with_exit_3(
    fault: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = f"hil.faults=[{{{fault}, drive: F, since: power_on, at: 0.0}}]"
    words = ("hil", "two_mass_spring_drive", "--engine", "vm", "--set", faults, "--out", tmp_path / "run")
    assert exit_code(*words) == 3
    out, err = capsys.readouterr()
    assert text in err + out and "bug" not in err


SIGNALS = [
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGALRM,
    signal.SIGRTMIN,
]


@pytest.mark.parametrize("number", SIGNALS)
def test_signals_that_would_kill_the_loop_ask_for_the_controlled_stop(number: signal.Signals) -> None:
    setup = renewed(machine("odrive", "at speed"), ())
    emulator = make_emulator(setup, "vm")
    before = signal.getsignal(number)
    result = on_rig(setup, emulator, engaged=lambda: signal.raise_signal(number))
    assert signal.getsignal(number) is before
    assert (result.exit_code, result.unconfirmed) == (130, ())
    assert "stopping" in [event.detail for event in result.events]
    assert [event.detail for event in result.events if event.kind is EventKind.INTERRUPTED] == [number.name]
    assert not any(emulator.drives[name].motor.enabled for name in "ab")


def test_a_run_in_a_thread_is_refused_before_anything_is_sent() -> None:
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(on_rig, renewed(machine("odrive", "at speed"), ()), None).exception()
    assert isinstance(refused, RigError) and "the loop must run in the main thread" in str(refused)


def test_a_signal_with_a_handler_of_its_own_keeps_it() -> None:
    """A profiler's SIGPROF comes all the time."""
    before = signal.signal(signal.SIGPROF, signal.SIG_IGN)
    try:
        with StopSignals(suspend=False) as signals:
            signal.raise_signal(signal.SIGPROF)
        assert signals.first == ""
    finally:
        signal.signal(signal.SIGPROF, before)


ENDS = """

def _with_end(method, calls):
    def ends(self, *arguments):
        nonlocal calls
        calls -= 1
        if calls < 0:
            raise SystemExit(0)
        return method(self, *arguments)
    return ends

AcmeDrive.{0} = _with_end(AcmeDrive.{0}, {1})
"""
"""Makes a method end the program after some calls."""


@pytest.mark.parametrize(("method", "calls"), [("accept", 200), ("disable_frames", 0), ("disable_frames", 1)])
def test_a_driver_that_ends_the_program_is_exit_3_with_its_line(
    method: str, calls: int, install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = block("acme_drive.py") + ENDS.format(method, calls)
    install("acme-drive", "0.1", {"acme": "acme_drive:PROTOCOL"}, {"acme_drive.py": module})
    words = ("hil", "two_mass_spring_drive", "--engine", "vm", "--duration", "0.1", "--out", tmp_path / "run")
    assert exit_code(*words, *(word for value in QUICK for word in ("--set", value))) == 3
    out, err = capsys.readouterr()
    assert "SystemExit: 0 (line" in err + out


def test_a_module_that_ends_the_program_is_an_error_of_the_config(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install("acme-drive", "0.1", {"acme": "acme_drive:PROTOCOL"}, {"acme_drive.py": "raise SystemExit(0)\n"})
    words = ("hil", "two_mass_spring_drive", "--set", f"hil.drives=[{DRIVE}]", "--out", tmp_path / "run")
    assert exit_code(*words) == 2
    assert "acme_drive:PROTOCOL cannot be imported: SystemExit: 0" in capsys.readouterr().err


@pytest.mark.parametrize("first", [0x4F, 0x43, 0x41, 0x42])
def test_an_object_of_another_length_is_an_error_of_its_drive(first: int) -> None:
    """A node answers every SDO upload of 1 byte, of 4 bytes, or in segments: not as its object is."""
    objects = Objects(3)
    for index, size in ((0x6041, 2), (0x1000, 4), (0x6061, 1)):
        for action in (objects.read, objects.find):
            fits = first in (0x42, 0x43) or (first == 0x4F and size == 1)
            with nullcontext() if fits else pytest.raises(DriveError, match=f"0x{index:04X} .* cannot be read: it"):
                for step in action(index):
                    objects.take(bytes([first]) + step.send[0].data[1:4] + bytes(4))
                    assert step.done()


def test_a_run_whose_standard_streams_are_closed_is_recorded(tmp_path: Path) -> None:
    """Their numbers would go to the recorder's memory and to sockets."""
    words = (
        f"{sys.executable} -m servoctl hil two_mass_spring_drive --engine vm --duration 0.1 --out {tmp_path / 'run'}"
    )
    done = subprocess.run(["sh", "-c", f"exec {words} <&- >&- 2>&-"], check=False, timeout=120)
    assert done.returncode == 0
    assert (tmp_path / "run" / "trajectory.parquet").exists()


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


def test_a_drive_that_answers_no_more_stands_where_its_last_sample_was() -> None:
    """A MIT drive is off while its brake closes, and its slide falls; its last speed went on while the hinges drift."""
    played = play("S", stop_at=0.5)
    rows = played.rows_in("over") & (played["age.F4"] > 0.1)
    assert played["age.F4"][rows][-1] > 0.5 and abs(played["true_v.q4"][rows][-1]) < 1e-6
    assert np.ptp(played["q.q4"][rows]) < 1e-9 and np.abs(played["v.q4"][rows]).max() < 1e-9
    assert np.abs(played["q.q4"] - played["true_q.q4"])[rows].max() < 0.08  # of 73 mm that it falls


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


STALL = "hil.faults=[{kind: stall, at: 0.02, for: 0.0025, since: engaged}]"


def test_the_figures_at_the_end_are_those_of_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("hil", "two_mass_spring_drive", "--duration", "0.1", "--set", STALL)
    assert exit_code(*words, "--out", tmp_path / "run") == 0
    out = capsys.readouterr().out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    timing, bus = summary["timing"], summary["bus"]["main"]
    parts = (
        r"^[\d.]+ s in total: loading, tracing and compiling [\d.]+ s, bring-up and writing [\d.]+ s, running [\d.]+ s$"
    )
    assert re.search(parts, out, re.MULTILINE)
    header = next(line for line in out.splitlines() if line.startswith("time [us]"))
    assert header.split()[2:] == ["mean", "std", "p50", "p99", "p99.9", "max"]
    durations = {name: timing[f"{name}_s"] for name in ("lateness", "period", "execution", "read", "law", "write")}
    ages = timing["age_s"]
    oldest = max(ages, key=lambda name: float(ages[name]["max"]))
    for name, found in (durations | {f"age of samples (oldest: {oldest})": ages[oldest]}).items():
        said = re.search(rf"^{re.escape(name)} +(.*)$", out, re.MULTILINE)
        assert said is not None, name
        figures = [float(figure) for figure in said[1].split()]
        wanted = [1e6 * found[key] for key in ("mean", "std", "p50", "p99", "p99_9", "max")]
        assert figures == pytest.approx(wanted, rel=1e-3)
    assert set(timing["age_s"]) == {"F", "x2"}
    assert timing["skipped_periods"] == 1 and timing["late_ticks"] == 1
    assert "1 period skipped; at most 1 late tick in a row" in out
    assert f"{timing['ticks']} ticks, 1 of them late by a period or more; least time left in a period -" in out
    assert (
        f"samples: {summary['counts']['missed']} missing at their tick, 0 implausible; 0 invalid frames from drives"
        in out
    )
    load = re.search(r"bus main: load (\d+) % on average, (\d+) % at most\b", out)
    assert load is not None
    # F and x2 each send 1000 frames of 135 bits a second, and F is sent as many: 40.5 %, less where it stalls
    assert 25 <= int(load[1]) <= int(load[2]) <= 50
    assert f"{bus['sent']} frames sent, {bus['received']} received, 0 error frames" in out


def test_a_run_without_a_task_has_no_task_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("hil", "two_mass_spring_drive", "--stage", "float", "--duration", "0.1")
    assert exit_code(*words, "--out", tmp_path / "run") == 0
    assert re.search(r"^distance +m +- +- +-$", capsys.readouterr().out, re.MULTILINE)
