"""Frames between buses and nodes: a bus that fails takes nobody with it, and says so."""

from collections import deque

import pytest

from hil.bus import Bus, BusError, Health, Link
from hil.drives import Feedback
from hil.frame import Frame
from hil.loop import VirtualClock
from hil.rig.dispatch import Dispatch
from tests.hil.emulation import bare_drive
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
