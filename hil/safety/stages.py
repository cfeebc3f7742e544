"""The stages of a run on drives: which torques are sent at each tick, from the first sample until all drives are off.

Design: a state machine that only moves forward. Each phase that sends torques has a source, from which C makes them in
every tick (`hil.safety.torques`), and a step, which says what follows. Where no step can be taken C decides the tick.
Every event that stops the run leads down the ladder: `STOPPING` under the loop's torque, `QUICK_STOP` where that leaves
motion or must not go on, `BRAKING`, `DISABLING`. The drive of an axis in doubt goes down it before the others. Task
time stands still until the last stage.
"""

from math import inf

import numpy as np

from hil.core.constants import Torques
from hil.core.controller import Controller
from hil.drives.base import Condition, DriveError
from hil.drives.guard import moving
from hil.loop import SECOND, Reading, Tick, nanoseconds
from hil.safety.drive_test import PROVING, DriveRig, DriveTest
from hil.safety.events import EventKind, Reaction
from hil.safety.monitor import Monitor
from hil.safety.plan import ENDING, WATCHING, Phase, RunPlan
from hil.safety.torques import PoseHold, Source, TorqueSource
from hil.safety.watch import FIRST_SAMPLES, Watch
from servoctl.types import Array, Status

ENGAGE_TIME = 5.0  # [s] time limit for the violations to fall below the tolerance after the ramp
DISABLE_TIME = 0.5  # [s] time limit for the drives to confirm that they are off
STANDING = (*WATCHING, Phase.WAITING, Phase.ENABLING)
"""Phases in which brakes or another master hold the machine, so that torques do not move it."""

BRAKES_OPEN = 0.1
"""Brakes are open after this time in stage zero, or after half of the stage: until then they hold the machine with a
torque that no model knows, which an estimator would take for a disturbance [s]."""

CATCH = 5  # periods in which an axis that its own motor has driven is stopped with more damping
FIRMER = 1.5  # how much more that damping is, as a share of the usual one


