"""Estimators: what they find, their gains, their limits and the outliers that they leave out."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import solve_discrete_are

import servoctl as sc
from servoctl.assembly.context import run_timing
from servoctl.check.report import check
from servoctl.cli.run import outliers
from servoctl.errors import ConfigError, TaskError
from servoctl.estimation.attached import (
    OUTLIER,
    AttachedEstimator,
    PlantFunctions,
)
from servoctl.estimation.estimator import Estimator, Gains, PositionNoise, alpha_beta_gains, low_pass_gains, model_gains
from servoctl.linear.convert import state_at
from servoctl.linear.loop import LocalLoop, local
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.model import Model
from servoctl.mechanics.timing import Timing, UnderWay
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.simulate import simulate_loop
from servoctl.types import Array, State
from tests.rail_mass import written
from tests.small_plants import Masses

CONFIG = """plant: {class: "mass.py:Mass"}
initial: {q: {x: 0.01}}
task:
  - {name: x, holonomic: "x - 0.02*sin(3*t)"}
law:
  correction: {second_order: {damping: 20, stiffness: 100}}
run: {duration: 0.3, period: 0.001}
realism: {measured: q, quantisation: {q: 1e-5}}
estimation: {kind: model}
"""
ROBOTS = (
    "run.period=0.001", "run.integrator.step=0.001", "run.output_step=", "realism.delay=0.001",
    "realism.quantisation.q=2*pi/65536", "realism.measured=q",
)  # fmt: skip


@pytest.fixture
def mass(tmp_path: Path) -> Path:
    return written(tmp_path, CONFIG)


@pytest.mark.parametrize("kind", ["model", "alpha_beta", "difference"])
def test_every_engine_estimates_the_same(mass: Path, kind: str) -> None:
    changes = [
        f"estimation.kind={kind}", "realism.parameter_error={push: 0.7, m: 0.4}", "realism.delay=0.0015",
        "realism.lag=0.002", "run.duration=0.1", "realism.noise.q=1e-5",
    ]  # fmt: skip
    reference = sc.load(mass, changes, engine="numpy").simulate()
    for engine in ("vm", "c"):
        run = sc.load(mass, changes, engine=engine).simulate()
        assert run.metadata["engine"] == engine
        for column in ("q.x", "u.F", "estimate.q.x", "estimate.v.x"):
            np.testing.assert_allclose(run[column], reference[column], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("delay", [0.0, 0.0005, 0.001, 0.0025])
def test_a_constant_disturbance_is_found_whatever_the_delay(mass: Path, delay: float) -> None:
    changes = ["realism.parameter_error.push=0.7", f"realism.delay={delay}", "run.duration=2"]
    run = sc.load(mass, changes, engine="vm").simulate()
    late = run.t > 1.6
    sigma = run["estimate.sigma.x"][0]
    np.testing.assert_allclose(run["estimate.disturbance.x"][late], 0.7, atol=4 * sigma)
    np.testing.assert_allclose(run["estimate.q.x"][late], run["q.x"][late], atol=1e-5)
    # an exact model and no disturbance but a constant one: the error is that of the readings
    assert np.abs(run["violation.x"][late]).max() < 1e-5


def test_lag_is_no_disturbance_and_readings_are_exact_to_their_noise(mass: Path) -> None:
    run = sc.load(mass, ["realism.lag=0.003", "realism.delay=0.0015"], engine="vm").simulate()
    # the disturbance that the mean torque of each period leaves is below the noise of the estimate
    assert np.abs(run["estimate.disturbance.x"]).max() < 4 * run["estimate.sigma.x"][0]


def test_saturation_winds_nothing_up(mass: Path) -> None:
    changes = ["realism.parameter_error.push=2.0", "realism.saturation=2.5", "run.duration=1.5", "initial.q.x=0.1"]
    run = sc.load(mass, changes, engine="vm").simulate()
    assert np.abs(run["u.F"]).max() == 2.5
    found = run["estimate.disturbance.x"][run.t > 0.3]
    np.testing.assert_allclose(found, 2.0, atol=5 * run["estimate.sigma.x"][0])


class Floating(PlantFunctions):
    """A free unit mass per coordinate, with linear constraints D q = 0."""

    def __init__(self, D: Array) -> None:
        self.D = D

    def acceleration(self, state: State, u: Array) -> Array:
        return u

    def passive(self, state: State) -> Rows:
        return Rows(self.D, np.zeros(len(self.D)), self.D @ state.q, self.D @ state.v)


class NoProblem:
    """Takes no problems: there are none."""

    def add(self, what: object, *path: str | int) -> None:
        raise AssertionError(what)


def bound(n: int, rows: int, **changes: object) -> AttachedEstimator:
    """A model estimator of n coordinates and actuators with passive rows, period 1 ms."""
    names = tuple(f"q{i}" for i in range(n))

    class Stub:
        plant = type("P", (), {"coordinates": dict.fromkeys(names, ""), "actuators": dict.fromkeys(names, "")})
        task: dict[str, object] = {}  # noqa: RUF012
        passive_rows = (type("R", (), {"has_rate": True, "has_violation": True}),) * rows

    start = State(0.0, np.zeros(n), np.zeros(n))
    model: Model = Stub()  # type: ignore[assignment]
    ready = Estimator(**changes).ready(model.plant, None, 0.001, NoProblem())  # type: ignore[arg-type]
    return ready.attach(model, start, Timing.of(0.001, names))


def sent(m: int, running: bool = True) -> UnderWay:
    """No torque on its way to m actuators."""
    return UnderWay(np.zeros((1, m)), np.zeros(0), float(running))


def test_the_estimate_satisfies_the_constraints_by_the_orthogonal_projector() -> None:
    random = np.random.default_rng(1)
    D = random.standard_normal((4, 6))
    D[3] = D[0] - 2.0 * D[1]  # dependent
    free = np.eye(6) - np.linalg.pinv(D, rcond=1e-10) @ D
    plain, projected = bound(6, 0), bound(6, 4)
    memory = np.array(list(plain.memory.values()))
    memory[:18] = random.standard_normal(18)
    y, u = State(0.0, memory[:6] + 1e-6 * random.standard_normal(6), np.zeros(6)), random.standard_normal(6)
    without = plain.update(y, np.ones(6), u, sent(6), memory, 0.001, Floating(D))
    found = projected.update(y, np.ones(6), u, sent(6), memory, 0.001, Floating(D))
    for part in ("q", "v", "disturbance"):
        np.testing.assert_allclose(found.shown[part], free @ without.shown[part], atol=1e-12)
    variance, before = found.shown["sigma"] ** 2, without.shown["sigma"] ** 2
    np.testing.assert_allclose(variance, np.diag(free @ np.diag(before) @ free.T), rtol=1e-10)
    assert variance.sum() == pytest.approx(before.sum() * (1.0 - 3 / 6), rel=1e-12)


def test_a_reading_that_is_missing_or_far_off_is_left_out() -> None:
    estimator, plant = bound(2, 0), Floating(np.zeros((0, 2)))
    memory = np.array(list(estimator.memory.values()))
    readings = State(0.0, np.array([np.nan, 1.0]), np.zeros(2))
    for tick in range(5):
        found = estimator.update(readings, np.array([0.0, 1.0]), np.zeros(2), sent(2), memory, 0.001, plant)
        memory = found.memory
        assert found.shown["q"][0] == 0.0
        assert found.shown["innovation"][1] > OUTLIER
        # three in a row are left out; then it is the model that is wrong
        assert (found.shown["q"][1] == 0.0) == (tick < 3)


def test_readings_are_trusted_while_the_model_is_wrong() -> None:
    estimator, plant = bound(1, 0, noise=1e-7), Floating(np.zeros((0, 1)))
    memory, left_out, apart = np.array(list(estimator.memory.values())), [], []
    for tick in range(3000):
        t = 0.001 * tick
        q = np.array([0.01 * (1.0 - np.cos(20.0 * t))]) if t < 1.0 else np.zeros(1)  # the model expects none of it
        seen = State(t, q, np.zeros(1))
        found = estimator.update(seen, np.ones(1), np.zeros(1), sent(1, tick > 0), memory, 0.001, plant)
        memory = found.memory
        apart.append(float(found.shown["innovation"][0]))
        left_out.append(abs(found.shown["q"][0] - q[0]) > 0.999 * apart[-1] * estimator.innovation[0])
    far = np.array(apart) > OUTLIER
    assert far[:1000].sum() > 500
    assert not (far & left_out)[100:1000].any()
    # once 1000 readings in a row have fit, a single one that does not is left out again
    assert not far[1500:].any()
    wrong = State(3.0, np.array([1.0]), np.zeros(1))
    found = estimator.update(wrong, np.ones(1), np.zeros(1), sent(1), memory, 0.001, plant)
    assert found.shown["q"][0] < 1e-6


def test_a_dead_encoder_shows_within_three_ticks() -> None:
    estimator, plant = bound(1, 0, noise=1e-5), Floating(np.zeros((0, 1)))
    memory, speed = np.array(list(estimator.memory.values())), 0.5
    worst = []
    for tick in range(1500):
        q = speed * 0.001 * min(tick, 1496)  # the encoder dies on the way
        seen = State(0.0, np.array([q]), np.zeros(1))
        found = estimator.update(seen, np.ones(1), np.zeros(1), sent(1, tick > 0), memory, 0.001, plant)
        memory = found.memory
        worst.append(float(found.shown["innovation"][0]))
    assert max(worst[1000:1497]) < 1e-3
    assert max(worst[1497:]) > OUTLIER


def test_the_logged_state_of_a_simulated_run_is_the_true_one() -> None:
    run = sc.load("coordinated_robots", [*ROBOTS, "estimation.kind=model", "run.duration=1"], engine="vm").simulate()
    assert np.abs(run["passive.loop.0"]).max() < 1e-9
    error = run["estimate.q.theta1"] - run["q.theta1"]
    assert 0.0 < np.abs(error).max() < 1e-4
    assert run.units["estimate.disturbance.theta1"] == "rad/s^2"


def test_an_estimator_works_without_a_config() -> None:
    law = sc.ConstraintFollowing(sc.Baumgarte(10.0, 10.0))
    task = {"x": sc.Holonomic("x - 0.1*sin(t)")}
    given = {"q": 0.0, "v": 0.1, "duration": 0.05, "engine": "numpy"}
    run = sc.simulate(Masses("x", "F"), task, law, **given, period=0.001, estimation=sc.Estimator(noise=1e-6))
    np.testing.assert_allclose(run["estimate.v.x"], run["v.x"], atol=1e-9)
    with pytest.raises(ConfigError, match=r"simulate: estimation: needs a sampled law \(give period\)"):
        sc.simulate(Masses("x", "F"), task, law, **given, estimation=sc.Estimator())
    named = sc.Estimator(noise=PositionNoise(q={"x": 1e-6}))
    again = sc.simulate(Masses("x", "F"), task, law, **given, period=0.001, estimation=named)
    np.testing.assert_array_equal(again["estimate.v.x"], run["estimate.v.x"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"noise": -1e-6}, r"simulate: estimation\.noise: expected a positive number, got -1e-06"),
        ({"disturbance": {"y": 3.0}}, r"simulate: estimation\.disturbance\.y: there is no coordinate 'y'"),
        ({"filter_time": 0.01}, r"simulate: estimation\.filter_time: belongs to kind difference, not to model"),
    ],
)
def test_a_wrong_estimator_is_refused_in_python_as_in_a_config(wrong: dict[str, Any], message: str) -> None:
    law = sc.ConstraintFollowing(sc.Baumgarte(10.0, 10.0))
    task = {"x": sc.Holonomic("x - 0.1*sin(t)")}
    estimator = sc.Estimator(**wrong)
    with pytest.raises(ConfigError, match=message):
        sc.simulate(Masses("x", "F"), task, law, q=0.0, duration=0.01, period=0.001, estimation=estimator)


def test_a_coordinate_that_a_mapping_leaves_out_has_the_default_of_the_field() -> None:
    """With `disturbance: {x1: 3}` that of x2 was 4 unit/s^2 per s, its filter 27 times slower in d than by default."""
    at = ["run.period=0.001", "estimation.kind=model", "realism.noise.q=2e-5"]
    named = ["estimation.disturbance={x1: 3}", "estimation.noise.q={x1: 1e-6}"]
    default, partly = (sc.load("two_mass_spring", [*at, *more], engine="vm").system.estimator for more in ([], named))
    assert default is not None and partly is not None
    assert partly.gain_d[0] < 0.6 * default.gain_d[0]
    assert (partly.gain_q[1], partly.gain_d[1]) == (default.gain_q[1], default.gain_d[1])


def test_a_machine_of_separate_parts_is_compiled_with_its_estimator() -> None:
    """A Scara's slide acts on no other joint, so that its law alone is divided."""
    run = sc.load("scara", ["run.period=0.001", "run.duration=0.01", "estimation.kind=model"], engine="vm")
    assert run.loop.engine == "vm"
    assert run.simulate().metadata["engine"] == "vm"


