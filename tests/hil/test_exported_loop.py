"""The exported loop: a C program that brings drives up, runs the task and stops them, without Python."""

import math
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hil.assembly.prepare import load
from hil.drives.mit import MitDrive
from hil.export.loop import export_loop
from hil.loop.controller import Controller
from hil.recorder.memory import FRAME, SENT
from hil.safety import Reaction
from hil.session.tick_choice import machine_of
from hil.tick.compiled import SOCKETS
from servoctl.cli import main
from servoctl.cli.app import app
from servoctl.errors import ConfigError
from tests.hil.wall_clock import write_config

pytestmark = pytest.mark.skipif(not SOCKETS, reason="the exported loop needs Linux")

STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O1", "-ffp-contract=off")


KEYS = {"interface": "emulated", "bitrate": 1_000_000}

FD_KEYS = {**KEYS, "fd": True, "data_bitrate": 5_000_000}

OTHERS = ("odrive", "mit damiao", "mit cubemars", "mit none", "robstride", "moteus")


def config_of(folder: Path, kind: str) -> Path:
    """A cart with one drive and one encoder; `kind` is a protocol, and for MIT drives their status."""
    protocol, _, status = kind.partition(" ")
    fd = protocol == "moteus"
    config = write_config(folder / "cart.yaml", protocol, FD_KEYS if fd else KEYS, 30.0, stale=0.4, tick="c")
    if fd:
        config.write_text(config.read_text().replace("encoder_bits: 16", "encoder_bits: 16\n    fd: true"))
    if status and status != "damiao":
        text = config.read_text().replace("status: damiao", f"status: {status}")
        config.write_text(text.replace("drive_watchdog: true", "drive_watchdog: false"))
    return config


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The exported loop of a cart with a CiA 402 drive, compiled without a warning, and its config."""
    folder = tmp_path_factory.mktemp("exported")
    config = config_of(folder, "cia402")
    done = CliRunner().invoke(app, ["export", str(config), "--loop", "--out", str(folder / "c")])
    assert done.exit_code == 0, done.output
    assert "buses, in the order of its arguments: main" in done.output
    (source,) = (folder / "c").iterdir()
    subprocess.run(["cc", *STRICT, "-o", folder / "cart_loop", source, "-lm"], check=True)
    return folder / "cart_loop", config


@pytest.fixture(scope="module", params=OTHERS)
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same for a drive of another protocol."""
    folder = tmp_path_factory.mktemp("other")
    config = config_of(folder, request.param)
    return built(folder, export_loop(config).files["cart_loop.c"]), config


def built(folder: Path, text: str) -> Path:
    """A program, compiled quickly."""
    (folder / "loop.c").write_text(text)
    subprocess.run(["cc", "-std=c99", "-ffp-contract=off", "-o", folder / "loop", folder / "loop.c", "-lm"], check=True)
    return folder / "loop"


SERVE = """
import sys
from tests.hil.socket_pair import main
main(*sys.argv[1:])
"""


