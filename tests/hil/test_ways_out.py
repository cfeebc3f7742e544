"""Runs that end early: at bring-up, by any signal, and by code of others that ends the program."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from hil.assembly.emulation import make_emulator
from hil.drives.base import DriveError
from hil.drives.cia402_setup import Objects
from hil.loop.realtime import StopSignals
from hil.safety import EventKind
from servoctl.errors import RigError
from tests.faces import exit_code, on_rig
from tests.hil.faults.carts.scenario import machine
from tests.hil.packages import DRIVE, QUICK, Install, block
from tests.hil.rigs import renewed


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