def test_a_bound_on_a_reaction_alone_is_kept_with_an_estimator() -> None:
    """It has no rows of its own, so that errors of the estimate add no margin: the rope pulls with 20 N at least."""
    trajectory = sc.load("crane_rope", ["estimation.kind=model", "run.duration=1.6"], engine="vm").simulate()
    assert trajectory["bound_active.taut"].any()
    assert trajectory["passive_force.l"].min() == pytest.approx(20.0, abs=1e-6)


def poles(gains: Gains, h: float) -> Array:
    """Eigenvalues of the estimate's error from tick to tick, shape (2,) or (3,)."""
    size = 3 if gains.d else 2
    A = np.array([[1.0, h, h * h / 2.0], [0.0, 1.0, h], [0.0, 0.0, 1.0]])[:size, :size]
    return np.linalg.eigvals(A - np.outer([gains.q, gains.v, gains.d][:size], A[0]))


@pytest.mark.parametrize("h", [1e-3, 2.5e-3])
@pytest.mark.parametrize("noise", [1e-4, 1e-6])
def test_alpha_and_beta_solve_the_riccati_equation(h: float, noise: float) -> None:
    acceleration = 30.0
    A, g = np.array([[1.0, h], [0.0, 1.0]]), np.array([h * h / 2.0, h])
    scale = np.diag([1.0 / noise, h / noise])  # numbers near 1, for the solver's sake
    back = np.linalg.inv(scale)
    P = solve_discrete_are(
        (scale @ A @ back).T, (np.array([[1.0, 0.0]]) @ back / noise).T,
        np.outer(scale @ g, scale @ g) * acceleration**2, np.eye(1),
    )  # fmt: skip
    P = back @ P @ back
    S = P[0, 0] + noise**2
    found = alpha_beta_gains(h, acceleration, noise)
    np.testing.assert_allclose([found.q, found.v], P[:, 0] / S, rtol=1e-9)
    after = P - np.outer(P[:, 0], P[0]) / S
    np.testing.assert_allclose(found.sigma[:2], np.sqrt(np.diag(after)), rtol=1e-7)
    assert found.innovation == pytest.approx(np.sqrt(S), rel=1e-9)


