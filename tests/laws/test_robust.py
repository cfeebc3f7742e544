"""Robust and adaptive terms: their bounds hold, their limits in sampled time are those of the loop."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import servoctl as sc
from hil.session.replay import replay
from servoctl.check.report import check
from servoctl.check.uncertainty import dead_zone_time, leakage_rms, radius, settled
from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.symbol import where
from servoctl.laws.corrections import CorrectionTerm, corrections_of
from servoctl.laws.robust import Adaptive, RobustTerm
from servoctl.linear.reserve import reserve
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.timing import Timing
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Command
from tests.faces import on_drives
from tests.hil.emulation import SHORT
from tests.rail_mass import RAIL_MASS, written

CONFIG = """plant: {class: "mass.py:Mass"}
initial: {q: 0, v: 0.0001}
task: [{name: x, nonholonomic: "der(x)"}]
law: {correction: {p_feedback: {P: 0.1}}}
run: {duration: 2, period: 0.001}
"""
KAPPA, H = 10.0, 1e-3

ROW = Row("x", "x", "nonholonomic", True, False, 1)
ONE_ROW = CorrectionTerm((ROW,), tuple(corrections_of([ROW], sc.PFeedback(1.0 / KAPPA), {})))


@pytest.fixture
def mass(tmp_path: Path) -> Path:
    return written(tmp_path, CONFIG)


def ran(path: Path | str, *overrides: str, engine: str = "vm") -> Trajectory:
    found = sc.load(path, overrides, engine=engine).simulate()
    assert found.summary()["status"] == "done"
    return found


def envelope(beta: float, t: float, eps: float, kappa: float, rho_E: float) -> float:
    """|beta| at a time t [s] is at most this, from `beta` at t = 0: the second line of `laws.robust`'s bounds."""
    left = math.exp(-2.0 * (1.0 + rho_E) * kappa * t)
    return math.sqrt(beta * beta * left + radius(eps, kappa) ** 2 * (1.0 - left))


def test_the_envelope_and_both_radii_hold_for_300_random_plants() -> None:
    """Three rows, any E that keeps its sign, and at every instant the worst d that the premise allows."""
    random, count, h = np.random.default_rng(0), 300, 0.006
    A = random.standard_normal((count, 3, 3))
    A *= random.uniform(0.1, 0.9, (count, 1, 1)) / np.linalg.norm(A, 2, axis=(1, 2), keepdims=True)
    rho_E = np.linalg.eigvalsh((A + A.transpose(0, 2, 1)) / 2)[:, 0]
    rho, kappa = random.uniform(1, 10, count), random.uniform(4, 10, count)
    eps = rho**2 / random.uniform(5, 150, count)
    beta = random.uniform(0, 3, (count, 1)) * np.sqrt(eps / (4 * kappa))[:, None] * random.standard_normal((count, 3))
    step = _worst_case_step()
    first, x = np.linalg.norm(beta, axis=1), beta
    for k in range(1, 1001):
        x = step(x, A, rho, eps, kappa, (1 + rho_E) * rho, h)
        if k % 20 == 0:
            size = np.linalg.norm(x, axis=1)
            allowed = [envelope(*each) for each in zip(first, np.full(count, k * h), eps, kappa, rho_E, strict=True)]
            assert (size <= np.array(allowed) * (1 + 1e-6)).all()
    R = np.array([radius(*each) for each in zip(eps, kappa, strict=True)])
    tight = np.array([settled(*each) for each in zip(rho, eps, kappa, strict=True)])
    slow = np.exp(-(1 + rho_E) * kappa * 1000 * h) * first  # what is left of the start
    assert (size <= R * (1 + 1e-6) + slow).all() and (size <= tight * (1 + 1e-6) + slow).all()
    assert (tight <= R * (1 + 1e-12)).all()
    assert size.max() > 0.5 * tight[np.argmax(size)]  # the bound is not idle


def _worst_case_step():  # type: ignore[no-untyped-def]
    """(beta, E, rho, eps, kappa, |d|, h) -> beta after h, for many plants at once, by the law's own code."""
    sizes = {"x": (3,), "E": (9,), "n": (5,)}
    s = inputs(sizes)
    rho, eps, kappa, size, h = s["n"]
    E = s["E"].reshape(3, 3)
    term = RobustTerm((0, 1, 2), (True,) * 3, False, (0.0,) * 3, (1.0,) * 3, rho, eps)

    def rate(x):  # type: ignore[no-untyped-def]
        at = SimpleNamespace(task=Rows(np.zeros((3, 3)), np.zeros(3), np.zeros(3), x))  # beta is the rate alone
        v, square = -kappa * x + term.acceleration(at, np.zeros(0)), x @ x
        return v + E @ v + size * x / np.sqrt(where(square > 0.0, square, 1.0))

    x = s["x"]
    a = rate(x)
    b = rate(x + h / 2 * a)
    c = rate(x + h / 2 * b)
    d = rate(x + h * c)
    function = Kernel.compile("step", s, {"after": x + h / 6 * (a + 2 * b + 2 * c + d)}).function

    def step(x, E, rho, eps, kappa, size, h):  # type: ignore[no-untyped-def]
        numbers = np.stack([rho, eps, kappa, size, np.full(len(rho), h)])
        many = function.map(len(rho))
        return np.asarray(many(x.T, E.reshape(len(rho), 9).T, numbers)).T

    return step


