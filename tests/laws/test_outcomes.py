"""The status of a command: met, dependent, without effect, contradicting, limited, or no command at all.

Every case runs with the plant in NumPy and compiled: the outcome must not depend on the engine.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import servoctl
from servoctl.assembly import simulate
from servoctl.assembly.make import make_system
from servoctl.laws.configured import ConstraintFollowing
from servoctl.laws.corrections import Baumgarte
from servoctl.mechanics.constraint import Constraint, Holonomic, SecondOrder
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.system import System
from servoctl.types import Array, State, Status
from tests.faces import command_at


@dataclass(frozen=True)
class Masses(servoctl.Plant):
    """Two carts of masses m1(x1), m2 under weight; `inputs` names which of them are pushed, a sum sign pushes both."""

    m1: float = 2.0
    m2: float = 1.0
    weight: float = 3.0
    slope: float = 0.0
    inputs: str = "1 2"

    coordinates: ClassVar = {"x1": "m", "x2": "m"}

    @property
    def actuators(self) -> dict[str, str]:
        return {f"F{i}": "N" for i in range(1, 1 + len(self.inputs.split()))}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[self.m1 + self.slope * q[0], 0.0], [0.0, self.m2]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([-self.weight, 0.0 * t])

    def actuation(self, q: Array, t: float) -> Array:
        columns = {"1": [1.0, 0.0], "2": [0.0, 1.0], "+": [1.0, 1.0]}
        return np.array([columns[word] for word in self.inputs.split()]).T


START = State(0.0, np.array([0.5, -0.2]), np.array([0.1, 0.4]))


def system(task: dict[str, Constraint], law: ConstraintFollowing | None, plant: Masses | None = None) -> System:
    return make_system(plant or Masses(), task, law, {}, START, None, 1e-6)


def outcomes(found: System, x: Any = None, t: float = 0.0) -> list[dict[str, Array]]:
    """The row of each engine."""
    x = np.concatenate([START.q, START.v]) if x is None else np.asarray(x, dtype=float)
    loops = [Loop(found, in_numpy=True), Loop(found)]
    rows = [loop.control(t, x) for loop in loops]
    names = ("u", "rank", "residual", "pivot_min", "status")
    return [{name: row[loop.layout.slices[name]] for name in names} for loop, row in zip(loops, rows, strict=True)]


X1, X2 = Holonomic("x1"), Holonomic("x2")
MET = Status.OK.code


@pytest.mark.parametrize(
    ("inputs", "task", "u", "rank", "residual", "status"),
    [
        ("1 2", {"a": X1, "b": X2}, [3.0, 0.0], 2, 0.0, Status.OK),
        ("1 2 +", {"a": X1, "b": X2}, [2.0, -1.0, 1.0], 2, 0.0, Status.OK),  # null space (1, 1, -1)
        ("1", {"a": X1}, [3.0], 1, 0.0, Status.OK),
        ("1 2", {"a": X1, "b": X1}, [3.0, 0.0], 1, 0.0, Status.RANK_DEFICIENT),
        ("1", {"a": X1, "b": X2}, [3.0], 1, 0.0, Status.RANK_DEFICIENT),  # x2 is out of reach and needs nothing
        ("1", {"b": X2}, [0.0], 0, 0.0, Status.UNREACHABLE),
        ("1", {"a": Holonomic("x1 - t**2"), "b": Holonomic("x2 - t**2")}, [7.0], 1, 2.0, Status.INFEASIBLE),
        ("1 2", {"a": X1, "b": Holonomic("x1 - t**2")}, [5.0, 0.0], 1, 1.0, Status.INFEASIBLE),
    ],
    ids=["full", "redundant", "one of each", "dependent", "one unneeded", "rank 0", "under-actuated", "contradicting"],
)
def test_the_status_tells_whether_the_task_is_feasible(
    inputs: str, task: dict[str, Constraint], u: list[float], rank: int, residual: float, status: Status
) -> None:
    for row in outcomes(system(task, ConstraintFollowing(), Masses(inputs=inputs))):
        np.testing.assert_allclose(row["u"], u, atol=1e-12)
        assert row["rank"][0] == rank
        assert row["residual"][0] == pytest.approx(residual, abs=1e-12)
        assert Status.from_code(row["status"][0]) is status
        assert (row["pivot_min"][0] > 1e-3) == (rank > 0)


def test_the_residual_names_the_rows_that_are_missed() -> None:
    task = {"a": X1, "b": Holonomic("x2 - 2*t**2"), "c": Holonomic("x1 - t**2")}
    found = system(task, ConstraintFollowing(), Masses(inputs="1"))
    assert found.law is not None
    command = command_at(found.law, found.model, START)
    # row b is out of reach and wants 4; rows a and c want 0 and 2 of x1: least squares gives both 1
    np.testing.assert_allclose(command.residual, [-1.0, 4.0, 1.0], atol=1e-12)


@pytest.mark.parametrize(("on_infeasible", "u", "status"), [
    ("warn", [5.0, 0.0], Status.INFEASIBLE),
    ("damp", [-0.07, -0.28], Status.DAMPED),
    ("fault", [5.0, 0.0], Status.INFEASIBLE),
])  # fmt: skip
def test_on_infeasible_decides_the_command(on_infeasible: Any, u: list[float], status: Status) -> None:
    task = {"a": X1, "b": Holonomic("x1 - t**2")}
    law = ConstraintFollowing(on_infeasible=on_infeasible, input_damping=0.7)
    found = system(task, law)
    for row in outcomes(found):
        np.testing.assert_allclose(row["u"], u, atol=1e-12)
        assert Status.from_code(row["status"][0]) is status
    assert found.law is not None
    assert (Status.INFEASIBLE.code in found.law.stops_on) == (on_infeasible == "fault")


def test_damping_also_acts_at_rank_0() -> None:
    law = ConstraintFollowing(on_infeasible="damp", input_damping=2.0)
    for row in outcomes(system({"b": X2}, law, Masses(inputs="1"))):
        assert row["u"].tolist() == [-0.2]
        assert Status.from_code(row["status"][0]) is Status.DAMPED


@pytest.mark.parametrize("output_step", [None, 0.1, 0.07])
@pytest.mark.parametrize("engine", ["vm", "numpy"])
def test_a_fault_stops_the_run_at_its_step_even_if_that_row_is_not_written(
    engine: str, output_step: float | None
) -> None:
    """Two rows that contradict each other in the one step from 0.25 s on."""
    push = SecondOrder(
        lambda q, v, t: np.array([[1.0, 0.0], [1.0, 0.0]]),
        lambda q, v, t: np.array([0.0, servoctl.where((t > 0.245) & (t < 0.255), 1.0, 0.0)]),
    )
    run = simulate(
        Masses(), {"push": push}, ConstraintFollowing(on_infeasible="fault"), q=0.0, duration=1.0, step=0.01,
        output_step=output_step, engine=engine,
    )  # fmt: skip
    assert run.metadata["status"] == "stopped"
    assert run.metadata["error"].startswith(f"t = 0.25 s: {Status.INFEASIBLE.value}")
    assert run.t[-1] == pytest.approx(0.25, abs=1e-12)


def test_limits_bound_the_inputs_and_the_residual_shows_what_is_missed() -> None:
    task = {"a": X1, "b": X2}
    wide = ConstraintFollowing(limits={"F1": (-4.0, 4.0)})
    tight = ConstraintFollowing(limits={"F1": (-1.0, 2.5)})
    for row in outcomes(system(task, wide)):
        np.testing.assert_allclose(row["u"], [3.0, 0.0], atol=1e-12)
        assert row["status"][0] == MET
    for row in outcomes(system(task, tight)):
        np.testing.assert_allclose(row["u"], [2.5, 0.0], atol=1e-12)
        assert row["residual"][0] == pytest.approx(0.25, abs=1e-12)  # (3 - 2.5) N / 2 kg
        assert Status.from_code(row["status"][0]) is Status.SATURATED


def test_a_limit_on_an_input_without_effect_on_the_task_costs_nothing() -> None:
    law = ConstraintFollowing(null_space={"F2": "9"}, limits={"F2": (-1.0, 1.0)})
    for row in outcomes(system({"a": X1}, law)):
        np.testing.assert_allclose(row["u"], [3.0, 1.0], atol=1e-12)
        assert row["status"][0] == MET


LIMITED = ConstraintFollowing(correction=Baumgarte(1, 1), limits={"F1": (-5.0, 5.0)})
LOG = Holonomic(lambda q, t: np.log(q[0]))
NOWHERE: dict[str, tuple[System, list[float], float]] = {
    "q is nan": (system({"a": X1}, LIMITED), [np.nan, 0, 0, 0], 0.0),
    "q is infinite": (system({"a": X1}, LIMITED), [np.inf, 0, 0, 0], 0.0),
    "v is nan, though no term holds it": (system({"a": X1}, ConstraintFollowing()), [0, 0, 0, np.nan], 0.0),
    "t is nan": (system({"a": X1}, LIMITED), [0, 0, 0, 0], np.nan),
    "parameter is nan": (system({"a": X1}, LIMITED, Masses(weight=3.0)), [0.5, 0, 0, 0], 0.0),
    "violation is nan, though A and b are not": (system({"a": LOG}, LIMITED), [-0.5, 0, 0.1, 0], 0.0),
    "null space is nan": (system({"a": X1}, ConstraintFollowing(null_space={"F2": "log(x2)"})), [0.5, -1, 0, 0], 0.0),
}


@pytest.mark.parametrize("name", NOWHERE)
def test_numbers_that_are_not_finite_give_no_command(name: str) -> None:
    found, x, t = NOWHERE[name]
    if name == "parameter is nan":
        found.model.plant = Masses(weight=np.nan)
    with np.errstate(all="ignore"):
        rows = outcomes(found, x, t)
    for row in rows:
        assert np.isnan(row["u"]).all() and np.isnan(row["residual"]).all()
        assert Status.from_code(row["status"][0]) is Status.NON_FINITE
        assert row["rank"][0] == 0.0


@pytest.mark.parametrize("law", [LIMITED, None], ids=["law", "open loop"])
def test_a_mass_matrix_that_is_not_positive_definite_gives_no_command_and_no_motion(law: Any) -> None:
    found = system({"a": X1} if law else {}, law, Masses(slope=1.0))
    x = np.array([-3.0, 0.0, 0.1, 0.2])
    for loop in (Loop(found, in_numpy=True), Loop(found)):
        rates, row = loop.rates(0.0, x)
        assert rates[:2].tolist() == [0.1, 0.2] and np.isnan(rates[2:]).all()
        assert Status.from_code(row[loop.layout.slices["status"]][0]) is Status.NOT_POSITIVE
        assert np.isnan(row[loop.layout.slices["u"]]).all()
        assert np.isnan(loop.motion(0.0, x, np.zeros(loop.layout.command_size))[0][2:]).all()


def test_a_nan_in_the_motion_alone_stays_nan() -> None:
    """A command held over a state that is lost: nothing may come out as a number."""
    found = system({"a": X1}, LIMITED)
    for loop in (Loop(found, in_numpy=True), Loop(found)):
        held = loop.control(0.0, np.array([0.5, 0.0, 0.0, 0.0]))
        assert np.isfinite(held).all()
        assert np.isnan(loop.motion(0.0, np.array([0.5, 0.0, np.nan, 0.0]), held)[0][2:]).all()


LIMITS = {"u1": 12.0, "u2": 12.0, "u3": 8.1, "u4": 12.0, "u5": 12.0, "u6": 7.0}
WEAK = f"law.limits={{{', '.join(f'{name}: 5' for name in LIMITS)}}}"


def test_a_limit_that_least_torques_exceed_is_kept_without_cost_to_the_task() -> None:
    free, run = (servoctl.load(f"coordinated_robots{kind}").simulate() for kind in ("", "_limited"))
    assert np.abs(free["u.u6"]).max() > 8.2 and np.abs(run["u.u6"]).max() == 7.0
    assert all(np.abs(run[f"u.{name}"]).max() <= limit for name, limit in LIMITS.items())
    assert max(run.violation(name).max() for name in ("object_x", "object_y", "level")) < 1e-9
    assert set(run["status"]) == {MET}


def test_a_limit_below_the_demand_of_the_task_is_kept_and_the_missing_part_is_reported_or_a_fault() -> None:
    run = servoctl.load("coordinated_robots_limited", [WEAK]).simulate()
    assert np.abs(run.u).max() <= 5.0 and run.metadata["status"] == "done"
    assert run["residual"][0] > 0.1 and run.summary()["status_counts"]["SATURATED"] > 0
    to_limit = [event for event in run.metadata["events"] if event.get("to") == "SATURATED"]
    assert all(set(event["at_limit"]) <= set(LIMITS) for event in to_limit)
    fault = servoctl.load("coordinated_robots_limited", ["law.on_infeasible=fault", WEAK]).simulate()
    assert fault.metadata["status"] == "stopped" and "at its limit" in fault.metadata["error"]