class Drives:
    """Emulated drives in a process of their own, and what they say that they do."""

    def __init__(self, folder: Path, config: Path, end: socket.socket, changes: str) -> None:
        command = [sys.executable, "-c", changes + SERVE, str(config), str(end.fileno())]
        self.process = subprocess.Popen(
            command, pass_fds=[end.fileno()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder
        )
        assert self.process.stdout is not None and self.process.stdout.readline() == "ready\n"

    def end(self) -> str:
        self.process.terminate()
        said: str = self.process.communicate(timeout=30)[0]
        return said


@contextmanager
def started(folder: Path, program: tuple[Path, Path], *words: str, changes: str = "") -> Iterator[tuple[Any, Drives]]:
    """The program against emulated drives on a pair of sockets; `changes` is Python that changes their emulation."""
    path, config = program
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with here, there:
        drives = Drives(folder, config, there, changes)
        there.close()
        command = [path, "--armed", *words, f"fd:{here.fileno()}"]
        loop = subprocess.Popen(command, pass_fds=[here.fileno()], stderr=subprocess.PIPE, text=True, cwd=folder)
        here.close()
        try:
            yield loop, drives
        finally:
            for process in (loop, drives.process):
                if process.poll() is None:
                    process.kill()
                process.wait()
            for stream in (loop.stderr, drives.process.stdout):
                if stream is not None:
                    stream.close()


def begun(loop: Any) -> list[str]:
    """What the program says until its task begins."""
    said = []
    while not said or "the task begins" not in said[-1]:
        said.append(loop.stderr.readline())
        assert said[-1], said
    return said


def last_word(told: str) -> str:
    """What the emulated drive did last."""
    return [line.split("F: ")[1].split(",")[0] for line in told.splitlines() if "F: " in line][-1]


def assert_a_signal_ends_it(folder: Path, program: tuple[Path, Path], number: signal.Signals) -> None:
    with started(folder, program) as (loop, drives):
        begun(loop)
        time.sleep(0.1)  # some ticks
        loop.send_signal(number)
        assert loop.wait(30) == 130, loop.stderr.read()
        assert "every drive is off" in loop.stderr.read()
        told = drives.end()
    assert last_word(told) == "torque off", told


def assert_silence_ends_it(folder: Path, program: tuple[Path, Path]) -> None:
    with started(folder, program) as (loop, drives):
        begun(loop)
        drives.process.send_signal(signal.SIGSTOP)
        try:
            assert loop.wait(30) == 3
        finally:
            drives.process.send_signal(signal.SIGCONT)
        said = loop.stderr.read()
    if "the task ends: a missing heartbeat" not in said:
        # the stopped process is the drive and the encoder: the loop names what it heard last the longest ago
        assert "the task ends: an old sample" in said
        assert re.search(r"^(F|x2): last sample \d+\.\d ms ago, at most 400\.0 ms are allowed$", said, re.MULTILINE), (
            said
        )
    assert "F: THE DRIVE DID NOT CONFIRM THAT IT IS OFF: use the emergency stop" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_switches_every_drive_off(tmp_path: Path, program: tuple[Path, Path], number: signal.Signals) -> None:
    assert_a_signal_ends_it(tmp_path, program, number)


def test_drives_that_fall_silent_end_the_task(tmp_path: Path, program: tuple[Path, Path]) -> None:
    assert_silence_ends_it(tmp_path, program)


def test_a_signal_switches_a_drive_of_every_protocol_off(tmp_path: Path, other: tuple[Path, Path]) -> None:
    assert_a_signal_ends_it(tmp_path, other, signal.SIGINT)


def test_a_drive_of_every_protocol_that_falls_silent_ends_the_task(tmp_path: Path, other: tuple[Path, Path]) -> None:
    assert_silence_ends_it(tmp_path, other)


def test_a_joint_beyond_its_limits_ends_the_task_and_switches_the_drive_off(
    tmp_path: Path, program: tuple[Path, Path]
) -> None:
    text = export_loop(program[1], ["hil.drives.0.speed_limit=0.01"]).files["cart_loop.c"]
    with started(tmp_path, (built(tmp_path, text), program[1])) as (loop, drives):
        assert loop.wait(30) == 3
        said, told = loop.stderr.read(), drives.end()
    assert "the task ends: a joint beyond its limits" in said and "every drive is off" in said
    assert last_word(told) == "torque off", told


def test_a_loop_that_is_held_up_ends_the_task_and_switches_the_drive_off(
    tmp_path: Path, program: tuple[Path, Path]
) -> None:
    (source,) = (program[1].parent / "c").iterdir()
    text = source.read_text()
    assert "#define LATE_TICKS 1000\n" in text
    path = built(tmp_path, text.replace("#define LATE_TICKS 1000\n", "#define LATE_TICKS 0\n"))
    with started(tmp_path, (path, program[1])) as (loop, drives):
        begun(loop)
        while loop.poll() is None:  # shorter than the watchdog of the drive
            loop.send_signal(signal.SIGSTOP)
            time.sleep(0.05)
            loop.send_signal(signal.SIGCONT)
            time.sleep(0.02)
        assert loop.returncode == 3
        said, told = loop.stderr.read(), drives.end()
    assert "the task ends: too many periods without a tick" in said and "every drive is off" in said
    assert last_word(told) == "torque off", told


CHANGED_MOTEUS = """
from hil.emulator import moteus_registers
from hil.emulator.moteus import Moteus

boot, identity, MIN = Moteus.boot, moteus_registers._IDENTITY, "servopos.position_min"

def boot_changed(drive):
    boot(drive)
    change(drive, drive.registers.values)

Moteus.boot = boot_changed

def change(drive, settings):
"""
"""Python before a statement that changes an emulated moteus, its identity or its settings."""

ANOTHER = """    drive._home = 1
    identity.update({0x101: 0x0102, 0x102: 7, 0x120: 4711})
    read = drive._console.read
    drive._console.read = lambda most: read(3)
"""


@pytest.fixture(scope="module")
def moteus_program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The exported loop of a moteus that needs no encoder at its output, and its config."""
    folder = tmp_path_factory.mktemp("moteus")
    config = config_of(folder, "moteus")
    return built(folder, export_loop(config, ["hil.drives.0.home=rotor"]).files["cart_loop.c"]), config


def test_a_moteus_of_another_serial_number_firmware_and_home_state_is_brought_up(
    tmp_path: Path, moteus_program: tuple[Path, Path]
) -> None:
    """Its console answers in parts of three bytes, too."""
    with started(tmp_path, moteus_program, "--duration", "0.1", changes=CHANGED_MOTEUS + ANOTHER) as (loop, _):
        assert loop.wait(30) == 0, loop.stderr.read()
        assert "every drive is off" in loop.stderr.read()


DIFFERENT = {
    "home state: expected at least 1, came 0": "drive._home = 0",
    "version of the register map: expected at least 5, came 4": "identity[0x102] = 4",
    "servo.timeout_mode: expected 15, came '12'": "settings['servo.timeout_mode'] = 12",
    "servopos.position_max: expected at least 31.831, came '4.500000'": "settings['servopos.position_max'] = 4.5",
    "servopos.position_min: expected at most -31.831, came 'ERR error reading'": "del settings[MIN]",
}
"""What the program says -> what is different in the drive."""


@pytest.mark.parametrize("refusal", DIFFERENT)
def test_a_moteus_that_differs_from_its_config_is_refused(
    tmp_path: Path, moteus_program: tuple[Path, Path], refusal: str
) -> None:
    with started(tmp_path, moteus_program, changes=f"{CHANGED_MOTEUS}    {DIFFERENT[refusal]}\n") as (loop, drives):
        assert loop.wait(30) == 3
        assert loop.stderr.read() == f"F: {refusal}\nevery drive is off\n"
        assert "torque on" not in drives.end()


def test_a_drive_that_does_not_say_that_it_is_off_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    described = MitDrive.wire
    monkeypatch.setattr(MitDrive, "wire", lambda drive: described(drive)._replace(off=()))
    assert main(["export", str(config_of(tmp_path, "mit")), "--loop", "--out", str(tmp_path / "c")]) == 2
    assert "--loop: its program could not see that a drive is off: F (mit)" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_its_torques_are_those_of_the_tick_in_python_s_process_to_the_bit(
    tmp_path: Path, program: tuple[Path, Path]
) -> None:
    with started(tmp_path, program, "--duration", "0.6", "--record", "ticks") as (loop, _):
        assert loop.wait(30) == 0, loop.stderr.read()
    data = (tmp_path / "ticks").read_bytes()
    setup = load(program[1])
    stopping = tuple(rule for rule in setup.rules if rule.kind.reaction >= Reaction.STOP)
    machine, why = machine_of(replace(setup, rules=stopping), Controller(setup.loop))
    assert machine is not None, why
    tick, ffi = machine.tick, machine.ffi
    place, ticks = 0, 0

    def take(size: int) -> bytes:
        nonlocal place
        place += size
        return data[place - size : place]

    def frames() -> bytes:
        return take(FRAME.size * int.from_bytes(take(8), "little"))

    ffi.memmove(tick.numbers, take(8 * tick.doubles), 8 * tick.doubles)
    ffi.memmove(tick.times, take(8 * tick.integers), 8 * tick.integers)
    tick.tracks, tick.old = 0, math.inf
    while place < len(data):
        elapsed, task_time = ffi.from_buffer("double[]", take(16))
        records = frames()
        sensed, decided, began = ffi.from_buffer("long long[]", take(24))
        received = [records[i : i + FRAME.size] for i in range(0, len(records), FRAME.size)]
        arrived = b"".join(record for record in received if not record[13] & SENT)
        given = ffi.from_buffer("tick_frame[]", arrived)
        assert not machine.functions.tick_frames(
            tick, given, len(arrived) // FRAME.size, began, sensed, decided, elapsed, task_time
        ), machine.trouble
        sent = frames()
        encoding = tick.encoding[0]
        torque = bytes(encoding.frame[4 : 4 + encoding.length])[2:]  # after the controlword, which the driver sets
        assert sent[16 + 2 : 16 + encoding.length] == torque and sent[13] & SENT
        ticks += 1
    assert ticks >= 55


def test_it_sends_nothing_without_being_armed(tmp_path: Path, program: tuple[Path, Path]) -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with here, there:
        done = subprocess.run([program[0], f"fd:{here.fileno()}"], pass_fds=[here.fileno()], capture_output=True)
        there.setblocking(False)
        assert done.returncode == 2 and b"--armed" in done.stderr
        with pytest.raises(BlockingIOError):
            there.recv(100)


def test_a_config_that_c_cannot_run_is_refused(program: tuple[Path, Path]) -> None:
    with pytest.raises(ConfigError, match="--loop: speeds are filtered from positions"):
        export_loop(program[1], ["hil.velocity=filter"])