TABLE = [
    (11.27, 1.0, 0.158, 0.0823),
    (5.948, 1.0, 0.158, 0.1311),
    (5.948, 0.595, 0.122, 0.0856),
]  # rho, eps -> R, R_tight at kappa = 10


@pytest.mark.parametrize(("rho", "eps", "R", "tight"), TABLE)
def test_both_radii_have_the_values_of_the_table(rho: float, eps: float, R: float, tight: float) -> None:
    assert radius(eps, 10.0) == pytest.approx(R, rel=0.02)
    assert settled(rho, eps, 10.0) == pytest.approx(tight, rel=0.02)


@pytest.mark.parametrize(("late", "limit"), [(0, 2.0), (2, 0.618)])
@pytest.mark.parametrize("error", [0.0, 0.5])
@pytest.mark.parametrize("side", [0.98, 1.02])
def test_the_gain_in_the_layer_has_the_limit_of_a_sampled_loop(
    mass: Path, late: int, limit: float, error: float, side: float
) -> None:
    """K (1 + E) h = 2, 1, 0.618, with K = kappa + rho^2 / eps."""
    K = side * limit / H / (1 + error)
    eps = 4.0 / (K - KAPPA)
    changes = [f"realism.delay={late * H}", f"realism.parameter_error.m={1 / (1 + error) - 1}"]
    run = sc.load(mass, [*changes, f"law.robust={{bound: 2, boundary_layer: {eps}}}", "plant.parameters.push=0"])
    box = [f"law.uncertainty.m=[{1 / (1 + error) - 1}, 0]"] if error else []
    told = check(sc.load(mass, [*changes, *box, f"law.robust={{bound: 2, boundary_layer: {eps}}}"], strict=False))
    assert told.values["robust"]["gain_share"] == pytest.approx(side, rel=5e-3)
    assert any("chatters" in text for text in told.warnings) == (side > 1.0)
    beta = np.abs(run.simulate()["violation.x"])
    quarter = len(beta) // 4
    early, last = beta[quarter : 2 * quarter].max(), beta[-quarter:].max()
    assert last < 0.9 * early or last < 1e-12 if side < 1.0 else last > 1e-3 * (late + 1) * 2 * H


