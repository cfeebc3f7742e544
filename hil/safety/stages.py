"""The stages of a run on drives: what the machine is given at each tick, from the first sample to the last drive off.

Design: one state machine, and no way back: a stage only follows an earlier one, every event of weight leads to the
controlled stop or straight to `DISABLING`, and nothing leads out of these but the end. Task time stands still until
the last stage.
"""

from collections.abc import Sequence
from enum import Enum

import numpy as np

from hil.drives.base import DriveError
from hil.loop import SECOND, Controller, Reading, Tick, nanoseconds
from hil.safety.events import EventKind, Reaction
from hil.safety.limits import Limits
from hil.safety.monitor import Monitor, finite
from hil.safety.plan import Machine, RunPlan, Stage
from servoctl.types import Array, Status


class Phase(Enum):
    """Where a run is."""

    SHADOW = "shadow"
    WAITING = "waiting for samples"
    ENABLING = "enabling"
    ZERO = "zero"
    RAMP = "ramp"
    FULL = "full"
    STOPPING = "stopping"
    DISABLING = "disabling"
    OVER = "over"


WORKING = (Phase.ZERO, Phase.RAMP, Phase.FULL, Phase.STOPPING)
"""Every drive should be enabled."""

FIRST_SAMPLES = 1.0
"""Time that nodes have to send a first sample [s]."""

ENGAGE_TIME = 5.0
"""Time that violations have to fall below the tolerance at the end of the ramp [s]."""

DISABLE_TIME = 0.5
"""Time that drives have to confirm that they are off [s]."""

STILL = 0.01
"""Of the speed limit: below this a joint stands."""