@pytest.mark.parametrize(("h", "noise"), [(1e-3, 2.8e-5), (1e-3, 1e-7), (2.5e-3, 1e-5), (0.02, 1e-4)])
def test_the_gains_of_the_model_are_a_fixed_point_of_the_filter(h: float, noise: float) -> None:
    found = model_gains(h, 60.0, noise)
    A = np.array([[1.0, h, h * h / 2.0], [0.0, 1.0, h], [0.0, 0.0, 1.0]])
    K = np.array([found.q, found.v, found.d])
    # P of this gain is a Lyapunov sum; the best gain for that P must be the gain itself
    closed = A @ (np.eye(3) - np.outer(K, [1.0, 0.0, 0.0]))
    Q = np.diag([0.0, 0.0, (60.0 * h) ** 2]) + noise**2 * A @ np.outer(K, K) @ A.T
    scale = np.diag([1.0, h, h * h]) / noise
    F, W = scale @ closed @ np.linalg.inv(scale), scale @ Q @ scale
    P = np.linalg.solve(np.eye(9) - np.kron(F, F), W.ravel()).reshape(3, 3)
    best = P[:, 0] / (P[0, 0] + 1.0)
    np.testing.assert_allclose(K * np.array([1.0, h, h * h]), best, rtol=1e-7)
    np.testing.assert_allclose(found.innovation, noise * np.sqrt(P[0, 0] + 1.0), rtol=1e-9)
    assert np.abs(np.linalg.eigvals(closed)).max() < 1.0


