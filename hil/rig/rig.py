"""Drives on CAN as a rig: samples in, q and v out, torques sent while allowed, every drive off at the end.

Design: after `disable` or `stop` no torque is sent any more, whatever the caller asks for. This is latched here, below
everything that decides.

C measures each tick, and sends its torques where all drives work (`hil.rig.ticks_in_c`): the drivers then do not see
their frames. What is done to a drive itself (a handshake, a step of the ladder, off) is Python's: the rig gives the
frames back to the drivers first.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from hil.assembly.emulation import Environment
from hil.assembly.setup import RigSetup
from hil.drives.base import Condition, Node, Steps
from hil.loop import SECOND, Clock, nanoseconds
from hil.rig.dispatch import Dispatch, SwitchOff
from hil.rig.handshake import BringUp, Handshake, OtherMasterError
from hil.rig.ticks_in_c import TicksInC
from hil.safety.drive_test import DriveRig
from hil.safety.ladder import Ladder, Rung
from hil.safety.monitor import Monitor
from hil.safety.plan import WATCHING, Phase
from hil.sensing.sensing import NO_SAMPLE
from servoctl.types import Array

ENABLE_TIME = 5.0  # [s] time limit for enabling all drives
OFF_TIME = 0.5  # [s] time limit for switching all drives off after the loop
LISTENING = 0.1  # [s] time before the first frame in which another master is heard: some periods of any loop
FRESH = 20_000_000  # [ns] age up to which a sample shows whether a joint stands after the loop has ended


class CanRig(DriveRig):
    """Drives and encoder nodes on CAN.

    Args:
        stage: Last stage; in shadow and in a calibration nothing is commanded.

    Attributes:
        in_c: What C does of each tick.
        sends: Whether commands may be sent.
        off: Whether torque is switched off for good.
        switch_off: What sends the frames that switch drives off, and keeps what failed meanwhile.
        true: Columns `true_*` at the beginning of the last read; empty without a simulated plant.
    """

    in_c: TicksInC

    def __init__(self, setup: RigSetup, environment: Environment, dispatch: Dispatch, stage: Phase) -> None:
        self._setup, self._environment, self._dispatch = setup, environment, dispatch
        self.drives, values, period = setup.drives, setup.settings.values, nanoseconds(setup.settings.values.period)
        self._sensing, self._pause = setup.sensing, nanoseconds(max(values.period, 0.005))
        self._asks, self.sends = stage.asks, stage not in WATCHING
        dispatch.commands = self.sends
        self.off = not self.sends
        self.switch_off = SwitchOff(dispatch, self.drives, values.period)
        # an estimator takes the time between ticks as the period, but when all samples have arrived varies with the bus
        evenly = setup.loop.system.estimator is not None
        self._sensing.lead(values.period if values.prediction else 0.0, evenly)
        self.true = list[float]()
        inertia = np.diag(setup.hold.inertia)
        response = np.divide(values.period, inertia, out=np.zeros_like(inertia), where=inertia > 0.0)
        self.ladder = Ladder(self.drives, response)
        self.bring_up = BringUp(dispatch, period, setup.bounds.stale_age)
        self._enabling = Handshake({}, dispatch.send, self.clock, ENABLE_TIME)  # of no drive yet
        self._guided = False

    @property
    def clock(self) -> Clock:
        """Clock of the run."""
        return self._dispatch.clock

    def start(self, deadline: int) -> None:
        """Brings all nodes up, unless cancelled; see `BringUp`.

        Raises:
            DriveError: A node is not what the config says, refuses, or does not answer in time; names every such node.
            StartPoseError: Nodes contradict the start pose, and a drive would be enabled to test its watchdog.
            OtherMasterError: Another master commands a drive. Nothing is sent then, not even at the end: to switch the
                drives off would take them from a loop that holds its machine.
        """
        self._dispatch.drain()
        if self.sends and not self._environment.lockstep:  # there no other master can be on the buses
            self._listen_for_others()
        if self.sends:
            self.bring_up.start(deadline, self._setup.watchdog_tests, self.start_problems)
        elif self._asks:
            self.bring_up.listen(deadline)
        self.in_c.enter()

    def _listen_for_others(self) -> None:
        end, bus = self.clock.now() + nanoseconds(LISTENING), next(iter(self._dispatch.buses))
        self._dispatch.wait(end, lambda: bus if self.clock.now() < end else None)
        others = [f"{drive.settings.name}: {drive.foreign}" for drive in self.drives if drive.foreign]
        if others:
            self.sends = False
            raise OtherMasterError("\n".join(f"{other}; this run has sent nothing to any drive" for other in others))

    def read(self, due: int) -> None:
        in_c, dispatch = self.in_c, self._dispatch
        if in_c.begun:
            in_c.finish()
            return
        self.take_over()
        began = self.clock.now()
        self._see_truth()
        in_c.begin(due, began)
        if not in_c.receive(began + in_c.wait):
            if self._asks:
                dispatch.synchronise()
            dispatch.wait(began + in_c.wait, in_c.missing)
            in_c.sense(self.clock.now())

    def _see_truth(self) -> None:
        if self._environment.truth is not None:
            self.true = self._environment.truth()

    def take_over(self) -> None:
        """Lets C take the frames of the next tick, where it may."""
        self.in_c.take_over(self._moves_freely, allowed=self._in_loop and not self.off)

    @property
    def _in_loop(self) -> bool:
        """Whether every drive makes the torque of the loop."""
        return all([rung is Rung.LOOP for rung in self.ladder.rungs])

    def listen(self) -> None:
        """Measures the state of the machine after the end of a run, when nothing is sent any more."""
        in_c, began = self.in_c, self.clock.now()
        in_c.torques[:] = in_c.carried[:] = 0.0
        self._see_truth()
        self._dispatch.drain()
        in_c.load_all()
        in_c.begin(began, began)
        in_c.take_over(False, allowed=False)
        in_c.sense(self.clock.now())

    @property
    def present(self) -> tuple[int, float]:
        now = self.clock.now()
        return now, (now - self.in_c.sensed) / SECOND

    @property
    def _moves_freely(self) -> bool:
        """Whether torques alone move the machine: every drive is enabled, and no hand guides."""
        enabled = Condition.ENABLED
        return not (self.off or self._guided) and all([drive.condition is enabled for drive in self.drives])

    def write(self, command: Array) -> None:
        """Sends torques, shape (m,) [actuator units]; they are held until the next ones."""
        in_c = self.in_c
        in_c.torques[:] = command
        if in_c.healthy:
            if self._in_loop and in_c.act(self.clock.now()):
                return
            in_c.give_back()
        mute = self._drop_waiting()
        for number, drive in enumerate(self.drives):
            gets = not self.off and self.ladder.holds(number) and drive.settings.bus not in mute
            in_c.torques[number] = torque = command.item(number) if gets else 0.0
            in_c.carried[number] = drive.carried(torque) if gets else 0.0
        in_c.write(self.clock.now())
        if not self.off:
            send, enabled, asked = self._dispatch.send, Condition.ENABLED, set[str]()
            for drive, rung, torque in zip(self.drives, self.ladder.rungs, command.tolist(), strict=True):
                bus = drive.settings.bus
                # a drive may be on before its status says so, and its joint then moves without damping
                on = drive.condition is enabled or (self.ladder.begun and drive.begins)
                if rung is not Rung.LOOP or not on or drive.quiet:
                    continue
                if bus not in mute:
                    send(bus, drive.command(torque))
                elif drive.enabled_by_command and bus not in asked:  # one question per tick shows when it is back
                    asked.add(bus)
                    for frame in drive.queries():
                        send(bus, frame)
            self._go_down(command.tolist())
        if self._asks:
            self._dispatch.keep_alive()

    def _drop_waiting(self) -> list[str]:
        """Drops the frames that wait in the controllers of mute buses; returns these buses."""
        mute = self.in_c.mute() if any(drive.enabled_by_command for drive in self.drives) else []
        for bus in mute:
            self.switch_off.attempt("", partial(self._dispatch.take_back, bus), None)
        return mute

    def _go_down(self, torques: Sequence[float]) -> None:
        """Sends the frames of the drives that are on a step below the loop."""
        for number, rung in enumerate(self.ladder.rungs):
            if rung is not Rung.LOOP:
                # it may repeat the command that enables a drive
                self.switch_off.attempt("", self._enabling.abandon, None)
                self.switch_off.send_to(self.drives[number], partial(self.ladder.frames, number, torques[number]))

    def begin_enable(self, torques: Sequence[float]) -> None:
        for drive in self.drives:
            drive.enable_requested = True
        steps: dict[Node, Steps] = {
            drive: drive.enable(torque) for drive, torque in zip(self.drives, torques, strict=True)
        }
        self._enabling = Handshake(steps, self._dispatch.send, self.clock, ENABLE_TIME)

    def advance(self) -> bool:
        return self._enabling.advance()

    def watch_unproved(self, numbers: Sequence[int]) -> None:
        self.in_c.give_back()
        if self._sensing.tracking is not None:
            self._sensing.tracking.begin(numbers)

    def let_guide(self) -> None:
        self._guided = True

    def start_problems(self) -> list[tuple[str, str]]:
        nodes = self._dispatch.nodes
        samples = [node.sample for node in nodes if node.sample is not None]
        tolerances = [node.settings.start_tolerance for node in nodes]
        return self._sensing.check_start(self._setup.start.q, samples, tolerances)

    def watch(self, monitor: Monitor, now: int, ages: Sequence[float], working: bool) -> None:
        oldest = monitor.bounds.stale_age / SECOND
        stale = [drive for drive, age in zip(self.drives, ages, strict=False) if age >= oldest]
        if stale:
            self.in_c.give_back()
        for drive in stale:
            drive.out_of_touch()
        monitor.rejections(self.clock.now())
        # In shadow another master commands the drives: their faults and their other master are not reported.
        if self.sends:
            rungs = zip(self.drives, self.ladder.rungs, strict=True)
            looped = [drive for drive, rung in rungs if rung is Rung.LOOP and drive.has_worked]
            monitor.drives(self.clock.now(), looped if working else ())
        if not self._dispatch.healthy:
            monitor.buses(now, self._dispatch.healths())

    def disable(self) -> bool:
        self.in_c.give_back()
        self.off = True
        self.switch_off.attempt("", self._enabling.abandon, None)
        return self.switch_off.send()

    def stop(self) -> None:
        """Switches every drive off and waits until all have confirmed, at most `OFF_TIME`.

        Every way out of the loop calls it. Drives that were not switched off before brake by themselves first, where
        they can. It sends nothing after `disable` has returned True.
        """
        self.in_c.leave()
        if not self.sends or (self.off and self.switch_off.confirmed):
            return
        if not self.off:
            self.switch_off.attempt("", self._brake_down, None)
        end = self.clock.now() + nanoseconds(OFF_TIME)
        while self.clock.now() < end and not self.disable():
            self._listen()
            self._drop_waiting()

    def _brake_down(self) -> None:
        """Lets every drive that may be on brake by itself, at most for the longest time that one may take."""
        ladder, started = self.ladder, self.clock.now()
        on = [number for number, drive in enumerate(self.drives) if drive.possibly_on]
        for number in on:
            ladder.ramp(number, started, must=True)
        while not all([ladder.ended(number, self.clock.now()) for number in on]):
            self._go_down(self._setup.hold.u.tolist())
            self._listen()
            samples, now = [drive.sample or NO_SAMPLE for drive in self.drives], self.clock.now()
            ladder.watch([each.velocity for each in samples], [now - each.time < FRESH for each in samples])

    def _listen(self) -> None:
        self.in_c.write(self.clock.now())
        self.switch_off.listen(self.clock.now() + self._pause)
