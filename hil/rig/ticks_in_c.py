"""The ticks of a run in C: what a rig, its stages and the tables in C say to each other.

Design: C measures, Python decides. In the loop C takes every frame first. A frame that its table describes it takes in
place of the driver; while a drive does not work without a complaint, only samples that say nothing of its state. Any
other frame goes to its driver before the next one is read, and what the driver knows then goes back to C. So in every
stage samples are judged, and the state of the machine is computed, in C; Python decides from this reading whose torques
are sent. While all drives work (`WORKING`), C encodes, sends and records them; in ordinary ticks C decides too, several
of them in one call as long as nothing asks for Python.

A verdict on a sample or on the motion is part of the reading, and Python decides that tick, as it does a tick in which
a driver has got a frame. A torque that no frame carries leaves no trace in C. The reaction is that of a run without C,
in the same tick.
"""

from collections import Counter
from collections.abc import Sequence

from hil.core.constants import NEVER, UNKNOWN
from hil.drives.base import Condition, Drive, Node
from hil.frame import Frame
from hil.loop import SECOND, Reading, Tick
from hil.rig.dispatch import Dispatch
from hil.rig.machine import CompiledTick
from hil.safety.plan import WORKING, Phase
from hil.safety.stages import Stages
from servoctl.types import Array

PAUSE = 3  # ticks that Python decides from a frame on that its driver gets: what is rare seldom comes alone


def in_order(drives: Sequence[Drive], nodes: Sequence[Node]) -> bool:
    """Whether every node has sent a sample, and every drive works without a complaint."""
    if any([node.sample is None for node in nodes]):
        return False
    enabled = Condition.ENABLED
    return not any(
        [d.condition is not enabled or d.fault or d.foreign or d.saturated or d.quiet for d in drives]
    )  # fmt: skip


