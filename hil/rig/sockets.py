"""The buses of the tick in C as sockets, and several ordinary ticks in one call of C.

Design: Python costs most of a tick on the wall clock, because its code has left the caches from one tick to the next.
C ends the stretch as soon as Python has something to do, before the next tick begins: a signal, a skipped period, a
torque that a limit changed, a status or a reading that is to be reported. A tick that C gives back is finished by
Python, as always.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hil.assembly.setup import RigSetup
from hil.bus.python_can import PythonCanBus
from hil.core.compiled import SOCKETS
from hil.core.controller import Controller
from hil.drives.base import Drive, Feedback
from hil.frame import Frame
from hil.loop import Ahead, Tick, WallClock, nanoseconds
from hil.recorder.memory import FRAME, Ring, unpacked
from hil.rig.dispatch import Dispatch
from hil.rig.logbook import Logbook
from hil.rig.ticks_in_c import TicksInC, tables_of
from hil.safety.stages import Stages
from servoctl.run_folder.missed import OUT_OF_REACH
from servoctl.types import Array

ROOM = 4096  # largest number of frames of one tick
MOST_BUSES = 16  # largest number of buses, as in `c/sockets.c`


def make_ticks(setup: RigSetup, controller: Controller, dispatch: Dispatch, stages: Stages) -> TicksInC:
    """Ticks on sockets if C can have all buses, and reads and writes the frames of all nodes."""
    buses, clock, (tables, _) = dispatch.buses, dispatch.clock, tables_of(setup.nodes)
    sockets = [bus for bus in buses.values() if isinstance(bus, PythonCanBus) and bus.descriptor is not None]
    if SOCKETS and tables and isinstance(clock, WallClock) and len(sockets) == len(buses) <= MOST_BUSES:
        return TicksOnSockets(setup, controller, dispatch, stages, sockets, clock)
    return TicksInC(setup, controller, dispatch, stages)


class TicksOnSockets(TicksInC):
    """Ticks in C, which sends, receives and records too: a `tick_sockets` of `c/sockets.h`."""

    how = "C, sockets included"

    def __init__(
        self,
        setup: RigSetup,
        controller: Controller,
        dispatch: Dispatch,
        stages: Stages,
        buses: Sequence[PythonCanBus],  # in the order of their numbers
        clock: WallClock,
    ) -> None:
        super().__init__(setup, controller, dispatch, stages)
        self._buses, ffi = buses, self.ffi
        drives = self._table_drives
        self.struct: Any = ffi.new("tick_sockets *")  # buses and ticks in C
        self._bus = self.array("tick_bus", len(buses))
        frames, commands = self.array("tick_frame", ROOM), self.array("tick_frame", len(drives))
        self._view, self._has_buses = ffi.buffer(frames), False
        self._callback = ffi.callback("void(int)", self._pass_on_frame)  # kept alive
        c = self.struct
        c.bus, c.frames, c.command, c.pass_on = self._bus, frames, commands, self._callback
        c.buses, c.room, c.commands, c.origin = len(buses), ROOM, len(drives), clock.origin
        for node in self.nodes:
            if self._asks and node.feedback is Feedback.SYNC:
                self._bus[self._bus_numbers[node.settings.bus]].synced = 1
        for place, drive in zip(commands, drives, strict=False):
            self._write_frame(place, drive.encoding.frame, drive)
        c.period, c.wait, c.duration, c.wake = self.period, self.wait, stages.plan.duration, -1
        # Python looks at each tick whose law has one of these statuses
        c.ends = sum(1 << int(code) for code in OUT_OF_REACH)
        fed = [(drive, feed) for bus in self._names for drive in drives if drive.settings.bus == bus
               for feed in drive.feeds]  # fmt: skip
        self._fed = [(drive, feed, feed in drive.polls) for drive, feed in fed]
        self._feed = self.array("tick_feed", len(fed))
        c.feeds, c.feed = len(fed), self._feed
        for place, (drive, feed) in zip(self._feed, fed, strict=False):
            self._write_frame(place.frame, feed.frame, drive)

    def record(self, log: Logbook, rings: Sequence[Ring]) -> None:
        """Records rows by this log, and frames, in these two rings."""
        self._log, cast = log, self.ffi.cast
        for ring, place in zip(rings, (self.struct.row_ring, self.struct.frame_ring), strict=True):
            counts, slots = ring.addresses
            place.counts, place.slots = cast("unsigned long long *", counts), cast("unsigned char *", slots)
            place.size, place.capacity = ring.size, ring.capacity

    def _write_frame(self, target: Any, frame: Frame, drive: Drive) -> None:
        """Writes a `tick_frame` that is to be sent to a drive."""
        target.id, target.bus, target.flags = frame.id, self._bus_numbers[drive.settings.bus], frame.flags
        target.length, target.data = len(frame.data), frame.data.ljust(64, b"\0")

    def leave(self) -> None:
        super().leave()
        self._give_buses()

    def _take_drives(self) -> None:
        super()._take_drives()
        self.struct.fed = 0
        for feed, (drive, each, asks) in zip(self._feed, self._fed, strict=False):
            feed.every, feed.ticks = each.every, drive.fed + each.every - each.at
            if asks and each not in drive.polls:  # it does not answer: it is due after more ticks than there are
                feed.every, feed.ticks = 1 << 62, 1

    def give_back(self) -> None:
        if self.healthy:
            for drive in {drive for drive, _, _ in self._fed}:
                drive.fed += self.struct.fed
        super().give_back()

    def _take_buses(self) -> None:
        """C receives from now on."""
        if self._has_buses:
            return
        self._has_buses = True
        for place, bus in zip(self._bus, self._buses, strict=True):
            place.socket, place.fd, place.earliest = bus.descriptor, bus.carries_fd, bus.earliest

    def _give_buses(self) -> None:
        """Python receives from now on."""
        if not self._has_buses:
            return
        self._has_buses = False
        for place, bus in zip(self._bus, self._buses, strict=True):
            bus.exchanged(place.sent, place.received, place.invalid, place.earliest)
            place.sent = place.received = place.invalid = 0

    def _pass_on_frame(self, index: int) -> None:
        bus, _, frame, _ = unpacked(*FRAME.unpack_from(self._view, FRAME.size * index))
        self.calls.attempt(lambda: self._pass_on(self._names[bus], frame))

    def _deliver(self, bus: str, frame: Frame) -> None:
        if frame.error:
            self._buses[self._bus_numbers[bus]].report_error(frame)
        else:
            super()._deliver(bus, frame)

    def _see_failures(self) -> None:
        """Takes note of frames with an id of no node, and of the buses that failed in the last read or write."""
        self._dispatch.unknown += self.struct.unknown
        self.struct.unknown = 0
        for name, place, bus in zip(self._names, self._bus, self._buses, strict=True):
            if self.struct.failed and place.error:
                self._dispatch.failed(name, bus.failed(place.error, place.refused))
                place.error = place.refused = 0

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Signals end a stretch in this context; for the main thread, where they are handled."""
        there, here = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        before = signal.set_wakeup_fd(here, warn_on_full_buffer=False)
        self.struct.wake = there
        try:
            yield
        finally:
            self.struct.wake = -1
            signal.set_wakeup_fd(before)
            os.close(there)
            os.close(here)

    def receive(self, deadline: int) -> bool:
        if not self._dispatch.healthy:
            self._give_buses()
            return False
        self._take_buses()
        self.functions.stretch_read(self.c, self.struct, deadline)
        self._see_failures()
        self.finish()
        return True

    def decide(self, tick: Tick, now: int) -> Array | None:
        """Python decides: what C decides itself, it has decided ahead."""
        self.decided = False
        return None

    def act(self, now: int) -> bool:
        """Sends the torques of this tick, and feeds watchdogs; False: Python must, and nothing was sent."""
        refused = self.c.mute
        if not refused:
            refused = self.functions.stretch_act(self.c, self.struct)
            self._see_failures()
        if refused:
            self._count()
        return not refused

    def go_ahead(self, most: int, deadline: int, live: Array) -> Ahead:
        """Does ticks in C, each at its deadline, as far as they go.

        Args:
            most: Largest number of ticks.
            deadline: Deadline of the first one [ns].
            live: Values of the gains that may change.
        """
        if not self.healthy or not self._source():
            return Ahead()
        self._take_buses()
        struct, log = self.struct, self._log.struct
        log.stage = self._stages.mode.number
        struct.deadline, struct.task_time = deadline, nanoseconds(self._stages.next_task_time)
        struct.lives, struct.live = len(live), self.ffi.cast("double *", live.ctypes.data)
        begun = self.functions.stretch_run(self.c, struct, log, most)
        self._log.written(struct.ticks)
        self.count += struct.ticks
        self._see_failures()
        if not begun:
            return Ahead(struct.ticks)
        if self.healthy:  # else a frame was given to its driver, and why is counted
            self._count()
        self.begun = True
        return Ahead(struct.ticks, struct.last.began)

    def last(self, number: int) -> Tick:
        """The last tick that was done, with its number."""
        when = self.struct.last
        return Tick(number, when.deadline, when.began, when.elapsed, 0)