class Stages:
    """Decides at every tick.

    Attributes:
        mode: Where the run is.
        task_time: Of the law's last state [s].
        law_torques: The law's own last command, shape (m,); NaN while it has none.
        confirmed: Whether every drive has confirmed that it is off.
    """

    def __init__(
        self, machine: Machine, controller: Controller, monitor: Monitor, limits: Limits, plan: RunPlan
    ) -> None:
        self._machine, self._controller, self._monitor = machine, controller, monitor
        self._limits, self._plan = limits, plan
        self._count = len(machine.drives)
        self.mode = Phase.SHADOW if plan.stage is Stage.SHADOW else Phase.WAITING
        self.task_time, self._task = 0.0, 0
        self.law_torques = np.full(self._count, np.nan)
        self.confirmed = plan.stage is Stage.SHADOW
        self._entered: int | None = None
        self._engage_by: int | None = None
        self._asked_to_stop: str | None = None
        self._still = 0
        self._silent = True
        self._handlers = {
            Phase.SHADOW: self._shadow,
            Phase.WAITING: self._wait,
            Phase.ENABLING: self._enable,
            Phase.ZERO: self._zero,
            Phase.RAMP: self._ramp,
            Phase.FULL: self._full,
            Phase.STOPPING: self._stop,
            Phase.DISABLING: self._disable,
        }

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.mode is Phase.OVER

    def ask_to_stop(self, why: str) -> None:
        """Asks for the controlled stop at the next tick; may be called from a signal handler."""
        self._asked_to_stop = why

    def decide(self, tick: Tick, reading: Reading) -> Array | None:
        """Torques to send, shape (m,) [actuator units]; None when the run is over."""
        if self.over:
            return None
        now = tick.began
        if self._entered is None:
            self._entered = now
        self._silent = self._silent and not reading.valid
        self._look(tick)
        if self.over:
            return None
        self._law(reading)
        mode = self.mode
        wanted = self._handlers[mode](tick, reading)
        if wanted and not finite(wanted):
            self._monitor.report(now, EventKind.NON_FINITE, "", ", ".join(self._not_finite(wanted)))
            self._react(now)
            wanted = self._damp(reading)
        if self.mode is Phase.DISABLING and mode is not Phase.DISABLING:
            self._disable(tick, reading)
        if self.over:
            return None
        if not wanted or self.mode is Phase.DISABLING:
            return np.zeros(self._count)
        allowed = self._limits.apply(wanted, self._machine.positions)
        self._monitor.torques(now, self._limits.clamped)
        return np.array(allowed)

    def _look(self, tick: Tick) -> None:
        monitor, machine, now = self._monitor, self._machine, tick.began
        since = now if self._silent else 0
        if self._asked_to_stop is not None:
            monitor.report(now, EventKind.INTERRUPTED, "", self._asked_to_stop)
        monitor.lateness(tick)
        machine.watch(monitor, now, since, self.mode in WORKING)
        if self.mode not in (Phase.WAITING, Phase.SHADOW):
            monitor.motion(now, machine.positions, machine.speeds)
        for problem in machine.problems:
            monitor.report(now, *problem)
        self._react(now)

    def _react(self, now: int) -> None:
        """Latches what the worst event so far asks for."""
        worst = self._monitor.worst
        if self.mode in (Phase.DISABLING, Phase.OVER) or worst < Reaction.STOP:
            return
        if self.mode is Phase.SHADOW:
            self._enter(Phase.OVER, now)
        elif worst >= Reaction.DISABLE or self.mode in (Phase.WAITING, Phase.ENABLING):
            self._enter(Phase.DISABLING, now)
        elif self.mode is not Phase.STOPPING:
            self._enter(Phase.STOPPING, now)

    def _enter(self, mode: Phase, now: int) -> None:
        self.mode, self._entered = mode, now
        self._monitor.report(now, EventKind.STAGE, "", mode.value)

    def _since(self, now: int) -> float:
        """Time in this mode [s]."""
        assert self._entered is not None
        return (now - self._entered) / SECOND

    def _law(self, reading: Reading) -> None:
        """The law's torques at the task's time, in every mode: what it would ask for is worth seeing."""
        if self.mode is Phase.FULL:
            self.task_time = self._task / SECOND
        if reading.valid:
            self.law_torques = self._controller.command(self.task_time, reading.q, reading.v)
        else:
            self.law_torques = self._controller.nothing()

    def _asked(self) -> list[float]:
        torques: list[float] = self.law_torques.tolist()
        return torques

    def _hold(self, reading: Reading) -> list[float]:
        torques: list[float] = self._plan.hold(reading.q).tolist()
        return torques

    def _damp(self, reading: Reading) -> list[float]:
        """-D (speed of the joint) on what holds the pose; nothing on axes whose sample is stale."""
        ages, bound = reading.ages, self._monitor.bounds.stale_age / SECOND
        hold = self._hold(reading) if reading.valid else [0.0] * self._count
        hold = hold if finite(hold) else [0.0] * self._count
        return [
            hold[i] - damping * speed if ages[i] < bound and finite([speed]) else 0.0
            for i, (damping, speed) in enumerate(zip(self._plan.damping, self._machine.speeds, strict=True))
        ]

    def _not_finite(self, torques: Sequence[float]) -> list[str]:
        names = [drive.settings.name for drive in self._machine.drives]
        return [f"{name} {torque}" for name, torque in zip(names, torques, strict=True) if not finite([torque])]

    def _shadow(self, tick: Tick, reading: Reading) -> list[float]:
        self._check_silence(tick.began)
        if self._since(tick.began) >= self._plan.duration:
            self._enter(Phase.OVER, tick.began)
        return []

    def _check_silence(self, now: int) -> None:
        if self._silent and self._since(now) > FIRST_SAMPLES:
            silent = [drive.settings.name for drive in self._machine.drives if drive.sample is None]
            self._monitor.report(now, EventKind.LOST, ", ".join(silent), f"none within {FIRST_SAMPLES:g} s")
            self._react(now)

    def _wait(self, tick: Tick, reading: Reading) -> list[float]:
        now = tick.began
        if not reading.valid:
            self._check_silence(now)
            return []
        for name, sentence in self._machine.start_problems():
            self._monitor.report(now, EventKind.START_POSE, name, sentence)
        hold = self._hold(reading)
        for drive, torque in zip(self._machine.drives, hold, strict=True):
            limit = drive.settings.torque_limit
            if not abs(torque) <= limit:
                detail = f"holding the pose takes {torque:.4g}, torque_limit is {limit:g}"
                self._monitor.report(now, EventKind.HANDSHAKE, drive.settings.name, detail)
        self._react(now)
        if self.mode is Phase.WAITING:
            self._limits.previous = hold
            self._machine.begin_enable(hold)
            self._enter(Phase.ENABLING, now)
        return []

    def _enable(self, tick: Tick, reading: Reading) -> list[float]:
        try:
            if self._machine.advance():
                self._enter(Phase.ZERO, tick.began)
        except DriveError as error:
            for line in str(error).splitlines():
                name, _, what = line.partition(": ")
                self._monitor.report(tick.began, EventKind.HANDSHAKE, name, what)
            self._react(tick.began)
        return self._hold(reading)

    def _zero(self, tick: Tick, reading: Reading) -> list[float]:
        last = self._plan.stage is Stage.ZERO
        if self._since(tick.began) >= (self._plan.duration if last else self._plan.zero_time):
            self._enter(Phase.STOPPING if last else Phase.RAMP, tick.began)
        return self._hold(reading)

    def _ramp(self, tick: Tick, reading: Reading) -> list[float]:
        plan, now = self._plan, tick.began
        share = min(1.0, self._since(now) / plan.ramp_time)
        hold, law = self._hold(reading), self._asked()
        self._check_status(now)
        if share == 1.0:
            if plan.stage is Stage.RAMP:
                if self._since(now) >= plan.ramp_time + plan.duration:
                    self._enter(Phase.STOPPING, now)
            elif self._engaged(now, reading):
                self._enter(Phase.FULL, now)
                self._task = 0
        return [(1.0 - share) * held + share * asked for held, asked in zip(hold, law, strict=True)]

    def _engaged(self, now: int, reading: Reading) -> bool:
        tolerance = self._plan.engage_tolerance
        errors = self._plan.errors(self.task_time, reading.q, reading.v)
        # a rate that there is not is NaN, which fmax passes over
        wrong = {name: error for name, pair in errors.items() if not (error := np.fmax(*np.abs(pair))) < tolerance}
        if not wrong:
            return True
        if self._engage_by is None:
            self._engage_by = now + nanoseconds(ENGAGE_TIME)
        elif now > self._engage_by:
            for name in wrong:
                self._monitor.report(now, EventKind.NOT_ENGAGED, name, self._not_engaged(name, errors[name]))
        return False

    def _not_engaged(self, name: str, error: tuple[float, float]) -> str:
        """Violation and rate of a row, the steps of each that can be measured, and what to do."""
        tolerance, resolved = self._plan.engage_tolerance, self._plan.resolved.get(name)
        said, coarse = [], 0.0
        for i, word in enumerate(("violation", "rate")):
            size = abs(error[i])
            if not finite([size]):
                said.append(f"no {word}")
                continue
            step = 0.0 if resolved is None else resolved[i]
            said.append(f"{word} {size:.3g}" + (f", measured in steps of {step:.2g}" if step else ""))
            coarse = max(coarse, step if size >= tolerance else 0.0)
        remedy = "the machine is held where the task does not begin: check initial.q and the gains"
        if coarse >= tolerance:
            remedy = f"the samples cannot tell so little: give engage_tolerance {coarse:.2g} or more, or measure finer"
        return f"{'; '.join(said)}; tolerance {tolerance:g}; {remedy}"

    def _full(self, tick: Tick, reading: Reading) -> list[float]:
        self._check_status(tick.began)
        self._controller.remember(tick.elapsed / SECOND)
        self._task += tick.elapsed
        if self.task_time >= self._plan.duration:
            self._enter(Phase.STOPPING, tick.began)
        return self._asked()

    def _check_status(self, now: int) -> None:
        code = self._controller.status
        if code in self._plan.stops_on or code >= Status.NOT_POSITIVE.code:
            self._monitor.report(now, EventKind.TASK, "", Status.from_code(code).value)

    def _stop(self, tick: Tick, reading: Reading) -> list[float]:
        speeds, drives = self._machine.speeds, self._machine.drives
        slow = all(abs(s) < STILL * d.settings.speed_limit for s, d in zip(speeds, drives, strict=True))
        self._still = self._still + 1 if slow else 0
        if self._still >= 3 or self._since(tick.began) >= self._plan.stop_time:
            self._enter(Phase.DISABLING, tick.began)
        return self._damp(reading)

    def _disable(self, tick: Tick, reading: Reading) -> list[float]:
        now = tick.began
        self._limits.forget()
        self.confirmed = self._machine.disable(brake=self._since(now) < DISABLE_TIME / 5 and self._must_brake)
        if self.confirmed:
            self._enter(Phase.OVER, now)
        elif self._since(now) >= DISABLE_TIME:
            for drive in self._machine.drives:
                if not drive.confirmed_off:
                    kind = EventKind.NOT_CONFIRMED if drive.possibly_on else EventKind.NEVER_ENABLED
                    self._monitor.report(now, kind, drive.settings.name, drive.condition.value)
            self._enter(Phase.OVER, now)
        return []

    @property
    def _must_brake(self) -> bool:
        return self._monitor.worst >= Reaction.DISABLE
