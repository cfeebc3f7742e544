"""Status, events and exit code agree however a run on drives ends, and every drive is off."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hil.assembly.emulation import Environment, environment_of, make_emulator
from hil.bus import Bus, Health
from hil.emulator.emulator import Emulator, HostFaults
from hil.frame import Frame
from hil.loop.realtime import RealtimeError
from hil.recorder import Recorder, read_events
from hil.safety import Event
from hil.safety.plan import Phase
from hil.session.run import HilRun
from hil.session.start import Request, start
from servoctl.errors import RunFolderError
from servoctl.types import Array
from tests.faces import exit_code, on_rig
from tests.hil.faults.carts.scenario import machine
from tests.hil.rigs import renewed


def rig(protocol: str = "odrive") -> tuple[Any, Emulator, Environment]:
    prepared = renewed(machine(protocol, "at speed"), ())
    emulator = make_emulator(prepared, "vm")
    return prepared, emulator, environment_of(prepared, emulator)


def story(folder: Path) -> tuple[str, str | None, list[str]]:
    """Status, error, and kinds of the events that are no stage and no proof of a drive."""
    summary = json.loads((folder / "summary.json").read_text())
    kinds = [event["event"] for event in read_events(folder)]
    return summary["status"], summary.get("error"), [kind for kind in kinds if kind not in ("stage", "proved")]


def on(emulator: Emulator) -> list[str]:
    return [name for name in "ab" if emulator.drives[name].motor.enabled]


class Law(HostFaults):
    """A law that does something from the beginning of the task on."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act, self.engaged = act, False

    def stall(self) -> int:
        return 0

    @property
    def tampers(self) -> bool:
        return self.engaged

    def tamper(self, u: Array) -> Array:
        if self.engaged:
            self.act()
        return u


def play(folder: Path, act: Callable[[], None]) -> tuple[int, list[str]]:
    """A run whose law acts so; exit code, and drives that are left on."""
    prepared, emulator, _ = rig()
    law = Law(act)
    ended = on_rig(prepared, emulator, out=folder, faults=law, engaged=lambda: setattr(law, "engaged", True))
    return ended.exit_code, on(emulator)


def test_a_plant_that_ends_the_program_has_failed(tmp_path: Path) -> None:
    """`sys.exit(0)` in a plant is no way to end with 0 and a run that says `interrupted`."""
    assert play(tmp_path / "run", lambda: sys.exit(0)) == (3, [])
    status, error, events = story(tmp_path / "run")
    assert (status, events) == ("stopped", ["exception"])
    assert error is not None and error.startswith("the loop has failed (SystemExit: 0 (line ")


def test_a_run_that_fails_while_it_writes_its_summary_is_not_completed(tmp_path: Path) -> None:
    """Even an exception that leaves the run itself: the listener of its events, here."""
    prepared, emulator, place = rig()
    run = HilRun(prepared, place, Phase.FULL)

    def listen(event: Event) -> None:
        if event.detail == "over":
            raise ValueError("the terminal is gone")

    with pytest.raises(ValueError, match="the terminal is gone"):
        run.run(tmp_path / "run", listen)
    status, error, events = story(tmp_path / "run")
    assert (status, events) == ("failed", ["exception"])
    assert error is not None and error.startswith("the loop has failed (ValueError: the terminal is gone")
    assert not on(emulator)


def test_an_emulator_that_cannot_say_how_it_went_has_failed(tmp_path: Path) -> None:
    def facts() -> dict[str, Any]:
        raise LookupError("no such wire")

    assert on_rig(rig()[0], None, Phase.ZERO, out=tmp_path / "run", facts=facts).exit_code == 3
    status, error, events = story(tmp_path / "run")
    assert (status, events) == ("stopped", ["exception"])
    assert error is not None and "LookupError: no such wire" in error


def test_a_signal_before_the_first_frame_sends_nothing_and_is_an_interrupted_run(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)  # ignored where a shell started the tests in the background
    prepared, emulator, place = rig()
    sent: list[Frame] = []
    emulator.wires["main"].taps.append(lambda frame, sender: sent.append(frame) if sender.host else None)

    class Early(HilRun):
        def open(self, out: Path | None) -> None:
            signal.raise_signal(signal.SIGINT)
            super().open(out)

    ended = Early(prepared, place, Phase.FULL).run(tmp_path / "run", lambda event: None)
    assert (ended.exit_code, ended.unconfirmed, sent) == (130, (), [])
    said = "the operator stops the run (SIGINT, before the first frame)"
    assert story(tmp_path / "run") == ("interrupted", said, ["interrupted"])
    assert signal.getsignal(signal.SIGINT) is before


def test_a_ctrl_c_that_casadi_swallows_while_the_run_is_made_ready_still_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swallowing(request: Request) -> HilRun:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        return start(request)

    monkeypatch.setattr("hil.session.start.start", swallowing)
    assert exit_code("hil", "two_mass_spring_drive", "--engine", "vm", "--out", tmp_path / "run") == 130
    assert not (tmp_path / "run").exists()