class TicksInC:
    """Ticks in C; Python sends and receives.

    Args:
        machine: Tables and state in C.
        stages: Decides whether the law's torques are the command.
    """

    def __init__(self, machine: CompiledTick, dispatch: Dispatch, stages: Stages) -> None:
        self.machine = machine  # tables and state in C
        self.how = "C"  # what computes a tick, for the summary
        self.count = 0  # number of ticks that C did
        self.given_back = Counter[str]()  # why C gave ticks back -> how often
        self.decided = False  # whether C has decided the present tick
        self.begun = False  # whether C has begun the present tick, and left it after its read
        self._dispatch, self._stages = dispatch, stages
        self._functions, self._tick, self._x = machine.functions, machine.tick, machine.arrays
        # torques of the last tick, and those in the frames that were sent last, shape (m,) [actuator units]
        self.torques, self.carried = stages.torques.struct.arrays["torques"], machine.arrays["carried"]
        machine.take_torques(stages.torques, stages.ladder)
        self._names = list(dispatch.buses)
        self._bus_numbers = {name: number for number, name in enumerate(self._names)}
        self._numbers = {node: number for number, node in enumerate(machine.nodes)}
        self._asks = stages.plan.stage.asks
        self._x["began"][0] = self._x["written"][0] = -1 if self._asks else NEVER  # `NEVER`: nothing is asked for
        self._rules: tuple[int, Phase] | None = None  # number of rules, and in which phase C knows them
        self._pause = 0

    def write(self, now: int) -> None:
        """The first of the next torques is sent now [ns]: a reply may come before the last one is sent."""
        if self._asks:
            self._x["written"][0] = now

    @property
    def healthy(self) -> bool:
        """Whether every drive works without a complaint, and C takes the frames that say so again."""
        return bool(self._tick.healthy)

    def enter(self) -> None:
        """C takes the frames from now on."""
        self.load()
        self._dispatch.taker = self.take

    def leave(self) -> None:
        """The drivers take the frames again."""
        if self._dispatch.taker is not None:
            self.give_back()
            self._show()
            self._dispatch.taker = None

    def take_over(self, free: bool, allowed: bool) -> None:
        """Begins a tick.

        Args:
            free: Whether torques alone move the machine; a test judges the motion itself.
            allowed: Whether C may take the frames of drives that work, and send their torques.
        """
        self._tick.free = free and not self._stages.testing
        if not (allowed and self.machine.wires and self._stages.mode in WORKING and self._dispatch.healthy):
            self.give_back()
        elif not (self.healthy or self._pause) and in_order(self.machine.drives, self.machine.nodes):
            self._take_drives()

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

    def _take_drives(self) -> None:
        """C takes the frames of drives that work from now on."""
        machine = self.machine
        machine.see_mutes()
        machine.forget_frames()
        self._encoded = machine.take_commands()
        self._tick.healthy = True

    def give_back(self) -> None:
        """The drivers take the frames of drives that work again; they get the last one of each message."""
        if self.healthy:
            self._tick.healthy = False
            for bus, frame in self.machine.last_frames():
                self._dispatch.deliver(bus, frame)
            self._show()

    def _show(self) -> None:
        """Gives every node its last sample."""
        for number in self._numbers.values():
            self.machine.show(number)

    # Measure.

    def load(self) -> None:
        """Takes what every node knows."""
        for number in self._numbers.values():
            self.machine.load(number)

    def begin(self, due: int, began: int) -> None:
        """Begins a tick that was due at a time [ns]."""
        self._x["due"][0] = due
        if self._asks:
            self._x["began"][0] = began
        self._tick.trouble = self.machine.ffi.NULL

    def take(self, bus: str, frame: Frame) -> None:
        """Takes a received frame."""
        number = self._functions.tick_take(
            self._tick, self._bus_numbers[bus], frame.id, frame.flags, len(frame.data), frame.data, frame.time
        )
        if number == UNKNOWN:
            self._dispatch.unknown += 1
        elif number < 0:
            self._pass_on(bus, frame)

    def _pass_on(self, bus: str, frame: Frame) -> None:
        """Gives a frame that C does not take to its driver, and takes what this knows then."""
        if self.healthy:
            self._count()
            self._pause = PAUSE
            self.give_back()
        self._deliver(bus, frame)

    def _deliver(self, bus: str, frame: Frame) -> None:
        """Gives a frame to its driver, and takes what this knows then."""
        for node in self._dispatch.nodes_of(bus, frame):
            number = self._numbers[node]
            self.machine.show(number)
            node.accept(frame)
            self.machine.load(number)

    def missing(self) -> str | None:
        """Name of a bus on which a sample of this tick is still missing."""
        bus = self._functions.tick_missing(self._tick)
        return None if bus < 0 else self._names[bus]

    def receive(self, deadline: int) -> bool:
        """C sends SYNC, receives samples until a moment [ns], and computes the state; False: Python must."""
        return False

    def finish(self) -> None:
        """Ends a read in C."""
        self.begun = False
        self._pause = max(0, self._pause - 1)
        self.machine.raise_failure()

    def sense(self, now: int) -> None:
        """Computes the state of the machine from the samples that have come."""
        self._functions.tick_sense(self._tick, now)
        self.finish()

    def mute(self) -> list[str]:
        """Buses on which no command may be sent, by what the nodes know: `tick_mute` in `hil/core/c/tick.c`."""
        self.machine.see_mutes()
        buses = self._functions.tick_mute(self._tick)
        return [name for number, name in enumerate(self._names) if buses >> number & 1]

    def _count(self) -> None:
        if why := self.machine.trouble:  # else the stage ends
            self.given_back[why] += 1

    @property
    def sensed(self) -> int:
        """When the last state was computed [ns]."""
        return int(self.machine.sensing.struct.c.read)

    def reading(self) -> Reading:
        """The state that was computed last."""
        if not self.healthy:
            self._show()
        sensed, m = self.machine.sensing.struct, len(self.machine.drives)
        measured = {name: numbers.tolist() for name, numbers in self.machine.measured.items()}
        q, v, ages = (sensed.arrays[name].copy() for name in ("law_q", "law_v", "ages"))
        return Reading(
            q, v, ages, bool(sensed.c.valid), sensed.c.residual,
            measured["position"][:m], measured["speed"][:m], self.machine.sensing.findings, measured,
        )  # fmt: skip

    # Decide and act.

    def decide(self, tick: Tick, now: int) -> Array | None:
        """Torques to send, shape (m,) [actuator units]; None: Python must decide, from the reading of this tick."""
        self.decided = False
        if not self.healthy:
            return None
        stages = self._stages
        asks = self._functions.tick_asks(self._tick)
        if not (tick.skipped or asks) and self._dispatch.healthy and self._source():
            if not self._functions.tick_decide(self._tick, now, tick.elapsed / SECOND, stages.next_task_time):
                stages.follow(tick)
                self.decided = True
                self.count += 1
                return self.torques.copy()
            self._count()
            self.machine.raise_failure()
        return None

    def act(self, now: int) -> bool:
        """Sends the torques of this tick, now [ns]; False: Python must, and nothing was sent."""
        if not self.decided and (self._tick.mute or self._functions.tick_act(self._tick)):
            self._count()
            return False
        self.write(now)
        for bus, like, encoded in self._encoded:
            identity, data = encoded()
            self._dispatch.send(bus, Frame(identity, data, like.extended, fd=like.fd, brs=like.brs))
        self._dispatch.keep_alive()
        return True
