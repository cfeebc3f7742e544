"""Realistic runs on every engine: NumPy, the virtual machine, generated C, and C side by side."""

from typing import Any

import numpy as np
import pytest

import servoctl as sc
from servoctl.assembly.run import Run
from servoctl.engine import compiler
from servoctl.engine.batch import BatchProgram
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.realism import tick_noise
from servoctl.study.batch import batch
from servoctl.study.series import plan_for, random_of

compiled = pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler on the path")

ALL = (
    "{noise: {q: 1e-4, v: 1e-3}, quantisation: {q: 1e-5}, delay: 12*ms, jitter: 3*ms, lag: 3*ms, "
    "friction: {coulomb: 0.1, viscous: 0.05, speed: 0.05}, saturation: 9, parameter_error: {%s: 0.2}}"
)
SHORT = ["run.period=0.01", "run.output_step=", "run.duration=0.4"]
CASES = [
    ("two_mass_spring", [*SHORT, "realism=" + ALL % "m1"]),
    ("two_mass_spring", [*SHORT, "realism={delay: 25*ms, jitter: 10*ms, noise: {v: [0, 1e-3]}}"]),
    ("coordinated_robots", [*SHORT, "run.duration=0.1", "realism=" + ALL % "m"]),
    ("flexible_joint_motor_raised", ["run.duration=0.1", "run.period=2*ms", "run.output_step=",
     "run.integrator={method: rk4}", "realism={delay: 2*ms, noise: {q: 1e-6}}"]),
    ("coordinated_robots", [*SHORT, "run.duration=0.05", "realism={lag: {u2: 3*ms}}"]),
]  # fmt: skip


def made(case: tuple[str, list[str]], engine: str) -> Run:
    name, settings = case
    return sc.load(name, settings, engine=engine, strict=False)


def run(case: tuple[str, list[str]], engine: str) -> Trajectory:
    ready = made(case, engine)
    found = ready.simulate()
    assert ready.loop.engine == engine and found.summary()["status"] == "done", found.summary().get("error")
    return found


def assert_same(one: Trajectory, other: Trajectory) -> None:
    for name, column in one.columns.items():
        scale = max(np.abs(column).max(), 1e-4)  # violations of 1e-13 are rounding
        if name not in ("residual", "pivot_min"):
            np.testing.assert_allclose(other[name], column, atol=1e-9 * scale, err_msg=name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_numpy_equals_the_virtual_machine(case: tuple[str, list[str]]) -> None:
    assert_same(run(case, "vm"), run(case, "numpy"))


@compiled
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_c_equals_the_virtual_machine(case: tuple[str, list[str]]) -> None:
    assert_same(run(case, "vm"), run(case, "c"))


@compiled
@pytest.mark.skipif(compiler.is_tcc(), reason="tcc has no vectors")
@pytest.mark.parametrize(("case", "lanes"), list(zip(CASES[:3], (2, 8, 2), strict=True)))
def test_a_lane_equals_the_scalar_code_to_the_bit(case: tuple[str, list[str]], lanes: int) -> None:
    first = made(case, "c")
    assert first.system.realism is not None
    late = [first.system.realism.timing.delay + 2e-4 * i for i in range(3)]
    runs = [made((case[0], [*case[1], f"run.seed={i}", f"realism.delay={x}"]), "c") for i, x in enumerate(late)]
    loop, plan = first.loop, plan_for(first)
    assert isinstance(loop, Loop) and plan is not None
    substeps = first.settings.substeps
    starts = np.array([other.loop.vector(other.start) for other in runs])
    parameters = np.array([other.loop.step_parameters for other in runs])
    drawn = random_of(runs, len(plan.times))
    outcome = BatchProgram(loop.step(substeps), lanes).load().run(plan, parameters, starts, None, *drawn)
    library = loop.c_library(substeps)
    assert library is not None
    for i, other in enumerate(runs):
        random = tick_noise(other.settings.seed, 0, len(plan.times) - 1, other.system.model.n)
        stops = np.array(plan.stops)
        states, _ = library.steps(starts[i], plan.times, parameters[i], plan.status, stops, random)
        np.testing.assert_array_equal(outcome.ends[i], states[-1])
        assert outcome.good[i] == len(plan.times)


@compiled
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_batch_equals_its_single_runs(jobs: int) -> None:
    name, settings = CASES[0]
    vary = {"run.seed": [0, 1, 2, 0], "realism.parameter_error.m1": [0.2, 0.2, -0.1, 0.0]}
    found = batch(sc.load(name, settings, engine="c"), vary, jobs=jobs)
    for i, (seed, error) in enumerate(zip(*vary.values(), strict=True)):
        alone: Any = run((name, [*settings, f"run.seed={seed}", f"realism.parameter_error.m1={error}"]), "vm").summary()
        assert found["engine"][i] == "c"
        expected = alone["tasks"]["distance"]["rms_violation"]
        assert found["rms_violation"][i] == pytest.approx(expected, rel=1e-9)
        assert found["input_rms.F"][i] == pytest.approx(alone["inputs"]["F"]["rms"], rel=1e-9)


@compiled
def test_a_sweep_over_the_delay_equals_its_single_runs() -> None:
    name, settings = CASES[0]
    delays = [0.0, 0.004, 0.01, 0.02]
    found = batch(sc.load(name, settings, engine="c"), {"realism.delay": delays, "realism.jitter": [0.0] * 4})
    for delay, value in zip(delays, found["rms_violation"], strict=True):
        alone = run((name, [*settings, f"realism.delay={delay}", "realism.jitter=0"]), "vm").summary()
        assert value == pytest.approx(alone["tasks"]["distance"]["rms_violation"], rel=1e-9)
