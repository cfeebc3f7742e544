"""However a run on drives ends: status, events and exit code agree, and only a drive that may be on is an alarm."""

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
from hil.safety import Event, EventKind
from hil.safety.plan import Phase
from hil.session.run import HilRun, RunResult
from hil.session.start import Request, start
from servoctl.errors import RunFolderError
from servoctl.types import Array
from tests.faces import exit_code, on_rig
from tests.hil.faults.carts.scenario import machine
from tests.hil.rigs import renewed


def rig(protocol: str = "odrive", *faults: dict[str, object]) -> tuple[Any, Emulator, Environment]:
    prepared = renewed(machine(protocol, "at speed"), faults)
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


def ended_with(protocol: str, fault: dict[str, object]) -> RunResult:
    return on_rig(rig(protocol, fault)[0])


def kinds(ended: RunResult) -> list[tuple[EventKind, str]]:
    return [
        (event.kind, event.subject) for event in ended.events if event.kind not in (EventKind.STAGE, EventKind.PROVED)
    ]


def test_a_drive_that_cannot_be_configured_says_over_sdo_that_it_is_off() -> None:
    ended = ended_with("cia402", {"kind": "sdo_abort", "drive": "a", "index": 0x6060, "since": "power_on", "at": 0.0})
    assert (ended.exit_code, ended.unconfirmed) == (3, ())
    assert kinds(ended) == [(EventKind.HANDSHAKE, "a")]
    assert ended.trajectory.metadata["drives"]["a"]["confirmed_off"] is True


def test_a_drive_that_never_answered_was_never_on() -> None:
    """That is no reason to reach for the emergency stop."""
    ended = ended_with("cia402", {"kind": "silent", "drive": "a", "since": "power_on", "at": 0.0})
    assert (ended.exit_code, ended.unconfirmed) == (3, ())
    assert (EventKind.HANDSHAKE, "a") in kinds(ended) and (EventKind.NEVER_ENABLED, "a") in kinds(ended)
    assert EventKind.NOT_CONFIRMED not in [kind for kind, _ in kinds(ended)]
    said = next(str(event) for event in ended.events if event.kind is EventKind.NEVER_ENABLED)
    assert said.startswith("a: this run never enabled the drive and sent it no torque; the drive did not report")
    drives = ended.trajectory.metadata["drives"]
    assert drives["a"]["confirmed_off"] is None


def test_a_bus_that_is_dead_at_the_start_is_named_beside_the_drives_that_do_not_answer() -> None:
    ended = ended_with("cia402", {"kind": "bus_off", "since": "power_on", "at": 0.0})
    assert {(EventKind.HANDSHAKE, "a"), (EventKind.BUS, "main")} <= set(kinds(ended)) and ended.exit_code == 3


def test_a_drive_that_falls_silent_while_on_is_reported_loudly() -> None:
    ended = ended_with("cia402", {"kind": "silent", "drive": "a", "at": 0.1})
    assert (ended.exit_code, ended.unconfirmed) == (3, ("a",))
    (said,) = [str(event) for event in ended.events if event.kind is EventKind.NOT_CONFIRMED]
    assert said.startswith("a: ") and "use the emergency stop" in said
    assert ended.trajectory.metadata["drives"]["a"]["confirmed_off"] is False
    assert ended.trajectory.metadata["drives"]["b"]["confirmed_off"] is True


def test_a_drive_that_warns_and_stays_on_is_damped_until_it_is_off() -> None:
    """Its emergency is no fault of its own state machine: left alone it would go on with its last torque."""
    warning = {"kind": "foreign_frames", "id": 0x081, "data": "2081110000000000", "period": 10.0, "at": 0.4}
    prepared, emulator, _ = rig("cia402", warning)
    onset: list[int] = []
    heard: list[int] = []
    emulator.wires["main"].taps.append(lambda frame, sender: heard.append(frame.time) if frame.id == 0x201 else None)
    ended = on_rig(prepared, emulator, engaged=lambda: onset.append(emulator.clock.now() + 400_000_000))
    off = next(event.time for event in ended.events if event.detail == "disabling")
    assert (ended.exit_code, ended.unconfirmed) == (3, ())
    assert (EventKind.DRIVE_FAULT, "a") in kinds(ended)
    assert not emulator.drives["a"].motor.enabled
    told = [time for time in heard if onset[0] < time < off]
    assert off - onset[0] > 20_000_000
    assert len(told) >= (off - onset[0]) // 2_500_000 - 2, "one command a period"


def test_when_the_loop_itself_fails_drives_brake_first_where_they_can() -> None:
    (prepared, emulator, _), broken = rig("cia402"), Law(lambda: 1 // 0)

    def engaged() -> None:
        emulator.world.after(380_000_000, lambda: setattr(broken, "engaged", True))

    words: list[int] = []
    emergencies: list[bytes] = []

    def tap(frame: Frame, sender: object) -> None:
        if frame.id == 0x201 and broken.engaged and words[-1:] != [frame.data[0]]:
            words.append(frame.data[0])
        if frame.id == 0x081 and broken.engaged and 0x00 not in words:
            emergencies.append(frame.data)

    emulator.wires["main"].taps.append(tap)
    ended = on_rig(prepared, emulator, engaged=engaged, faults=broken)
    assert [kind for kind, _ in kinds(ended)] == [EventKind.EXCEPTION]
    assert (ended.exit_code, ended.unconfirmed) == (3, ())
    assert next(word for word in words if word != 0x0F) == 0x02, "quick stop comes before voltage is disabled"
    assert not emergencies, "it brakes by our word, and not because we fell silent"
    assert not on(emulator)


@pytest.mark.parametrize(("lockstep", "handled"), [(True, False), (False, True)])
def test_ctrl_z_is_a_controlled_stop_where_drives_would_not_wait(lockstep: bool, handled: bool) -> None:
    (prepared, _, place), seen = rig(), list[object]()
    place = dataclasses.replace(place, lockstep=lockstep)
    HilRun(prepared, place, Phase.ZERO).run(None, lambda event: seen.append(signal.getsignal(signal.SIGTSTP)))
    assert seen and all((handler is not signal.SIG_DFL) is handled for handler in seen)
    assert signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL


def test_later_events_are_listed_after_the_fault() -> None:
    for protocol in ("odrive", "cia402"):
        ended = ended_with(protocol, {"kind": "drive_fault", "drive": "a", "at": 0.1})
        times = [event.time for event in ended.events]
        assert times == sorted(times)
        said = [event.kind.name if event.kind is not EventKind.STAGE else event.detail for event in ended.events]
        assert said.index("DRIVE_FAULT") < said.index("stopping")
