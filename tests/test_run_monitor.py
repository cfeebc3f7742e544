"""What ends a run whose motion is not the plant's: the energy, and the rank that the geometry allows."""

from dataclasses import dataclass

import numpy as np
import pytest

import servoctl as sc
from plants.parallelogram import Parallelogram
from servoctl.mechanics.model import Model
from servoctl.mechanics.passive_rank import allowed_rank, dependent_rows
from servoctl.simulation.monitor import MotionMonitor
from servoctl.types import State
from tests.benchmarks.parallelogram import pose, start_overrides
from tests.small_plants import Masses


@dataclass(frozen=True)
class Oscillator(Masses):
    """A mass on a spring; beyond `wall` a force acts that its energy does not know."""

    k: float = 9.0  # [N/m]
    damping: float = 0.0  # [N s/m]
    push: float = 0.0  # [N]
    wall: float = 0.5  # [m]
    names: str = "x"
    forces: str = ""

    def force(self, q, v, t):
        return np.array([-self.k * q[0] - self.damping * v[0] + sc.where(q[0] < -self.wall, self.push, 0.0)])

    def energy(self, q, v, t):
        return 0.5 * v[0] ** 2 + 0.5 * self.k * q[0] ** 2


def run(plant: Oscillator, step: float = 0.01) -> sc.Trajectory:
    return sc.simulate(plant, {}, None, q=1.0, duration=10, step=step, engine="vm")


def test_a_step_that_is_too_long_for_the_motion_is_named() -> None:
    found = run(Oscillator(), step=0.2)
    assert found.metadata["status"] == "stopped"
    assert found.t[-1] < 10.0
    assert "the motion is not the plant's (shorten run.integrator.step; where that" in found.metadata["error"]


@pytest.mark.parametrize("late", [{"delay": 0.05}, {"lag": 0.05}])
def test_a_step_that_is_too_long_is_named_where_inputs_would_be_late(late: dict[str, float]) -> None:
    oscillator, times = Oscillator(forces="F"), {"period": 0.2, "duration": 10}
    found = sc.simulate(oscillator, {}, None, q=1.0, step=0.2, engine="vm", realism=late, **times)
    assert "the motion is not the plant's (shorten run.integrator.step; where that" in found.metadata["error"]


def test_an_energy_drift_that_no_step_explains_ends_the_run() -> None:
    found = run(Oscillator(push=2.0))
    assert found.metadata["status"] == "stopped"
    assert found["q.x"][-1] < -0.5
    assert (
        "where that does not help, look for a pose where the mechanism loses rank, a jump in a force, or an energy"
        in (found.metadata["error"])
    )


@dataclass(frozen=True)
class OnSupport(sc.LagrangianPlant):
    """A mass on a spring, whose support starts from rest; `bound` moves it by a constraint, else its energy does."""

    bound: bool
    coordinates = {"x": "m", "support": "m"}  # noqa: RUF012
    actuators = {}  # noqa: RUF012

    def kinetic_energy(self, q, v, t):
        return (v[0] ** 2 + v[1] ** 2) / 2

    def potential_energy(self, q, t):
        return 10.0 * (q[0] - q[1] - (0.0 if self.bound else 0.1 * (1 - np.cos(3 * t)))) ** 2

    def passive_constraints(self, q, t):
        return {"path": q[1] - (0.1 * (1 - np.cos(3 * t)) if self.bound else 0.0)}


@pytest.mark.parametrize("bound", [True, False])
def test_a_support_that_starts_from_rest_changes_the_energy_and_does_not_end_the_run(bound: bool) -> None:
    found = sc.simulate(OnSupport(bound), {}, None, q=[0.05, 0.0], duration=1, step=0.005, engine="vm")
    # x'' = -20 (x - 0.1 (1 - cos 3t))
    w, x0 = np.sqrt(20.0), 0.05
    forced = 0.1 - 2.0 / 11.0 * np.cos(3 * found.t)
    assert found["q.x"] == pytest.approx(forced + (x0 - forced[0]) * np.cos(w * found.t), abs=1e-7)
    assert (found.metadata["status"], found.t[-1]) == ("done", 1.0)
    assert "energy_drift" not in found.metadata


@pytest.mark.parametrize("plant", [Oscillator(), Oscillator(damping=0.5)], ids=["conserved", "damped"])
def test_a_correct_run_and_a_damped_one_go_on(plant: Oscillator) -> None:
    found = run(plant)
    assert (found.metadata["status"], found.t[-1]) == ("done", 10.0)


def test_the_energy_drift_is_that_of_all_rows() -> None:
    found = run(Oscillator(damping=0.5))
    energy = 0.5 * found["v.x"] ** 2 + 4.5 * found["q.x"] ** 2
    assert found.metadata["energy_drift"] == pytest.approx(np.abs(energy - energy[0]).max(), rel=1e-12)


@pytest.mark.parametrize("theta", [0.0, 0.3, -np.pi / 4, np.pi / 2, np.pi])
def test_the_geometry_allows_rank_eleven_at_every_start_of_the_parallelogram(theta: float) -> None:
    state = State(0.0, pose(theta), np.zeros(12))
    model = Model(Parallelogram(), {}, state)
    assert allowed_rank(model, state) == 11
    assert dependent_rows(model, state) == [row.name for row in model.passive_rows]


def test_the_message_about_the_rank_names_time_rows_and_remedy() -> None:
    # rounding decides which sign a long run meets first, the rank or the energy: so the rows are given
    corrected = "plant.passive={correction: {baumgarte: {alpha: 10, beta: 10}}}"
    loaded = sc.load(
        "parallelogram", [corrected, "run.duration=0.1", *start_overrides(np.deg2rad(30.0), 0.0)], engine="vm"
    )
    rows = dict(loaded.simulate().columns)
    monitor = MotionMonitor(loaded.loop, loaded.start, loaded.settings)
    assert monitor.look(rows) is None
    rows["passive_rank"] = np.where(rows["t"] > 0.05, 12, rows["passive_rank"])
    index, error = monitor.look(rows)
    assert rows["t"][index - 1] <= 0.05 < rows["t"][index]
    assert error.startswith(f"t = {rows['t'][index]:.6g} s: mechanism rank 12, but the constraints' geometry allows 11")
    assert "dependent rows (foot1.0, foot1.1, pin1.0, pin1.1, foot2.0, foot2.1 and 6 more)" in error
    assert "(set plant.passive.projection: true, or raise plant.passive.rank_tolerance above the drift)" in error