def test_the_low_pass_has_a_double_pole() -> None:
    np.testing.assert_allclose(poles(low_pass_gains(0.001, 0.004, 1e-5), 0.001), np.exp(-0.5), atol=1e-7)


def test_numbers_that_are_too_far_apart_are_refused() -> None:
    with pytest.raises(TaskError, match=r"disturbance 1e-15 and noise 1 at a period of 0.001 s.*expected 1e-12 to"):
        model_gains(0.001, 1e-15, 1.0)
    with pytest.raises(TaskError, match=r"filter_time 1e-05 s: expected 0\.2 to 1e\+06 periods of 0\.001 s"):
        low_pass_gains(0.001, 1e-5, 1e-5)


@pytest.mark.parametrize(("acceleration", "noise"), [(1e300, 1e-5), (1e-300, 1e-5), (50.0, 1e-300), (50.0, 1e200)])
def test_numbers_that_are_too_far_apart_for_an_alpha_beta_filter_are_refused(acceleration: float, noise: float) -> None:
    with pytest.raises(TaskError, match=r"acceleration period\^2 / noise is .* \(expected 1e-12 to 1e\+06\)"):
        alpha_beta_gains(1e-3, acceleration, noise)


def test_the_filters_at_the_ends_of_their_range_are_finite() -> None:
    for gains in (alpha_beta_gains(1.0, 1e6, 1.0), alpha_beta_gains(1.0, 1e-12, 1.0), low_pass_gains(1.0, 1e6, 1.0)):
        assert np.isfinite([gains.q, gains.v, gains.innovation, *gains.sigma]).all() and gains.v > 0.0


