"""beta' = v + E v + d: the identity on full, under-, redundantly actuated and closed plants, and rho_E over a box."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import servoctl as sc
from servoctl.assembly.uncertainty import task_map_error
from servoctl.check.report import check
from servoctl.check.uncertainty import observed
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.mechanics.terms import assemble
from servoctl.types import State
from tests.config_texts import plant_text

ROWS = {
    "scara": {},  # full
    "two_mass_spring": {"m2": 0.2, "k": -0.3},  # one force, two coordinates
    "coordinated_robots": {"m": 0.3, "I": -0.2},  # closed loops and redundant torques
    "arm_path": {"link3_m": 0.4},  # seven torques, five rows of priority 1
}


@pytest.mark.parametrize("config", list(ROWS))
def test_the_error_of_the_model_acts_as_the_identity_says(config: str) -> None:
    run = sc.load(config, engine="numpy")
    law, model = run.system.law, run.system.model
    assert isinstance(law, AttachedConstraintFollowing)
    errors = ROWS[config] or {next(iter(_floats(model.plant))): 0.3}
    changed = {name: (1 + e) * getattr(model.plant, name) for name, e in errors.items()}
    machine = model.of(dataclasses.replace(model.plant, **changed), model.task, run.start)  # type: ignore[type-var]
    random, r = np.random.default_rng(1), law.required
    for state in model.samples(run.start, 3):
        known, true = (assemble(state, m.matrices(state), law.passive_rank_tolerance) for m in (model, machine))
        u_n, inverse = law.right_inverse(known)
        v = random.standard_normal(len(r))
        u = u_n + inverse[:, r] @ v
        E = task_map_error(true.task_map, inverse, r, np.ones(len(r)))
        d = (true.task_map @ u_n - true.rhs)[r]
        rows = machine.matrices(state).task
        beta_rate = (rows.A @ true.acceleration(u) - rows.b)[r]
        scale = np.abs(beta_rate).max() + np.abs(rows.b).max() + np.abs(true.rhs).max()
        np.testing.assert_allclose(beta_rate, v + E @ v + d, atol=1e-12 * max(1.0, scale))


def _floats(plant: object) -> list[str]:
    return [f.name for f in dataclasses.fields(plant) if isinstance(getattr(plant, f.name), float)]  # type: ignore[arg-type]


PLANT = plant_text(  # two carts; the force F acts on the first by the share lever - 0.5
    "Cart", "m1: float = 1.0; m2: float = 2.0; lever: float = 1.5; k: float = 0.0", {"x": "m", "a": "rad"},
    {"F": "N", "T": "N m"}, "np.diag([self.m1, self.m2])", "np.array([-self.k, 0.0])",
    "np.diag([self.lever - 0.5, 1.0])",
)  # fmt: skip
CONFIG = """plant: {class: "cart.py:Cart", parameters: {k: 2}}
initial: {q: 0}
task: [{name: x, holonomic: "x"}]
law: {correction: {baumgarte: {alpha: 10, beta: 10}}}
run: {duration: 0.2, period: 0.001}
"""


@pytest.fixture
def cart(tmp_path: Path) -> Path:
    (tmp_path / "cart.py").write_text(PLANT)
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG)
    return path


def test_check_prints_the_worst_machine_of_the_box(cart: Path) -> None:
    """One mass: E = m/m_true - 1, and the spring force of 2 N is a disturbance of k (e_k - e_m) / ((1 + e_m) m)."""
    box = ["law.uncertainty={m1: [-0.1, 0.3], k: 0.2}", "law.robust.bound=3"]
    values = check(sc.load(cart, box, strict=False)).to_dict()
    assert values["uncertainty"]["rho_E"] == pytest.approx(1 / 1.3 - 1, rel=1e-9)
    assert values["uncertainty"]["upper"] == pytest.approx(1 / 0.9 - 1, rel=1e-9)
    # u_n = 2 N for the law; on the machine (2 - 2 (1 + e_k)) / m: largest with e_k = +-0.2 and the light mass
    assert values["uncertainty"]["disturbance"] == pytest.approx(0.4 / 0.9, rel=1e-6)
    assert values["robust"]["premise"] is True
    eps, kappa = 1e-3 * 9, 10.0
    assert values["robust"]["boundary_layer"] == pytest.approx(eps)
    assert values["robust"]["R"] == pytest.approx(np.sqrt(eps / (4 * kappa)), rel=1e-6)
    assert values["robust"]["R_tight"] == pytest.approx(3 * eps / (kappa * eps + 9), rel=1e-6)


def test_a_bound_below_the_disturbance_of_the_box_gives_a_warning(cart: Path) -> None:
    report = check(sc.load(cart, ["law.uncertainty.k=0.5", "law.robust.bound=0.5"], strict=False))
    assert report.values["robust"]["premise"] is False
    assert any("law.robust.bound: 0.5 is less than the disturbance of the box" in text for text in report.warnings)


def test_the_limit_of_the_observer_is_that_of_the_worst_machine(cart: Path) -> None:
    """E = 1 and 2: the limits L h of a correction of 20 1/s and 100 1/s^2 without delay are 4.6 and 1.06."""
    limits = []
    for lighter in (0.5, 2 / 3):
        box = [f"law.uncertainty.m1=[{-lighter}, 0]", "law.observer.rate=100"]
        limits.append(check(sc.load(cart, box, strict=False)).values["observer"]["x"]["limit"])
    assert np.array(limits) * 1e-3 == pytest.approx([4.6, 1.06], rel=0.02)
    beyond = check(sc.load(cart, ["law.uncertainty.m1=[-0.7, 0]", "law.observer.rate=1500"], strict=False))
    assert any("for the worst machine of law.uncertainty" in text for text in beyond.errors)


def test_where_no_task_has_priority_1_a_box_is_judged_by_all(cart: Path) -> None:
    wish = ["task.x.priority=2", "law.observer.rate=20", "law.uncertainty={m1: [-0.1, 0.3], k: 0.2}"]
    told, alone = (check(sc.load(cart, more)).to_dict() for more in (wish, wish[1:]))
    assert told["uncertainty"] == alone["uncertainty"] and told["observer"]["bound"] == alone["observer"]["bound"]


def test_a_parameter_of_the_task_itself_is_no_disturbance_but_an_error_that_stays(cart: Path) -> None:
    """m2 is no mass of x: with 2 m2 wrong by 20 % the law follows its own row exactly, and the true one is off."""
    task = ["task=[{name: x, holonomic: 'm2*x - 0.1*sin(3*t)'}]", "initial.v={x: 0.15, a: 0}", "plant.parameters.k=0"]
    run = sc.load(cart, [*task, "law.uncertainty.m2=0.2", "law.robust.bound=1", "realism.parameter_error.m2=0.2"])
    values, wrong = check(run).values, 0.2 * 0.1 * np.sin(0.6)
    assert [values["uncertainty"][key] for key in ("rho_E", "upper", "disturbance")] == pytest.approx(
        [0] * 3, abs=1e-12
    )
    assert values["uncertainty"]["unseen"]["x"] == pytest.approx(wrong, rel=1e-6)
    bound, largest = values["robust"]["bounds"]["x"], run.simulate().summary()["tasks"]["x"]["max_violation"]
    assert 0.99 * wrong < largest < bound["violation"] < wrong + 1e-3


def test_where_the_path_is_the_same_for_every_machine_the_law_sees_all() -> None:
    """All lengths of the shipped robots, and of their task, are l: the angles of the path do not depend on it."""
    values = check(sc.load("coordinated_robots", ["law.uncertainty.l=0.05"])).values
    assert values["uncertainty"]["unseen"] == {} and values["uncertainty"]["rho_E"] < -0.01


def test_a_robust_term_with_a_boundary_layer_of_its_own_needs_no_period(cart: Path) -> None:
    law = sc.load(cart, ["law.robust={bound: 1, boundary_layer: 0.1}", "run.period="], engine="vm").system.law
    assert isinstance(law, AttachedConstraintFollowing) and law.robust is not None and law.robust.layer == 0.1


def test_a_scale_changes_the_norm_and_not_the_row_alone(cart: Path) -> None:
    """With rows of scales 1 and 0.1, a bound of 3 and 0.4 is rho = 5."""
    task = 'task=[{name: x, holonomic: "x"}, {name: turn, holonomic: "a"}]'
    run = sc.load(cart, [task, "law.robust={bound: {x: 3, turn: 0.4}, scale: {turn: 0.1}}"])
    law, state = run.system.law, State(0.0, np.array([0.3, 0.04]), np.zeros(2))
    assert isinstance(law, AttachedConstraintFollowing)
    terms = assemble(state, run.system.model.matrices(state), 1e-6)
    # beta = 10 phi = (3, 0.4 / 0.1 = 4), far outside the layer: g = rho beta / |beta| = (3, 4), unscaled (3, 0.4)
    assert law.robust is not None
    np.testing.assert_allclose(law.robust.acceleration(terms, np.zeros(0)), [-3.0, -0.4], rtol=1e-12)


def test_what_an_observer_leaves_is_below_the_printed_bound(cart: Path) -> None:
    """x = 0.1 sin 3t with a mass 30 % off: d = E b, so sup|d'| = 0.231 0.1 27; the slow disturbance almost meets it."""
    slow = ["task=[{name: x, holonomic: 'x - 0.1*sin(3*t)'}]", "initial.v={x: 0.3, a: 0}", "run.duration=3"]
    slow += ["law.observer.rate=100", "realism.delay=1*ms"]
    box = ["law.uncertainty.m1=[0, 0.3]", "plant.parameters.k=0"]
    values = check(sc.load(cart, [*slow, *box], strict=False)).values["observer"]
    E, L, h, kappa = 1 / 1.3 - 1, 100.0, 1e-3, 10.0
    lag = h / np.expm1(L * h) + 1.5 * h + 1e-3
    assert values["bound"]["disturbance_rate"] == pytest.approx(-E * 0.1 * 27, rel=1e-3)
    assert values["bound"]["lag"] == pytest.approx(lag)
    missed = 2.7 * 2e-3  # the path's own acceleration, one period of delay and one of holding later
    assert values["bound"]["beta"] == pytest.approx(-E * 2.7 * lag / ((1 + E) * kappa) + missed / kappa, rel=1e-3)
    assert values["x"]["violation"] == pytest.approx(values["bound"]["beta"] / kappa)
    motion = sc.load(cart, [*slow, "plant.parameters.k=0", "realism.parameter_error.m1=0.3"], engine="vm").simulate()
    beta = np.abs(motion["violation_rate.x"] + kappa * motion["violation.x"])[len(motion.t) // 3 :].max()
    assert 0.7 * values["bound"]["beta"] < beta <= values["bound"]["beta"]


def test_an_observer_without_a_bound_says_why(cart: Path) -> None:
    found = check(sc.load(cart, ["law={correction: {baumgarte: {alpha: 5, beta: 10}}, observer: auto}"
                                 , "law.uncertainty.m1=0.2"], strict=False))  # fmt: skip
    lines = dict(found.sections)["disturbance observer"]
    assert any("no bound on what it leaves: task.x: the poles of its correction are complex" in line for line in lines)
    assert found.values["observer"]["bound"] is None


@pytest.mark.parametrize(("rho_E", "kappa", "L"), [(0.0, 20.0, 100.0), (-0.7, 100.0, 100.0), (-0.9, 30.0, 60.0)])
def test_no_bounded_rate_of_the_disturbance_passes_the_bound(rho_E: float, kappa: float, L: float) -> None:
    """The worst d' switches with the sign of the answer to an impulse, so the bound is that answer's integral."""
    a, b = (1 + rho_E) * (kappa + L), (1 + rho_E) * kappa * L
    t = np.linspace(0, 200 / a, 400_001)
    answer = np.exp(-a * t / 2) * np.sin(np.emath.sqrt(b - a * a / 4 + 1e-9) * t) / np.emath.sqrt(b - a * a / 4 + 1e-9)
    largest = np.abs(answer.real).sum() * t[1]
    assert observed(1.0, 1.0 / L, kappa, rho_E) == pytest.approx(largest, rel=1e-3)


def test_check_compares_machines_along_the_task_without_a_simulation(
    cart: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def simulated(*_: object, **__: object) -> None:
        raise AssertionError("check simulates nothing")

    monkeypatch.setattr("servoctl.assembly.run.simulate_loop", simulated)
    values = check(sc.load(cart, ["law.uncertainty={m1: [-0.1, 0.3]}"], strict=False)).to_dict()
    assert values["uncertainty"]["poses"] == 25


def test_a_task_of_speeds_leads_the_machine_to_the_poses_at_which_machines_are_compared(cart: Path) -> None:
    """A speed of t^2 of a mass on a spring: the spring's force, k t^3 / 3, is off by a fifth."""
    (cart.parent / "cart.py").write_text(PLANT.replace("-self.k", "-self.k * q[0]"))
    text = cart.read_text().replace('holonomic: "x"', 'nonholonomic: "der(x) - t**2"')
    cart.write_text(text.replace("baumgarte: {alpha: 10, beta: 10}", "p_feedback: {P: 0.1}"))
    run = sc.load(cart, ["law.uncertainty={k: 0.2}", "run.duration=3"], strict=False)
    values = check(run).to_dict()["uncertainty"]
    assert values["poses"] == 25
    assert values["disturbance"] == pytest.approx(0.2 * 2.0 * 9.0, rel=2e-3)  # the rule of 24 steps is off by 1 / 24^2