@pytest.mark.parametrize("late", [0, 1, 2])
def test_a_sharp_switch_chatters_by_no_more_than_its_force_moves_it_before_the_next_command(
    mass: Path, late: int
) -> None:
    sharp = "law.robust={bound: 10, boundary_layer: 1e-9}"
    beta = np.abs(ran(mass, sharp, f"realism.delay={late * H}", "initial.v=0.0033")["violation.x"])
    largest = beta[len(beta) // 2 :].max()
    assert 0.5 * (late + 0.5) * 10 * H < largest <= (late + 1) * 10 * H * (1 + 1e-9)


def rate_of(term: RobustTerm, beta: float, estimate: float) -> float:
    """The rate of the estimate at a violation of a nonholonomic row."""
    at: Any = SimpleNamespace(task=Rows(np.zeros((1, 1)), np.zeros(1), np.array([beta]), np.full(1, np.nan)))
    command = Command(np.zeros(1), 1, np.zeros(1), 1.0, 0)
    return float(term.memory_rate(at, np.array([estimate]), command)[0])


def test_leakage_under_noise_settles_where_growth_and_decay_are_equal() -> None:
    """alpha = (rate / leak) sigma sqrt(2 / pi) = 0.6383."""
    term = Adaptive("leakage", 40.0, 0.5).attach(ONE_ROW, [0], Timing(H))
    noise, alpha, sum_ = 0.01 * np.random.default_rng(0).standard_normal(20_000), 0.6383, 0.0
    for beta in noise:
        alpha += H * rate_of(term, beta, alpha)
        sum_ += alpha
    assert sum_ / len(noise) == pytest.approx(0.6383, rel=0.02)


def test_the_estimate_takes_the_exact_step_of_a_held_growth() -> None:
    term = Adaptive("leakage", 40.0, 3.0).attach(ONE_ROW, [0], Timing(0.1))
    after = 0.5 + 0.1 * rate_of(term, -0.2, 0.5)
    exact = 40 * 0.2 / 3 + (0.5 - 40 * 0.2 / 3) * math.exp(-0.3)
    assert after == pytest.approx(exact, rel=1e-12)


def test_beta_under_leakage_keeps_its_mean_square_bound(mass: Path) -> None:
    """A push of 1 N that the model does not have: alpha = 1."""
    run = ran(
        mass, "law.adaptive={kind: leakage, rate: 200, leak: 1}", "realism.parameter_error.push=1", "run.duration=6"
    )
    tail = run["violation.x"][len(run.t) // 2 :]
    bound = leakage_rms(1.0, 200.0, 1.0, KAPPA, 1 / H)
    assert 0.1 * bound < float(np.sqrt(np.mean(tail**2))) < bound


def test_beta_leaves_the_dead_zone_for_no_longer_than_the_bound(mass: Path) -> None:
    width, rate = 0.02, 200.0
    adaptive = f"law.adaptive={{kind: dead_zone, rate: {rate}, width: {width}, gain_budget: 500}}"
    run = ran(mass, adaptive, "realism.parameter_error.push=1", "run.duration=6")
    outside = H * float(np.sum(np.abs(run["violation.x"]) > width))
    bound = dead_zone_time(1.0, rate, width, KAPPA, 490.0, 0.0, 1e-4)
    assert 0.05 < outside < bound < 6.0
    assert np.all(np.diff(run["memory.adaptive.bound"]) >= 0.0) and run["memory.adaptive.bound"][-1] < 1.5


ROBOTS = ["run.period=0.001", "realism.delay=0.001", "run.output_step="]


LEAKAGE = "adaptive={kind: leakage, rate: 120, leak: 2, gain_budget: 400}"


@pytest.mark.parametrize(
    ("term", "error", "largest", "rms"),
    [
        ("robust.bound=6", 0.3, 3.2e-4, 2.9e-4),
        (LEAKAGE, 0.3, 6.1e-3, 2.1e-3),
    ],
)
def test_robots_with_wrong_masses_follow_their_path(term: str, error: float, largest: float, rms: float) -> None:
    run = ran("coordinated_robots", *ROBOTS, f"realism.parameter_error.m={error}", f"law.{term}")
    y = np.abs(run["violation.object_y"])
    assert y.max() < 1.02 * largest
    assert float(np.sqrt(np.mean(y[len(y) // 3 :] ** 2))) < 1.02 * rms


def test_an_adaptive_law_runs_on_drives_and_replays_to_the_bit(tmp_path: Path) -> None:
    overrides = ("law.adaptive={kind: leakage, rate: 20, leak: 1}", "hil.emulation.parameters.m1=1.2", *SHORT)
    folder = tmp_path / "run"
    result = on_drives("two_mass_spring_drive", *overrides, out=folder, duration=1.0)
    assert result.exit_code == 0
    assert result.trajectory["memory.adaptive.bound"].max() > 0.0
    assert replay(folder).differing == 0


def test_the_gain_margin_of_an_adaptive_law_is_that_of_its_full_gain(tmp_path: Path) -> None:
    """A lighter mass is a larger gain. At an estimate of 0 the term has no gain yet, which would treble the margin."""
    (tmp_path / "mass.py").write_text(RAIL_MASS)
    (tmp_path / "mass.yaml").write_text(
        "plant: {class: 'mass.py:Mass'}\ninitial: {q: {x: 0.1}}\ntask: [{name: rest, holonomic: x}]\n"
        "law: {correction: {baumgarte: {alpha: 10, beta: 10}}, adaptive: {kind: leakage, rate: 100, leak: 1}}\n"
        "run: {duration: 20, period: 0.01}\nrealism: {delay: 0.01, parameter_error: {m: 0}}\n"
    )
    margin = reserve(sc.load(tmp_path / "mass.yaml", engine="vm")).gain_margin
    assert margin is not None
    ends = []
    for factor in (0.98, 1.02):
        error = f"realism.parameter_error.m={1.0 / (factor * margin) - 1.0}"
        run = sc.load(tmp_path / "mass.yaml", [error], engine="vm").simulate()
        ends.append(np.abs(run["violation.rest"][-200:]).max())
    assert ends[0] < 1e-6 and ends[1] > 0.3


@pytest.mark.parametrize("name", ["two_mass_spring_robust", "two_mass_spring_adaptive"])
def test_beta_of_the_shipped_configs_is_the_disturbance_over_the_gain_in_the_boundary_layer(name: str) -> None:
    """beta' = -(kappa + 1000) beta + d with d = k s / m2_n - k s / m2 = 10 s / 6, s the stretch of the spring.

    1000 is rho^2 / eps at eps = h rho^2, and the budget of the adaptive gain, 1 / h; kappa = 4.
    """
    run = ran(name, "run.output_step=")
    beta = run["violation_rate.distance"] + 4 * run["violation.distance"]
    disturbance = 10 * (run["q.x2"] - run["q.x1"] - 0.5) / 6
    settled = run.t > 2.5
    # it follows 1 ms late, and a held command adds half a period
    np.testing.assert_allclose(beta[settled], disturbance[settled] / 1004, atol=0.005 * disturbance.max() / 1004)
    assert 0.9 < disturbance[settled].max() < 3.0, "below the bound that the law knows"
    if name == "two_mass_spring_adaptive":
        estimate, left = run["memory.adaptive.bound"], math.exp(-0.5 * H)
        grown = left * estimate[:-1] + (1 - left) / 0.5 * 200 * np.abs(beta[:-1])
        np.testing.assert_allclose(estimate[1:], grown, atol=1e-12)
        assert estimate[settled].min() > disturbance[settled].max()
