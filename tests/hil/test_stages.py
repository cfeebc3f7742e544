"""The stages of a run: forward only, task time frozen until the last, every event of weight leads to `DISABLING`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hil.drives import Condition, Drive, Sample
from hil.loop import Reading, Tick
from hil.safety import EventKind, Monitor, Reaction, SafetyBounds
from hil.safety.drive_test import DriveRig
from hil.safety.ladder import Ladder
from hil.safety.plan import ENDING, Phase, RunPlan
from hil.safety.proof import ProofPlan
from hil.safety.rules import rules_of
from hil.safety.stages import Stages
from servoctl.config.hil import Safety
from servoctl.engine.ccode import BoundCall
from servoctl.types import Array, Status
from tests.hil.test_monitor import Silent, settings

PERIOD = 2_500_000
TIMES = {"zero_time": 0.01, "ramp_time": 0.02, "stop_time": 0.1}
INERTIA = 0.1


class Bench(DriveRig):
    """A rig of two drives that obeys, and remembers what it was asked for."""

    def __init__(self) -> None:
        self._drives: list[Drive] = [Silent(settings("u1"), 0.0025), Silent(settings("u2"), 0.0025)]
        self.ladder = Ladder(self._drives, np.zeros(len(self._drives)))
        self.disabled = 0
        self.reports: list[EventKind] = []
        self.enabled_with: list[float] | None = None
        self.now = 0

    @property
    def drives(self) -> list[Drive]:
        return self._drives

    @property
    def present(self) -> tuple[int, float]:
        return self.now, 0.0

    def start(self, deadline: int) -> None:
        pass

    def read(self, due: int, wait: int) -> Reading:
        return Reading(np.zeros(2), np.zeros(2), np.zeros(2))

    def write(self, command: Array) -> None:
        pass

    def stop(self) -> None:
        pass

    def begin_enable(self, torques: Sequence[float]) -> None:
        self.enabled_with = list(torques)

    def advance(self) -> bool:
        for drive in self.drives:
            drive.condition = Condition.ENABLED
        return True

    def disable(self) -> bool:
        self.disabled += 1
        confirmed = self.disabled > 1
        for drive in self.drives if confirmed else ():
            drive.condition = Condition.DISABLED
        return confirmed

    def start_problems(self) -> list[tuple[str, str]]:
        return []

    def watch(self, monitor: Monitor, now: int, ages: Sequence[float], working: bool) -> None:
        monitor.drives(now, self._drives if working else ())
        for kind in self.reports:
            monitor.report(now, kind, "u1")


class Law:
    """A law whose answer is given."""

    def __init__(self) -> None:
        self.answer, self.status, self.times = np.array([1.0, -1.0]), 0, list[float]()
        self.remembered, self.elapsed = 0.0, 0.0
        self.moved = list[bool]()

    def command(self, task_time: float, q: Array, v: Array) -> Array:
        self.times.append(task_time)
        return self.answer

    def nothing(self) -> Array:
        return np.full(2, np.nan)

    def remember(self, elapsed: float) -> None:
        self.remembered += elapsed

    def sent(self, torques: Array, moves: bool = True) -> None:
        self.moved.append(moves)

    def reason(self, task_time: float) -> str:
        return f"{Status.from_code(self.status).name} at {task_time:g} s"


class Level:
    """A machine of two motors that each pose takes the same torques to hold."""

    def __init__(self, torque: float) -> None:
        self._results = [np.full(2, torque), np.zeros(2), INERTIA * np.eye(2)]

    def bound(self) -> BoundCall:
        return BoundCall(lambda: None, [np.zeros(1), np.zeros(2), np.zeros(2), np.zeros(0)], self._results)


class Run:
    """Stages on that machine, tick by tick."""

    def __init__(self, stage: Phase = Phase.FULL, hold: float = 0.0, **plan: Any) -> None:
        self.machine, self.law, self.error = Bench(), Law(), 0.0
        bounds = SafetyBounds(0.0025, Safety())
        rules = rules_of(self.machine.drives, [], bounds, ["m"] * len(self.machine.drives))
        self.monitor = Monitor(self.machine.drives, [], bounds, rules)
        safety = {name: plan.pop(name, each) for name, each in TIMES.items()}
        given = {"duration": 0.05, "safety": Safety.model_validate(safety)}
        self.plan = RunPlan(
            stage,
            **(given | plan),
            stop_rate=20.0,
            stands=hold != 0.0,
            hold=Level(hold),  # type: ignore[arg-type]
            errors=lambda t, q, v: {"x": (self.error, np.nan)},
            proof=ProofPlan(*np.ones((5, 2)), quarter=0.01, units=("m", "m")),
        )
        self.stages = Stages(self.machine, self.law, self.monitor, self.plan)  # type: ignore[arg-type]
        self.stages.test.proof.over = True  # the machine does not move
        self.number, self.modes = 0, list[Phase]()

    def tick(self) -> Array | None:
        now = self.number * PERIOD
        zero = np.zeros(2)
        self.machine.now = now
        reading = Reading(zero, zero, zero, True, 0.0, [0.0, 0.0], [0.0, 0.0], [], {"silence": [0.0, 0.0]})
        for drive in self.machine.drives:
            drive.sample = Sample(0, 0, 0, now)
        sent = self.stages.decide(Tick(self.number, now, now, PERIOD, 0), reading)
        self.number += 1
        if not self.modes or self.modes[-1] is not self.stages.mode:
            self.modes.append(self.stages.mode)
        return sent

    def until(self, mode: Phase, most: int = 4000) -> Array | None:
        for _ in range(most):
            sent = self.tick()
            if self.stages.mode is mode:
                return sent
        raise AssertionError(f"never {mode}: {self.modes}")


def test_a_full_run_goes_through_every_stage_and_ends_off() -> None:
    run = Run()
    assert run.until(Phase.OVER) is None
    assert run.modes == [
        Phase.ENABLING, Phase.ZERO, Phase.RAMP, Phase.FULL, Phase.STOPPING, Phase.DISABLING, Phase.OVER
    ]  # fmt: skip
    assert run.monitor.exit_code == 0
    assert run.machine.disabled == 2


def test_task_time_stands_still_until_full_and_then_follows_the_periods() -> None:
    run = Run()
    run.until(Phase.FULL)
    assert set(run.law.times) == {0.0}
    assert run.law.remembered == 0.0
    before = len(run.law.times)
    run.until(Phase.STOPPING)
    assert run.law.times[before:] == pytest.approx([0.0025 * i for i in range(21)])
    run.until(Phase.OVER)
    assert set(run.law.times[before + 20 :]) == {0.05}
    assert run.law.remembered == pytest.approx(21 * 0.0025)


def test_the_estimator_moves_on_only_while_torques_move_the_machine() -> None:
    run = Run()
    run.until(Phase.ZERO)
    assert not any(run.law.moved)
    before = len(run.law.moved)
    run.until(Phase.DISABLING)
    assert all(run.law.moved[before:-1])


def test_the_ramp_goes_from_the_holding_torque_to_the_torque_of_the_law() -> None:
    run = Run(hold=0.5)
    run.until(Phase.RAMP)
    assert run.machine.enabled_with == [0.5, 0.5]
    sent = []
    while run.stages.mode is Phase.RAMP:
        sent.append(run.tick())
    shares = np.clip(np.arange(1, len(sent) + 1) * 0.0025 / 0.02, 0, 1)
    assert np.array(sent) == pytest.approx(np.array([0.5 + shares * 0.5, 0.5 - shares * 1.5]).T)


def test_the_task_starts_only_when_its_violations_are_small() -> None:
    run = Run()
    run.error = 0.02
    run.until(Phase.RAMP)
    for _ in range(1000):
        run.tick()
    assert run.stages.mode is Phase.RAMP
    run.error = 0.009
    run.tick()
    assert run.stages.mode is Phase.FULL


def test_a_pose_that_takes_more_than_the_limit_is_refused() -> None:
    run = Run(hold=12.5)
    run.until(Phase.OVER)
    assert run.machine.enabled_with is None
    assert "torque_limit is 12" in str(next(iter(run.monitor.verdicts())))


def test_a_status_that_leaves_no_command_stops() -> None:
    run = Run()
    run.until(Phase.FULL)
    run.law.status = Status.NON_FINITE.code
    run.tick()
    run.tick()
    assert run.stages.mode is Phase.STOPPING
    assert run.monitor.exit_code == 4
    details = [event.detail for event in run.monitor.events if event.kind is EventKind.TASK]
    assert details == [f"NON_FINITE at {run.stages.task_time:g} s"]


REACTIONS = [kind for kind in EventKind if kind.reaction >= Reaction.STOP]


@pytest.mark.parametrize("kind", REACTIONS)
@pytest.mark.parametrize("mode", [Phase.ENABLING, Phase.ZERO, Phase.RAMP, Phase.FULL, Phase.STOPPING])
def test_every_event_of_weight_leads_off_and_nothing_leads_back(kind: EventKind, mode: Phase) -> None:
    run = Run()
    if mode is Phase.ENABLING:
        run.machine.advance = lambda: False  # type: ignore[method-assign]
    run.until(mode)
    run.machine.reports = [kind]
    run.tick()
    run.machine.reports = []
    immediate = kind.reaction is Reaction.DISABLE or mode is Phase.ENABLING
    assert run.stages.mode is (Phase.DISABLING if immediate else Phase.STOPPING)
    after = len(run.modes)
    run.until(Phase.OVER)
    assert set(run.modes[after:]) <= {Phase.STOPPING, *ENDING}
    assert run.machine.disabled
    assert run.tick() is None
