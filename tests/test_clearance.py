"""Rows with a clearance yield in time: a run equals the motion with springs and dampers in their place."""

from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import servoctl as sc
from servoctl.check.report import check
from servoctl.errors import ConfigError
from servoctl.study.batch import run_at
from tests.config_texts import plant_text
from tests.multipliers import multiplier_equation

PLANT = plant_text(  # two masses on a line: `wall` holds the first, `rod` keeps the second at its side
    "Beads", "m: float = 2.0", "x y", "", "np.diag([1.0, self.m])", "np.array([1.0, 4.0 * np.cos(3.0 * t)])",
    more='\n    def passive_constraints(self, q, t):\n        return {"wall": q[0], "rod": q[1] - q[0]}\n',
)  # fmt: skip
ALPHA, BETA = 5.0, 8.0
M, A = np.diag([1.0, 2.0]), np.array([[1.0, 0.0], [-1.0, 1.0]])


def config(folder: Path, levels: str, more: str = "") -> Path:
    (folder / "beads.py").write_text(PLANT)
    path = folder / "c.yaml"
    path.write_text(f"""plant:
  class: "beads.py:Beads"
  passive:
    correction: {{baumgarte: {{alpha: {ALPHA}, beta: {BETA}}}}}
    levels: {levels}{more}
initial: {{q: 0}}
law: none
run: {{duration: 2, integrator: {{method: dop853, rtol: 1e-11, atol: 1e-13}}, output_step: 0.05}}
""")
    return path


def springs(R: list[float], t: np.ndarray) -> np.ndarray:
    """q(t) by the saddle-point equations `[[M, -A^T], [A, R]] [q''; lambda] = [Q; -2 alpha A v - beta^2 A q]`."""

    def rates(t: float, y: np.ndarray) -> np.ndarray:
        q, v = y[:2], y[2:]
        Q = np.array([1.0, 4.0 * np.cos(3.0 * t)])
        b = -2.0 * ALPHA * A @ v - BETA**2 * A @ q
        return np.concatenate([v, multiplier_equation(M, Q, A, b, R=np.array(R))])

    found = solve_ivp(rates, (0.0, t[-1]), np.zeros(4), method="DOP853", rtol=1e-12, atol=1e-14, t_eval=t)
    return found.y[:2].T


@pytest.mark.parametrize("engine", ["numpy", "vm"])
@pytest.mark.parametrize(("levels", "R"), [
    ("{all: {groups: [wall, rod], clearance: 0.3}}", [0.3, 0.3]),
    ("{base: {groups: [wall]}, tip: {groups: [rod], clearance: 0.5, after: [base]}}", [0.0, 0.5]),
])  # fmt: skip
def test_a_run_equals_the_motion_with_springs_and_dampers(
    tmp_path: Path, levels: str, R: list[float], engine: str
) -> None:
    run = sc.load(config(tmp_path, levels), engine=engine).simulate()
    np.testing.assert_allclose(run.q, springs(R, run.t), atol=1e-8)
    assert np.abs(run.q).max() > 1e-3  # it does yield


def test_a_constant_force_ends_where_the_spring_balances_it(tmp_path: Path) -> None:
    path = config(tmp_path, "{all: {groups: [wall, rod], clearance: [0.3, 0]}}")
    path.write_text(path.read_text().replace("duration: 2", "duration: 6"))
    (tmp_path / "beads.py").write_text(PLANT.replace("4.0 * np.cos(3.0 * t)", "4.0"))
    run = sc.load(path).simulate()
    # both masses hang on the spring of the wall, of stiffness beta^2 / R
    np.testing.assert_allclose(run.q[-1], 5.0 * 0.3 / BETA**2, rtol=1e-5)


def test_rows_without_clearance_are_simulated_as_before(tmp_path: Path) -> None:
    run = sc.load(config(tmp_path, "{all: {groups: [wall, rod]}}")).simulate()
    assert np.abs(run.q).max() < 1e-12


@pytest.mark.parametrize(("R", "said"), [(1e-3, True), (0.0, False)])
def test_check_says_that_the_law_takes_rows_that_yield_as_exact(R: float, said: bool) -> None:
    found = check(sc.load("three_rrr", [f"plant.passive.levels.platform.clearance={R}"]))
    assert any("the law takes every row as exact" in line for line in dict(found.sections)["hierarchy"]) == said


def test_a_projection_beside_a_clearance_is_refused(tmp_path: Path) -> None:
    path = config(tmp_path, "{all: {groups: [wall, rod], clearance: 0.3}}", "\n    projection: true")
    with pytest.raises(ConfigError, match=r"plant\.passive\.projection: true would close the rows of level 'all'"):
        sc.load(path)


def test_another_clearance_needs_no_new_trace(tmp_path: Path) -> None:
    path = config(tmp_path, "{all: {groups: [wall, rod], clearance: 0.3}}")
    first = sc.load(path)
    other = run_at(first, {"plant.passive.levels.all.clearance": 0.6})
    assert first.system.passive.clearance == (0.3, 0.3)
    assert other.system.passive.clearance == (0.6, 0.6)
    assert other.loop.shares_functions(first.loop)
    np.testing.assert_allclose(other.simulate().q, springs([0.6, 0.6], np.linspace(0.0, 2.0, 41)), atol=1e-8)
