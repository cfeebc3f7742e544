"""The loop's CAN interface on an emulated bus."""

from collections import deque
from collections.abc import Callable

from hil.bus.base import PATIENCE, QUEUE, Bus, BusError, Health, Link
from hil.bus.error_frames import report, worse
from hil.emulator.wire import EmulatedWire
from hil.frame import Frame


class EmulatedBus(Bus):
    """A bus in virtual time: time passes while the loop waits for a frame."""

    def __init__(self, wire: EmulatedWire, restart: int | None = None) -> None:
        """Attaches the loop's controller to a wire.

        Args:
            restart: Time from bus-off until the controller restarts [ns]; None: never.
        """
        # clock_step: added to the time of each frame [ns]; a fault sets it
        self.name, self.clock_step = wire.name, 0
        self._wire, self._world = wire, wire.world
        self._inbox: deque[Frame] = deque()
        self._take: Callable[[Frame], bool] | None = None
        self.station = wire.attach("host", self._arrive, host=True, capacity=QUEUE, restart=restart)
        self.station.report = self._inbox.append
        self._link, self._reason = Link.ACTIVE, ""
        self._sent = self._received = self._errors = self._refused = 0
        self._closed, self._patient = False, True
        self._enough: list[Frame] = []  # the last frame that is wanted: time then stops

    def send(self, frame: Frame) -> None:
        if self._closed:
            raise BusError(f"bus {self.name}: closed")
        if frame.fd and not self._wire.rates.fd:
            raise ValueError(f"{frame}: an FD frame, but bus {self.name} is classic")
        if not (self.station.send(frame) or (self._has_room() and self.station.send(frame))):
            self._refused += 1
            off = self.station.link is Link.OFF
            self._link = worse(self._link, Link.OFF if off else Link.DOWN)
            why = "bus-off" if off else f"{len(self.station.queue)} frames wait, no buffer space left"
            self._reason = self._reason or why
            raise BusError(f"bus {self.name}: {frame} not sent: {why} (check cables, termination and bit rate)")
        self._sent, self._patient = self._sent + 1, True

    def _has_room(self) -> bool:
        """Waits for room in the queue of the controller."""
        world, station = self._world, self.station
        end = world.now + PATIENCE if self._patient else world.now
        while station.link is not Link.OFF and len(station.queue) >= QUEUE:
            due = world.next_event
            if due is None or due > end:
                world.advance(end)
                self._patient = False
                return False
            world.advance(due)
        return station.link is not Link.OFF

    def receive(self, until: int) -> Frame | None:
        inbox = self._inbox
        if self._closed:
            raise BusError(f"bus {self.name}: closed")
        while inbox or self._world.advance(until, inbox):
            frame = self._received_frame(inbox.popleft())
            if frame is not None:
                return frame
        return None

    def receive_each(self, until: int, take: Callable[[Frame], bool]) -> None:
        while self._inbox:
            frame = self.receive(until)
            if frame is None or not take(frame):
                return
        if self._closed:
            raise BusError(f"bus {self.name}: closed")
        self._take = take
        try:
            self._world.advance(until, self._enough)
        finally:
            self._take = None
            self._enough.clear()

    def _arrive(self, frame: Frame) -> None:
        """Takes a frame from the wire."""
        take = self._take
        if take is None or self._enough:
            self._inbox.append(frame)
        elif (received := self._received_frame(frame)) is not None and not take(received):
            self._enough.append(received)

    def _received_frame(self, frame: Frame) -> Frame | None:
        """Counts a frame; returns it as the loop gets it, None for an error frame."""
        if not frame.error:
            self._received += 1
            return frame.at(frame.time + self.clock_step) if self.clock_step else frame
        self._errors += 1
        error = report(frame)
        self._link, self._reason = worse(self._link, error.link), error.sentence
        return None

    @property
    def well(self) -> bool:
        return self._link is Link.ACTIVE and not self._errors

    @property
    def health(self) -> Health:
        return Health(self._link, self._reason, self._sent, self._received, 0, self._errors, self._refused)

    def take_back(self) -> bool:
        self._wire.drop(self.station)
        return True

    def close(self) -> None:
        self._closed = True
        self._wire.power(self.station, False)
