"""The ticks of a run in C: what a rig, its stages and the tables in C say to each other.

Design: C measures and acts, Python decides. While the drives work (`WORKING`), C receives the frames, judges the
samples and computes the state of the machine; Python decides from this reading whose torques are sent, and C encodes,
sends and records them. In ordinary ticks C decides too, several of them in one call as long as nothing asks for Python.

A verdict on a sample or on the motion is part of the reading, and Python decides that tick. Where C meets what it does
not know (a rare frame, a torque that no frame carries), it leaves no trace of that half of the tick: the nodes get the
frames, and Python does the same half. Its reaction is that of a run without C, in the same tick.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from hil.core.constants import UNKNOWN
from hil.drives.base import Condition, Drive, Node
from hil.frame import Frame
from hil.loop import SECOND, Ahead, Reading, Tick, WallClock, nanoseconds
from hil.recorder.memory import Ring
from hil.rig.dispatch import Dispatch
from hil.rig.logbook import Logbook
from hil.rig.machine import CompiledTick
from hil.rig.sockets import AFTER_READ, BETWEEN, READ, SocketTicks, socket_buses
from hil.safety.plan import WORKING, Phase
from hil.safety.stages import Stages
from servoctl.types import Array

PAUSE = 2  # ticks in Python after one that was given back: what is rare seldom comes alone


def in_order(drives: Sequence[Drive], nodes: Sequence[Node]) -> bool:
    """Whether every node has sent a sample, and every drive works without a complaint."""
    if any([node.sample is None for node in nodes]):
        return False
    enabled = Condition.ENABLED
    return not any(
        [d.condition is not enabled or d.fault or d.foreign or d.saturated or d.quiet for d in drives]
    )  # fmt: skip


class TicksInC:
    """Ticks in C.

    Args:
        machine: Tables and state in C.
        stages: Decides whether the law's torques are the command.
        record: Records frames that C has received or sent.
    """

    def __init__(
        self, machine: CompiledTick, dispatch: Dispatch, stages: Stages, record: Callable[[memoryview], None]
    ) -> None:
        self.machine = machine  # tables and state in C
        self.sockets: SocketTicks | None = None  # the buses in C; None: Python sends and receives
        self.count = 0  # number of ticks that C did
        self.given_back = Counter[str]()  # why C gave ticks back -> how often
        self.loaded = False  # whether C has the state
        self.decided = False  # whether C has decided the present tick
        self.begun: int | None = None  # where C has left a tick that it began on the sockets; None: it began none
        self._dispatch, self._stages, self._record = dispatch, stages, record
        self._functions, self._tick, self._x = machine.functions, machine.tick, machine.arrays
        # torques of the last tick, and those in the frames that were sent last, shape (m,) [actuator units]
        self.torques, self.carried = stages.torques.struct.arrays["torques"], machine.arrays["carried"]
        machine.take_torques(stages.torques, stages.ladder)
        self._names = list(dispatch.buses)
        self._bus_numbers = {name: number for number, name in enumerate(self._names)}
        self._last: dict[int, tuple[str, Frame]] = {}
        self._received: list[tuple[int, str, Frame]] = []
        self.written = -1
        self._rules: tuple[int, Phase] | None = None  # number of rules, and in which phase C knows them
        self._pause = 0

    def use_sockets(self, log: Logbook, rings: Sequence[Ring], wait: int) -> None:
        """Lets C send, receive and record too, where it can have all buses and knows what feeds each watchdog.

        Args:
            log: Row and durations of a tick.
            rings: Rings of rows and of frames.
            wait: Longest time after the beginning of a tick to wait for samples [ns].
        """
        clock, machine = self._dispatch.clock, self.machine
        buses = socket_buses(self._dispatch.buses, clock)
        known = all(wire.feeds is not None for wire in machine.wires if wire.command)
        if known and buses and isinstance(clock, WallClock):
            duration = self._stages.plan.duration
            self.sockets = SocketTicks(machine, buses, clock, log, rings, wait, duration)

    @property
    def began(self) -> int:
        """When the present tick began [ns], and with it SYNC was sent; `NEVER`: nothing is asked for."""
        return int(self._x["began"][0])

    @began.setter
    def began(self, moment: int) -> None:
        self._x["began"][0] = moment

    @property
    def written(self) -> int:
        """When the first of the last torques was sent [ns]; -1: none was, `NEVER`: nothing is asked for."""
        return int(self._x["written"][0])

    @written.setter
    def written(self, moment: int) -> None:
        self._x["written"][0] = moment

    def take_over(self, free: bool) -> bool:
        """Whether C measures the next tick; it gets the state, or gives it back.

        `free`: whether torques alone move the machine.
        """
        measures = bool(self.machine.wires) and self._stages.mode in WORKING and self._dispatch.healthy
        if self.loaded and not measures:
            self.store()
        self._tick.free = free
        if measures and not self.loaded:
            if self._pause:
                self._pause -= 1
            else:
                self._load()
        return self.loaded

    def _renew(self) -> None:
        """Gives the present rules to C, if others hold now: a warning is judged only once."""
        rules, mode = self._stages.monitor.rules, self._stages.mode
        if self._rules != (len(rules), mode):
            self._rules = len(rules), mode
            self.machine.take_rules(rules, mode)

    def _source(self) -> bool:
        """Tells C what makes the torques of the next tick; returns whether C decides it."""
        tick, stages, source = self._tick, self._stages, self._stages.source
        if source is None or not stages.ordinary:
            return False
        self._renew()
        tick.entered, tick.end, tick.moves = stages.entered, source.end, source.moves
        stages.torques.take(source, stages.mode is not Phase.FULL)
        return True

    def _load(self) -> None:
        """Gives the state to C, if every node has sent a sample and every drive works without a complaint."""
        machine = self.machine
        if not in_order(machine.drives, machine.nodes):
            return
        machine.load()
        self._encoded = machine.take_commands()
        self._last.clear()
        if self.sockets is not None:
            self.sockets.begin()
        self.loaded = True

    def store(self) -> None:
        """Gives the state back to Python."""
        if not self.loaded:
            return
        self.loaded = False
        if self.sockets is not None:
            self.sockets.end()
            self._last = {i: (self._names[bus], frame) for i, (bus, frame) in enumerate(self.sockets.last_frames())}
        self.machine.store(self._deliver_last)

    def _deliver_last(self) -> None:
        for bus, frame in self._last.values():
            self._dispatch.deliver(bus, frame)

    # Measure.

    def begin(self, due: int) -> None:
        """Begins a tick that gets each frame from Python; it was due at this time [ns]."""
        self._x["due"][0] = due
        self._functions.tick_begin(self._tick, self.began)
        self._received.clear()

    def take(self, bus: str, frame: Frame) -> None:
        """Takes a frame in place of the nodes."""
        if not self.loaded:
            self._dispatch.deliver(bus, frame)
            return
        number = self._functions.tick_take(
            self._tick, self._bus_numbers[bus], frame.id, frame.flags, len(frame.data), frame.data, frame.time
        )
        if number >= 0:
            self._received.append((number, bus, frame))
        elif number == UNKNOWN:
            self._dispatch.unknown += 1
        else:
            self._give_back()
            self._dispatch.deliver(bus, frame)

    def missing(self) -> str | None:
        """Name of a bus on which a sample of this tick is still missing."""
        bus = self._functions.tick_missing(self._tick)
        return None if bus < 0 else self._names[bus]

    def sense(self, now: int) -> None:
        """Computes the state of the machine from the frames that C has taken."""
        self._functions.tick_sense(self._tick, now)
        self.machine.raise_failure()
        for message, bus, frame in self._received:
            self._last.pop(message, None)  # so that the order is that of arrival
            self._last[message] = (bus, frame)

    def sense_samples(self, now: int, due: int, free: bool) -> None:
        """Computes the state of the machine from the samples that the nodes have.

        Args:
            due: When the tick was due [ns].
            free: Whether torques alone have moved the machine.
        """
        self._x["due"][0], self._tick.free = due, free
        self.machine.load()
        self._functions.tick_sense(self._tick, now)
        self.machine.raise_failure()

    def mute(self) -> list[str]:
        """Buses on which no command may be sent, by what the nodes know: `tick_mute` in `hil/core/c/tick.c`."""
        self.machine.load()
        buses = self._functions.tick_mute(self._tick)
        return [name for number, name in enumerate(self._names) if buses >> number & 1]

    def _give_back(self) -> None:
        """Undoes this tick in C, and gives its frames to the drivers."""
        self._count()
        self._functions.tick_undo(self._tick)
        self._pause = PAUSE
        self.store()
        for _, bus, frame in self._received:
            self._dispatch.deliver(bus, frame)

    def _count(self) -> None:
        if why := self.machine.trouble:  # else the stage ends
            self.given_back[why] += 1

    @property
    def sensed(self) -> int:
        """When the last state was computed [ns]."""
        return int(self.machine.sensing.struct.c.read)

    def reading(self) -> Reading:
        """The state that was computed last."""
        x, c, m = self._x, self.machine.sensing.struct.c, len(self.machine.drives)
        measured = {name: numbers.tolist() for name, numbers in self.machine.measured.items()}
        return Reading(
            x["law_q"].copy(), x["law_v"].copy(), x["ages"].copy(), bool(c.valid), c.residual,
            measured["position"][:m], measured["speed"][:m], self.machine.sensing.findings, measured,
        )  # fmt: skip

    # Decide and act.

    def decide(self, tick: Tick, now: int) -> Array | None:
        """Torques to send, shape (m,) [actuator units]; None: Python must decide, from the reading of this tick."""
        self.decided = False
        if not self.loaded:
            return None
        stages = self._stages
        asks = self._functions.tick_asks(self._tick)
        if self.sockets is None and not (tick.skipped or asks) and self._dispatch.healthy and self._source():
            if not self._functions.tick_decide(self._tick, now, tick.elapsed / SECOND, stages.next_task_time):
                stages.follow(tick)
                self.decided = True
                self.count += 1
                return self.torques.copy()
            self._count()
            self.machine.raise_failure()
        return None

    def act(self, now: int) -> bool:
        """Sends the torques of this tick; False: Python must, and nothing was sent.

        Args:
            now: Present time [ns]: a reply to the first torque may come before the last one is sent.
        """
        if not self.decided and (self._tick.mute or self._encode()):
            self._count()
            return False
        if self.sockets is None:
            self.written = now
            for bus, like, encoded in self._encoded:
                identity, data = encoded()
                self._dispatch.send(bus, Frame(identity, data, like.extended, fd=like.fd, brs=like.brs))
            self._dispatch.keep_alive()
        return True

    def _encode(self) -> int:
        """Encodes torques that Python has decided, and sends them where C has the buses; not 0: it does not."""
        if self.sockets is None:
            refused: int = self._functions.tick_act(self._tick)
            return refused
        refused = self.sockets.act()
        self._fail(self.sockets)
        return refused

    # Ticks on sockets.

    def go_ahead(self, most: int, deadline: int, live: Array) -> Ahead:
        """Does ticks in C, each at its deadline, as far as they go.

        Args:
            most: Largest number of ticks.
            deadline: Deadline of the first one [ns].
            live: Values of the gains that may change.
        """
        sockets, decides = self.sockets, self._source()
        assert sockets is not None
        stage, task_time = self._stages.mode.number, nanoseconds(self._stages.next_task_time)
        end = sockets.run(decides, stage, most, deadline, task_time, live)
        ticks, last = sockets.struct.ticks, sockets.struct.last
        self._dispatch.unknown += sockets.struct.unknown
        self.count += ticks
        self._fail(sockets)
        if end == BETWEEN:
            return Ahead(ticks)
        if end == READ or decides:
            self._count()
        self.begun, self.began = end, last.began
        return Ahead(ticks, last.began)

    def finish(self, deadline: int, missing: Callable[[], str | None]) -> bool:
        """The rest of a read in a tick that C has begun; returns whether C has done it.

        If not, C has undone it, and the nodes have its frames now.

        Args:
            deadline: When to stop waiting for samples [ns].
            missing: Name of a bus on which a sample is missing by what the nodes know.
        """
        end, self.begun, sockets = self.begun, None, self.sockets
        if end == AFTER_READ:
            self.machine.raise_failure()
            return True
        assert sockets is not None
        self._pause = PAUSE
        self.store()
        for number, frame in sockets.received():
            bus = self._names[number]
            if frame.error:
                sockets.buses[number].report_error(frame)
            else:
                self._dispatch.deliver(bus, frame)
        self._record(sockets.records)
        self.machine.raise_failure()
        self._dispatch.wait(deadline, missing)
        return False

    def _fail(self, sockets: SocketTicks) -> None:
        for number, error in sockets.failures():
            self._dispatch.failed(self._names[number], error)
