"""The stages of a run: forward only, task time frozen until the last, every event of weight leads to `DISABLING`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hil.drives import Condition, Drive, DriveError, Sample
from hil.loop import Implausibility, Reading, Tick
from hil.safety import EventKind, Limits, Monitor, Reaction, SafetyBounds
from hil.safety.drive_test import DriveRig
from hil.safety.ladder import Ladder
from hil.safety.plan import ENDING, Phase, RunPlan, Stage
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
        self.refuses, self.stubborn, self.pose = False, False, list[tuple[str, str]]()
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
        if self.refuses:
            raise DriveError("u2: operation enabled within 0.5 s")
        for drive in self.drives:
            drive.condition = Condition.ENABLED
        return True

    def disable(self) -> bool:
        self.disabled += 1
        confirmed = self.disabled > 1 and not self.stubborn
        for drive in self.drives if confirmed else ():
            drive.condition = Condition.DISABLED
        return confirmed

    def start_problems(self) -> list[tuple[str, str]]:
        return self.pose

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

    def __init__(self, stage: Stage = Stage.FULL, hold: float = 0.0, **plan: Any) -> None:
        self.machine, self.law, self.error = Bench(), Law(), 0.0
        bounds = SafetyBounds(0.0025, Safety())
        self.monitor = Monitor(self.machine.drives, [], bounds, rules_of(self.machine.drives, [], bounds))
        safety = {name: plan.pop(name, each) for name, each in TIMES.items()}
        given = {"duration": 0.05, "safety": Safety.model_validate(safety)}
        self.plan = RunPlan(
            stage,
            **(given | plan),
            stop_rate=20.0,
            stands=hold != 0.0,
            hold=Level(hold),  # type: ignore[arg-type]
            errors=lambda t, q, v: {"x": (self.error, np.nan)},
        )
        limits = Limits([drive.settings for drive in self.machine.drives], 0.0025)
        self.stages = Stages(self.machine, self.law, self.monitor, limits, self.plan)  # type: ignore[arg-type]
        self.number, self.modes = 0, list[Phase]()
        self.ages, self.valid = np.zeros(2), True
        self.positions, self.speeds = [0.0, 0.0], [0.0, 0.0]
        self.findings: list[Implausibility] = []

    def tick(self) -> Array | None:
        now = self.number * PERIOD
        zero = np.zeros(2)
        self.machine.now = now
        reading = Reading(
            zero, zero, self.ages, self.valid, 0.0, self.positions, self.speeds, self.findings, [0.0, 0.0]
        )
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
    assert run.stages.confirmed
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


def test_a_task_that_never_comes_near_ends_the_run() -> None:
    run = Run()
    run.error = 0.02
    run.until(Phase.OVER)
    assert Phase.FULL not in run.modes
    assert run.monitor.exit_code == 4
    assert any(str(e).startswith("x: the task errors") for e in run.monitor.events)


@pytest.mark.parametrize("stage, last", [(Stage.ZERO, Phase.ZERO), (Stage.RAMP, Phase.RAMP)])
def test_a_run_goes_no_further_than_its_stage(stage: Stage, last: Phase) -> None:
    run = Run(stage, hold=0.25)
    run.until(Phase.STOPPING)
    assert run.modes[-2] is last
    assert (run.number - 2) * 0.0025 >= 0.05
    assert set(run.law.times) == {0.0}
    assert run.law.remembered == 0.0


def test_shadow_sends_nothing_and_touches_no_drive() -> None:
    run = Run(Stage.SHADOW)
    while (sent := run.tick()) is not None:
        assert (sent == 0).all()
    assert run.modes == [Phase.SHADOW, Phase.OVER]
    assert run.machine.disabled == 0
    assert run.machine.enabled_with is None
    assert len(run.law.times) > 10


def test_an_encoder_that_contradicts_the_start_pose_keeps_every_drive_off() -> None:
    run = Run()
    run.machine.pose = [("u1", "0.3 rad, start pose 0 rad")]
    run.until(Phase.OVER)
    assert run.machine.enabled_with is None
    assert run.monitor.exit_code == 3


def test_a_drive_that_refuses_is_named_and_all_go_off() -> None:
    run = Run()
    run.machine.refuses = True
    run.until(Phase.OVER)
    assert Phase.ZERO not in run.modes
    assert "u2: the drive refuses" in str(next(iter(run.monitor.verdicts())))
    assert run.machine.disabled == 2


def test_a_pose_that_takes_more_than_the_limit_is_refused() -> None:
    run = Run(hold=12.5)
    run.until(Phase.OVER)
    assert run.machine.enabled_with is None
    assert "torque_limit is 12" in str(next(iter(run.monitor.verdicts())))


def test_a_controlled_stop_brakes_every_joint_at_one_rate_and_ends_at_standstill() -> None:
    run = Run(hold=0.1, stop_time=0.5)
    run.until(Phase.FULL)
    run.stages.ask_to_stop("SIGINT")
    run.speeds, speeds = [0.3, -0.2], []
    while run.stages.mode is not Phase.DISABLING:
        sent = run.tick()
        speeds.append(run.speeds)
        assert sent is not None
        run.speeds = [v + 0.0025 * (u - 0.1) / INERTIA for v, u in zip(run.speeds, sent, strict=True)]
        run.positions = [y + 0.0025 * v for y, v in zip(run.positions, run.speeds, strict=True)]
    seen, settled = (
        np.array(speeds),
        4,
    )  # ticks until the rate limit has led from the law's torques to those of the stop
    assert (np.abs(seen).max(axis=0) <= 1.1 * np.array([0.3, 0.2])).all()
    after = 0.0025 * np.arange(len(seen) - settled)
    assert seen[settled:] == pytest.approx(seen[settled] * np.exp(-20.0 * after)[:, None], abs=0.02)
    assert np.abs(seen[-1]).max() < 0.05 * 0.3
    run.until(Phase.OVER)
    assert run.monitor.exit_code == 130


def test_a_machine_that_does_not_stand_goes_off_after_stop_time() -> None:
    run = Run()
    run.until(Phase.FULL)
    run.speeds = [3.0, 3.0]
    run.stages.ask_to_stop("SIGTERM")
    run.until(Phase.STOPPING)
    began = run.number
    run.until(Phase.DISABLING)
    assert (run.number - began) * 0.0025 == pytest.approx(0.1, abs=0.003)


@pytest.mark.parametrize("unsound", ["age", "speed"])
def test_an_axis_without_a_sound_measurement_gets_what_holds_it_and_the_others_brake(unsound: str) -> None:
    run = Run(hold=0.3)
    run.until(Phase.RAMP)
    run.law.answer = np.array([0.3, 0.3])
    run.until(Phase.FULL)
    run.tick()
    run.speeds = [0.4, np.nan if unsound == "speed" else 0.4]
    run.ages = np.array([0.0, 0.01 if unsound == "age" else 0.0])
    run.stages.ask_to_stop("x")
    assert run.tick() == pytest.approx([0.3 - 20.0 * INERTIA * 0.4, 0.3])


def test_a_joint_beyond_its_limit_keeps_what_holds_it_and_is_braked_whichever_way_it_moves() -> None:
    for speed in (0.3, -0.3):
        run = Run(hold=0.3)
        run.until(Phase.RAMP)
        run.law.answer = np.array([0.3, 0.3])
        run.until(Phase.FULL)
        run.positions, run.speeds = [2.1, 0.0], [speed, 0.0]  # position_limits: -2 to 2
        assert run.tick() == pytest.approx([0.3 - 20.0 * INERTIA * speed, 0.3])
        assert run.stages.mode is Phase.STOPPING


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_command_that_is_not_finite_is_never_sent(value: float) -> None:
    run = Run()
    run.until(Phase.FULL)
    run.law.answer = np.array([value, 1.0])
    sent = run.tick()
    assert sent is not None
    assert np.isfinite(sent).all()
    assert run.stages.mode is Phase.STOPPING
    assert EventKind.NON_FINITE in [event.kind for event in run.monitor.events]


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


@pytest.mark.parametrize(
    ("stops", "motion", "kind"),
    [
        (False, False, EventKind.IMPLAUSIBLE),
        (True, False, EventKind.ENCODER),
        (True, True, EventKind.TRACKING),
    ],
)
def test_a_finding_of_the_sensing_becomes_an_event(stops: bool, motion: bool, kind: EventKind) -> None:
    run = Run()
    run.until(Phase.FULL)
    run.findings = [Implausibility("u1", "jumped", stops, motion)]
    run.tick()
    assert [(event.kind, event.subject, event.detail) for event in run.monitor.events][-1 - stops] == (
        kind,
        "u1",
        "jumped",
    )
    assert run.stages.mode is (Phase.STOPPING if stops else Phase.FULL)


def test_a_drive_that_does_not_switch_off_is_reported_in_capitals() -> None:
    run = Run()
    run.machine.stubborn = True
    run.until(Phase.OVER)
    assert not run.stages.confirmed
    assert run.monitor.exit_code == 3
    assert "use the emergency stop" in str(run.monitor.events[-2])
    assert run.machine.disabled > 100
