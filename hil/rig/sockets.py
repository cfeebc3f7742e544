"""The buses of the tick in C as sockets, and several ordinary ticks in one call of C.

Design: Python costs most of a tick on the wall clock, because its code has left the caches from one tick to the next.
C ends the stretch as soon as Python has something to do, before the next tick begins: a signal, a skipped period, a
torque that a limit changed, a status or a reading that is to be reported. A tick that C gives back is finished by
Python, as always.
"""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hil.bus.base import Bus, BusError
from hil.bus.python_can import PythonCanBus
from hil.core.compiled import SOCKETS
from hil.drives.base import Drive, Feedback
from hil.frame import SENT, Frame
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


NEVER = 1 << 62

BETWEEN, READ, AFTER_READ = 0, 1, 2
"""Where a stretch ends: between two ticks, in a tick that was given back while it read, or before Python decides."""


class SocketTicks:
    """The buses as a `tick_sockets` of `c/sockets.h`, and ticks on them as a `tick_stretch`.

    Args:
        buses: Name -> bus, in the order of their numbers.
        log: Row and durations of a tick.
        rings: Rings of rows and of frames.
        wait: Longest time after the beginning of a tick to wait for samples [ns].
        duration: Time of the task [s].
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
    ) -> None:
        self.buses, self.names = list(buses.values()), list(buses)  # in the order of their numbers
        self._machine, self._log = machine, log
        ffi, messages = machine.ffi, max(1, machine.tick.messages)
        pairs = zip(machine.drives, machine.wires, strict=False)
        drives = [(drive, wire, wire.command) for drive, wire in pairs if wire.command]
        self._struct = ffi.new("tick_sockets *")
        self._kept: dict[str, Any] = {
            "bus": ffi.new("tick_bus[]", len(buses)),
            "frames": ffi.new("tick_frame[]", ROOM),
            "number": ffi.new("int[]", ROOM),
            "command": ffi.new("tick_frame[]", len(drives)),
            "last": ffi.new("tick_frame[]", messages),
            "order": ffi.new("long long[]", messages),
        }
        for name, array in self._kept.items():
            setattr(self._struct, name, array)
        self._struct.buses, self._struct.room, self._struct.commands = len(buses), ROOM, len(drives)
        self._struct.origin = clock.origin
        for node in machine.nodes:
            if node.feedback is Feedback.SYNC:
                self._kept["bus"][self.names.index(node.settings.bus)].synced = 1
        for place, (drive, _, encoding) in zip(self._kept["command"], drives, strict=True):
            self._write(place, encoding.frame, drive)
        self._view, self._last = ffi.buffer(self._kept["frames"]), ffi.buffer(self._kept["last"])
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
        self._fed, self._ticks = [(drive, feed, feed in drive.polls) for drive, feed in fed], 0
        self._feed = ffi.new("tick_feed[]", max(1, len(fed)))
        self.struct.feeds, self.struct.feed = len(fed), self._feed
        for place, (drive, feed) in zip(self._feed, fed, strict=False):
            self._write(place.frame, feed.frame, drive)

    def _write(self, target: Any, frame: Frame, drive: Drive) -> None:
        """Writes a `tick_frame` that is to be sent to a drive."""
        target.id, target.bus, target.flags = frame.id, self.names.index(drive.settings.bus), frame.flags
        target.length, target.data = len(frame.data), frame.data.ljust(64, b"\0")

    def begin(self) -> None:
        """C has the buses from now on."""
        for i, bus in enumerate(self.buses):
            place = self._kept["bus"][i]
            place.socket, place.fd, place.earliest = bus.descriptor, bus.carries_fd, bus.earliest
        for i in range(self._machine.tick.messages):
            self._kept["order"][i] = 0
        self._struct.turn = 0
        for feed, (drive, each, asks) in zip(self._feed, self._fed, strict=False):
            feed.every, feed.ticks = each.every, drive.fed + each.every - each.at
            if asks and each not in drive.polls:  # it does not answer: it is due after more ticks than there are
                feed.every, feed.ticks = NEVER, 1

    def end(self) -> None:
        """Python has the buses again."""
        for i, bus in enumerate(self.buses):
            place = self._kept["bus"][i]
            bus.exchanged(place.sent, place.received, place.invalid, place.earliest)
            place.sent = place.received = place.invalid = 0
        for drive in {drive for drive, _, _ in self._fed}:
            drive.fed += self._ticks
        self._ticks = 0

    @property
    def records(self) -> memoryview:
        """The frames of the last read or write as the recorder has them."""
        view: memoryview = self._view[0 : FRAME.size * self._struct.count]
        return view

    def received(self) -> Iterator[tuple[int, Frame]]:
        """Number of the bus and frame, for each frame that the last read has received; error frames included."""
        return self._frames(FRAME.iter_unpack(self.records))

    def last_frames(self) -> Iterator[tuple[int, Frame]]:
        """The last frame of each message since `begin`, in the order of their arrival."""
        order = [(self._kept["order"][i], i) for i in range(self._machine.tick.messages) if self._kept["order"][i]]
        return self._frames(FRAME.unpack_from(self._last, FRAME.size * i) for _, i in sorted(order))

    @staticmethod
    def _frames(values: Iterator[tuple[Any, ...]]) -> Iterator[tuple[int, Frame]]:
        for each in values:
            if not each[3] & SENT:
                bus, _, frame, _ = unpacked(*each)
                yield bus, frame

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

    def run(self, decides: bool, stage: int, most: int, deadline: int, task_time: int, live: Array) -> int:
        """Does ticks, at most so many; returns where they end.

        Args:
            decides: Whether C decides the torques; if not, the first tick ends after its read.
            stage: Number of the stage.
            most: That number.
            deadline: Of the first one [ns].
            task_time: Of the first one [ns].
            live: Values of the gains that may change.
        """
        struct, machine = self.struct, self._machine
        self._log.struct.stage = stage
        struct.decides, struct.deadline, struct.task_time = decides, deadline, task_time
        struct.lives, struct.live = len(live), machine.ffi.cast("double *", live.ctypes.data)
        end: int = machine.functions.stretch_run(machine.tick, self._struct, self._log.struct, struct, most)
        self._ticks += struct.ticks
        self._log.written(struct.ticks)
        return end

    def act(self) -> int:
        """Sends the torques of the present tick, and feeds watchdogs; not 0: a torque cannot be sent, and none was."""
        refused: int = self._machine.functions.stretch_act(self._machine.tick, self._struct, self.struct)
        self._ticks += not refused
        return refused

    def last(self, number: int) -> Tick:
        """The last tick that was done, with its number."""
        when = self.struct.last
        return Tick(number, when.deadline, when.began, when.elapsed, 0)
