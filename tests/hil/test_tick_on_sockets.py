"""The tick in C that sends and receives on sockets itself: the same frames, the same bits, the same reactions."""

import os
import random
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hil.assembly.prepare import load
from hil.bus.open import EmulatorMessage, emulator_frame
from hil.bus.python_can import PythonCanBus
from hil.core.compiled import SOCKETS, library
from hil.drives.base import Condition
from hil.drives.cia402 import Cia402Drive
from hil.frame import FD_SIZES, SENT, Frame
from hil.loop import SECOND, Ahead, Tick, WallClock
from hil.recorder import read_frames
from hil.recorder.memory import FRAME, unpacked
from hil.rig.logbook import STAGES
from hil.safety import EventKind
from hil.safety.plan import Phase
from hil.session.replay import replay
from hil.session.run import HilRun
from tests.hil.interfaces import keys_of
from tests.hil.opaque_code import PLANT, TERM, Awkward, Grumpy
from tests.hil.socket_pair import bus_on, on_pair
from tests.hil.wall_clock import Child, emulated, summary_of, write_config

pytestmark = pytest.mark.skipif(not SOCKETS, reason="the tick in C has sockets on Linux only")


class Ends:
    """One end of a pair for C, the other one as a bus of python-can."""

    def __init__(self) -> None:
        self.clock, self.there = WallClock(), WallClock()
        self.here, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.bus: PythonCanBus = bus_on(other, "main", self.there, True)
        self.other = other
        lent = bus_on(self.here, "main", self.clock, True)  # sets the options of the socket as a run does
        self.lent = lent
        ffi, self.functions = library()
        self.ffi = ffi
        self.tick, self.sockets = ffi.new("tick *"), ffi.new("tick_sockets *")
        self.kept = [ffi.new("tick_bus[]", 1), ffi.new("tick_frame[]", 256)]
        self.kept.append(ffi.callback("void(int)", lambda index: self.passed.append(index)))
        self.sockets.bus, self.sockets.frames, self.sockets.pass_on = self.kept
        self.passed: list[int] = []  # indices of the frames that C does not take
        self.sockets.buses, self.sockets.room, self.sockets.origin = 1, 256, self.clock.origin
        self.kept[0][0].socket, self.kept[0][0].fd = lent.descriptor, 1

    def taken(self) -> list[Frame]:
        self.sockets.count = 0
        self.works = self.functions.sockets_take(self.tick, self.sockets, 0)
        records = self.ffi.buffer(self.kept[1])[0 : FRAME.size * self.sockets.count]
        return [unpacked(*each)[2] for each in FRAME.iter_unpack(records)]

    def close(self) -> None:
        self.bus.close()
        self.lent.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.close()


