"""Drives on CAN as a rig: samples in, q and v out, torques sent while allowed, every drive off at the end.

Design: after `disable` or `stop` no torque is sent any more, whatever the caller asks for. This is latched here, below
everything that decides.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from hil.assembly.emulation import Environment
from hil.assembly.measuring import let_go
from hil.assembly.setup import RigSetup
from hil.drives.base import Condition, Drive, Feedback, HandshakeStep, Node, Sample, Steps
from hil.drives.guard import moving
from hil.loop import SECOND, Clock, Reading, nanoseconds
from hil.rig.dispatch import Dispatch, SwitchOff
from hil.rig.handshake import Handshake
from hil.safety.drive_rig import DriveRig
from hil.safety.ladder import Ladder, Rung
from hil.safety.monitor import Monitor
from hil.safety.plan import UNPOWERED, Stage
from hil.safety.watchdogs import REACTION, in_turn, watch
from servoctl.types import Array

ENABLE_TIME = 5.0  # [s] time limit for enabling all drives
SAMPLE_TIME = 0.5  # [s] time limit for a sample of each drive before the loop starts
OFF_TIME = 0.5  # [s] time limit for switching all drives off after the loop
FRESH = 20_000_000  # [ns] age up to which a sample shows whether a joint stands after the loop has ended

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
        self._enabling: Handshake | None = None
        self._guided = False
        self._cancelled = False
        self._began = self._due = self._sensed = self._turn_end = 0
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
        """Identifies every node, then configures every drive and tests its watchdog, unless cancelled.

        The test of a watchdog lets it expire once.

        Raises:
            DriveError: A node is not what the config says, refuses, or does not answer in time; names every such node.
        """
        self._dispatch.drain()
        if self._asks:
            self._perform({node: node.listen() for node in self._nodes}, deadline)
        if not self.sends:
            return
        self._perform({node: node.identify() for node in self._nodes}, deadline)
        self._perform({drive: drive.configure() for drive in self.drives}, deadline)
        holding = dict(zip(self.drives, self._holding, strict=True))
        check = watch(self._drives, self._let_go)
        for group in in_turn(self._drives, self._let_go):
            tests: dict[Node, Steps] = {drive: drive.test_watchdog(_held(drive, holding[drive])) for drive in group}
            self._perform(tests, deadline, check)
            still = self.clock.now() + nanoseconds(max(drive.settings.brake_time for drive in group) + REACTION)
            while moving(group) and self.clock.now() < still and not self._cancelled:  # its brake may still close
                self._turn()
                check()
        self._perform({drive: drive.rearm() for drive in self.drives}, deadline)
        # While the watchdog of a drive runs out, it is not asked for samples.
        self._perform({drive: _sampled(drive) for drive in self.drives if drive.feedback is Feedback.REPLY}, deadline)

    def _perform(self, steps: Mapping[Node, Steps], deadline: int, check: Callable[[], None] = lambda: None) -> None:
        """Runs a handshake with several nodes to its end; `check` raises at what must not happen meanwhile."""
        left = (deadline - self.clock.now()) / SECOND
        running, emptied = Handshake(steps, self._dispatch.send, self.clock, left), True
        try:
            while not self._cancelled:
                self._dispatch.service(nanoseconds(self._period))  # a heartbeat that is set now comes after the samples
                if running.advance(emptied):
                    break
                emptied = self._turn(running.awaited)
                check()
        finally:
            running.abandon()

    def _turn(self, awaited: Callable[[str], str | None] = lambda bus: bus) -> bool:
        """Receives frames and resets watchdogs to the end of a period, or until no bus is `awaited`.

        Returns:
            Whether the period is over.
        """
        dispatch, period, first = self._dispatch, nanoseconds(self._period), next(iter(self._dispatch.buses))
        if self.clock.now() >= self._turn_end:
            self._turn_end = self.clock.now() + period
        while self.clock.now() < self._turn_end and awaited(first) is not None:
            dispatch.wait(min(self._turn_end, dispatch.service(period)), lambda: awaited(first))
        return self.clock.now() >= self._turn_end

    def cancel(self) -> None:
        """Ends `start` early; may be called from a signal handler."""
        self._cancelled = True

    def read(self, due: int, wait: int) -> Reading:
        dispatch, began = self._dispatch, self.clock.now()
        self._began, self._due = began, due
        if self._truth is not None:
            self.true = self._truth()
        if self.sends or self._asks:
            dispatch.synchronise()
        dispatch.wait(began + wait, self._missing)
        return self._sense()

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
        began, written = self._began, self._written
        for node, bus, synced in self._awaited:
            sample = node.sample
            if sample is None or sample.time < (began if synced else written):
                return bus
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


def _held(drive: Drive, torque: float) -> float:
    """Torque while a watchdog is tested: what holds the pose where a brake opens; others may lie on a support."""
    settings = drive.settings
    return min(settings.torque_limit, max(-settings.torque_limit, torque)) if settings.brake else 0.0


def _sampled(node: Node) -> Steps:
    """Waits for a sample that is newer than the last one."""
    before = node.sample
    yield HandshakeStep([], lambda: node.sample is not before, SAMPLE_TIME, "a sample after the watchdogs were tested")
