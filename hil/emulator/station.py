"""The CAN controller of an emulated node, and what it is attached to."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Container
from typing import Any

from hil.bus.base import Link
from hil.frame import Frame
from hil.loop.clock import World

_OFF = Link.OFF


def priority(frame: Frame) -> int:
    """The bits that decide arbitration, as one number: the smallest wins."""
    if frame.extended:
        return frame.id >> 18 << 21 | 0b11 << 19 | (frame.id & 0x3FFFF) << 1 | frame.remote
    return frame.id << 21 | frame.remote << 20


def key(frame: Frame) -> int:
    """Id of a frame as one number, different for ids of 11 and of 29 bits."""
    return frame.id | frame.extended << 29


class Medium(ABC):
    """A bus for emulated nodes: the emulated wire, or a real bus."""

    def __init__(self, world: World) -> None:
        self.world = world  # its time
        self.stations: list[Station] = []  # all controllers, in the order in which they were attached

    def attach(self, receive: Callable[[Frame], None], ids: Container[int] | None = None, **options: Any) -> "Station":
        """Attaches a controller; arguments as of `Station`."""
        station = Station(self, receive, ids, **options)
        self.stations.append(station)
        return station

    @abstractmethod
    def power(self, station: "Station", powered: bool) -> None:
        """Switches a node's controller on, or off with the loss of its queue."""

    @abstractmethod
    def pending(self, station: "Station") -> None:
        """Called when a station has something to send."""


class Station:
    """A node's controller."""

    def __init__(
        self,
        wire: Medium,
        receive: Callable[[Frame], None],
        ids: Container[int] | None = None,
        *,
        host: bool = False,
        capacity: int | None = None,
        restart: int | None = 0,
    ) -> None:
        self.host = host  # whether it belongs to the loop
        self.capacity = capacity  # largest length of the queue; None: no limit
        self.restart = restart  # time from bus-off until it restarts [ns]; None: never
        self.ids = ids  # keys of the frames that it receives; None: all
        self.receive = receive
        self.queue: deque[Frame] = deque()  # frames that wait to be sent, the next one first
        self.rank = 0  # priority of that frame
        self.sending: Frame | None = None  # its frame that was on the wire last
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
        return self.connected and self.powered and self.link is not _OFF

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

    def shift(self) -> None:
        """Removes the frame that was sent from the queue."""
        self.queue.popleft()
        if self.queue:
            self.rank = priority(self.queue[0])
