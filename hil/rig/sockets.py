"""The buses of the tick in C as sockets, and several ordinary ticks in one call of C.

Design: Python costs most of a tick on the wall clock, because its code has left the caches from one tick to the next.
C ends the stretch as soon as Python has something to do, before the next tick begins: a signal, a skipped period, a
torque that a limit changed, a status or a reading that is to be reported. A tick that C gives back is finished by
Python, as always.
"""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hil.bus.base import Bus, BusError
from hil.bus.python_can import PythonCanBus
from hil.core.compiled import SOCKETS
from hil.drives.base import Drive, Feedback
from hil.frame import Frame
from hil.loop import Clock, Tick, WallClock
from hil.recorder.memory import FRAME, Ring, unpacked
from hil.rig.logbook import Logbook
from hil.rig.machine import CompiledTick
from servoctl.run_folder.missed import OUT_OF_REACH
from servoctl.types import Array

ROOM = 4096  # largest number of frames of one tick
MOST_BUSES = 16  # largest number of buses, as in `c/sockets.c`


def socket_buses(buses: Mapping[str, Bus], clock: Clock) -> dict[str, PythonCanBus]:
    """The buses of a run, if C can read and write all of them itself; otherwise none."""
    if not (SOCKETS and isinstance(clock, WallClock) and len(buses) <= MOST_BUSES):
        return {}
    found = {name: bus for name, bus in buses.items() if isinstance(bus, PythonCanBus) and bus.descriptor is not None}
    return found if len(found) == len(buses) else {}


