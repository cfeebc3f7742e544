"""A law with a memory: integrated with q and v in continuous time, updated once per hold in sampled time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm

from servoctl.assembly import simulate
from servoctl.laws.law import AttachedLaw, Law
from servoctl.mechanics.constraint import Holonomic
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Terms
from servoctl.types import Array, Command, Status
from tests.small_plants import Masses


@dataclass(frozen=True)
class Cart(Masses):
    """x'' = f / m - d x' + load / m."""

    names: str = "x"
    forces: str = "f"
    m: float = 2.0
    d: float = 0.3
    load: float = 1.5

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([self.load - self.m * self.d * v[0]])


@dataclass(frozen=True)
class BoundPid(AttachedLaw):
    """f = -p x - d x' - i z, z' = x."""

    p: float
    i: float
    d: float

    @property
    def memory(self) -> Mapping[str, float]:
        return {"sum": 0.25}

    def memory_rate(self, terms: Terms, memory: Array, command: Command) -> Array:
        return terms.matrices.task.violation

    def command(self, terms: Terms, memory: Array) -> Command:
        task = terms.matrices.task
        u = -self.p * task.violation - self.d * task.violation_rate - self.i * memory
        return Command(u, 1, np.zeros(1), 1.0, Status.OK.code)


@dataclass(frozen=True)
class Pid(Law):
    p: float = 30.0
    i: float = 20.0
    d: float = 8.0

    def attach(self, model: Model) -> AttachedLaw:
        return BoundPid(1e-6, self.p, self.i, self.d)


PLANT, LAW, TASK = Cart(), Pid(), {"place": Holonomic("x")}
START = np.array([0.4, -0.2, 0.25])


def simulated(**how: Any) -> Array:
    run = simulate(PLANT, TASK, LAW, q=START[0], v=START[1], **how)
    assert run.metadata["status"] == "done"
    return np.stack([run.t, run["q.x"], run["v.x"], run["memory.sum"], run["u.f"]])


def affine(system: Array, constant: Array, h: float, x: Array) -> Array:
    """x after h under x' = system x + constant, exactly."""
    n = len(x)
    block = np.zeros((n + 1, n + 1))
    block[:n, :n], block[:n, n] = system, constant
    return np.asarray(expm(block * h) @ np.append(x, 1.0))[:n]


@pytest.mark.parametrize("engine", ["vm", "numpy"])
@pytest.mark.parametrize("how", [{"step": 0.001}, {"method": "dop853"}], ids=str)
def test_a_memory_is_integrated_with_the_motion_where_the_law_is_continuous(engine: str, how: dict[str, Any]) -> None:
    closed = np.array([[0, 1, 0], [-LAW.p / PLANT.m, -PLANT.d - LAW.d / PLANT.m, -LAW.i / PLANT.m], [1, 0, 0]])
    t, *x, u = simulated(duration=2.0, output_step=0.5, engine=engine, **how)
    constant = np.array([0.0, PLANT.load / PLANT.m, 0.0])
    for k, time in enumerate(t):
        expected = affine(closed, constant, time, START)
        np.testing.assert_allclose([y[k] for y in x], expected, atol=1e-10)  # rk4: (5 / s * 1 ms)^4 = 6e-10 and less
        assert u[k] == pytest.approx(-np.array([LAW.p, LAW.d, LAW.i]) @ expected, abs=1e-8)


@pytest.mark.parametrize("engine", ["vm", "numpy"])
@pytest.mark.parametrize("how", [{"step": 0.001}, {"method": "dop853"}], ids=str)
def test_a_memory_takes_one_step_per_hold_where_the_law_is_sampled(engine: str, how: dict[str, Any]) -> None:
    period = 0.02
    t, *x, u = simulated(duration=1.0, period=period, engine=engine, **how)
    expected = START
    free = np.array([[0.0, 1.0], [0.0, -PLANT.d]])
    for k in range(len(t)):
        np.testing.assert_allclose([y[k] for y in x], expected, atol=1e-11)  # both methods far below their tolerance
        force = float(-np.array([LAW.p, LAW.d, LAW.i]) @ expected)
        assert u[k] == pytest.approx(force, abs=1e-9)
        moved = affine(free, np.array([0.0, (PLANT.load + force) / PLANT.m]), period, expected[:2])
        expected = np.array([*moved, expected[2] + period * expected[0]])
    assert t[-1] == 1.0 and len(t) == 51


def test_a_memory_brings_the_load_to_rest_that_feedback_alone_leaves_off() -> None:
    _, x, _, _, u = simulated(duration=30.0, step=0.01, output_step=30.0)
    assert x[-1] == pytest.approx(0.0, abs=1e-8)  # slowest root near -0.9 / s: exp(-27)
    assert u[-1] == pytest.approx(-PLANT.load, abs=1e-7)
