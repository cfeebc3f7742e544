"""Several ordinary ticks in one call of C: it waits for each tick, does it, feeds watchdogs and records.

Design: Python costs most of a tick on the wall clock, because its code has left the caches from one tick to the next.
C ends the stretch as soon as Python has something to do, before the next tick begins: a signal, a skipped period, a
torque that a limit changed, a status or a reading that is to be reported. A tick that C gives back is finished by
Python, as always.
"""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hil.drives.base import Drive
from hil.drives.wire import Feeds
from hil.loop import Tick
from hil.recorder.ring import Ring
from hil.tick.log import TickLog
from hil.tick.machine import CompiledTick
from hil.tick.sockets import TickSockets, frame_record
from servoctl.types import Array

NEVER = 1 << 62

BETWEEN, READ = 0, 1  # where a stretch ends: between two ticks, or in a tick that was given back while it read


class Stretch:
    """A `tick_stretch` of `c/stretch.h` with its arrays.

    Args:
        machine: Tables and state of the tick.
        sockets: The buses.
        log: Row and durations of a tick.
        rings: Rings of rows and of frames.
        drives: In the order of the actuators.
        feeds: What feeds the watchdog of each.
        period: Period of the ticks [ns].
        wait: Longest time after the beginning of a tick to wait for samples [ns].
        duration: Time of the task [s].
    """

    def __init__(
        self,
        machine: CompiledTick,
        sockets: TickSockets,
        log: TickLog,
        rings: Sequence[Ring],
        drives: Sequence[Drive],
        feeds: Sequence[Sequence[Feeds]],
        period: int,
        wait: int,
        duration: float,
    ) -> None:
        self._machine, self._sockets, self._log, self._rings = machine, sockets, log, rings
        self.struct: Any = machine.ffi.new("tick_stretch *")  # the struct in C
        struct = self.struct
        struct.period, struct.wait, struct.duration, struct.wake = period, wait, duration, -1
        for ring, place in zip(rings, (struct.rows, struct.frames), strict=True):
            counts, slots = ring.addresses
            place.counts = machine.ffi.cast("unsigned long long *", counts)
            place.slots = machine.ffi.cast("unsigned char *", slots)
            place.size, place.capacity = ring.size, ring.capacity
        fed = [(drive, each) for bus in sockets.names for drive, of_drive in zip(drives, feeds, strict=True)
               for each in of_drive if drive.settings.bus == bus]  # fmt: skip
        self._feed = machine.ffi.new("tick_feed[]", max(1, len(fed)))
        self._fed = [(drive, each, each in drive.polls) for drive, each in fed]
        struct.feeds, struct.feed = len(fed), self._feed
        for place, (drive, each) in zip(self._feed, fed, strict=False):
            frame_record(place.frame, each.frame, sockets.names.index(drive.settings.bus))

    def report(self, statuses: Sequence[float], innovation: slice | None, outlier: float) -> None:
        """After which ticks Python looks at them.

        Args:
            statuses: Codes of the law's status.
            innovation: Where the innovations are in the command part of a row; None: there are none.
            outlier: From which size on [standard deviations].
        """
        struct = self.struct
        struct.ends, struct.outlier = sum(1 << int(code) for code in statuses), outlier
        if innovation is not None:
            struct.innovation, struct.innovations = innovation.start, innovation.stop - innovation.start

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Signals end a stretch in this context; for the main thread, where they are handled."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
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

    def run(self, most: int, deadline: int, task_time: int, live: Array) -> int:
        """Does ticks, at most so many; returns where they end.

        Args:
            most: That number.
            deadline: Of the first one [ns].
            task_time: Of the first one [ns].
            live: Values of the gains that may change.
        """
        struct, machine = self.struct, self._machine
        struct.deadline, struct.task_time = deadline, task_time
        struct.lives, struct.live = len(live), machine.ffi.cast("double *", live.ctypes.data)
        for place, (drive, each, asks) in zip(self._feed, self._fed, strict=False):
            place.every, place.ticks = each.every, drive.fed + each.every - each.at
            if asks and each not in drive.polls:  # it does not answer: it is due after more ticks than there are
                place.every, place.ticks = NEVER, 1
        end: int = machine.functions.stretch_run(machine.tick, self._sockets.struct, self._log.struct, struct, most)
        for drive in {drive for drive, _, _ in self._fed}:
            drive.fed += struct.ticks
        for ring in self._rings:
            ring.reread()
        self._log.counted(struct.ticks)
        return end

    def last(self, number: int) -> Tick:
        """The last tick that was done, with its number."""
        when = self.struct.last
        return Tick(number, when.deadline, when.began, when.elapsed, 0)
