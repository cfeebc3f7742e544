"""A plant whose passive constraints are given with their own A and b."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import servoctl
from servoctl.errors import PlantError
from servoctl.mechanics.constraint import Constraint, Nonholonomic, Rows
from servoctl.mechanics.model import Model
from servoctl.types import Array, State

START = State(0.0, np.array([0.6, -0.8]), np.array([0.4, 0.3]))


@dataclass(frozen=True)
class OnCircle(Constraint):
    """`(x^2 + y^2 - l^2)/2 = 0`, derived by hand."""

    kind: ClassVar[str] = "holonomic"

    def rows(self, plant: Any, t: Any, q: Array, v: Array) -> Rows:
        return Rows(
            np.array([[q[0], q[1]]]), np.array([-(v @ v)]), np.array([(q @ q - plant.l**2) / 2.0]), np.array([q @ v])
        )


@dataclass(frozen=True)
class Pendulum(servoctl.Plant):
    """A point on a circle; the circle's equation is derived, or given in closed form."""

    l: float = 1.0  # noqa: E741
    closed: bool = True

    coordinates: ClassVar = {"x": "m", "y": "m"}
    actuators: ClassVar = {}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.eye(2)

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([0.0, -9.81])

    def passive_constraints(self, q: Array, t: float) -> dict[str, Any]:
        return {"rope": OnCircle() if self.closed else (q @ q - self.l**2) / 2.0}

    def energy(self, q: Array, v: Array, t: float) -> float:
        return float(v @ v / 2.0 + 9.81 * q[1])


def test_rows_in_closed_form_are_those_of_the_equation() -> None:
    closed, derived = (Model(Pendulum(closed=closed), {}, START) for closed in (True, False))
    state = State(0.3, np.array([0.5, -0.7]), np.array([-0.2, 1.1]))
    ours, expected = (model.matrices(state).passive for model in (closed, derived))
    for part in ("A", "b", "violation", "violation_rate"):
        np.testing.assert_allclose(getattr(ours, part), getattr(expected, part), rtol=1e-14, atol=1e-15)
    assert closed.passive_rows == derived.passive_rows


def test_parameters_in_closed_form_stay_inputs() -> None:
    model = Model(Pendulum(), {}, START).of(Pendulum(l=2.0), {}, START)
    assert model.matrices(START).passive.violation[0] == pytest.approx((1.0 - 4.0) / 2.0)


def test_a_run_with_rows_in_closed_form_is_that_with_the_equation() -> None:
    ends = []
    for closed in (True, False):
        run = servoctl.simulate(Pendulum(closed=closed), {}, None, q=START.q, v=0.0, duration=0.5, step=0.01)
        ends.append([run["q.x"][-1], run["q.y"][-1]])
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-12)


@dataclass(frozen=True)
class Rolling(Pendulum):
    """A constraint of another kind keeps its kind."""

    def passive_constraints(self, q: Array, t: float) -> dict[str, Any]:
        return {"blade": Nonholonomic("der(x)*y - der(y)*x")}


def test_a_constraint_keeps_its_kind() -> None:
    (row,) = Model(Rolling(), {}, START).passive_rows
    assert (row.kind, row.has_violation, row.has_rate) == ("nonholonomic", True, False)


@dataclass(frozen=True)
class Broken(Pendulum):
    def passive_constraints(self, q: Array, t: float) -> dict[str, Any]:
        return {"rope": servoctl.Holonomic("x**2 + heigth")}


def test_a_constraint_that_fails_is_named() -> None:
    with pytest.raises(PlantError, match=r"^Broken\.passive_constraints: rope: .*heigth"):
        Model(Broken(), {}, START)
