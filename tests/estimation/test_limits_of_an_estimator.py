"""What `check`, `analyse` and `export` say about an estimator."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from test_estimator import CONFIG
from test_estimator import poles as poles_of

import servoctl as sc
from servoctl.assembly.context import run_timing
from servoctl.check.report import check
from servoctl.linear.convert import state_at
from servoctl.linear.jacobians import local
from servoctl.linear.sampled import LocalLoop
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.simulate import simulate_loop
from tests.rail_mass import written


@pytest.fixture
def mass(tmp_path: Path) -> Path:
    return written(tmp_path, CONFIG)


def test_the_linear_loop_has_the_poles_of_the_law_and_of_the_estimator(mass: Path) -> None:
    """With an exact model they separate: a double pole at -10, and those of the steady filter."""
    run = sc.load(mass, ["realism.delay=0.001", "estimation.noise.q=1e-6"], engine="vm")
    state, memory = state_at(run)
    poles = np.array(LocalLoop(local(run, state, memory), run_timing(run.system, run.settings)).poles)
    estimator = run.system.estimator
    assert estimator is not None
    gains = sc.Estimator(noise=1e-6).gains(["x"], 0.001)[0]
    for z in poles_of(gains, 0.001):
        assert np.abs(poles - np.log(complex(z)) / 0.001).min() < 1e-3 * abs(np.log(complex(z))) / 0.001
    slow = poles[np.abs(poles) < 20.0]
    assert len(slow) == 2
    assert np.mean(slow) == pytest.approx(-10.0, abs=0.1)  # holding over 1 ms parts and shifts a double pole


@pytest.mark.parametrize("side", [0.97, 1.03])
def test_check_gives_the_limit_that_a_run_has(mass: Path, side: float) -> None:
    changes = ["realism.delay=0.001", "realism.quantisation.q=1e-7", "estimation.noise.q=1e-4"]
    changes += ["estimation.disturbance=1e8", "initial.q.x=1e-4"]
    text = mass.read_text().replace("x - 0.02*sin(3*t)", "x")
    mass.write_text(text)
    found = check(sc.load(mass, changes, engine="vm")).values["estimation"]["x"]
    limit = found["largest_gain"]
    assert 1.1 < limit < 9.0
    # a lighter mass: inputs act 1/m times as much
    more = [*changes, f"realism.parameter_error.m={1.0 / (side * limit) - 1.0}", "run.duration=1.5"]
    x = np.abs(sc.load(mass, more, engine="vm").simulate()["q.x"])
    grows = x[-300:].max() > 2.0 * x[500:800].max()
    assert grows == (side > 1.0)


def test_check_prints_the_gains(mass: Path) -> None:
    text = str(check(sc.load(mass, engine="vm")))
    assert "kind model, delay 0 s met by prediction" in text
    assert "disturbance to" in text
    assert "m/s^2 (1 sigma)" in text


def test_check_prints_what_noise_of_the_positions_does_to_the_inputs() -> None:
    noisy = ["run.period=0.001", "run.output_step=0.001", "run.duration=0.8", "realism.delay=0.001"]
    noisy += ["realism.measured=q", "realism.noise.q=1e-4", "estimation.kind=model"]
    said = check(sc.load("coordinated_robots", noisy, engine="vm"))
    quiet = [*noisy[:4], "realism.measured=q", "realism.noise.q=1e-9", "estimation={kind: model, noise: {q: 1e-4}}"]
    runs = [sc.load("coordinated_robots", changes, engine="vm").simulate() for changes in (noisy, quiet)]
    measured = np.std((runs[0].u - runs[1].u)[200:], axis=0)
    predicted = said.values["estimation"]["input_noise"]
    assert np.array(list(predicted.values())) == pytest.approx(measured, rel=0.15)
    assert "noise of the positions moves the inputs by (1 sigma): u1 0." in str(said)


@pytest.mark.parametrize("side", [0.97, 1.03])
def test_under_a_jitter_the_limit_is_that_of_the_longest_delay(mass: Path, side: float) -> None:
    """The estimator counts on 1.5 ms; a machine whose every command acts after 2 ms must stay stable."""
    changes = ["realism.delay=0.001", "realism.jitter=0.001", "realism.quantisation.q=1e-7"]
    changes += ["estimation.noise.q=1e-4", "estimation.disturbance=1e5", "initial.q.x=1e-4", "run.duration=1.5"]
    mass.write_text(mass.read_text().replace("x - 0.02*sin(3*t)", "x"))
    limit = check(sc.load(mass, changes, engine="vm")).values["estimation"]["x"]["largest_gain"]
    run = sc.load(mass, [*changes, f"realism.parameter_error.m={1.0 / (side * limit) - 1.0}"], engine="vm")
    realism = run.system.realism
    assert realism is not None
    system = dataclasses.replace(run.system, realism=dataclasses.replace(realism, timing=realism.timing.worst))
    x = np.abs(simulate_loop(make_loop(system, "vm"), run.start, run.settings)["q.x"])
    assert (x[-300:].max() > 2.0 * x[500:800].max()) == (side > 1.0)
