"""One CAN bus in virtual time: bit times, arbitration, acknowledgement, errors; classic or FD frames.

Design: one event per frame, at its end. There all stations receive it, and arbitration chooses the next frame, which
begins after the interframe space. A corrupted frame is sent again, as by real controllers. The data of an FD frame goes
at the data bit rate, all else, error frames included, at the nominal one. Losses and delays in an adapter or driver are
a `Disturbance` of deliveries and take no bit time. If a station raises, the others still receive the frame; the
exception then reaches the caller of `World.advance`.

Source: Bosch 1991, CAN Specification 2.0, part B, 7 for fault confinement; ISO 11898-1:2015 for FD; Linux,
include/uapi/linux/can/error.h.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

from hil.bus.base import (
    BUS_OFF,
    CONTROLLER,
    NO_ACKNOWLEDGEMENT,
    PATIENCE,
    QUEUE,
    RESTARTED,
    Bus,
    BusError,
    Health,
    Link,
    worse,
)
from hil.bus.load import BusRates, frame_bits
from hil.emulator.station import Medium, Station, key
from hil.frame import Frame
from hil.loop.clock import SECOND, World

Tap = Callable[[Frame, Station], None]  # called with each frame sent without error, and its sender

MOST_WARNING, MOST_PASSIVE, MOST_OFF = 96, 128, 256
"""Error counts from which a controller warns, is error passive, and is off the bus."""

INTERFRAME = 3  # bits of the interframe space
END_OF_FRAME = 7  # bits at the end of a frame that an error flag replaces
ERROR_FRAME = 14  # bits of an error flag that all stations send at once, and of its delimiter
SUSPEND = 8  # bits that an error passive station waits after a frame
SEQUENCE = 11  # bits of a sequence of recessive bits that counts for the end of bus-off
RECOVERY = 128  # number of times 11 recessive bits that end bus-off


@cache
def _frame_time(rates: BusRates, size: int, extended: bool, fd: bool, brs: bool) -> int:
    bits = frame_bits(size, extended, fd, brs)
    return bits.nominal * SECOND // rates.nominal + bits.data * SECOND // rates.data


Delays = Callable[[Frame, Station], list[int]]
"""A frame and its receiver -> the delays [ns] with which the receiver gets it, none if it is lost."""


class Disturbance(NamedTuple):
    """A disturbance of some frames on a wire, or in an adapter behind it; by default it disturbs nothing."""

    direction: str = "any"  # frames that it concerns: `any`, `to_host` or `from_host`
    identity: int | None = None  # id of these frames under the mask; None: all ids
    mask: int = 0  # bits of the id that count
    delays: Delays = lambda frame, receiver: [0]
    destroys: Callable[[], bool] = lambda: False  # whether every station sees an error in the frame that ends now

    def _concerns(self, frame: Frame, sender: Station, receiver: Station | None) -> bool:
        """Whether it concerns a frame; a receiver of None stands for all stations."""
        if self.identity is not None and (frame.id ^ self.identity) & self.mask:
            return False
        if self.direction == "from_host":
            return sender.host
        return self.direction == "any" or (not sender.host and (receiver is None or receiver.host))

    def corrupts(self, frame: Frame, sender: Station) -> bool:
        return self._concerns(frame, sender, None) and self.destroys()

    def deliveries(self, frame: Frame, sender: Station, receiver: Station) -> list[int]:
        """Delays with which a receiver gets a frame [ns]."""
        return self.delays(frame, receiver) if self._concerns(frame, sender, receiver) else [0]


class EmulatedWire(Medium):
    def __init__(self, world: World, name: str, rates: BusRates) -> None:
        super().__init__(world)
        self.name = name  # its name in the config
        self.rates = rates  # its bit rates
        self._interframe = self._duration(INTERFRAME)  # [ns]
        self._suspend = self._duration(SUSPEND)  # [ns]
        self._flag = self._duration(ERROR_FRAME - END_OF_FRAME)  # [ns] by how much an error flag makes a frame longer
        self.disturbances: list[Disturbance] = []  # disturbances that act now
        self.taps: list[Tap] = []  # functions that see every frame
        self.busy = 0  # [ns] time for which the bus carried frames, interframe spaces included
        self.frames = 0  # number of frames sent without error
        self.errors = 0  # number of error frames
        self._active = False  # a frame is on the wire, or the choice of the next one is scheduled
        self._free = 0
        self._began: Sequence[Station] = ()  # those that send the frame on the wire

    def _duration(self, bits: int) -> int:
        return bits * SECOND // self.rates.nominal

    def frame_time(self, frame: Frame) -> int:
        """Duration of a frame with the most stuff bits there can be and the interframe space [ns]."""
        return _frame_time(self.rates, 0 if frame.remote else len(frame.data), frame.extended, frame.fd, frame.brs)

    def disturb(self, disturbance: Disturbance) -> Callable[[], None]:
        """Adds a disturbance; returns what ends it."""
        self.disturbances.append(disturbance)
        return partial(self.disturbances.remove, disturbance)

    def load(self) -> float:
        """Fraction of time in which the bus was busy so far."""
        return self.busy / self.world.now if self.world.now else 0.0

    def pending(self, station: Station) -> None:
        self.refresh()

    def power(self, station: Station, powered: bool) -> None:
        station.powered = powered
        if not powered:
            station.queue.clear()
            station.tec = station.rec = 0
            station.link = Link.ACTIVE
        self.refresh()

    def refresh(self) -> None:
        """Chooses the next frame, where none is under way: a station joins or leaves the traffic, or has something."""
        if not self._active:
            self._active = True
            self.world.at(self._free, self._arbitrate)

    def _arbitrate(self) -> None:
        """Begins the next frame, when the bus is free and a station that has one is ready.

        The station that is ready first sends; of several, the one with the smallest id. Equal ids are sent together.
        """
        now = self._free if self._free > self.world.now else self.world.now
        begin = rank = 0
        senders: list[Station] = []
        for station in self.stations:
            if not station.queue:
                continue
            if not station.connected:
                self._unheard(station)
                continue
            ready = station.ready if station.ready > now else now
            if not senders or ready < begin or (ready == begin and station.rank < rank):
                begin, rank, senders = ready, station.rank, [station]
            elif ready == begin and station.rank == rank:
                senders.append(station)
        if senders and not self._heard(senders[0]):
            self._unheard(senders[0])
            senders = []
        self._active = bool(senders)
        if senders:
            length = self.frame_time(senders[0].queue[0])
            self._free = begin + length
            self.busy += length
            for station in senders:
                station.sending = station.queue[0]
            self._began = senders
            self.world.at(self._free - self._interframe, self._finish)

    def _finish(self) -> None:
        """Ends the frame on the wire; the next one follows the interframe space, whatever a station raises."""
        try:
            self._end_frame()
        finally:
            self._arbitrate()

    def _end_frame(self) -> None:
        """Ends the frame on the wire: all others receive it, or an error flag destroys it."""
        began = self._began
        senders = [each for each in began if each.connected and each.queue and each.queue[0] is each.sending]
        if not senders:
            return
        frame = senders[0].queue[0]
        # where frames differ, each sender reads a bit that it did not send
        clash = len(began) > 1 and any(each.sending != frame for each in began)
        if clash or (self.disturbances and any(each.corrupts(frame, senders[0]) for each in self.disturbances)):
            self._void(senders)
            return
        self.frames += 1
        for sender in senders:
            sender.shift()
            if sender.tec:
                self.count(sender, tec=sender.tec - 1)
            if sender.link is Link.PASSIVE:
                sender.ready = self._free + self._suspend
        try:
            self._deliver(frame, senders)
        finally:
            if self.errors:  # else none has a count
                self._count_received(senders)

    def _deliver(self, frame: Frame, senders: Sequence[Station]) -> None:
        number, failure = key(frame), None
        for tap in self.taps:
            try:
                tap(frame.at(self.world.now), senders[0])
            except Exception as error:
                failure = failure or error
        for station in self.stations:
            if (station.ids is None or number in station.ids) and station.online and station not in senders:
                try:
                    if self.disturbances:
                        self._disturbed(frame, senders[0], station)
                    else:
                        station.receive(frame)
                except Exception as error:  # of one node; the others still receive the frame
                    failure = failure or error
        if failure is not None:
            raise failure

    def _disturbed(self, frame: Frame, sender: Station, receiver: Station) -> None:
        """Lets a station receive a frame, as the disturbances have it."""
        delays = [0]
        for each in self.disturbances:
            delays = [delay + more for delay in delays for more in each.deliveries(frame, sender, receiver)]
        for delay in delays:
            if delay:
                self.world.after(delay, partial(receiver.receive, frame))
            else:
                receiver.receive(frame)

    def _void(self, senders: Sequence[Station]) -> None:
        self.errors += 1
        self._free += self._flag
        self.busy += self._flag
        for station in self.stations:
            if station in senders:
                self.count(station, tec=station.tec + 8)
                if station.link is Link.PASSIVE:
                    station.ready = self._free + self._suspend
            elif station.online:
                self.count(station, rec=station.rec + 1)

    def _heard(self, station: Station) -> bool:
        for each in self.stations:  # noqa: SIM110 - once a frame, where a generator takes twice as long
            if each is not station and each.online:
                return True
        return False

    def _unheard(self, station: Station) -> None:
        """Counts a frame without acknowledgement.

        An error passive sender does not count further and never goes bus-off. From then on nothing changes, so its
        attempts are not simulated until another station can acknowledge.
        """
        if station.tec >= MOST_PASSIVE or station.trying:
            return
        station.trying = True
        attempt = self.frame_time(station.queue[0]) + self._flag
        self.world.after(attempt, partial(self._unacknowledged, station))

    def _unacknowledged(self, station: Station) -> None:
        station.trying = False
        if station.queue and station.link is not Link.OFF and not (station.connected and self._heard(station)):
            self.tell(station, NO_ACKNOWLEDGEMENT)
            self.count(station, tec=station.tec + 8)
        self.refresh()

    def restart(self, station: Station, counted: tuple[int, int, int] | None = None) -> None:
        """Lets a station that is bus-off recover, after 128 times 11 recessive bits.

        One time is at the end of each frame, the others are on the idle bus. `counted`: time, `busy` and `frames` from
        where they are counted; None: now.
        """
        if station.link is not Link.OFF:
            return
        began, busy, frames = counted or (self.world.now, self.busy, self.frames)
        idle = (self.world.now - began - (self.busy - busy)) // self._duration(SEQUENCE)
        left = RECOVERY - idle - (self.frames - frames)
        if left > 0:
            self.world.after(self._duration(SEQUENCE * left), partial(self.restart, station, (began, busy, frames)))
            return
        self.count(station, tec=0, rec=0)
        self.tell(station, RESTARTED)
        if station.came_back is not None:
            station.came_back()
        self.refresh()

    def _count_received(self, senders: Sequence[Station]) -> None:
        for station in self.stations:
            if station.rec and station not in senders and station.online:
                self.count(station, rec=station.rec - 1 if station.rec < MOST_PASSIVE else 119)

    def count(self, station: Station, tec: int | None = None, rec: int | None = None) -> None:
        """Sets the error counts of a station, and the error state that follows."""
        before = station.link
        station.tec = station.tec if tec is None else tec
        station.rec = min(255, station.rec if rec is None else rec)
        worst = max(station.tec, station.rec)
        if station.tec >= MOST_OFF:
            station.link = Link.OFF
        elif worst >= MOST_PASSIVE:
            station.link = Link.PASSIVE
        else:
            station.link = Link.WARNING if worst >= MOST_WARNING else Link.ACTIVE
        if station.link is before:
            return
        if station.link is Link.OFF:
            self.tell(station, BUS_OFF)
            station.queue.clear()
            if station.restart is not None:
                self.world.after(station.restart, partial(self.restart, station))
            if station.went_off is not None:
                station.went_off()
        elif before is not Link.OFF:
            bits = {Link.WARNING: 0x04, Link.PASSIVE: 0x10, Link.ACTIVE: 0x40}[station.link]
            transmit = station.tec >= station.rec and station.link is not Link.ACTIVE
            self.tell(station, CONTROLLER, bits << 1 if transmit else bits)

    def tell(self, station: Station, error_class: int, detail: int = 0) -> None:
        """Reports an error to what is behind a controller, by an error frame."""
        if station.report is not None:
            data = bytes([0, detail, 0, 0, 0, 0, min(255, station.tec), station.rec])
            station.report(Frame(error_class, data, error=True, time=self.world.now))


class EmulatedBus(Bus):
    """A bus in virtual time: time passes while the loop waits for a frame."""

    def __init__(self, wire: EmulatedWire) -> None:
        """Attaches the loop's controller, which does not restart after bus-off by itself."""
        self.name = wire.name
        self.clock_step = 0  # added to the time of each frame [ns]; a fault sets it
        self._wire, self._world = wire, wire.world
        self._inbox: deque[Frame] = deque()
        self.station = wire.attach(self._hear, host=True, capacity=QUEUE, restart=None)
        self.station.report = self._inbox.append
        self._sent = self._received = self._refused = 0
        self._closed, self._patient = False, True

    def _hear(self, frame: Frame) -> None:
        self._inbox.append(frame.at(self._world.now))

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
            frame = inbox.popleft()
            if not frame.error:
                self._received += 1
                return frame.at(frame.time + self.clock_step) if self.clock_step else frame
            self.report_error(frame)
        return None

    @property
    def health(self) -> Health:
        return Health(self._link, self._reason, self._sent, self._received, 0, self._errors, self._refused)

    def take_back(self) -> bool:
        self.station.queue.clear()
        return True

    def close(self) -> None:
        self._closed = True
        self._wire.power(self.station, False)
