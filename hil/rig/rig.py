"""Drives on CAN as a rig: samples in, q and v out, torques sent while allowed, every drive off at the end.

Design: after `disable` or `stop` no torque is sent any more, whatever the caller asks for. This is latched here, below
everything that decides.

Ordinary ticks run in C, several in one call where nothing asks for Python. C does a tick from the first frame to the
encoded torques, or leaves no trace of it. As soon as anything is not ordinary (a rare frame, an implausible sample, a
limit, a status of the law), the state goes back to Python, which does the same tick from the same frames: its reaction
is that of a run without C, in the same tick. So whatever C does not know cannot be wrong there. Stages, stop,
heartbeats and records are Python's in any case.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from hil.assembly.emulation import Environment
from hil.assembly.measuring import let_go
from hil.assembly.setup import RigSetup
from hil.drives.base import Condition, Drive, Feedback, Node, Sample, Steps
from hil.drives.settings import GAUGES
from hil.frame import Frame
from hil.loop import SECOND, Ahead, Clock, Reading, Tick, WallClock, nanoseconds
from hil.loop.controller import Controller
from hil.recorder.memory import Ring
from hil.rig.dispatch import Dispatch, SwitchOff
from hil.rig.handshake import BringUp, Handshake
from hil.safety.drive_test import DriveRig
from hil.safety.ladder import Ladder, Rung
from hil.safety.limits import Limits
from hil.safety.monitor import Monitor
from hil.safety.plan import UNPOWERED, Stage
from hil.safety.rules import Rule
from hil.safety.stages import Stages
from hil.tick import handover
from hil.tick.machine import CompiledTick, frame_reader, machine_of
from hil.tick.sockets import BETWEEN, READ, SocketTicks, TickLog, socket_buses
from servoctl.errors import ConfigError
from servoctl.types import Array

ENABLE_TIME = 5.0  # [s] time limit for enabling all drives
OFF_TIME = 0.5  # [s] time limit for switching all drives off after the loop
FRESH = 20_000_000  # [ns] age up to which a sample shows whether a joint stands after the loop has ended
GIVEN_BACK, UNKNOWN = -1, -2  # answers of C to a frame: the tick is Python's, or no node takes it
PAUSE = 2  # ticks in Python after one that was given back: what is rare seldom comes alone

NO_SAMPLE = Sample(np.nan, np.nan, np.nan, 0)


class CanRig(DriveRig):
    """Drives and encoder nodes on CAN.

    Args:
        stage: Last stage; in shadow and in a calibration nothing is commanded.
        evenly: Whether the law gets the positions at the moment when the tick was due. An estimator needs them: it
            takes the time between ticks as the period, but when all samples have arrived varies with the bus.

    Attributes:
        measured: Position, then speed, then torque of each drive's last raw sample [joint and actuator units]; NaN
            where there is no sample yet.
        sends: Whether commands may be sent.
        off: Whether torque is switched off for good.
        switch_off: What sends the frames that switch drives off, and keeps what failed meanwhile.
        true: Columns `true_*` at the beginning of the last read; empty without a simulated plant.
    """

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

    def __init__(
        self, setup: RigSetup, environment: Environment, dispatch: Dispatch, stage: Stage, evenly: bool
    ) -> None:
        values, start = setup.settings.values, setup.start
        self._drives, self._nodes, self._dispatch = list(setup.drives), [*setup.drives, *setup.sensors], dispatch
        self._sensing, self._start, self._period = setup.sensing, start, values.period
        self.sends, self._asks = stage not in UNPOWERED, stage is Stage.CALIBRATE
        dispatch.commands = self.sends
        self.measured = [np.nan] * (3 * len(self._drives))
        self.off = not self.sends
        self.switch_off = SwitchOff(dispatch, self._drives, self._period)
        self.ladder = Ladder(self._drives)
        self._awaited = [
            (node, node.settings.bus, node.feedback is Feedback.SYNC)
            for node in self._nodes
            if (self.sends or self._asks) and node.feedback is not Feedback.CYCLIC
        ]
        self._prediction, self._evenly = setup.prediction if values.prediction else None, evenly
        self._truth, self.true = environment.truth, list[float]()
        hold = setup.gravity_compensation(0.0, start.q, start.v)  # of the start pose, while watchdogs are tested
        self._holding, self._let_go = hold.u.tolist(), let_go(hold, setup.sensing.displacements.units)
        self.bring_up = BringUp(dispatch, nanoseconds(values.period))
        self._enabling: Handshake | None = None
        self._guided = False
        self._began = self._due = self._sensed = 0
        self._written = -1
        self._command = np.zeros(len(self._drives))

    @property
    def drives(self) -> Sequence[Drive]:
        """Drives in the order of the plant's actuators."""
        return self._drives

    @property
    def sent(self) -> list[float]:
        """The torques in the frames that were sent last [actuator units]."""
        torques: list[float] = self._command.tolist()
        return torques

    @property
    def clock(self) -> Clock:
        """Clock of the run."""
        return self._dispatch.clock

    def start(self, deadline: int) -> None:
        """Brings all nodes up, unless cancelled; see `BringUp`.

        Raises:
            DriveError: A node is not what the config says, refuses, or does not answer in time; names every such node.
        """
        self._dispatch.drain()
        if self._asks:
            self.bring_up.listen(self._nodes, deadline)
        if self.sends:
            self.bring_up.start(self._nodes, deadline, self._holding, self._let_go)

    def read(self, due: int, wait: int) -> Reading:
        """The state of the machine now.

        Args:
            due: When this tick was due [ns].
            wait: Longest time from now to wait for samples [ns].
        """
        self.decided = False
        if self._left is not None:
            self._due = due
            return self._finish(self._began + wait)
        if self.sockets is not None and self._loaded:  # `go_ahead` did not do this tick
            self._store()
        in_c = self.sockets is None and self._goes_in_c()
        dispatch, began = self._dispatch, self.clock.now()
        self._began, self._due = began, due
        if self._truth is not None:
            self.true = self._truth()
        if in_c:  # C gets each frame from Python
            self._arrays["due"][0] = due
            self._functions.tick_begin(self._tick, began)
            self._received.clear()
            dispatch.taker = self._take
        try:
            if self.sends or self._asks:
                dispatch.synchronise()
            dispatch.wait(began + wait, self._missing)
        finally:
            dispatch.taker = None
        if self._loaded and self._functions.tick_sense(self._tick, self.clock.now()):
            self._give_back()
        if not self._loaded:
            return self._sense()
        for message, bus, frame in self._received:
            self._last.pop(message, None)  # so that the order is that of arrival
            self._last[message] = (bus, frame)
        return self._reading()

    def listen(self) -> Reading:
        """The state of the machine after the end of a run, when nothing is sent any more."""
        self._began = self._due = self.clock.now()
        self._command[:] = 0.0
        if self._truth is not None:
            self.true = self._truth()
        self._dispatch.drain()
        return self._sense()

    def _missing(self) -> str | None:
        """Name of a bus on which a sample of this tick is still missing."""
        if self._loaded:
            bus = self._functions.tick_missing(self._tick)
            return None if bus < 0 else self._names[bus]
        began, written = self._began, self._written
        for node, name, synced in self._awaited:
            sample = node.sample
            if sample is None or sample.time < (began if synced else written):
                return name
        return None

    def _sense(self) -> Reading:
        now, free = self.clock.now(), self._moves_freely
        self._sensed = now
        measurement = self._sensing.read(
            now / SECOND,
            now,
            [node.sample for node in self._nodes],
            self._command if free else None,
            self._began if self.sends or self._asks else None,
            self._written if self.sends or self._asks else None,
        )
        estimate, count = measurement.estimate, len(self._drives)
        samples = [drive.sample or NO_SAMPLE for drive in self._drives]
        self.measured = [each.position for each in samples]
        self.measured += [each.velocity for each in samples]
        self.measured += [each.torque for each in samples]
        residual = max(map(abs, estimate.residual.tolist()), default=0.0)
        q, v = estimate.q, estimate.v
        if self._prediction is not None and measurement.valid and free:
            q, v = self._prediction(now / SECOND, self._period, q, v, self._command)
        elif self._evenly:
            q = q - (now - self._due) / SECOND * v
        return Reading(
            q,
            v,
            measurement.ages,
            measurement.valid,
            residual,
            measurement.positions[:count],
            measurement.rates[:count],
            measurement.findings,
            [(now - drive.alive) / SECOND if drive.alive else 0.0 for drive in self._drives],
            self.measured[2 * count :],
            list(zip(*[drive.gauges for drive in self._drives], strict=True)),
        )

    @property
    def present(self) -> tuple[int, float]:
        now = self.clock.now()
        return now, (now - self._sensed) / SECOND

    @property
    def _moves_freely(self) -> bool:
        """Whether torques alone move the machine: every drive is enabled, no hand guides, and no test judges it."""
        enabled = Condition.ENABLED
        return not (self.off or self._guided or self.testing) and all(
            [drive.condition is enabled for drive in self._drives]
        )

    def write(self, command: Array) -> None:
        """Sends torques, shape (m,) [actuator units]; they are held until the next ones."""
        if self.decided:
            self._write_encoded()
            return
        self._command = np.zeros(len(self.drives)) if self.off else self.carried(command)
        mute = self._take_back()
        self._written = self.clock.now()  # a reply to the first torque may come before the last one is sent
        if not self.off:
            send, enabled = self._dispatch.send, Condition.ENABLED
            for drive, rung, torque in zip(self._drives, self.ladder.rungs, command.tolist(), strict=True):
                bus = drive.settings.bus
                # a drive may be on before its status says so, and its joint then moves without damping
                on = drive.condition is enabled or (self.ladder.begun and drive.begins)
                if rung is not Rung.LOOP or not on or drive.quiet:
                    continue
                if bus not in mute:
                    send(bus, drive.command(torque))
                elif mute[bus] is drive:  # one question per tick shows when the bus is back
                    for frame in drive.queries():
                        send(bus, frame)
            self._go_down(command.tolist())
        if self.sends or self._asks:
            self._dispatch.keep_alive()

    def _write_encoded(self) -> None:
        """Sends the torques that C has decided and encoded."""
        self._command = self._arrays["carried"].copy()
        self._written = self._arrays["written"][0] = self.clock.now()
        for bus, like, encoded in self._encoded:
            identity, data = encoded()
            self._dispatch.send(bus, Frame(identity, data, like.extended, fd=like.fd, brs=like.brs))
        self._dispatch.keep_alive()

    def _take_back(self) -> dict[str, Drive]:
        """Buses on which no drive has answered since the last commands -> a drive there; what waits on them is dropped.

        Only buses with drives that a command of torque enables: when all of them restart, nothing has acknowledged the
        frames in the controller's queue, and these would be the first to come.
        """
        mute: dict[str, Drive] = {}
        for drive in self._drives:
            if drive.enabled_by_command and drive.condition is not Condition.DISABLED:
                mute.setdefault(drive.settings.bus, drive)
        for drive in self._drives:
            if drive.sample is None or drive.sample.time >= self._written:
                mute.pop(drive.settings.bus, None)
        for bus in mute:
            self.switch_off.attempt("", partial(self._dispatch.take_back, bus))
        return mute

    def _go_down(self, torques: Sequence[float]) -> None:
        """Sends the frames of the drives that are on a step below the loop."""
        for number, rung in enumerate(self.ladder.rungs):
            if rung is not Rung.LOOP:
                if self._enabling is not None:  # it may repeat the command that enables a drive
                    self.switch_off.attempt("", self._enabling.abandon)
                    self._enabling = None
                self.switch_off.send_to(self._drives[number], partial(self.ladder.frames, number, torques[number]))

    def begin_enable(self, torques: Sequence[float]) -> None:
        for drive in self.drives:
            drive.enable_requested = True
        steps: dict[Node, Steps] = {
            drive: drive.enable(torque) for drive, torque in zip(self.drives, torques, strict=True)
        }
        self._enabling = Handshake(steps, self._dispatch.send, self.clock, ENABLE_TIME)

    def advance(self) -> bool:
        return self._enabling is None or self._enabling.advance()

    def watch_unproved(self, numbers: Sequence[int]) -> None:
        if self._sensing.tracking is not None:
            self._sensing.tracking.unproved = numbers
            self._sensing.tracking.begin()

    def let_guide(self) -> None:
        self._guided = True

    def start_problems(self) -> list[tuple[str, str]]:
        samples = [node.sample for node in self._nodes if node.sample is not None]
        tolerances = [node.settings.start_tolerance for node in self._nodes]
        return [("", sentence) for sentence in self._sensing.check_start(self._start.q, samples, tolerances)]

    def watch(self, monitor: Monitor, now: int, ages: Sequence[float], working: bool) -> None:
        for drive, age in zip(self._drives, ages, strict=False):
            if age >= monitor.bounds.stale_age / SECOND:
                drive.out_of_touch()
        monitor.rejections(self.clock.now())
        # In shadow another master commands the drives: their faults and their other master are not reported.
        if self.sends:
            rungs = zip(self._drives, self.ladder.rungs, strict=True)
            looped = [drive for drive, rung in rungs if rung is Rung.LOOP and drive.has_worked]
            monitor.drives(self.clock.now(), looped if working else ())
        if not self._dispatch.healthy:
            monitor.buses(now, self._dispatch.healths())

    def disable(self) -> bool:
        self.off = True
        if self._enabling is not None:
            self.switch_off.attempt("", self._enabling.abandon)
        return self.switch_off.send()

    def stop(self) -> None:
        """Switches every drive off and waits until all have confirmed, at most `OFF_TIME`.

        Every way out of the loop calls it. Drives that were not switched off before brake by themselves first, where
        they can. It does nothing after `disable` has returned True.
        """
        if self._loaded:
            self._store()
        if not self.sends or (self.off and self.switch_off.confirmed):
            return
        if not self.off:
            self.switch_off.attempt("", self._brake_down)
        end = self.clock.now() + nanoseconds(OFF_TIME)
        while self.clock.now() < end and not self.disable():
            self._listen()
            self._take_back()

    def _brake_down(self) -> None:
        """Lets every drive that may be on brake by itself, at most for the longest time that one may take."""
        ladder, started = self.ladder, self.clock.now()
        on = [number for number, drive in enumerate(self._drives) if drive.possibly_on]
        for number in on:
            ladder.ramp(number, started, must=True)
        while not all([ladder.ended(number, self.clock.now()) for number in on]):
            self._go_down(self._holding)
            self._listen()
            samples, now = [drive.sample or NO_SAMPLE for drive in self._drives], self.clock.now()
            ladder.watch([each.velocity for each in samples], [now - each.time < FRESH for each in samples])

    def _listen(self) -> None:
        self._written = self.clock.now()
        self.switch_off.listen(self.clock.now() + nanoseconds(max(self._period, 0.005)))

    # Ticks in C.

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

    def _goes_in_c(self) -> bool:
        """Whether C may begin this tick; it gets the state, or gives it back."""
        if self.machine is None:
            return False
        if self._pause:
            self._pause -= 1
            return False
        if self._loaded:
            if not self._ordinary or self.off:
                self._store()
            return self._loaded  # a drive that is no longer enabled has said so, and C has given that tick back
        self._axes = self._limits.axes
        return self._ordinary and self._moves_freely and self._load(self.machine)

    @property
    def _ordinary(self) -> bool:
        """Whether nothing asks for Python, and the limits are those that C has."""
        return self._stages.ordinary and self._dispatch.healthy and self._limits.axes is self._axes

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
        if tick.skipped or not self._ordinary:
            self._store()
            return None
        if self._functions.tick_decide(self._tick, self.clock.now(), tick.elapsed / SECOND, stages.next_task_time):
            self._count()
            self._store()
            return None
        stages.follow(tick, self.clamped)
        self.decided = self.complete = True
        self.ticks += 1
        torques: Array = self._arrays["torques"].copy()
        return torques

    @property
    def clamped(self) -> list[bool]:
        """Whether a limit has changed the torque of each drive in the last tick that C did."""
        changed: list[bool] = self._clamped.astype(bool).tolist()
        return changed

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
