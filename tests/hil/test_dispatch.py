"""Frames between buses and nodes: a bus that fails takes nobody with it, and says so.

Many drives on one bus or several: every watchdog is fed, each bus keeps its rate, and no frame is lost.
"""

import errno
import json
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import can
import pytest

from hil.bus import Bus, BusError, Health, Link
from hil.bus.base import PATIENCE, QUEUE
from hil.bus.load import BusRates
from hil.bus.python_can import PythonCanBus
from hil.drives import Feedback
from hil.emulator.wire import EmulatedBus, EmulatedWire
from hil.frame import Frame
from hil.loop import VirtualClock
from hil.loop.clock import World
from hil.rig.dispatch import Dispatch
from hil.rig.logbook import STAGES
from hil.session.run import RunResult
from hil.session.start import Request, start
from servoctl.config import load_config
from tests.faces import on_drives
from tests.hil.by_drivers import TICKS, ticks
from tests.hil.emulation import SHORT, bare_drive
from tests.hil.rigs import OPTIONS
from tests.hil.test_monitor import Silent, settings


class Wire(Bus):
    """A bus that gives what a test put in, or fails."""

    def __init__(self, name: str, clock: VirtualClock) -> None:
        self.name, self.clock = name, clock
        self.inbox, self.sent, self.fails = deque[Frame](), list[Frame](), False

    def send(self, frame: Frame) -> None:
        if self.fails:
            raise BusError(f"bus {self.name}: closed")
        self.sent.append(frame)

    def receive(self, until: int) -> Frame | None:
        if self.fails:
            raise BusError(f"bus {self.name}: closed")
        if self.inbox:
            return self.inbox.popleft()
        self.clock.sleep_until(until)
        return None

    @property
    def health(self) -> Health:
        return Health()

    def restarted(self) -> None: ...

    def close(self) -> None: ...


class Heard(Silent):
    """A drive that remembers what it was handed."""

    identities = frozenset({0x181})

    def __init__(self, bus: str) -> None:
        super().__init__(settings(), 0.002)
        object.__setattr__(self.settings, "bus", bus)
        self.heard: list[Frame] = []

    def accept(self, frame: Frame) -> None:
        self.heard.append(frame)


