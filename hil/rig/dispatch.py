"""Frames between buses and nodes; every frame is recorded on its way.

How all drives of a rig are switched off, whatever fails on the way.

Design: a failure of one drive, or of a bus, never keeps the other drives on, not even a SystemExit of a driver.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from hil.bus.base import Bus, BusError, Health, Link, close_all
from hil.drives.base import Drive, Feedback, Node
from hil.frame import Frame, IdFamily
from hil.loop import Clock, nanoseconds
from servoctl.errors import in_one_line

T = TypeVar("T")

SYNC = Frame(0x080)  # source: CiA 301, predefined connection set
Record = Callable[[int, bool, Frame, int], None]  # (number of the bus, whether it was sent, frame, time [ns])


class _Line(NamedTuple):
    """A bus and its nodes."""

    bus: Bus
    number: int  # in the log
    drives: list[Drive]
    synced: bool  # whether a node samples after SYNC
    routes: dict[int, list[Node]]  # id -> the nodes that receive it
    families: list[tuple[IdFamily, Node]]  # those of families of ids


class Dispatch:
    """All buses and nodes of a rig.

    Args:
        buses: Name -> open bus.
        record: Receives every frame that is sent or received.
    """

    def __init__(
        self, buses: Mapping[str, Bus], nodes: Sequence[Node], clock: Clock, record: Record = lambda *_: None
    ) -> None:
        self.buses = dict(buses)  # name -> bus
        self.nodes = list(nodes)  # drives, then encoder nodes
        self.clock = clock
        self.unknown = 0  # number of received frames with an id that no node uses
        # whether frames that command or feed a drive are sent; if not, nodes are only asked for samples
        self.commands = True
        self.asks = True  # whether nodes are asked for samples, by SYNC or by the commands that they reply to
        # takes each received frame with the name of its bus, in place of the nodes; None: the nodes do
        self.taker: Callable[[str, Frame], None] | None = None
        self._due = 0
        self.record, self._now = record, clock.now
        self._down: dict[str, str] = {}
        self._lines: dict[str, _Line] = {}
        for number, (name, bus) in enumerate(buses.items()):
            here, routes = [node for node in nodes if node.settings.bus == name], dict[int, list[Node]]()
            for node in here:
                for identity in node.identities:
                    routes.setdefault(identity, []).append(node)
            drives, synced = [n for n in here if isinstance(n, Drive)], any(n.feedback is Feedback.SYNC for n in here)
            families = [(family, node) for node in here for family in node.families]
            self._lines[name] = _Line(bus, number, drives, synced, routes, families)

    def send(self, bus: str, frame: Frame) -> None:
        """Sends a frame. A bus that fails is reported by `healths`, not by an exception."""
        line = self._lines[bus]
        try:
            line.bus.send(frame)
        except BusError as error:
            self._down[bus] = str(error)
            return
        self.record(line.number, True, frame, self._now())

    def failed(self, bus: str, error: BusError) -> None:
        """Takes note of a bus that failed in the tick in C."""
        self._down[bus] = str(error)

    def take_back(self, bus: str) -> None:
        """Drops the frames that wait in the controller of a bus, if it can."""
        self._lines[bus].bus.take_back()

    def synchronise(self) -> None:
        """Sends SYNC on every bus with nodes that sample after SYNC."""
        for bus, line in self._lines.items():
            if self.asks and line.synced:
                self.send(bus, SYNC)

    def keep_alive(self) -> None:
        """Resets the watchdogs of all drives, each distinct frame once per bus.

        While a handshake keeps a drive quiet, it is left out, and so are those that share its heartbeat.
        """
        if not self.commands:
            for node in self.nodes:
                for frame in node.queries():
                    self.send(node.settings.bus, frame)
            return
        for bus, line in self._lines.items():
            shared = any([drive.quiet and drive.shares_heartbeat for drive in line.drives])
            frames = [
                frame
                for drive in line.drives
                if not (drive.quiet or (shared and drive.shares_heartbeat))
                and (self.asks or drive.feedback is not Feedback.REPLY)
                for frame in drive.routine_frames()
            ]
            for frame in dict.fromkeys(frames) if frames else ():
                self.send(bus, frame)

    def service(self, period: int) -> int:
        """Sends SYNC and resets watchdogs while no tick loop runs, at most once per period [ns].

        Every drive answers each SYNC. At the pace of a handshake on one bus, the answers would fill another bus.

        Returns:
            When the next call is due [ns].
        """
        now = self._now()
        if now >= self._due:
            self._due = now + period
            self.synchronise()
            self.keep_alive()
        return self._due

    def receive(self, bus: str, until: int) -> bool:
        """Receives the next frame of a bus; returns whether one came before `until` [ns].

        A bus that fails is reported by `healths`, not by an exception: the other buses must go on.
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
        if frame.time > (now := self._now()):  # a time stamp in the future would hide that the samples have stopped
            frame = frame.at(now)
        self.record(line.number, False, frame, frame.time)
        (self.taker or self.deliver)(bus, frame)
        return True

    def deliver(self, bus: str, frame: Frame) -> None:
        """Gives a received frame to its nodes."""
        for node in self.nodes_of(bus, frame):
            node.accept(frame)

    def nodes_of(self, bus: str, frame: Frame) -> Sequence[Node]:
        """The nodes that take a received frame."""
        line = self._lines[bus]
        nodes = line.routes.get(frame.id)
        if nodes is None and line.families and frame.extended:
            nodes = [node for (mask, value), node in line.families if frame.id & mask == value]
        if not nodes:
            self.unknown += 1
            return ()
        return nodes

    def drain(self) -> None:
        """Receives every frame that has arrived."""
        now = self._now()
        for bus in self._lines:
            while self.receive(bus, now):
                pass

    def wait(self, until: int, missing: Callable[[], str | None]) -> None:
        """Receives frames until none is missing, or until a moment [ns].

        Args:
            until: That moment.
            missing: Returns the name of a bus on which a frame is missing; None: no frame is missing.
        """
        self.drain()
        while (bus := missing()) is not None and self.receive(bus, until):
            if len(self.buses) > 1:
                self.drain()
        self.drain()

    @property
    def healthy(self) -> bool:
        """Whether every bus works."""
        return not self._down and all([bus.well for bus in self.buses.values()])

    def healths(self) -> dict[str, Health]:
        """Name of a bus -> its health. A bus that has raised is down, even if it reports otherwise."""
        healths = {name: bus.health for name, bus in self.buses.items()}
        for name, reason in self._down.items():
            if healths[name].link in (Link.ACTIVE, Link.WARNING):
                healths[name] = healths[name]._replace(link=Link.DOWN, reason=reason)
        return healths

    def close(self) -> None:
        """Closes every bus."""
        close_all(self.buses.values())