@pytest.mark.parametrize(("span", "found"), [(None, (5, 5 / 399)), ([0.0, 0.3], (4, 4 / 250)), ([], (0, None))])
def test_readings_far_from_their_prediction_are_counted_while_the_task_goes_on(
    span: list[float] | None, found: tuple[int, float | None]
) -> None:
    """On drives a task has a span, and its first 50 ms do not count."""
    apart = np.ones(400)
    apart[[20, 100, 101, 150, 200]], apart[[7, 8]], apart[9] = [6.0, 9.0, 7.0, 8.0, 5.5], 5.0, np.nan
    columns = {"t": 1e-3 * np.arange(400), "estimate.innovation.a": apart}
    columns |= {"estimate.disturbance.a": np.zeros(400), "estimate.sigma.a": np.ones(400)}
    figures = Trajectory(columns, metadata={"task_span": span}).summary()["estimate"]["a"]
    assert (figures["outliers"], figures["outlier_share"]) == (found[0], found[1] and pytest.approx(found[1]))


def test_a_machine_far_from_its_model_has_outliers_and_an_exact_one_has_none() -> None:
    few = ["run.period=0.001", "run.duration=0.3", "estimation.kind=model", "realism.measured=q"]
    few += ["realism.quantisation.q=1e-5"]
    calm = sc.load("two_mass_spring", few, engine="vm").simulate()
    assert {each["outliers"] for each in calm.summary()["estimate"].values()} == {0}
    slow = "estimation.disturbance=0.1"  # follows no error of this size within ten ticks
    wrong = sc.load("two_mass_spring", [*few, slow, "realism.parameter_error.m1=3"], engine="vm").simulate()
    d = wrong["estimate.disturbance.x1"]
    known = wrong.summary()["estimate"]["x1"]
    assert known["max"] == pytest.approx(np.abs(d).max())
    assert known["rms"] == pytest.approx(np.sqrt(np.trapezoid(d**2, wrong.t) / (wrong.t[-1] - wrong.t[0])))
    assert known["sigma"] == wrong["estimate.sigma.x1"][-1] > 0.0
    assert known["outliers"] == np.count_nonzero(wrong["estimate.innovation.x1"] > OUTLIER) > 3
    assert outliers(wrong.summary())[0].startswith(f"x1: {known['outliers']} readings (")


