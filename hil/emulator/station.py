"""A CAN controller on the emulated wire: its queue, its error counters, and what it reports.

Source: Bosch 1991, CAN Specification 2.0, part B, 7 (fault confinement); Linux, include/uapi/linux/can/error.h.
"""

from collections import deque
from collections.abc import Callable, Container
from typing import Protocol

from hil.bus.base import Link
from hil.frame import Frame
from hil.loop.clock import World

WARNING, PASSIVE, BUS_OFF = 96, 128, 256  # error counts from which a controller warns, is error passive, is off the bus

_OFF = Link.OFF

CONTROLLER_CLASS, NO_ACK_CLASS, BUS_OFF_CLASS, RESTARTED_CLASS = 0x004, 0x020, 0x040, 0x100
"""Class bits of error frames."""


def priority(frame: Frame) -> int:
    """The bits that decide arbitration, as one number: the smallest wins."""
    if frame.extended:
        return frame.id >> 18 << 21 | 0b11 << 19 | (frame.id & 0x3FFFF) << 1 | frame.remote
    return frame.id << 21 | frame.remote << 20


def key(frame: Frame) -> int:
    """Id of a frame as one number, different for ids of 11 and of 29 bits."""
    return frame.id | frame.extended << 29


class Medium(Protocol):
    """A bus for emulated nodes: the emulated wire, or a real bus."""

    world: World  # its time
    troubled: bool  # whether some error count may not be zero

    def attach(self, name: str, receive: Callable[[Frame], None], ids: Container[int]) -> "Station":
        """Attaches a node that receives frames with these ids."""

    def listen(self, station: "Station", ids: Container[int]) -> None:
        """Changes the ids that a node receives."""

    def power(self, station: "Station", powered: bool) -> None:
        """Switches a node's controller on or off."""

    def pending(self, station: "Station") -> None:
        """Called when a station has something to send."""

    def leave(self, station: "Station") -> None:
        """Called when a station goes bus-off."""

    def recount(self) -> None:
        """Called when a station joins or leaves the traffic."""


class Station:
    """A node's controller."""

    def __init__(
        self,
        wire: Medium,
        name: str,
        receive: Callable[[Frame], None],
        ids: Container[int] | None = None,
        *,
        host: bool = False,
        capacity: int | None = None,
        restart: int | None = 0,
    ) -> None:
        self.name = name  # name in messages
        self.host = host  # whether it belongs to the loop
        self.capacity = capacity  # largest length of the queue; None: no limit
        self.restart = restart  # time from bus-off until it restarts [ns]; None: never
        self.ids = ids  # keys of the frames that it receives; None: all
        self.receive = receive
        self.queue: deque[Frame] = deque()  # frames that wait to be sent, the next one first
        self.rank = 0  # priority of that frame
        self.tec = 0  # transmit error count
        self.rec = 0  # receive error count
        self.ready = 0  # [ns] when it may send again: an error passive station waits after each frame
        self.link = Link.ACTIVE  # its error state, from these counts
        self.connected = True  # whether its cable is
        self.powered = True  # whether the node is
        self.report: Callable[[Frame], None] | None = None  # called with error frames; None: they are dropped
        self.went_off: Callable[[], None] | None = None  # called at bus-off
        self.came_back: Callable[[], None] | None = None  # called after it recovered from bus-off
        self.trying = False  # whether it is sending a frame that no other station can acknowledge
        self._wire = wire

    @property
    def online(self) -> bool:
        """Whether it takes part in the traffic."""
        return self.connected and self.powered and self.link is not Link.OFF

    def send(self, frame: Frame) -> bool:
        """Queues a frame; returns False if the queue is full or the controller is off."""
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
        """Removes the frame that was sent from the queue; returns whether another one waits."""
        queue = self.queue
        queue.popleft()
        if not queue:
            return False
        self.rank = priority(queue[0])
        return True

    def sent(self) -> None:
        if self.tec:
            self.count(tec=self.tec - 1)

    def received(self) -> None:
        if self.rec:
            self.count(rec=self.rec - 1 if self.rec < PASSIVE else 119)

    def count(self, tec: int | None = None, rec: int | None = None) -> None:
        """Sets the error counts, and the error state that follows."""
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
        self.count(tec=0, rec=0)
        self.tell(RESTARTED_CLASS)
        if self.came_back is not None:
            self.came_back()

    def tell(self, error_class: int, detail: int = 0) -> None:
        if self.report is not None:
            data = bytes([0, detail, 0, 0, 0, 0, min(255, self.tec), self.rec])
            self.report(Frame(error_class, data, error=True, time=self._wire.world.now))