PAUSE = 1_000_000  # [ns] pause before a bus that raises is read again


class SwitchOff:
    """Switches drives off."""

    def __init__(self, dispatch: Dispatch, drives: Sequence[Drive], period: float) -> None:
        self._dispatch, self._drives, self._period = dispatch, drives, nanoseconds(period)
        self._rounds = 0
        self.failures: dict[str, str] = {}  # name of a drive ('' if unknown) -> exception raised meanwhile

    @property
    def confirmed(self) -> bool:
        """Whether every drive reports that it is off, after two rounds: the first answers may be older."""
        return self._rounds > 1 and all([drive.confirmed_off for drive in self._drives])

    def send(self) -> bool:
        """Sends all drives the frames that disable them; returns whether they have confirmed."""
        for drive in self._drives:
            self.send_to(drive, drive.disable_frames)
        self._rounds += 1
        return self.confirmed

    def send_to(self, drive: Drive, make: Callable[[], Sequence[Frame]]) -> None:
        """Sends the frames that stop one drive; if they cannot be made, those that disable it."""
        name, bus = drive.settings.name, drive.settings.bus
        frames = self.attempt(name, make, None)
        if frames is None:
            frames = self.attempt(name, drive.disable_frames, None)
        for frame in frames or ():
            self.attempt(name, partial(self._dispatch.send, bus, frame), None)

    def listen(self, until: int) -> None:
        """Receives the drives' answers and resets their watchdogs until a moment [ns]."""
        dispatch, clock = self._dispatch, self._dispatch.clock
        first = next(iter(dispatch.buses))
        while (now := clock.now()) < until:
            due = min(until, self.attempt("", partial(dispatch.service, self._period), until))
            self.attempt("", partial(dispatch.wait, due, lambda: first), None)
            if clock.now() == now:  # nothing has come, or a bus has raised
                self.attempt("", partial(clock.sleep_until, min(until, now + PAUSE)), None)

    def attempt(self, name: str, action: Callable[[], T], default: T) -> T:
        """The result of an action. The first exception of each drive is kept: the later ones follow from it."""
        try:
            return action()
        except BaseException as error:
            self.failures.setdefault(name, in_one_line(error))
            return default