def test_the_linear_loop_has_the_poles_the_law_and_of_the_estimator(mass: Path) -> None:
    """With an exact model they separate: a double pole at -10, and those of the steady filter."""
    run = sc.load(mass, ["realism.delay=0.001", "estimation.noise.q=1e-6"], engine="vm")
    found = np.array(LocalLoop(local(run, *state_at(run)), run_timing(run.system, run.settings)).poles)
    estimator = run.system.estimator
    assert estimator is not None
    gains = sc.Estimator(noise=1e-6).ready(run.system.model.plant, None, 0.001, NoProblem()).gains(["x"], 0.001)[0]
    for z in poles(gains, 0.001):
        assert np.abs(found - np.log(complex(z)) / 0.001).min() < 1e-3 * abs(np.log(complex(z))) / 0.001
    slow = found[np.abs(found) < 20.0]
    assert len(slow) == 2
    assert np.mean(slow) == pytest.approx(-10.0, abs=0.1)  # holding over 1 ms parts and shifts a double pole


@pytest.mark.parametrize("side", [0.97, 1.03])
@pytest.mark.parametrize("more", [["estimation.disturbance=1e8"], ["estimation.disturbance=1e6", "realism.lag=0.001"]])
def test_check_gives_the_limit_that_a_run_has(mass: Path, more: list[str], side: float) -> None:
    changes = ["realism.delay=0.001", "realism.quantisation.q=1e-7", "estimation.noise.q=1e-4"]
    changes += [*more, "initial.q.x=1e-4"]
    text = mass.read_text().replace("x - 0.02*sin(3*t)", "x")
    mass.write_text(text)
    found = check(sc.load(mass, changes, engine="vm")).values["estimation"]["x"]
    limit = found["largest_gain"]
    assert found["gain_q"] > 0.0  # task and coordinate have one name
    assert 1.1 < limit < 9.0
    # a lighter mass: inputs act 1/m times as much
    other = [*changes, f"realism.parameter_error.m={1.0 / (side * limit) - 1.0}", "run.duration=1.5"]
    run = sc.load(mass, other, engine="vm")
    x = np.abs(run.simulate()["q.x"])
    grows = x[-300:].max() > 2.0 * x[500:800].max()
    assert grows == (side > 1.0) == any("unstable at the start (period" in text for text in check(run).warnings)


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