class Rig:
    """Two buses with a drive on each."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.buses = {name: Wire(name, self.clock) for name in ("a", "b")}
        self.nodes = {name: Heard(name) for name in self.buses}
        self.recorded: list[tuple[int, bool, int]] = []
        self.dispatch = Dispatch(
            self.buses,
            list(self.nodes.values()),
            self.clock,
            lambda bus, sent, frame, time: self.recorded.append((bus, sent, frame.id)),
        )


def test_frames_go_to_the_node_of_their_bus_and_are_recorded() -> None:
    rig = Rig()
    rig.buses["b"].inbox.append(Frame(0x181))
    rig.buses["a"].inbox.append(Frame(0x182))
    rig.dispatch.drain()
    assert rig.nodes["a"].heard == []
    assert [frame.id for frame in rig.nodes["b"].heard] == [0x181]
    assert rig.dispatch.unknown == 1
    assert rig.recorded == [(0, False, 0x182), (1, False, 0x181)]


def test_a_bus_that_fails_does_not_keep_others_from_their_frames() -> None:
    rig = Rig()
    rig.buses["a"].fails = True
    rig.buses["b"].inbox.append(Frame(0x181))
    rig.dispatch.send("a", Frame(1))
    rig.dispatch.send("b", Frame(2))
    assert rig.dispatch.healths()["a"].link is Link.DOWN, "a bus that accepts no frame, whatever it reports"
    rig.dispatch.drain()
    assert [frame.id for frame in rig.buses["b"].sent] == [2]
    assert len(rig.nodes["b"].heard) == 1
    healths = rig.dispatch.healths()
    assert healths["a"].link is Link.DOWN
    assert "closed" in healths["a"].reason
    assert healths["b"].link is Link.ACTIVE


def test_waiting_on_a_bus_that_fails_ends_in_time() -> None:
    rig = Rig()
    rig.buses["a"].fails = True
    rig.dispatch.wait(5_000_000, lambda: "a")
    assert rig.clock.now() == 5_000_000
    assert rig.dispatch.healths()["a"] == Health(Link.DOWN, "bus a: closed")


@pytest.mark.parametrize(("stamped", "taken"), [(900, 900), (5_000_000_000, 1000)])
def test_no_sample_is_newer_than_now(stamped: int, taken: int) -> None:
    rig, drive = Rig(), bare_drive("odrive", bus="a", node=3)
    rig.buses["a"].inbox.append(Frame(0x69, bytes(8), time=stamped))
    rig.clock.sleep_until(1000)
    Dispatch(rig.buses, [drive], rig.clock, lambda *_: None).drain()
    assert drive.sample is not None and drive.sample.time == taken


def test_sync_goes_only_where_somebody_waits_for_it() -> None:
    rig = Rig()
    rig.nodes["b"].feedback = Feedback.SYNC
    dispatch = Dispatch(rig.buses, list(rig.nodes.values()), rig.clock, lambda *_: None)
    dispatch.synchronise()
    assert rig.buses["a"].sent == []
    assert [frame.id for frame in rig.buses["b"].sent] == [0x80]


def test_a_quiet_drive_silences_those_that_share_its_heartbeat_on_its_bus_alone() -> None:
    rig = Rig()
    for name, node in rig.nodes.items():
        node.alive_frames = lambda name=name: [Frame(0x77F)]  # type: ignore[method-assign,misc]
    rig.nodes["a"].quiet = True
    rig.dispatch.keep_alive()
    assert rig.buses["a"].sent == []
    assert [frame.id for frame in rig.buses["b"].sent] == [0x77F]


LIMITS = {
    "bus": "main", "gear": 10, "torque_limit": 40, "torque_rate_limit": 4000, "speed_limit": 2,
    "position_limits": [-1, 2], "rated_torque": 1,
}  # fmt: skip


def carts(folder: Path, protocols: Sequence[str], period: float, watchdog: float, **options: Any) -> Path:
    """A config of carts, each pushed by a drive of its own."""
    count = len(protocols)

    def names(letter: str) -> str:
        return " ".join(f"{letter}{i}" for i in range(1, count + 1))

    drives = [
        {"actuator": f"a{i}", "protocol": protocol, "node": i, **LIMITS, **OPTIONS[protocol], **options}
        for i, protocol in enumerate(protocols, 1)
    ]
    tasks = [{"name": f"t{i}", "holonomic": f"x{i} - 0.01*(1 - cos(t))"} for i in range(1, count + 1)]
    safety = {
        "stale": 3 * period, "lost": 10 * period, "drive_watchdog": watchdog, "zero_time": 0.02, "ramp_time": 0.05,
        "engage_tolerance": 0.1, "tracking": 0.05,
    }  # fmt: skip
    config = {
        "plant": {"class": "tests.small_plants:Masses", "parameters": {"names": names("x"), "forces": names("a")}},
        "initial": {"q": 0}, "task": tasks,
        "law": {"correction": {"baumgarte": {"alpha": 4, "beta": 4}}},
        "run": {"duration": 0.1, "integrator": {"method": "rk4", "step": 0.001}},
        "hil": {"period": period, "buses": {"main": {"interface": "emulated"}}, "drives": drives, "safety": safety},
    }  # fmt: skip
    path = folder / "carts.yaml"
    path.write_text(json.dumps(config))
    return path


def played(path: Path, tick: str = "c") -> RunResult:
    with ticks(tick):
        return on_drives(path)


@pytest.mark.parametrize(
    ("protocols", "period", "watchdog"),
    [
        (["cia402"] * 6, 0.01, 0.03),
        (["cia402", "odrive"], 0.0025, 0.05),
        (["cia402", "robstride", "odrive"] * 2, 0.01, 0.03),
    ],
)
def test_no_drive_starves_while_others_are_brought_up_even_at_three_periods(
    protocols: list[str], period: float, watchdog: float, tmp_path: Path
) -> None:
    result = played(carts(tmp_path, protocols, period, watchdog))
    assert (result.exit_code, result.unconfirmed) == (0, ())


def test_frames_that_a_queue_does_not_hold_are_sent_as_room_comes_by_both_ticks(tmp_path: Path) -> None:
    path = carts(tmp_path, ["cia402"] * 11, 0.01, 0.05)
    python, c = (played(path, tick) for tick in TICKS)
    for result in (python, c):
        assert (result.exit_code, result.unconfirmed) == (0, ())
        (bus,) = result.trajectory.summary()["bus"].values()
        assert (bus["refused"], bus["errors"], bus["link"]) == (0, 0, "error active")
    assert python.trajectory.summary()["drives"] == c.trajectory.summary()["drives"]
    assert (c.trajectory.summary()["ticks_in_c"] > 0, len(python.trajectory)) == (True, len(c.trajectory))


def test_a_queue_that_stays_full_counts_as_down_and_is_waited_for_once() -> None:
    world = World()
    wire = EmulatedWire(world, "main", BusRates(1_000_000, 1_000_000))
    bus = EmulatedBus(wire)  # no other node acknowledges a frame
    for _ in range(QUEUE):
        bus.send(Frame(0x10, bytes(8)))
    for since in (0, PATIENCE):
        assert world.now == since
        with pytest.raises(BusError, match="10 frames wait"):
            bus.send(Frame(0x11))
    assert (world.now, bus.health.refused) == (PATIENCE, 2)


class FullFor(can.BusABC):
    """A bus whose queue is full for so many tries."""

    def __init__(self, tries: int) -> None:
        self.tries = tries
        self.sent = 0

    def send(self, message: can.Message, timeout: float | None = None) -> None:
        if self.tries:
            self.tries -= 1
            raise can.CanOperationError("Failed to transmit", errno.ENOBUFS)
        self.sent += 1

    def _recv_internal(self, timeout: float | None) -> tuple[None, bool]:
        return None, False

    def fileno(self) -> int:
        raise NotImplementedError

    def shutdown(self) -> None:
        self._is_shutdown = True


def test_a_socket_waits_for_room_and_tells_a_queue_that_stays_full() -> None:
    full, clock = FullFor(7), VirtualClock()
    bus = PythonCanBus("main", full, clock)
    bus.send(Frame(0x10))
    assert (full.sent, bus.health.link, bus.health.refused) == (1, Link.ACTIVE, 0)
    assert 0 < clock.now() < PATIENCE
    full.tries, began = 1_000_000, clock.now()
    for _ in range(3):
        with pytest.raises(BusError, match="transmit queue full"):
            bus.send(Frame(0x10))
    assert clock.now() - began == PATIENCE
    full.tries = 0
    bus.send(Frame(0x10))
    bus.close()


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
    for row in ("object_x", "object_y", "level"):
        assert abs(ended.trajectory[f"violation.{row}"][working]).max() <= 1e-3  # as on one bus


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
