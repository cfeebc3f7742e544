"""Frames between buses and nodes, each recorded on its way."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from hil.bus.base import Bus, BusError, Health, Link, close_all
from hil.drives.base import Drive, Exchange, Feedback, Node
from hil.frame import Frame
from hil.loop import Clock, nanoseconds

SYNC = Frame(0x080)
"""Source: CiA 301, predefined connection set."""

Record = Callable[[int, bool, Frame, int], None]
"""(number of the bus, whether it was sent, frame, time [ns])."""


class _Line(NamedTuple):
    """A bus, its number in the log, the nodes to which an id belongs, and who listens beside them."""

    bus: Bus
    number: int
    routes: dict[int, list[Node]]
    listeners: list[Callable[[Frame], None]]


class Dispatch:
    """All buses and nodes of a rig.

    Attributes:
        buses: Name -> bus.
        nodes: Drives, then encoder nodes.
        unknown: Frames of nobody we know.
    """

    def __init__(self, buses: Mapping[str, Bus], nodes: Sequence[Node], clock: Clock, record: Record) -> None:
        """Takes open buses, the nodes on them, the run's clock, and who writes frames down."""
        self.buses, self.nodes, self.clock = dict(buses), list(nodes), clock
        self.listeners: dict[str, list[Callable[[Frame], None]]] = {name: [] for name in buses}
        self.unknown = 0
        self._due = 0
        self._record, self._now = record, clock.now
        self._down: dict[str, str] = {}
        self._drives = {
            name: [node for node in nodes if isinstance(node, Drive) and node.settings.bus == name] for name in buses
        }
        self._several = len(self.buses) > 1
        self._lines = {
            name: _Line(bus, number, {}, self.listeners[name]) for number, (name, bus) in enumerate(buses.items())
        }
        for node in nodes:
            for identity in node.identities:
                self._lines[node.settings.bus].routes.setdefault(identity, []).append(node)
        self._synced = [
            name for name in buses if any(n.settings.bus == name and n.feedback is Feedback.SYNC for n in nodes)
        ]

    def send(self, bus: str, frame: Frame) -> None:
        """Sends a frame; a bus that is down takes none, which its health says."""
        line = self._lines[bus]
        try:
            line.bus.send(frame)
        except BusError as error:
            self._down[bus] = str(error)
            return
        self._record(line.number, True, frame, self._now())

    def synchronise(self) -> None:
        """Sends SYNC on every bus whose nodes wait for it."""
        for bus in self._synced:
            self.send(bus, SYNC)

    def keep_alive(self) -> None:
        """Feeds the watchdogs of all drives that no verb keeps quiet, once per bus and frame."""
        for bus, drives in self._drives.items():
            if not any([drive.quiet for drive in drives]):
                for frame in dict.fromkeys([frame for drive in drives for frame in drive.alive_frames()]):
                    self.send(bus, frame)

    def tend(self, period: int) -> int:
        """SYNC and food for watchdogs before the loop runs, once a period [ns] however often somebody asks.

        Every drive answers a SYNC: at the pace of a handshake on one bus, the answers would fill another.

        Returns:
            When they are due again [ns].
        """
        now = self._now()
        if now >= self._due:
            self._due = now + period
            self.synchronise()
            self.keep_alive()
        return self._due

    def receive(self, bus: str, until: int) -> bool:
        """Takes the next frame of a bus in; returns whether there was one until then [ns].

        A bus that is down gives none, which its health says; the others must go on.
        """
        line = self._lines[bus]
        try:
            frame = line.bus.receive(until)
        except BusError as error:
            self._down[bus] = str(error)
            self.clock.sleep_until(until)
            return False
        if frame is None:
            return False
        if frame.time > (now := self._now()):  # a time stamp from ahead would hide that nothing comes any more
            frame = frame.at(now)
        self._record(line.number, False, frame, frame.time)
        nodes = line.routes.get(frame.id)
        if nodes is None:
            self.unknown += 1
        else:
            for node in nodes:
                node.accept(frame)
        for listener in line.listeners:
            listener(frame)
        return True

    def drain(self) -> None:
        """Takes in what has arrived."""
        now = self._now()
        for bus in self._lines:
            while self.receive(bus, now):
                pass

    def wait(self, until: int, missing: Callable[[], str | None]) -> None:
        """Takes frames in until none is missing, or until a moment [ns].

        Args:
            until: That moment.
            missing: Name of a bus that a frame is missing from; None where none is.
        """
        self.drain()
        while (bus := missing()) is not None and self.receive(bus, until):
            if self._several:
                self.drain()
        self.drain()

    @property
    def well(self) -> bool:
        """Whether nothing is wrong with any bus."""
        return not self._down and all([bus.well for bus in self.buses.values()])

    def healths(self) -> dict[str, Health]:
        """Name of a bus -> how it stands; one that has failed us is down, whatever it says."""
        found = {name: bus.health for name, bus in self.buses.items()}
        for name, reason in self._down.items():
            if found[name].link in (Link.ACTIVE, Link.WARNING):
                found[name] = found[name]._replace(link=Link.DOWN, reason=reason)
        return found

    def close(self) -> None:
        """Closes every bus."""
        close_all(self.buses.values())


class BusExchange(Exchange):
    """One bus before the loop runs."""

    def __init__(self, dispatch: Dispatch, bus: str, period: float) -> None:
        """Takes the frames' way, the name of the bus, and how often watchdogs are fed [s]."""
        self._dispatch, self._bus, self._period = dispatch, bus, nanoseconds(period)
        self.listeners = dispatch.listeners[bus]

    def send(self, frame: Frame) -> None:
        self._dispatch.send(self._bus, frame)

    def pump(self, done: Callable[[], bool], limit: float) -> bool:
        clock, dispatch = self._dispatch.clock, self._dispatch
        end = clock.now() + nanoseconds(limit)
        while not done() and clock.now() < end:
            dispatch.wait(min(end, dispatch.tend(self._period)), lambda: None if done() else self._bus)
        return done()
