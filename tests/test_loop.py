"""The tick loop moves a plant as the simulation does, and skips ticks when it is late; statistics of ticks."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import servoctl as sc
from hil.core.compiled import library
from hil.core.controller import Controller
from hil.loop import SECOND, Clock, Rig, Tick, VirtualClock, run_ticks
from hil.loop.timing import COUNTS, PARTS, TickStatistics, figures, percentile
from servoctl.engine.compiler import compiler
from servoctl.engine.step import rk4
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array, Status
from tests.config_texts import plant_text

PERIOD = 5_000_000


class IntegratedPlant(Rig):
    """The plant of a loop under held inputs, integrated with Runge-Kutta in two steps a period."""

    def __init__(self, run: sc.Run, clock: Clock) -> None:
        self._loop, self._clock, self._now = run.loop, clock, clock.now()
        self._state = np.concatenate([run.start.q, run.start.v, run.loop.memory_start])
        self._command = np.zeros(run.loop.layout.command_size)

    @property
    def state(self) -> tuple[Array, Array]:
        """q and v."""
        n = self._loop.system.model.n
        return self._state[:n], self._state[n : 2 * n]

    def start(self, deadline: int) -> None: ...

    def read(self, due: int) -> None:
        step = PERIOD // 2
        while self._now < self._clock.now():
            self._state = rk4(self._rates, self._now / SECOND, self._state, step / SECOND)
            self._now += step

    def _rates(self, t: float, x: Array) -> Array:
        return self._loop.motion(t, x, self._command)[0]

    def write(self, command: Array) -> None:
        self._command = self._command.copy()
        self._command[self._loop.layout.slices["u"]] = command

    def stop(self) -> None: ...


@pytest.mark.parametrize("config", ["two_mass_spring", "coordinated_robots", "flexible_joint_motor_raised"])
@pytest.mark.parametrize("engine", ["vm", "numpy"])
def test_a_rig_under_a_sampled_law_moves_as_in_simulation(config: str, engine: str) -> None:
    run = sc.load(config, ["run.period=0.005", "run.duration=0.2", "run.integrator={step: 0.0025}"], engine=engine)
    simulated = run.simulate()
    clock, controller = VirtualClock(), Controller(run.loop)
    rig = IntegratedPlant(run, clock)
    states: list[Array] = []
    inputs: list[Array] = []

    def decide(tick: Tick) -> Array | None:
        if tick.number == 40:
            return None
        q, v = rig.state
        states.append(np.concatenate([q, v]))
        u = controller.command(tick.deadline / SECOND, q, v)
        controller.remember(tick.elapsed / SECOND)
        inputs.append(u)
        return u

    run_ticks(rig, clock, PERIOD, decide, lambda *_: None)
    names = [*run.system.model.plant.coordinates]
    for i, state in enumerate(states):
        row = [simulated[f"{kind}.{name}"][i] for kind in ("q", "v") for name in names]
        assert state == pytest.approx(np.array(row), rel=1e-11, abs=1e-11)
    for i, u in enumerate(inputs):
        row = [simulated[f"u.{name}"][i] for name in run.system.model.plant.actuators]
        assert u == pytest.approx(np.array(row), rel=1e-9, abs=1e-9)


class Stalling(Clock):
    """A virtual clock that jumps ahead at one tick."""

    def __init__(self, at: int, by: int) -> None:
        self._now, self._at, self._by = 0, at, by

    def now(self) -> int:
        return self._now

    def sleep_until(self, moment: int) -> None:
        self._now = max(self._now, moment)

    def stall(self, number: int) -> None:
        if number == self._at:
            self._now += self._by


class Still(Rig):
    def start(self, deadline: int) -> None: ...

    def read(self, due: int) -> None: ...

    def write(self, command: Array) -> None: ...

    def stop(self) -> None: ...


@pytest.mark.parametrize("stall, skipped", [(3_000_000, 0), (5_000_000, 0), (12_000_000, 1), (57_000_000, 10)])
def test_a_late_tick_skips_and_never_catches_up(stall: int, skipped: int) -> None:
    clock, ticks = Stalling(at=4, by=stall), list[Tick]()

    def decide(tick: Tick) -> Array | None:
        ticks.append(tick)
        clock.stall(tick.number)
        return None if tick.number == 8 else np.zeros(1)

    run_ticks(Still(), clock, PERIOD, decide, lambda *_: None)
    assert [tick.skipped for tick in ticks] == [0] * 5 + [skipped] + [0] * 3
    grid = [(tick.deadline - ticks[0].deadline) // PERIOD for tick in ticks]
    assert grid == [0, 1, 2, 3, 4, 5 + skipped, 6 + skipped, 7 + skipped, 8 + skipped]
    assert ticks[5].began - ticks[5].deadline == max(0, stall - (1 + skipped) * PERIOD)
    assert [tick.elapsed // PERIOD for tick in ticks] == [1] * 5 + [min(1 + skipped, 3)] + [1] * 3


ENGINES = ["vm", "numpy", pytest.param("c", marks=pytest.mark.skipif(compiler() is None, reason="no cc"))]


@pytest.mark.parametrize("config", ["coordinated_robots", "flexible_joint_motor_raised"])  # the second has a memory
@pytest.mark.parametrize("engine", ENGINES)
def test_a_controller_equals_the_loop_to_the_bit_and_reuses_its_arrays(config: str, engine: str) -> None:
    run = sc.load(config, ["run.period=0.005"], engine="numpy" if engine == "numpy" else "vm")
    loop = run.loop
    if engine == "c":
        loop.run_on(loop.program(0).load(), 0)
    controller = Controller(loop)
    row: Array | None = None
    kept: list[tuple[Array, Array]] = []
    for number, state in enumerate(run.system.model.samples(run.start, 5), 1):
        u = controller.command(state.t, state.q, state.v)
        assert controller.commands == number
        expected = loop.control(state.t, np.concatenate([state.q, state.v, controller.memory]))
        assert controller.row.tobytes() == expected.tobytes()
        assert controller.tick.memory.tobytes() == controller.memory.tobytes()
        kept.append((u, expected[loop.layout.slices["u"]]))
        controller.remember(0.005)
        assert row is None or controller.row is row, "a tick allocates no row"
        row = controller.row
    assert all(u.tobytes() == before.tobytes() for u, before in kept), "what was handed out is not overwritten"
    q, v = np.ones(loop.system.model.n), np.zeros(loop.system.model.n)
    assert np.isnan(controller.nothing(q, v)).all() and controller.status == Status.NON_FINITE.code
    assert controller.tick.q.tolist() == q.tolist() and not any(np.isnan(u).any() for u, _ in kept)


@pytest.mark.parametrize("engine", ["vm", "numpy"])
def test_a_controller_continues_with_a_law_of_other_gains(engine: str) -> None:
    run, other = (
        sc.load("coordinated_robots", ["run.period=0.005", f"law.correction.baumgarte.alpha={alpha}"], engine=engine)
        for alpha in (5, 7)
    )
    controller = Controller(run.loop)
    q, v = run.start.q + 0.01, run.start.v + 0.1
    before = controller.command(0.0, q, v)
    assert other.system.law is not None
    controller.take_law(other.system.law)
    after = controller.command(0.0, q, v)
    np.testing.assert_allclose(after, Controller(other.loop).command(0.0, q, v), rtol=1e-12)
    assert np.abs(after - before).max() > 1e-3


ROWS = plant_text(
    "Row", "", " ".join(f"x{i}" for i in range(24)), " ".join(f"u{i}" for i in range(24)),
    "np.eye(24) + np.outer(np.cos(q), np.cos(q))", "-np.sin(q)",
)  # fmt: skip


def test_a_law_of_24_rows_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "row.py").write_text(ROWS)
    task = ", ".join(f"{{name: a{i}, holonomic: x{i} - 0.1*t}}" for i in range(24))
    text = f"plant: {{class: 'row.py:Row'}}\ninitial: {{q: 0}}\ntask: [{task}]\n"
    (tmp_path / "row.yaml").write_text(
        text + "law: {correction: {baumgarte: {alpha: 4, beta: 4}}}\nrun: {duration: 1}\n"
    )
    assert isinstance(sc.load(tmp_path / "row.yaml").loop, Loop)


def counted(durations: list[int]) -> Array:
    """Durations as the tick in C counts them."""
    ffi, functions = library()
    numbers = np.zeros(COUNTS, dtype=np.uint64)
    counts = ffi.from_buffer("unsigned long long[]", numbers)
    for duration in durations:
        functions.log_count(counts, duration)
    return numbers


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=200), st.sampled_from([0.1, 50.0, 90.0, 99.0, 99.9, 100.0]))
def test_a_percentile_is_never_too_small_and_at_most_a_64th_too_large(durations: list[int], percent: float) -> None:
    exact = int(np.percentile(np.array(durations, dtype=object), percent, method="inverted_cdf"))
    got = percentile(counted(durations), percent)
    assert exact <= got <= exact + exact // 64


@given(st.lists(st.integers(0, 10**10) | st.sampled_from([2**32 - 1, 2**32, 2**33 + 5]), min_size=2, max_size=200))
def test_mean_deviation_and_extremes_are_exact(durations: list[int]) -> None:
    counts = counted(durations)
    n, least, most, total, low, high = map(int, counts[:6])
    assert (n, least, most, total) == (len(durations), min(durations), max(durations), sum(durations))
    assert low + (high << 64) == sum(duration**2 for duration in durations)
    found = figures(counts)
    assert found["mean"] == pytest.approx(np.mean(durations) / 1e9, rel=1e-12)
    assert found["std"] == pytest.approx(np.std(durations, ddof=1) / 1e9, rel=1e-9, abs=1e-12)


def test_small_durations_are_exact_to_the_nanosecond() -> None:
    assert percentile(counted(list(range(101))), 50) == 50


def test_without_durations_there_are_no_figures() -> None:
    assert figures(counted([])) == {"n": 0}
    assert percentile(counted([]), 50) == 0
    assert figures(counted([3])) == {"n": 1, "mean": 3e-9, "p50": 3e-9, "p99": 3e-9, "p99_9": 3e-9, "max": 3e-9}


def test_negative_durations_count_as_zero() -> None:
    assert figures(counted([-5]))["max"] == 0


def ticks(skips: list[int], overrun: int = 0, age: float = math.inf, let_go: bool = False) -> dict[str, Any]:
    """Figures of ticks with so many skipped periods of 1000 ns before each; each is late by 30 ns and takes 100 ns."""
    ffi, functions = library()
    timing, now = TickStatistics(1000, ["j1"]), 0
    tick, sensed, log, when = (ffi.new(f"{kind} *") for kind in ("tick", "sensing", "tick_log", "tick_times"))
    ages = ffi.new("double[]", [age])
    tick.channels, tick.sensing, sensed.ages, log.let_go = 1, sensed, ages, let_go
    log.ages, log.block = ffi.from_buffer("unsigned long long[]", timing.counts[len(PARTS)]), COUNTS
    log.nominal, log.marks = timing.nominal, ffi.from_buffer("long long[]", timing.marks)
    for name, counts in zip(PARTS, timing.counts, strict=False):
        setattr(log, name, ffi.from_buffer("unsigned long long[]", counts))
    for skipped in skips:
        now += 1000 * (1 + skipped)
        when.deadline, when.began, when.skipped = now, now + 30, skipped
        when.read = when.decided = when.written = now + 130 + overrun
        functions.log_times(tick, log, when)
    return timing.as_dict()


def test_skipped_periods_and_runs_of_late_ticks_are_counted() -> None:
    figures = ticks([0, 2, 1, 0, 1, 1, 1, 0])
    assert figures["ticks"] == 8
    assert figures["age_s"] == {"j1": {"n": 0}}  # a sample that never came has no age; it counted as 0
    assert figures["skipped_periods"] == 6
    assert figures["late_ticks"] == 5
    assert figures["longest_late_run"] == 3
    assert figures["least_slack_s"] == pytest.approx(870e-9)
    assert figures["lateness_s"]["max"] == pytest.approx(30e-9)
    assert figures["execution_s"]["mean"] == pytest.approx(100e-9)


def test_ages_count_until_drives_go_off() -> None:
    """One behind a closed brake is let go first: with 90 ms it was the oldest of every sound run."""
    assert ticks([0], age=2e-3)["age_s"]["j1"]["max"] == pytest.approx(2e-3, rel=1e-12)
    assert ticks([0], age=90e-3, let_go=True)["age_s"]["j1"] == {"n": 0}


def test_an_overrun_has_negative_slack() -> None:
    assert ticks([0], overrun=1370)["least_slack_s"] == pytest.approx(-500e-9)


def test_the_figures_are_json() -> None:
    assert json.loads(json.dumps(ticks([]), allow_nan=False))["age_s"] == {"j1": {"n": 0}}