class SocketTicks:
    """The buses as a `tick_sockets` of `c/sockets.h`, and ticks on them as a `tick_stretch`.

    Args:
        buses: Name -> bus, in the order of their numbers.
        log: Row and durations of a tick.
        rings: Rings of rows and of frames.
        wait: Longest time after the beginning of a tick to wait for samples [ns].
        duration: Time of the task [s].
        asks: Whether nodes are asked for samples.
        pass_on: Takes each frame that C does not take, with the name of its bus, before the next one is read.
    """

    def __init__(
        self,
        machine: CompiledTick,
        buses: Mapping[str, PythonCanBus],
        clock: WallClock,
        log: Logbook,
        rings: Sequence[Ring],
        wait: int,
        duration: float,
        asks: bool,
        pass_on: Callable[[str, Frame], None],
    ) -> None:
        self.buses, self.names = list(buses.values()), list(buses)  # in the order of their numbers
        self._machine, self._log, self._take = machine, log, pass_on
        ffi = machine.ffi
        pairs = zip(machine.drives, machine.wires, strict=False)
        drives = [(drive, wire, wire.command) for drive, wire in pairs if wire.command]
        self._struct = ffi.new("tick_sockets *")
        self._kept: dict[str, Any] = {
            "bus": ffi.new("tick_bus[]", len(buses)),
            "frames": ffi.new("tick_frame[]", ROOM),
            "command": ffi.new("tick_frame[]", len(drives)),
            "pass_on": ffi.callback("void(int)", self._pass_on),
        }
        for name, array in self._kept.items():
            setattr(self._struct, name, array)
        self._struct.buses, self._struct.room, self._struct.commands = len(buses), ROOM, len(drives)
        self._struct.origin = clock.origin
        for node in machine.nodes:
            if asks and node.feedback is Feedback.SYNC:
                self._kept["bus"][self.names.index(node.settings.bus)].synced = 1
        for place, (drive, _, encoding) in zip(self._kept["command"], drives, strict=True):
            self._write(place, encoding.frame, drive)
        self._view = ffi.buffer(self._kept["frames"])
        self._has_buses = False
        self.struct: Any = ffi.new("tick_stretch *")  # the ticks in C
        self.struct.period, self.struct.wait = log.timing.nominal, wait
        self.struct.duration, self.struct.wake = duration, -1
        # Python looks at each tick whose law has one of these statuses
        self.struct.ends = sum(1 << int(code) for code in OUT_OF_REACH)
        for ring, place in zip(rings, (self.struct.rows, self.struct.frames), strict=True):
            counts, slots = ring.addresses
            place.counts, place.slots = ffi.cast("unsigned long long *", counts), ffi.cast("unsigned char *", slots)
            place.size, place.capacity = ring.size, ring.capacity
        fed = [(drive, feed) for bus in buses for drive, wire, _ in drives for feed in wire.feeds or ()
               if drive.settings.bus == bus]  # fmt: skip
        self._fed = [(drive, feed, feed in drive.polls) for drive, feed in fed]
        self._feed = ffi.new("tick_feed[]", max(1, len(fed)))
        self.struct.feeds, self.struct.feed = len(fed), self._feed
        for place, (drive, feed) in zip(self._feed, fed, strict=False):
            self._write(place.frame, feed.frame, drive)

    def _write(self, target: Any, frame: Frame, drive: Drive) -> None:
        """Writes a `tick_frame` that is to be sent to a drive."""
        target.id, target.bus, target.flags = frame.id, self.names.index(drive.settings.bus), frame.flags
        target.length, target.data = len(frame.data), frame.data.ljust(64, b"\0")

    def take_buses(self) -> None:
        """C receives from now on."""
        if self._has_buses:
            return
        self._has_buses = True
        for i, bus in enumerate(self.buses):
            place = self._kept["bus"][i]
            place.socket, place.fd, place.earliest = bus.descriptor, bus.carries_fd, bus.earliest

    def give_buses(self) -> None:
        """Python receives from now on."""
        if not self._has_buses:
            return
        self._has_buses = False
        for i, bus in enumerate(self.buses):
            place = self._kept["bus"][i]
            bus.exchanged(place.sent, place.received, place.invalid, place.earliest)
            place.sent = place.received = place.invalid = 0

    def take_feeds(self) -> None:
        """C feeds watchdogs from now on."""
        self.struct.fed = 0
        for feed, (drive, each, asks) in zip(self._feed, self._fed, strict=False):
            feed.every, feed.ticks = each.every, drive.fed + each.every - each.at
            if asks and each not in drive.polls:  # it does not answer: it is due after more ticks than there are
                feed.every, feed.ticks = 1 << 62, 1

    def give_feeds(self) -> None:
        """Python feeds watchdogs from now on."""
        for drive in {drive for drive, _, _ in self._fed}:
            drive.fed += self.struct.fed

    def _pass_on(self, index: int) -> None:
        bus, _, frame, _ = unpacked(*FRAME.unpack_from(self._view, FRAME.size * index))
        self._machine.calls.attempt(lambda: self._take(self.names[bus], frame))

    def unknown(self) -> int:
        """Number of frames with an id of no node since the last call."""
        number: int = self._struct.unknown
        self._struct.unknown = 0
        return number

    def failures(self) -> Iterator[tuple[int, BusError]]:
        """Number of a bus and its failure, for each bus that failed in the last read or write."""
        if self._struct.failed:
            for i, bus in enumerate(self.buses):
                place = self._kept["bus"][i]
                if place.error:
                    yield i, bus.failed(place.error, place.refused)
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

    def receive(self, deadline: int) -> None:
        """Sends SYNC, receives samples until a moment [ns], and computes the state of the machine."""
        self._machine.functions.stretch_read(self._machine.tick, self._struct, self.struct, deadline)

    def run(self, stage: int, most: int, deadline: int, task_time: int, live: Array) -> bool:
        """Does ticks, at most so many; returns whether they end between two, or else after the read of one.

        Args:
            stage: Number of the stage.
            most: That number.
            deadline: Of the first one [ns].
            task_time: Of the first one [ns].
            live: Values of the gains that may change.
        """
        struct, machine = self.struct, self._machine
        self._log.struct.stage = stage
        struct.deadline, struct.task_time = deadline, task_time
        struct.lives, struct.live = len(live), machine.ffi.cast("double *", live.ctypes.data)
        end: int = machine.functions.stretch_run(machine.tick, self._struct, self._log.struct, struct, most)
        self._log.written(struct.ticks)
        return not end

    def act(self) -> int:
        """Sends the torques of the present tick, and feeds watchdogs; not 0: a torque cannot be sent, and none was."""
        refused: int = self._machine.functions.stretch_act(self._machine.tick, self._struct, self.struct)
        return refused

    def last(self, number: int) -> Tick:
        """The last tick that was done, with its number."""
        when = self.struct.last
        return Tick(number, when.deadline, when.began, when.elapsed, 0)