def test_signals_while_the_folder_is_finished_change_nothing(tmp_path: Path) -> None:
    def facts() -> dict[str, Any]:  # asked for when the last drive is off
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        return {}

    def engaged() -> None:
        signal.raise_signal(signal.SIGINT)

    ended = on_rig(rig()[0], out=tmp_path / "run", facts=facts, engaged=engaged)
    assert (ended.exit_code, ended.trajectory.metadata["status"]) == (130, "interrupted")
    assert (tmp_path / "run" / "trajectory.parquet").exists()
    ended = on_rig(rig()[0], None, Phase.ZERO, out=tmp_path / "two", facts=facts)
    assert (ended.exit_code, ended.trajectory.metadata["status"]) == (0, "done"), "it was over before"


def test_a_run_that_never_began_reports_the_reason(tmp_path: Path) -> None:
    prepared, _, place = rig()
    run = HilRun(prepared, place, Phase.FULL)
    run.open(tmp_path / "run")
    run.abandon(RealtimeError("real time: not granted"))
    assert story(tmp_path / "run") == ("failed", "the loop has failed (real time: not granted)", ["exception"])


def test_a_recorder_that_died_leaves_the_whole_story(tmp_path: Path) -> None:
    (prepared, emulator, place), folder = rig(), tmp_path / "run"

    def engaged() -> None:
        emulator.engaged()
        assert isinstance(run.recorder, Recorder)
        os.kill(run.recorder._child.process.pid, signal.SIGKILL)
        run.recorder._child.process.wait()

    run = HilRun(prepared, dataclasses.replace(place, engaged=engaged), Phase.FULL)
    with pytest.raises(RunFolderError, match="the recorder died"):
        run.run(folder, lambda event: None)
    status, error, events = story(folder)
    assert (status, error) == ("failed", "the recorder died (signal 9): the run folder is not finished")
    assert events == ["recorder"]
    told = {event["text"] if event["event"] == "stage" else event["event"]: event["t"] for event in read_events(folder)}
    stages = ["enabling", "zero", "ramp", "full", "recorder", "stopping", "disabling", "over"]
    assert [name for name in told if name != "proved"] == stages and not on(emulator), "it is no safety function"
    assert told["recorder"] - told["full"] < 0.3, "it is looked at every hundred ticks of 2.5 ms"


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare, to make a small disk")
def test_a_full_disk_ends_with_3_and_the_reason_and_leaves_a_summary_that_can_be_read(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = f"{sys.executable} -m servoctl hil two_mass_spring_drive --engine vm --out {disk}/run"
    script = (
        f"mount -t tmpfs -o size=128k tmpfs {disk} || exit 77; {command} 2>&1; echo $?; cat {disk}/run/summary.json"
    )
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True)
    if done.returncode == 77 or not done.stdout:
        pytest.skip(f"no disk can be mounted here: {done.stderr}")
    said, _, summary = done.stdout.partition("\n3\n")
    assert "No space left on device" in said
    assert json.loads(summary)["status"] == "failed"


class Adapter(Bus):
    """An adapter whose driver raises for the frames of one drive, as no bus of ours does."""

    def __init__(self, inner: Bus, refuses: Callable[[Frame], bool]) -> None:
        self._inner, self._refuses, self.name, self.broken = inner, refuses, inner.name, False

    def send(self, frame: Frame) -> None:
        if self.broken and self._refuses(frame):
            raise OverflowError("the adapter's library has failed")
        self._inner.send(frame)

    def receive(self, until: int) -> Frame | None:
        return self._inner.receive(until)

    @property
    def health(self) -> Health:
        return self._inner.health

    def close(self) -> None:
        self._inner.close()


@pytest.mark.parametrize("protocol", ["odrive", "cia402", "mit"])
def test_a_drive_that_cannot_be_sent_off_keeps_no_other_on(protocol: str, tmp_path: Path) -> None:
    prepared, emulator, place = rig(protocol)
    first = {"odrive": range(0x20, 0x40), "cia402": (0x201, 0x000), "mit": (0x001,)}[protocol]
    adapter = Adapter(place.buses["main"], lambda frame: frame.id in first)

    begin = partial(setattr, adapter, "broken", True)
    ended = on_rig(prepared, emulator, out=tmp_path / "run", engaged=begin, buses={"main": adapter})
    assert ended.exit_code == 3
    assert not emulator.drives["b"].motor.enabled
    assert ended.trajectory.metadata["drives"]["b"]["confirmed_off"] is True
    status, error, events = story(tmp_path / "run")
    assert status == "stopped" and error is not None and "OverflowError: the adapter's library has failed" in error
    assert events[0] == "exception"
    assert "a: the loop has failed (OverflowError" in " ".join(e["text"] for e in read_events(tmp_path / "run"))


def test_a_node_that_raises_sticks_no_wire_and_leaves_no_drive_on(tmp_path: Path) -> None:
    prepared, emulator, _ = rig("cia402")
    heard: list[int] = []

    def fail(frame: Frame) -> None:
        heard.append(frame.id)
        raise ArithmeticError("a model that fails")

    begin = partial(setattr, emulator.drives["a"].station, "receive", fail)
    ended = on_rig(prepared, emulator, out=tmp_path / "run", engaged=begin)
    assert (ended.exit_code, ended.unconfirmed) == (3, ("a",)), "it cannot be asked any more"
    assert not on(emulator), "the one that hears nothing goes off by its watchdog"
    assert 0x201 in heard, "the frames that send it off have come to it too"
    assert story(tmp_path / "run")[1] == "the loop has failed (ArithmeticError: a model that fails (line " + (
        str(fail.__code__.co_firstlineno + 2) + " of test_one_story.py))"
    )
