"""A CAN controller on the emulated wire: its queue, its error counters, and what it reports.

Source: Bosch 1991, CAN Specification 2.0, part B, 7 (fault confinement); Linux, include/uapi/linux/can/error.h.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from hil.bus.base import Link
from hil.frame import Frame
from hil.loop.virtual_time import World

WARNING, PASSIVE, BUS_OFF = 96, 128, 256
"""Error counts from which a controller warns, is error passive, is off the bus."""

_OFF = Link.OFF

CONTROLLER_CLASS, NO_ACK_CLASS, BUS_OFF_CLASS, RESTARTED_CLASS = 0x004, 0x020, 0x040, 0x100
"""Class bits of error frames."""


def priority(frame: Frame) -> int:
    """The bits that decide arbitration, as one number: the smallest wins."""
    if frame.extended:
        return frame.id >> 18 << 21 | 0b11 << 19 | (frame.id & 0x3FFFF) << 1 | frame.remote
    return frame.id << 21 | frame.remote << 20


def key(frame: Frame) -> int:
    """A frame's id, different for 11 and 29 bits."""
    return frame.id | frame.extended << 29


class Medium(Protocol):
    """What a controller is on.

    Attributes:
        world: Its time.
        troubled: Whether any error count may not be zero.
    """

    @property
    def world(self) -> World: ...

    troubled: bool

    def pending(self, station: "Station") -> None:
        """Takes note that a station has something to send."""

    def leave(self, station: "Station") -> None:
        """Takes a station off at bus-off."""

    def recount(self) -> None:
        """Takes note that a station has come or gone."""


class Station:
    """A node's controller.

    Attributes:
        name: For messages.
        host: Whether it is the run's own.
        ids: Keys of the frames that it takes; None: all.
        queue: Frames that wait to be sent, the next one first.
        rank: Priority of that one.
        capacity: Most that may wait; None: no bound.
        restart: After bus-off: how long until it asks to come back [ns]; None: never.
        tec: Transmit error count.
        rec: Receive error count.
        link: How it stands by these.
        connected: Whether its cable is whole.
        powered: Whether the node runs at all.
        report: Takes error frames; None: nobody asks.
        went_off: Called at bus-off.
        came_back: Called after it.
        trying: Whether it sends a frame that nobody can hear.
        ready: When it may send again [ns]: one that is error passive must let others go first.
    """

    def __init__(
        self,
        wire: Medium,
        name: str,
        receive: Callable[[Frame], None],
        ids: Iterable[int] | None = None,
        host: bool = False,
        capacity: int | None = None,
        restart: int | None = 0,
    ) -> None:
        """Makes a controller; `Wire.attach` does."""
        self.name, self.host, self.capacity, self.restart = name, host, capacity, restart
        self.ids = None if ids is None else frozenset(ids)
        self.receive = receive
        self.queue: deque[Frame] = deque()
        self.rank = 0
        self.tec = self.rec = self.ready = 0
        self.link = Link.ACTIVE
        self.connected = self.powered = True
        self.report: Callable[[Frame], None] | None = None
        self.went_off: Callable[[], None] | None = None
        self.came_back: Callable[[], None] | None = None
        self.trying = False
        self._wire = wire

    @property
    def online(self) -> bool:
        """Whether it takes part in what happens on the wire."""
        return self.connected and self.powered and self.link is not Link.OFF

    def send(self, frame: Frame) -> bool:
        """Queues a frame; returns whether there was room, and a controller to take it."""
        queue = self.queue
        if self.link is _OFF or not self.powered:
            return False
        if self.capacity is not None and len(queue) >= self.capacity:
            return False
        queue.append(frame)
        if len(queue) == 1:
            self.rank = priority(frame)
            self._wire.pending(self)
        return True

    def shift(self) -> bool:
        """Takes the next frame off the queue: it was sent; returns whether there is another."""
        queue = self.queue
        queue.popleft()
        if not queue:
            return False
        self.rank = priority(queue[0])
        return True

    def sent(self) -> None:
        """Counts a frame that came through."""
        if self.tec:
            self.count(tec=self.tec - 1)

    def received(self) -> None:
        """Counts a frame that was taken in."""
        if self.rec:
            self.count(rec=self.rec - 1 if self.rec < PASSIVE else 119)

    def count(self, tec: int | None = None, rec: int | None = None) -> None:
        """Sets the error counters, and what follows from them."""
        before = self.link
        self._wire.troubled = True
        self.tec, self.rec = self.tec if tec is None else tec, min(255, self.rec if rec is None else rec)
        if self.tec >= BUS_OFF:
            self.link = Link.OFF
        else:
            worst = max(self.tec, self.rec)
            self.link = Link.PASSIVE if worst >= PASSIVE else Link.WARNING if worst >= WARNING else Link.ACTIVE
        if self.link is before:
            return
        self._wire.recount()
        if self.link is Link.OFF:
            self.tell(BUS_OFF_CLASS)
            self._wire.leave(self)
            if self.went_off is not None:
                self.went_off()
        elif before is not Link.OFF:
            bits = {Link.WARNING: 0x04, Link.PASSIVE: 0x10, Link.ACTIVE: 0x40}[self.link]
            transmit = self.tec >= self.rec and self.link is not Link.ACTIVE
            self.tell(CONTROLLER_CLASS, bits << 1 if transmit else bits)

    def recover(self) -> None:
        """Comes back from bus-off with its counters at zero."""
        self.count(tec=0, rec=0)
        self.tell(RESTARTED_CLASS)
        if self.came_back is not None:
            self.came_back()

    def tell(self, error_class: int, detail: int = 0) -> None:
        """Reports by an error frame."""
        if self.report is not None:
            data = bytes([0, detail, 0, 0, 0, 0, min(255, self.tec), self.rec])
            self.report(Frame(error_class, data, error=True, time=self._wire.world.now))
