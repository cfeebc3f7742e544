"""The buses of the tick in C as sockets, where every bus is one that C can read and write itself."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hil.bus.base import Bus, BusError
from hil.bus.python_can import PythonCanBus
from hil.drives.base import Drive, Feedback, Node
from hil.drives.wire import Encoding
from hil.frame import SENT, Frame
from hil.loop import Clock, WallClock
from hil.recorder.memory import FRAME, unpacked
from hil.tick.machine import SOCKETS, CompiledTick

ROOM = 4096  # largest number of frames of one tick
MOST_BUSES = 16  # largest number of buses, as in `c/sockets.c`


class TickSockets:
    """A `tick_sockets` of `c/sockets.h` with its arrays.

    Args:
        machine: Tables and state of the tick.
        buses: Name -> bus, in the order of their numbers.
        nodes: Drives, then encoder nodes.
        commands: How each drive is commanded.
        clock: Clock of the run.
    """

    def __init__(
        self,
        machine: CompiledTick,
        buses: Mapping[str, PythonCanBus],
        nodes: Sequence[Node],
        commands: Sequence[tuple[Drive, Encoding]],
        clock: WallClock,
    ) -> None:
        self.buses = list(buses.values())  # in the order of their numbers
        self.names = list(buses)  # names of the buses
        self._machine = machine
        ffi = self._ffi = machine.ffi
        # struct: the struct in C
        self.struct = struct = ffi.new("tick_sockets *")
        messages = max(1, machine.tick.messages)
        arrays: dict[str, Any] = {
            "bus": ffi.new("tick_bus[]", len(buses)),
            "frames": ffi.new("tick_frame[]", ROOM),
            "number": ffi.new("int[]", ROOM),
            "command": ffi.new("tick_frame[]", max(1, len(commands))),
            "last": ffi.new("tick_frame[]", messages),
            "order": ffi.new("long long[]", messages),
        }
        self._kept = arrays
        for name, array in arrays.items():
            setattr(struct, name, array)
        struct.buses, struct.room, struct.commands, struct.origin = len(buses), ROOM, len(commands), clock.origin
        numbers = {name: i for i, name in enumerate(buses)}
        for node in nodes:
            if node.feedback is Feedback.SYNC:
                arrays["bus"][numbers[node.settings.bus]].synced = 1
        for place, (drive, encoding) in zip(arrays["command"], commands, strict=False):
            frame_record(place, encoding.frame, numbers[drive.settings.bus])
        self._view = ffi.buffer(arrays["frames"])

    def begin(self) -> None:
        """C has the buses from now on."""
        for i, bus in enumerate(self.buses):
            place = self._kept["bus"][i]
            place.socket, place.fd, place.earliest = bus.descriptor, bus.carries_fd, bus.earliest
        for i in range(self._machine.tick.messages):
            self._kept["order"][i] = 0
        self.struct.turn = 0

    def end(self) -> None:
        """Python has the buses again."""
        for i, bus in enumerate(self.buses):
            place = self._kept["bus"][i]
            bus.exchanged(place.sent, place.received, place.invalid, place.earliest)
            place.sent = place.received = place.invalid = 0

    def read(self, began: int, deadline: int) -> bool:
        """SYNC, samples and state of the machine; False: the tick is given back."""
        answer: int = self._machine.functions.sockets_read(self._machine.tick, self.struct, began, deadline)
        return answer == 0

    def write(self, elapsed: float, task_time: float) -> bool:
        """Law, limits and torques; False: the tick is given back."""
        answer: int = self._machine.functions.sockets_write(self._machine.tick, self.struct, elapsed, task_time)
        return answer == 0

    @property
    def unknown(self) -> int:
        """Number of frames of the last read with an id of no node."""
        return int(self.struct.unknown)

    @property
    def records(self) -> memoryview:
        """The frames of the last read or write as the recorder has them."""
        view: memoryview = self._view[0 : FRAME.size * self.struct.count]
        return view

    def received(self) -> Iterator[tuple[int, Frame]]:
        """Number of the bus and frame, for each frame that the last read has received; error frames included."""
        return self._frames(FRAME.iter_unpack(self.records))

    def last(self) -> Iterator[tuple[int, Frame]]:
        """The last frame of each message since `begin`, in the order of their arrival."""
        order = [(self._kept["order"][i], i) for i in range(self._machine.tick.messages) if self._kept["order"][i]]
        last = self._ffi.buffer(self._kept["last"])
        return self._frames(FRAME.unpack_from(last, FRAME.size * i) for _, i in sorted(order))

    @staticmethod
    def _frames(values: Iterator[tuple[Any, ...]]) -> Iterator[tuple[int, Frame]]:
        for each in values:
            if not each[3] & SENT:
                bus, _, frame, _ = unpacked(*each)
                yield bus, frame

    def failures(self) -> Iterator[tuple[int, BusError]]:
        """Number of a bus and its failure, for each bus that failed in the last read or write."""
        if self.struct.failed:
            for i, bus in enumerate(self.buses):
                place = self._kept["bus"][i]
                if place.error:
                    yield i, bus.failed(place.error, place.refused)
                    place.error = place.refused = 0


def frame_record(target: Any, frame: Frame, bus: int) -> None:
    """Writes a `tick_frame` that is to be sent."""
    target.id, target.bus, target.flags, target.length = frame.id, bus, frame.flags, len(frame.data)
    target.data = frame.data.ljust(64, b"\0")


def socket_buses(buses: Mapping[str, Bus], clock: Clock) -> dict[str, PythonCanBus]:
    """The buses of a run, if C can read and write all of them itself; otherwise none."""
    if not (SOCKETS and isinstance(clock, WallClock) and len(buses) <= MOST_BUSES):
        return {}
    found = {name: bus for name, bus in buses.items() if isinstance(bus, PythonCanBus) and bus.descriptor is not None}
    return found if len(found) == len(buses) else {}