class Stages:
    """Decides at every tick which torques are sent; the worst reaction in the monitor decides."""

    def __init__(self, rig: DriveRig, controller: Controller, monitor: Monitor, plan: RunPlan) -> None:
        self._rig, self._controller, self.monitor, self.plan = rig, controller, monitor, plan
        self.ladder = rig.ladder  # the step of each drive
        self._count = len(rig.drives)
        settings, period = [drive.settings for drive in rig.drives], monitor.bounds.period
        self.pose = PoseHold(plan.hold, settings, period, plan.stop_rate, plan.guiding)
        self.torques = TorqueSource(self.pose, settings, period, rig.carried)  # makes the torques of every tick
        self.test = DriveTest(plan.proof, rig, monitor, self.torques, self.pose)  # test of the drives in stage zero
        # present phase
        self.mode = plan.stage if plan.stage in WATCHING else Phase.WAITING
        # task_time: [s] task time of the law's last state
        self.task_time, self._task = 0.0, 0
        # last command of the law itself, shape (m,); NaN while it has none
        self.law_torques = np.full(self._count, np.nan)
        self.entered = -1  # when the present phase began [ns]; negative before the first tick
        self._engage_by: int | None = None
        self._stop_request: str | None = None
        self._brakes_held, self._opening_time = True, min(BRAKES_OPEN, plan.time_in_zero / 2)
        self._watch = Watch(rig, monitor, self.pose)
        self._steps = {
            Phase.SHADOW: self._only_watch,
            Phase.CALIBRATE: self._only_watch,
            Phase.WAITING: self._wait,
            Phase.ENABLING: self._enable,
            Phase.ZERO: self._after_zero,
            Phase.RAMP: self._after_ramp,
            Phase.FULL: self._after_full,
            Phase.FLOAT: self._after_float,
            Phase.STOPPING: self._after_stop,
            Phase.QUICK_STOP: self._after_quick_stop,
            Phase.BRAKING: self._after_braking,
            Phase.DISABLING: self._disable,
        }

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.mode is Phase.OVER

    @property
    def source(self) -> Source | None:
        """Whose torques the present phase sends; None: it sends none."""
        plan, opens, tested = self.plan, self._brakes_held, self.test.proof.over
        match self.mode:
            case Phase.ENABLING:
                return Source(Torques.HOLD, tests=not tested)
            case Phase.ZERO:
                end = self._opening_time if opens else plan.time_in_zero if tested else inf
                return Source(Torques.HOLD, end, learns=plan.stands, tests=not tested, moves=not opens)
            case Phase.RAMP:
                time = plan.safety.ramp_time
                return Source(Torques.BLEND, time + plan.duration if plan.stage is Phase.RAMP else time, ramp_time=time)
            case Phase.FULL:
                return Source(Torques.LAW)
            case Phase.FLOAT:
                return Source(Torques.GUIDE, plan.duration)
            case Phase.STOPPING | Phase.QUICK_STOP | Phase.BRAKING:
                return Source(Torques.STOP, plan.safety.stop_time)
        return None

    @property
    def ordinary(self) -> bool:
        """Whether C may decide the next tick: nothing asks for a stop, is on trial, or is about to end the phase."""
        if self._stop_request is not None or not self._controller.direct or self.test.corrects:
            return False
        ladder, worst, proof = self.ladder, self.monitor.worst, self.test.proof
        if self.mode is Phase.STOPPING:  # every axis follows it, and none is in doubt
            return worst < Reaction.DISABLE and not (ladder.doubtful or ladder.distrusted)
        if worst >= Reaction.STOP or self._engage_by is not None:
            return False
        if self.mode is Phase.FULL:
            return self._task / SECOND < self.plan.duration
        if self.mode is Phase.ZERO:
            return proof.over or self._brakes_held or proof.testing
        return self.mode in (Phase.RAMP, Phase.FLOAT) and proof.over and not self._brakes_held

    @property
    def testing(self) -> bool:
        """Whether a round of the test moves the machine, and judges its motion itself."""
        return self.mode in PROVING and self.test.proof.testing

    @property
    def next_task_time(self) -> float:
        """Task time of the next tick [s]."""
        return self._task / SECOND if self.mode is Phase.FULL else self.task_time

    def follow(self, tick: Tick, count: int = 1) -> None:
        """Takes note of so many ordinary ticks in C, and of the last; no limit has changed a torque in the others."""
        in_task = self.mode is Phase.FULL
        self._task += in_task * (count - 1) * tick.elapsed
        self.task_time, self.law_torques = self.next_task_time, self._controller.evaluated(count)
        self._task += in_task * tick.elapsed
        # a stop may use all that the limits allow
        self.monitor.ordinary(tick, () if self.mode is Phase.STOPPING else self.torques.clamped, count)

    def ask_to_stop(self, why: str) -> None:
        """Requests the controlled stop at the next tick; may be called from a signal handler."""
        self._stop_request = why

    def decide(self, tick: Tick, reading: Reading) -> Array | None:
        """Torques to send, shape (m,) [actuator units]; None when the run is over."""
        if self.over:
            return None
        now = tick.began
        self.entered = now if self.entered < 0 else self.entered
        if self._stop_request is not None:
            self.monitor.report(now, EventKind.INTERRUPTED, "", self._stop_request)
            self._stop_request = None
        self._watch.report(tick, reading, self.mode)
        if self.mode in PROVING or self.test.corrects:
            self.test.judge(tick, reading)
        self._react(now)
        if self.over:
            return None
        self._controller.elapsed = tick.elapsed / SECOND
        self._evaluate_law(reading)
        if self.mode is Phase.ZERO and not self._brakes_may_hold(now):
            self.test.proof.start()
        return self._send(tick, reading)

    def _send(self, tick: Tick, reading: Reading) -> Array | None:
        """Takes the step of the phase, and makes the torques of its source."""
        mode, source, now = self.mode, self.source, tick.began
        if source is not None:
            self._watch.take(reading)
            wanted = self._find(source, tick)
        self._steps[mode](tick, reading)
        if source is not None and not np.isfinite(wanted).all():
            names = [drive.settings.name for drive in self._rig.drives]
            unknown = [f"{names[i]} {wanted.item(i)}" for i in np.flatnonzero(~np.isfinite(wanted))]
            self.monitor.report(now, EventKind.NON_FINITE, "", ", ".join(unknown))
            self._react(now)
            source = Source(Torques.STOP)
            self._find(source, tick)
        if self.mode is Phase.DISABLING and mode is not Phase.DISABLING:
            self._disable(tick, reading)
        if self.over:
            return None
        if source is None or self.mode is Phase.DISABLING:
            self._controller.sent(np.zeros(self._count), moves=False)
            return np.zeros(self._count)
        torques = self.torques.limit(self._rig.present[0], steps=self.mode is not Phase.FULL)
        if source.torques is not Torques.STOP or self.test.corrects:  # a stop may use all that the limits allow
            self.monitor.torques(now, self.torques.clamped)
        self._brakes_held = self._brakes_may_hold(now)
        self._controller.sent(torques, moves=not (mode in STANDING or self._brakes_held))
        return self.test.correct(torques)

    def _find(self, source: Source, tick: Tick) -> Array:
        """The torques of a source, shape (m,), before they are limited."""
        since = self._since(tick.began)
        if source.torques is Torques.STOP and self.test.corrects:  # a drive has driven it, and it has hardly moved
            firm = since < CATCH * self.monitor.bounds.period
            source = Source(Torques.CATCH, firmer=FIRMER if firm else 0.0)
        return self.torques.find(source, self.law_torques, tick.elapsed / SECOND, since)

    def _brakes_may_hold(self, now: int) -> bool:
        """Whether a brake may still hold the machine though its drive is enabled."""
        opening = self.mode is Phase.ZERO and self._since(now) < self._opening_time
        return opening and any(drive.settings.brake for drive in self._rig.drives)

    def _react(self, now: int) -> None:
        """Enters the phase that the worst event so far demands, and takes drives in doubt out of the loop."""
        worst = self.monitor.worst
        self._watch.take_out(now, self.mode)
        if self.mode in ENDING or worst < Reaction.STOP:
            return
        if self.mode in WATCHING:
            self._enter(Phase.OVER, now)
        elif self.mode is Phase.WAITING:
            self._enter(Phase.DISABLING, now)
        elif self.mode is Phase.ENABLING and not self.test.corrects:
            if moving(self._rig.drives):  # a brake that closes on a moving axis throws the next one
                self._enter(Phase.QUICK_STOP, now)
            else:
                self._close_brakes(now)
        elif worst >= Reaction.DISABLE or self.ladder.left:
            self._enter(Phase.QUICK_STOP, now)
        elif self.mode is not Phase.STOPPING:
            self._enter(Phase.STOPPING, now)

    def _enter(self, mode: Phase, now: int) -> None:
        self.mode, self.entered = mode, now
        if mode not in PROVING:
            self.test.end()
        self.monitor.report(now, EventKind.STAGE, "", mode.value)
        if mode is Phase.STOPPING:
            self.ladder.begin()
        elif mode is Phase.QUICK_STOP:
            self.ladder.ramp_all(now)

    def _since(self, now: int) -> float:
        """Time in this phase [s]."""
        return (now - self.entered) / SECOND

    def _evaluate_law(self, reading: Reading) -> None:
        """Evaluates the law in every phase: its torques are recorded even when they are not sent."""
        if self.mode is Phase.FULL:
            self.task_time = self._task / SECOND
        if reading.valid and self.mode is not Phase.CALIBRATE:
            self.law_torques = self._controller.command(self.task_time, reading.q, reading.v)
        else:
            self.law_torques = self._controller.nothing(reading.q, reading.v)

    def _only_watch(self, tick: Tick, reading: Reading) -> None:
        if self._watch.silent(tick.began, self._since(tick.began), self.mode, self.plan.duration):
            self._react(tick.began)
        if self._since(tick.began) >= self.plan.duration and not self.over:
            self._enter(Phase.OVER, tick.began)

    def _wait(self, tick: Tick, reading: Reading) -> None:
        now = tick.began
        if not reading.valid:
            if self._watch.silent(now, self._since(now), self.mode):
                self._react(now)
            return
        if moving(self._rig.drives) and self._since(now) < FIRST_SAMPLES:
            return  # a brake may still close
        hold: list[float] = self.pose.gravity(reading.q).u.tolist() if self.plan.stands else [0.0] * self._count
        self._watch.start(now, hold)
        self._react(now)
        if self.mode is Phase.WAITING:
            self.pose.begin(reading.positions)
            self.test.begin(reading)
            self.torques.begin(hold)  # the drives make these torques from the instant that they are enabled
            self._rig.begin_enable(hold)
            self._enter(Phase.ENABLING, now)

    def _enable(self, tick: Tick, reading: Reading) -> None:
        try:
            if self._rig.advance():
                self._enter(Phase.ZERO, tick.began)
        except DriveError as error:
            self.monitor.refused(tick.began, error)
            self._react(tick.began)
        # a drive that is not enabled yet begins with its first torque, whatever the others do meanwhile
        waits = np.array([drive.condition is not Condition.ENABLED for drive in self._rig.drives])
        np.copyto(self.torques.wanted, self.torques.previous, where=waits)

    def _after_zero(self, tick: Tick, reading: Reading) -> None:
        if self._since(tick.began) < self.plan.time_in_zero or not self.test.proof.over:
            return
        if self.plan.stage is Phase.FLOAT:
            self._rig.let_guide()
        else:
            self._rig.watch_unproved(self.test.unproved)
        following = {Phase.ZERO: Phase.STOPPING, Phase.FLOAT: Phase.FLOAT}.get(self.plan.stage, Phase.RAMP)
        self._enter(following, tick.began)

    def _after_float(self, tick: Tick, reading: Reading) -> None:
        if self._since(tick.began) >= self.plan.duration:
            self._enter(Phase.STOPPING, tick.began)

    def _after_ramp(self, tick: Tick, reading: Reading) -> None:
        plan, now = self.plan, tick.began
        self._check_status(now)
        if plan.stage is Phase.RAMP:
            if self._since(now) >= plan.safety.ramp_time + plan.duration:
                self._enter(Phase.STOPPING, now)
        elif self._since(now) >= plan.safety.ramp_time and self._engaged(now, reading):
            self._enter(Phase.FULL, now)
            self._task = 0

    def _engaged(self, now: int, reading: Reading) -> bool:
        errors = self.plan.errors(self.task_time, reading.q, reading.v)
        too_large = self.plan.too_large(errors)
        if not too_large:
            return True
        if self._engage_by is None:
            self._engage_by = now + nanoseconds(ENGAGE_TIME)
        elif now > self._engage_by:
            at_rest = self.plan.errors(self.task_time, reading.q, np.zeros_like(reading.v))
            for name in too_large:
                detail = self.plan.why_not_engaged(name, errors[name], at_rest[name])
                self.monitor.report(now, EventKind.NOT_ENGAGED, name, detail)
        return False

    def _after_full(self, tick: Tick, reading: Reading) -> None:
        self._check_status(tick.began)
        self._controller.remember(tick.elapsed / SECOND)
        self._task += tick.elapsed
        if self.task_time >= self.plan.duration:
            self._enter(Phase.STOPPING, tick.began)

    def _check_status(self, now: int) -> None:
        code = self._controller.status
        if code in self.plan.stops_on or code >= Status.NOT_POSITIVE.code:
            self.monitor.report(now, EventKind.TASK, "", self._controller.reason(self.task_time))

    def _after_stop(self, tick: Tick, reading: Reading) -> None:
        ladder = self.ladder
        ladder.brake_doubtful(tick.began)
        self._watch.brake_blind(tick.began, self._since(tick.began), self.torques.previous)
        if ladder.all_ended(tick.began):
            self._close_brakes(tick.began)
        elif self._since(tick.began) >= self.plan.safety.stop_time:
            for name, share in ladder.moving(tick.began).items():
                self.monitor.report(tick.began, EventKind.NOT_STOPPED, name, f"at {share:.2g} of its speed_limit")
            self._enter(Phase.QUICK_STOP, tick.began)

    def _after_quick_stop(self, tick: Tick, reading: Reading) -> None:
        if self.ladder.all_ended(tick.began):
            self._close_brakes(tick.began)

    def _close_brakes(self, now: int) -> None:
        ladder = self.ladder
        ladder.close_brakes(now)
        self._enter(Phase.BRAKING if ladder.braking(now) else Phase.DISABLING, now)

    def _after_braking(self, tick: Tick, reading: Reading) -> None:
        ladder, now = self.ladder, tick.began
        if ladder.braking(now):
            return
        # an axis without a brake may move again meanwhile, say after a stall of the host: it stops first
        if not ladder.begun or ladder.all_ended(now):
            self._enter(Phase.DISABLING, now)
        elif self._since(now) >= self.plan.safety.stop_time:
            self._enter(Phase.QUICK_STOP, now)

    def _disable(self, tick: Tick, reading: Reading) -> None:
        now = tick.began
        self.torques.begin([0.0] * self._count)
        if self._rig.disable():
            self._enter(Phase.OVER, now)
        elif self._since(now) >= DISABLE_TIME:
            self.monitor.unconfirmed(now)
            self._enter(Phase.OVER, now)
