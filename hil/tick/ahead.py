"""A rig that does several ordinary ticks in one call of C."""

from hil.drives.wire import Feeds
from hil.loop import Ahead, Reading, nanoseconds
from hil.tick.rig import TickRig
from hil.tick.stretch import BETWEEN, READ, Stretch
from servoctl.types import Array


class AheadRig(TickRig):
    """Drives and encoder nodes on CAN; arguments as of `TickRig`."""

    stretch: Stretch | None = None  # does several ticks in one call; None: there is none
    _left: int | None = None

    def read(self, due: int, wait: int) -> Reading:
        if self._left is None:
            return super().read(due, wait)
        self.decided, self._due = False, due
        return self._finish(self._began + wait)

    @property
    def feeds(self) -> list[tuple[Feeds, ...]] | None:
        """Frames other than commands that feed the watchdog of each drive; None: those of a drive are not known."""
        wires = () if self.machine is None else self.machine.wires
        feeds = [wire.feeds for wire in wires if wire.command is not None]
        return None if None in feeds else [each or () for each in feeds]

    def go_ahead(self, most: int, deadline: int, live: Array) -> Ahead:
        """Does ordinary ticks in C, each at its deadline, as far as they go.

        Args:
            most: Largest number of ticks.
            deadline: Deadline of the first one [ns].
            live: Values of the gains that may change.
        """
        stretch, stages = self.stretch, self._stages
        if stretch is None or self.sockets is None or not (self._loaded and stages.ordinary and self._dispatch.healthy):
            return Ahead()
        end = stretch.run(most, deadline, nanoseconds(stages.next_task_time), live)
        ticks, last = stretch.struct.ticks, stretch.struct.last
        if ticks:
            self._command, self._written = self._numbers["carried"].copy(), int(self._times["written"][0])
            self._dispatch.unknown += stretch.struct.unknown
            self.ticks += ticks
            self.complete = True
        if end == BETWEEN:
            self._fail(self.sockets)
            return Ahead(ticks)
        self._began, self._left = last.began, end
        return Ahead(ticks, last.began)

    def _finish(self, deadline: int) -> Reading:
        """The rest of a read in a tick that C has begun and given back."""
        end, self._left = self._left, None
        assert self.sockets is not None
        return self._read_again(self.sockets, deadline) if end == READ else self._reading()
