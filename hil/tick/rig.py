"""A rig whose ordinary ticks run in C, several in one call where nothing asks for Python.

Design: C does a tick from the first frame to the encoded torques, or leaves no trace of it. As soon as anything is not
ordinary (a rare frame, an implausible sample, a limit, a status of the law), the state goes back to Python, which does
the same tick from the same frames: its reaction is that of a run without C, in the same tick. So whatever C does not
know cannot be wrong there. Stages, stop, heartbeats and records are Python's in any case.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from hil.assembly.setup import RigSetup
from hil.drives.settings import GAUGES
from hil.frame import Frame
from hil.loop import SECOND, Ahead, Reading, Tick, WallClock, nanoseconds
from hil.loop.controller import Controller
from hil.recorder.memory import Ring
from hil.rig.rig import CanRig
from hil.safety.limits import Limits
from hil.safety.rules import Rule
from hil.safety.stages import Stages
from hil.tick import handover
from hil.tick.machine import CompiledTick, frame_reader, machine_of
from hil.tick.sockets import BETWEEN, READ, SocketTicks, TickLog, socket_buses
from servoctl.errors import ConfigError
from servoctl.types import Array

GIVEN_BACK, UNKNOWN = -1, -2

PAUSE = 2  # ticks in Python after one that was given back: what is rare seldom comes alone


class TickRig(CanRig):
    """Drives and encoder nodes on CAN; arguments as of `CanRig`."""

    ticks = 0  # number of ticks that C did
    given_back: Mapping[str, int] = MappingProxyType({})  # why C gave ticks back -> how often
    machine: CompiledTick | None = None  # tables and state of the tick in C; None: ticks do not run in C
    sockets: SocketTicks | None = None  # the buses in C, and ticks on them; None: Python sends and receives
    # decided: whether C has decided the present tick
    # complete: whether C has done a tick since it got the state
    decided = complete = _loaded = False
    _left: int | None = None
    _pause = 0
    _rules: tuple[Rule, ...] = ()

    def choose(
        self,
        setup: RigSetup,
        controller: Controller,
        stages: Stages,
        limits: Limits,
        record: Callable[[memoryview], None],
    ) -> str:
        """Lets ordinary ticks run in C if the config and the machine allow it; returns why they do not, or nothing.

        Args:
            stages: Decides whether a tick is an ordinary one.
            limits: Last limits before a torque is sent.
            record: Records frames that C has received or sent.

        Raises:
            ConfigError: `hil.tick: c` cannot be had.
        """
        tick = setup.settings.values.tick
        if tick == "python":
            return "as the config says"
        machine, why = machine_of(setup, controller)
        if why and tick == "c":
            raise ConfigError(f"hil.tick: c: {why} (use auto or python)")
        if machine is None:
            return f"because {why}"
        wires = machine.wires
        self.machine, self._wires, self._stages, self._limits = machine, wires, stages, limits
        self._record = record
        self._functions, self._tick, self._clamped = machine.functions, machine.tick, machine.arrays["clamped"]
        self._arrays = machine.arrays
        self._names = list(self._dispatch.buses)
        self._bus_numbers = {name: number for number, name in enumerate(self._names)}
        commands = [wire.command.frame for wire in wires if wire.command is not None]
        self._templates = [(drive.settings.bus, like) for drive, like in zip(self._drives, commands, strict=True)]
        parts = ("position", "velocity", "torque", "displacements", "rates")
        self._of_drives = [machine.arrays[part][: len(commands)] for part in parts]
        self._now = self._dispatch.clock.now
        self._last: dict[int, tuple[str, Frame]] = {}
        self._received: list[tuple[int, str, Frame]] = []
        return ""

    def use_sockets(self, log: TickLog, rings: Sequence[Ring], period: int, wait: int) -> None:
        """Lets C send, receive and record too, where it can have all buses and knows what feeds each watchdog.

        Args:
            log: Row and durations of a tick.
            rings: Rings of rows and of frames.
            period: Period of the ticks [ns].
            wait: Longest time after the beginning of a tick to wait for samples [ns].
        """
        clock, buses, machine = self.clock, socket_buses(self._dispatch.buses, self.clock), self.machine
        known = machine is not None and all(wire.feeds is not None for wire in machine.wires if wire.command)
        if machine is not None and known and buses and isinstance(clock, WallClock):
            duration = self._stages.duration
            self.sockets = SocketTicks(machine, buses, self._nodes, clock, log, rings, period, wait, duration)

    def read(self, due: int, wait: int) -> Reading:
        self.decided = False
        if self._left is not None:
            self._due = due
            return self._finish(self._began + wait)
        if self.sockets is not None and self._loaded:  # `go_ahead` did not do this tick
            self._store()
        if self.sockets is not None or not self._goes_in_c():
            return super().read(due, wait)
        self._began = self._now()
        self._due = self._arrays["due"][0] = due
        if self._truth is not None:
            self.true = self._truth()
        return self._read_frames(self._began + wait)

    def go_ahead(self, most: int, deadline: int, live: Array) -> Ahead:
        """Does ordinary ticks in C, each at its deadline, as far as they go.

        Args:
            most: Largest number of ticks.
            deadline: Deadline of the first one [ns].
            live: Values of the gains that may change.
        """
        sockets = self.sockets
        if sockets is None or not self._goes_in_c():
            return Ahead()
        end = sockets.run(most, deadline, nanoseconds(self._stages.next_task_time), live)
        ticks, last = sockets.struct.ticks, sockets.struct.last
        if ticks:
            self._command, self._written = self._arrays["carried"].copy(), int(self._arrays["written"][0])
            self._dispatch.unknown += sockets.struct.unknown
            self.ticks += ticks
            self.complete = True
        if end == BETWEEN:
            self._fail(sockets)
            return Ahead(ticks)
        self._began, self._left = last.began, end
        return Ahead(ticks, last.began)

    def _finish(self, deadline: int) -> Reading:
        """The rest of a read in a tick that C has begun and given back."""
        end, self._left = self._left, None
        assert self.sockets is not None
        if end == READ:
            return self._read_again(self.sockets, deadline)
        reading = self._reading()
        self._count()
        self._store()
        return reading

    @property
    def clamped(self) -> list[bool]:
        """Whether a limit has changed the torque of each drive in the last tick that C did."""
        changed: list[bool] = self._clamped.astype(bool).tolist()
        return changed

    def _fail(self, sockets: SocketTicks) -> None:
        for number, error in sockets.failures():
            self._dispatch.failed(self._names[number], error)

    def _read_again(self, sockets: SocketTicks, deadline: int) -> Reading:
        """A read that C gave back, from the frames that C has received."""
        dispatch = self._dispatch
        self._count()
        self._store()
        self._fail(sockets)
        for number, frame in sockets.received():
            bus = self._names[number]
            if frame.error:
                sockets.buses[number].report_error(frame)
            else:
                dispatch.deliver(bus, frame)
        self._record(sockets.records)
        dispatch.wait(deadline, self._missing)
        return self._sense()

    def _read_frames(self, deadline: int) -> Reading:
        """A read in which C gets each frame from Python."""
        dispatch = self._dispatch
        self._functions.tick_begin(self._tick, self._began)
        self._received.clear()
        dispatch.taker = self._take
        try:
            dispatch.synchronise()
            dispatch.wait(deadline, self._missing)
        finally:
            dispatch.taker = None
        if self._loaded and self._functions.tick_sense(self._tick, self._now()):
            self._give_back()
        if not self._loaded:
            return self._sense()
        for message, bus, frame in self._received:
            self._last.pop(message, None)  # so that the order is that of arrival
            self._last[message] = (bus, frame)
        return self._reading()

    def _goes_in_c(self) -> bool:
        """Whether C may begin this tick; it gets the state, or gives it back."""
        if self.machine is None:
            return False
        if self._pause:
            self._pause -= 1
            return False
        ordinary = self._stages.ordinary and self._dispatch.healthy
        if self._loaded:
            if not ordinary or self.off:
                self._store()
            return self._loaded  # a drive that is no longer enabled has said so, and C has given that tick back
        return ordinary and self._moves_freely and self._load(self.machine)

    def _load(self, machine: CompiledTick) -> bool:
        """Gives the state to C; returns whether it is one that C knows."""
        if not handover.load(machine, self._drives, self._nodes, self._sensing, self._limits):
            return False
        machine.take_commands([node.wire() or wire for node, wire in zip(self._nodes, self._wires, strict=True)])
        if (rules := tuple(self._stages.rules)) != self._rules:
            machine.take_rules(rules)
            self._rules = rules
        encoded = zip(self._templates, machine.encoded(), strict=True)
        self._encoded = [(bus, like, frame_reader(memory)) for (bus, like), memory in encoded]
        self._arrays["carried"][:], self._arrays["written"][0] = self._command, self._written
        self._last.clear()
        if self.sockets is not None:
            self.sockets.begin()
        self._loaded, self.complete = True, False
        return True

    def _take(self, bus: str, frame: Frame) -> None:
        """Takes a frame in place of the nodes."""
        if not self._loaded:
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

    def _missing(self) -> str | None:
        if not self._loaded:
            return super()._missing()
        bus = self._functions.tick_missing(self._tick)
        return None if bus < 0 else self._names[bus]

    def _reading(self) -> Reading:
        """State of the machine as C found it."""
        positions, velocities, torques, displacements, speeds = [part.tolist() for part in self._of_drives]
        self.measured, self._sensed = positions + velocities + torques, int(self._arrays["now"][0])
        x = self._arrays
        return Reading(
            x["law_q"].copy(), x["law_v"].copy(), x["ages"].copy(), True, self._tick.residual, displacements, speeds,
            (), x["silences"].tolist(), torques, x["gauges"].reshape(len(GAUGES), -1).tolist(),
        )  # fmt: skip

    def decide(self, tick: Tick) -> Array | None:
        """Torques to send, shape (m,) [actuator units]; None: Python must decide."""
        if not self._loaded:
            return None
        stages = self._stages
        if tick.skipped or not (stages.ordinary and self._dispatch.healthy):
            self._store()
            return None
        if self._functions.tick_decide(self._tick, self._now(), tick.elapsed / SECOND, stages.next_task_time):
            self._count()
            self._store()
            return None
        stages.follow(tick, self.clamped)
        self.decided = self.complete = True
        self.ticks += 1
        torques: Array = self._arrays["torques"].copy()
        return torques

    def write(self, command: Array) -> None:
        if not self.decided:
            super().write(command)
            return
        self._command = self._arrays["carried"].copy()
        send = self._dispatch.send
        self._written = self._arrays["written"][0] = self._now()
        for bus, like, encoded in self._encoded:
            identity, data = encoded()
            send(bus, Frame(identity, data, like.extended, fd=like.fd, brs=like.brs))
        self._dispatch.keep_alive()

    def _count(self) -> None:
        why = "" if self.machine is None else self.machine.trouble
        self.given_back = {**self.given_back, why: self.given_back.get(why, 0) + 1}
        self._pause = PAUSE

    def _give_back(self) -> None:
        """Undoes this tick in C, and gives its frames to the drivers."""
        self._count()
        self._functions.tick_undo(self._tick)
        self._store()
        for _, bus, frame in self._received:
            self._dispatch.deliver(bus, frame)

    def _store(self) -> None:
        """Gives the state back to Python."""
        assert self.machine is not None
        self._loaded = False
        if self.sockets is not None:
            self.sockets.end()
            self._last = {i: (self._names[bus], frame) for i, (bus, frame) in enumerate(self.sockets.last_frames())}
        handover.store_positions(self.machine, self._nodes)
        for bus, frame in self._last.values():
            self._dispatch.deliver(bus, frame)
        handover.store(self.machine, self._nodes, self._sensing, self._limits)
        if self.complete:
            self._stages.resume(self._arrays["law_q"].copy(), self._arrays["rates"][: len(self._drives)].tolist())

    def stop(self) -> None:
        if self._loaded:
            self._store()
        super().stop()