def some_frame(chance: random.Random, i: int) -> Frame:
    fd, extended = bool(i % 2), chance.random() < 0.5
    size = FD_SIZES[i // 2 % len(FD_SIZES)] if fd else chance.randrange(9)
    identity = chance.randrange(1 << 29 if extended else 1 << 11)
    return Frame(identity, chance.randbytes(size), extended, fd=fd, brs=fd and chance.random() < 0.5)


def plain(frame: Frame) -> tuple[Any, ...]:
    return frame.id, frame.data, frame.extended, frame.remote, frame.fd, frame.brs


def test_frames_of_every_size_arrive_in_c_as_they_do_in_python(ends: Ends) -> None:
    chance, before = random.Random(5), 0
    for start in range(0, 320, 16):
        sent = [some_frame(chance, start + i) for i in range(16)]
        for frame in sent:
            ends.bus.send(frame)
        taken = ends.taken()
        assert [plain(frame) for frame in taken] == [plain(frame) for frame in sent]
        for frame in taken:
            assert before <= frame.time <= ends.clock.now()
            before = frame.time
    assert ends.kept[0][0].received == 320 and ends.sockets.unknown == 320


def test_frames_of_every_size_leave_c_as_they_leave_python(ends: Ends) -> None:
    chance = random.Random(6)
    frames = [some_frame(chance, i) for i in range(64)]
    many = ends.ffi.new("tick_frame[]", len(frames))
    for place, frame in zip(many, frames, strict=True):
        place.id, place.length, place.data = frame.id, len(frame.data), frame.data.ljust(64, b"\0")
        place.flags = frame.extended << 1 | frame.fd << 4 | frame.brs << 5
    assert ends.functions.sockets_send(ends.sockets, many, len(frames)) == 0
    arrived = [ends.bus.receive(0) for _ in frames]
    assert [plain(frame) for frame in arrived if frame is not None] == [plain(frame) for frame in frames]
    assert ends.sockets.count == 64 and all(frame.flags & SENT for frame in ends.kept[1][0:64])


def test_records_that_are_no_frames_are_counted_and_error_frames_are_passed_on(ends: Ends) -> None:
    long, odd = b"\x01\0\0\0\x09" + bytes(11), b"\x01\0\0\0\x0b\x04" + bytes(66)
    for wrong in (b"", b"short", bytes(15), bytes(17), bytes(73), long, odd):
        ends.other.send(wrong)
    assert ends.taken() == [] and ends.kept[0][0].invalid == 7 and ends.works and not ends.passed
    ends.other.send(b"\x01\0\0\0\x02\0\0\0ab" + bytes(6))
    ends.other.send((0x20000040).to_bytes(4, "little") + b"\x08\0\0\0" + bytes(8))
    ends.other.send(b"\x02\0\0\0\x02\0\0\0cd" + bytes(6))
    taken = ends.taken()
    assert ends.passed == [1] and [frame.error for frame in taken] == [False, True, False]
    assert taken[2].data == b"cd"  # what comes after it is taken too


def test_a_bus_that_is_gone_is_reported_and_the_others_go_on(ends: Ends) -> None:
    frames = ends.ffi.new("tick_frame[]", 2)
    ends.bus.close()
    assert ends.functions.sockets_send(ends.sockets, frames, 2) == 2
    assert ends.kept[0][0].refused == 2 and ends.kept[0][0].error and not ends.sockets.count


def run_on_sockets(
    folder: Path,
    kind: type[HilRun],
    duration: float = 0.5,
    sets: Sequence[str] = (),
    stage: Phase = Phase.FULL,
    **hil: Any,
) -> tuple[Any, Any]:
    keys = {"interface": "emulated", "bitrate": 1_000_000}
    config = str(write_config(folder.parent / "cart.yaml", "cia402", keys, duration, **hil))
    setup = load(config, sets)
    with on_pair(setup, config) as environment:
        engaged = partial(environment.buses["main"].send, emulator_frame(EmulatorMessage.BEGUN))
        run = kind(setup, replace(environment, engaged=engaged), stage, duration)
        return run, run.run(folder, lambda event: None)


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    """A run until a drive goes to fault; its end and its folder."""
    folder = tmp_path_factory.mktemp("checked") / "run"
    faults = [{"kind": "drive_fault", "at": 1.2, "drive": "F"}]
    return *run_on_sockets(folder, HilRun, 5.0, faults=faults), folder


def test_what_ticks_on_sockets_computed_follows_from_their_frames_to_the_bit(checked: tuple[Any, Any, Path]) -> None:
    run, ended, folder = checked
    assert ended.trajectory.metadata["tick"] == "C, sockets included" and run.rig.in_c.count > 30
    again = replay(folder)
    assert again.agrees and again.samples > 90 and again.sent is not None and again.sent.frames > 90


def test_a_drive_in_fault_takes_several_ticks_in_c_back_to_python(checked: tuple[Any, Any, Path]) -> None:
    _, ended, _ = checked
    facts = ended.trajectory.metadata
    assert ended.exit_code == 3 and [e.subject for e in ended.events if e.kind is EventKind.DRIVE_FAULT] == ["F"]
    stage = ended.trajectory.columns["stage"]
    phases = Phase.ZERO, Phase.RAMP, Phase.FULL
    zero, ramp, full = (int((stage == STAGES.index(phase.value)).sum()) for phase in phases)
    assert 50 < facts["ticks_in_c"] <= zero + ramp + full and full < 130
    assert sum(facts["given_back"].values()) > 0
    assert not ended.unconfirmed


def test_ticks_of_one_call_are_recorded_counted_and_fed_as_single_ones(checked: tuple[Any, Any, Path]) -> None:
    _, ended, folder = checked
    facts, columns = ended.trajectory.metadata, ended.trajectory.columns
    ticks, timing = len(columns["t"]), facts["timing"]
    assert (
        facts["steps"] == timing["ticks"] == timing["read_s"]["n"] == ticks and facts["recorder"]["lost"]["rows"] == 0
    )
    in_task = columns["stage"] == STAGES.index(Phase.FULL.value)
    assert all(np.isfinite(columns[name][in_task]).all() for name in ("q.x1", "v.x2", "u.F", "sent.F", "age.F", "read"))
    np.testing.assert_allclose(timing["lateness_s"]["mean"], columns["lateness"].mean(), atol=1e-9)
    np.testing.assert_allclose(timing["read_s"]["max"], columns["read"].max(), atol=1e-9)
    np.testing.assert_allclose(
        np.diff(columns["task_time"][in_task])[1:], columns["elapsed"][in_task][1:-1], atol=1e-9
    )  # the first row of the task belongs to the tick that enters it
    sent = [frame.id for _, ours, frame, _ in read_frames(folder) if ours]
    beats = [sent[:i].count(0x80) for i, identity in enumerate(sent) if identity == 0x700 + 127]
    last = [after - before for before, after in pairwise(beats) if sent.count(0x80) - 150 < before < beats[-1] - 30]
    assert len(last) > 8 and set(last) == {9}  # ticks of 10 ms; a third of the watchdog of 0.3 s is not exceeded


class Failing(HilRun):
    """A run whose plant or term raises an exception within ticks of one call."""

    kind: type[Awkward] | type[Grumpy]

    def _go_ahead(self, number: int, deadline: int) -> Ahead:
        if number > 150 and self.stages.mode is Phase.FULL and not self.kind.failures:
            self.kind.failures.append(ArithmeticError("code that fails"))
        return super()._go_ahead(number, deadline)


@pytest.mark.parametrize("kind", [Awkward, Grumpy])
def test_an_exception_of_the_users_code_within_c_ends_the_run_with_every_drive_off(
    kind: type[Awkward] | type[Grumpy], tmp_path: Path
) -> None:
    failing = type(kind.__name__, (Failing,), {"kind": kind})
    _, ended = run_on_sockets(tmp_path / "run", failing, 5.0, (PLANT, TERM))
    kind.failures.clear()
    facts = ended.trajectory.metadata
    assert facts["tick"] == "C, sockets included" and facts["ticks_in_c"] > 50
    (event,) = [event for event in ended.events if event.kind is EventKind.EXCEPTION]
    assert "ArithmeticError: code that fails (line " in event.detail and "of opaque_code.py" in event.detail
    assert ended.exit_code == 3 and not ended.unconfirmed
    sent = ended.trajectory.columns["sent.F"]
    assert np.isfinite(sent[~np.isnan(ended.trajectory.columns["u.F"])]).all()


def test_ticks_of_one_call_ask_for_the_bus_voltage_at_its_pace(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    _, ended = run_on_sockets(folder, HilRun, 1.3, ("hil.drives.F.monitor_period=0.05",))
    columns = ended.trajectory.columns
    in_task = columns["stage"] == STAGES.index(Phase.FULL.value)
    assert ended.trajectory.metadata["ticks_in_c"] > 100 and (columns["supply.F"][in_task] == 48.0).all()
    frames = [(ours, frame) for _, ours, frame, _ in read_frames(folder)]
    syncs, asked, answered = 0, [], 0
    for ours, frame in frames:
        syncs += ours and frame.id == 0x80
        if ours and frame.data[:4] == bytes.fromhex("40796000"):
            asked.append(syncs)
        answered += frame.id == 0x581 and frame.data[:4] == bytes.fromhex("43796000")
    assert set(np.diff(asked[3:])) == {5} and len(asked) > 20  # ticks of 10 ms; the first ones belong to the bring-up
    assert answered >= len(asked) - 1


@pytest.mark.parametrize(("stage", "phase"), [(Phase.ZERO, Phase.ZERO), (Phase.FLOAT, Phase.FLOAT)])
def test_stages_before_the_task_run_in_c_and_their_log_replays_to_the_bit(
    tmp_path: Path, stage: Phase, phase: Phase
) -> None:
    run, ended = run_on_sockets(tmp_path / "run", HilRun, 1.0, stage=stage)
    again, columns = replay(tmp_path / "run"), ended.trajectory.columns
    in_stage = columns["stage"] == STAGES.index(phase.value)
    assert ended.exit_code == 0 and run.rig.in_c.count > 30 and in_stage.sum() > 30
    assert again.agrees and np.isfinite(columns["sent.F"]).all() and (columns["task_time"][in_stage] == 0.0).all()


class Later(HilRun):
    """A run in which something happens in the task, from another thread, while C does ticks."""

    timer: threading.Timer | None = None

    def _done(self, tick: Tick) -> None:
        super()._done(tick)
        if self.timer is None and self.stages.mode is Phase.FULL:
            self.timer = threading.Timer(0.25, self.act)
            self.timer.start()

    def act(self) -> None: ...


class Killed(Later):
    """A run whose bus dies in the task."""

    def act(self) -> None:
        for bus in self.environment.buses.values():
            assert isinstance(bus, PythonCanBus) and bus.descriptor is not None
            with socket.socket(fileno=socket.dup(bus.descriptor)) as same:
                same.shutdown(socket.SHUT_RDWR)


class Asked(Later):
    """A run that the operator ends."""

    def act(self) -> None:
        self.at = self.environment.clock.now() / SECOND
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_bus_that_dies_while_c_does_ticks_ends_the_run(tmp_path: Path) -> None:
    run, ended = run_on_sockets(tmp_path / "run", Killed, 5.0)
    kinds = {event.kind for event in ended.events}
    assert EventKind.BUS in kinds and EventKind.NOT_CONFIRMED in kinds and ended.exit_code == 3
    assert 0 < run.rig.in_c.count < 400 and run.timer is not None


def test_a_signal_ends_a_stretch_of_ticks_in_c(tmp_path: Path) -> None:
    run, ended = run_on_sockets(tmp_path / "run", Asked, 5.0)
    (event,) = (event for event in ended.events if event.kind is EventKind.INTERRUPTED)
    t, stage = (ended.trajectory.columns[name] for name in ("t", "stage"))
    full = STAGES.index(Phase.FULL.value)
    assert ended.exit_code == 130 and "SIGTERM" in event.detail and not ended.unconfirmed
    assert (stage[t < run.at] == full).any() and np.count_nonzero((stage == full) & (t > run.at)) <= 1


@pytest.mark.vcan
def test_c_sends_and_receives_on_a_real_socketcan(tmp_path: Path) -> None:
    with keys_of("socketcan") as keys:
        config = write_config(tmp_path / "cart.yaml", "cia402", keys, 1.0, watchdog=1.0, stale=0.8)
        with emulated(tmp_path, config, "--vcan"):
            words = "hil", str(config), "--out", str(tmp_path / "run"), "--stage", "full", "--armed"
            loop = Child(tmp_path, *words)
            try:
                assert loop.end() == 0, loop.said
            finally:
                loop.close()
    summary = summary_of(tmp_path)
    assert summary["tick"] == "C, sockets included" and summary["ticks_in_c"] > 20
    assert replay(tmp_path / "run").agrees


def test_a_driver_that_raises_in_the_loop_ends_the_run_with_every_drive_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C gives it a frame in the middle of a read; no exception passes through C."""
    taken = Cia402Drive._on_status

    def raises(drive: Cia402Drive, frame: Frame) -> bool:
        if drive.condition is Condition.ENABLED and not failures:
            failures.append(frame)
            raise ArithmeticError("a driver that fails")
        return taken(drive, frame)

    failures: list[Frame] = []
    monkeypatch.setattr(Cia402Drive, "_on_status", raises)
    _, ended = run_on_sockets(tmp_path / "run", HilRun, 1.0)
    (event,) = [event for event in ended.events if event.kind is EventKind.EXCEPTION]
    assert "ArithmeticError: a driver that fails" in event.detail and failures
    assert ended.exit_code == 3 and not ended.unconfirmed
