"""Plants with massless coordinates through the whole program."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import servoctl as sc
from servoctl.errors import PlantError
from servoctl.study.batch import run_at
from servoctl.types import Array
from tests.config_texts import plant_text


@dataclass(frozen=True)
class Pendulum(sc.Plant):
    """A point mass on a massless rod, in x, y and the rod's angle, which has no mass of its own."""

    m: float = 1.0  # [kg]
    l: float = 0.8  # [m]  # noqa: E741
    g: float = 9.81  # [m/s^2]
    held: bool = True
    coordinates: ClassVar = {"x": "m", "y": "m", "phi": "rad"}
    actuators: ClassVar = {"tau": "N m"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.diag([self.m, self.m, 0.0])

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([0.0, -self.m * self.g, 0.0])

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[0.0], [0.0], [1.0]])

    def passive_constraints(self, q: Array, t: float) -> dict[str, Array]:
        tip = np.array([q[0] - self.l * np.cos(q[2]), q[1] - self.l * np.sin(q[2])])
        return {"rod": tip if self.held else q[0] - self.l}

    def energy(self, q: Array, v: Array, t: float) -> float:
        return float(self.m * (v[0] ** 2 + v[1] ** 2) / 2 + self.m * self.g * q[1])


@pytest.mark.parametrize("engine", ["vm", "numpy"])
def test_a_massless_rod_swings_as_a_pendulum(engine: str) -> None:
    run = sc.simulate(Pendulum(), {}, None, q=[0.8, 0, 0], duration=0.5, engine=engine)
    assert run.metadata["energy_drift"] < 1e-9
    speed = np.sqrt(-2 * 9.81 / 0.8 * np.sin(run["q.phi"]))  # from energy alone
    assert np.abs(np.abs(run["v.phi"]) - speed).max() < 1e-8


@dataclass(frozen=True)
class Branching(Pendulum):
    """The same, in code that cannot be traced."""

    def force(self, q: Array, v: Array, t: float) -> Array:
        return super().force(q, v, t) if float(q[0]) < 100.0 else np.zeros(3)


@pytest.mark.parametrize("engine", ["vm", "numpy", "c"])
def test_a_massless_rod_in_code_that_cannot_be_traced_moves_the_same(engine: str) -> None:
    run, traced = (
        sc.simulate(plant, {"swing": sc.Holonomic("phi - 0.3*t**2")}, sc.ConstraintFollowing(sc.Baumgarte(5.0, 5.0)),
                    q=[0.8, 0, 0], duration=0.2, step=0.01, engine=each)
        for plant, each in ((Branching(), engine), (Pendulum(), "vm"))
    )  # fmt: skip
    assert run.metadata["status"] == "done"
    np.testing.assert_allclose(run.u, traced.u, rtol=1e-9)  # of 8 N m; derivatives of the rows are the same functions


def test_a_torque_on_the_massless_rod_follows_a_task() -> None:
    task = {"swing": sc.Holonomic("phi - 0.3*sin(t)")}
    law = sc.ConstraintFollowing(correction=sc.Baumgarte(5, 5))
    run = sc.simulate(Pendulum(), task, law, q=[0.8, 0, 0], v=[0, 0.24, 0.3], duration=3.0)
    assert run.violation("swing").max() < 1e-9
    torque = 0.8**2 * -0.3 * np.sin(run.t) + 9.81 * 0.8 * np.cos(0.3 * np.sin(run.t))
    assert np.abs(run["u.tau"] - torque).max() < 1e-8


def test_a_direction_with_neither_mass_nor_constraint_is_named() -> None:
    with pytest.raises(PlantError, match=r"Pendulum\.mass_matrix: singular along 1 phi, which no constraint holds"):
        sc.simulate(Pendulum(held=False), {}, None, q=[0.8, 0, 0], duration=0.5)


SLED = plant_text(  # a mass, and a plate that is fixed to it
    "Sled", "m: float = 1.0; plate: float = 0.5", "x y", "F",
    "np.array([[self.m, 0.0 * self.m], [0.0 * self.m, self.plate]])", actuation="np.array([[1.0], [0.0]])",
    more='\n    def passive_constraints(self, q, t):\n        return {"weld": q[0] - q[1]}\n',
)  # fmt: skip


def test_a_mass_that_reaches_zero_within_a_study_is_that_of_a_run_by_itself(tmp_path: Path) -> None:
    (tmp_path / "sled.py").write_text(SLED)
    (tmp_path / "c.yaml").write_text("""
plant: {class: "sled.py:Sled"}
initial: {q: [0.2, 0.2]}
task: [{name: place, holonomic: x}]
law: {correction: {baumgarte: {alpha: 5, beta: 5}}}
run: {duration: 0.1, integrator: {step: 0.01}}
""")
    run = sc.load(tmp_path / "c.yaml", engine="vm")
    for plate in (0.5, 0.0, 0.25, 0.0):
        found = run_at(run, {"plant.parameters.plate": plate})
        alone = sc.load(tmp_path / "c.yaml", [f"plant.parameters.plate={plate}"], engine="vm")
        assert found.system.model.singular == alone.system.model.singular == (plate == 0.0)
        np.testing.assert_array_equal(found.simulate().u, alone.simulate().u)
        # F accelerates both: at rest the task asks for -beta^2 x
        assert found.simulate().u[0, 0] == pytest.approx(-25.0 * 0.2 * (1.0 + plate))
