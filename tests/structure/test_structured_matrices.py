"""Mass matrices with structure, and B = I by None: the numbers of the dense plant, and errors that say what to do.

Parts of a machine that do not act on each other are compiled block by block: the law is that of the whole in NumPy.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

import servoctl as sc
from servoctl.assembly.make import make_system
from servoctl.engine.structured import components
from servoctl.errors import PlantError
from servoctl.mechanics.model import connected_parts
from servoctl.simulation.adaptive import differences
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.engine_choice import make_loop
from servoctl.types import Array, Status
from tests.mechanics.equations import terms_of
from tests.multipliers import multiplier_equation
from tests.small_plants import Masses
from tests.textbook import Textbook

START = sc.State(0.0, np.array([0.3, -0.2, 0.5]), np.array([0.1, 0.4, -0.3]))


@dataclass(frozen=True)
class Three(sc.Plant):
    """Two masses that a bar couples, and one alone."""

    m: float = 2.0
    form: str = "dense"
    coordinates: ClassVar = {"a": "m", "b": "m", "c": "m"}
    actuators: ClassVar = {"fa": "N", "fb": "N", "fc": "N"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        pair = np.array([[self.m + 1.0, 0.5 * np.cos(q[0])], [0.5 * np.cos(q[0]), self.m]])
        if self.form == "diagonal":
            return sc.Diagonal(self.m * np.array([1.0, 2.0, 3.0]))  # type: ignore[return-value]
        if self.form == "wrong size":
            return sc.Diagonal(np.full(2, self.m))  # type: ignore[return-value]
        dense = np.zeros((3, 3))
        dense[:2, :2], dense[2, 2] = pair, 3.0 * self.m
        return dense

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([-q[0] * v[1], 0.2 * v[0], -4.0 * q[2]])

    def actuation(self, q: Array, t: float) -> Array | None:
        return None if self.form != "dense" else np.eye(3)


@dataclass(frozen=True)
class Underactuated(Three):
    """B = I with fewer inputs than coordinates."""

    form: str = "diagonal"
    actuators: ClassVar = {"fa": "N"}


def test_structure_changes_no_matrix_of_a_plant() -> None:
    task = {"a": sc.Holonomic("a - sin(t)"), "c": sc.Holonomic("c*c - t")}
    diagonal = sc.Model(Three(form="diagonal"), task, START)
    assert diagonal.opaque is None
    found = diagonal.matrices(START)
    np.testing.assert_allclose(found.M, np.diag([2.0, 4.0, 6.0]), atol=1e-14)
    np.testing.assert_array_equal(found.B, np.eye(3))


def test_a_diagonal_is_taken_as_an_array() -> None:
    np.testing.assert_array_equal(np.asarray(sc.Diagonal([1.0, 2.0])), np.diag([1.0, 2.0]))
    np.testing.assert_allclose(sc.Diagonal([1.0, 2.0]) @ np.array([3.0, 4.0]), [3.0, 8.0])


def test_constrained_motion_takes_a_diagonal_mass_matrix() -> None:
    m, Q, A, b = np.array([1.0, 2.0, 4.0]), np.array([1.0, -2.0, 0.5]), np.array([[1.0, 1.0, 0.0]]), np.array([0.3])
    found = terms_of(sc.Diagonal(m), Q, A, b).acceleration(np.zeros(0))
    np.testing.assert_allclose(found, multiplier_equation(np.diag(m), Q, A, b), atol=1e-14)


def test_no_actuation_needs_one_actuator_per_coordinate() -> None:
    with pytest.raises(PlantError, match=r"None means B = I, one actuator per coordinate, got 1 actuator for 3 coord"):
        sc.Model(Underactuated(), {}, START)


def test_a_structured_mass_matrix_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(PlantError, match=r"Three.mass_matrix: expected shape \(3, 3\), got \(2, 2\)"):
        sc.Model(Three(form="wrong size"), {}, START)


def test_a_diagonal_that_is_no_vector_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Diagonal: expected the diagonal as a vector, got shape \(2, 2\)"):
        sc.Diagonal(np.eye(2))


def test_a_negative_mass_on_the_diagonal_is_found() -> None:
    with pytest.raises(PlantError, match="not positive definite"):
        sc.Model(Three(m=-2.0, form="diagonal"), {}, START)


def test_components_are_those_of_scipy() -> None:
    random = np.random.default_rng(0)
    for size in (1, 5, 40, 200):
        for edges in (0, size // 2, size):
            one, other = random.integers(0, size, (2, edges))
            graph = coo_array((np.ones(edges), (one, other)), shape=(size, size))
            count, label = connected_components(graph, directed=False)
            found, numbered = components(one, other, size)
            assert found == count
            np.testing.assert_array_equal(numbered[:, None] == numbered, label[:, None] == label)
    assert components(np.arange(299), np.arange(1, 300), 300)[0] == 1


@dataclass(frozen=True)
class TwoArms(sc.Plant):
    """Two arms of two links without a loop, and a cart on a rail; the second arm has one motor too many."""

    m: float = 1.5
    g: float = 9.81
    guided: bool = False
    coordinates: ClassVar = {"a1": "rad", "a2": "rad", "x": "m", "b1": "rad", "b2": "rad"}
    actuators: ClassVar = {"ta1": "N m", "tb1": "N m", "tb2": "N m", "tb3": "N m", "ta2": "N m", "fx": "N"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        M = np.zeros((5, 5))
        for i in (0, 3):
            c = np.cos(q[i + 1])
            M[i, i], M[i, i + 1] = self.m * (3.0 + 2.0 * c), self.m * (1.0 + c)
            M[i + 1, i], M[i + 1, i + 1] = self.m * (1.0 + c), self.m
        M[2, 2] = 4.0 * self.m
        return M

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([v[1] ** 2 * np.sin(q[1]), -self.m * self.g, 0.1 * v[2], np.sin(q[3]), -(v[3] ** 2)])

    def actuation(self, q: Array, t: float) -> Array:
        B = np.zeros((5, 6))
        B[0, 0], B[1, 4], B[2, 5] = 1.0, 1.0, 2.0
        B[3, 1], B[4, 2], B[3, 3], B[4, 3] = 1.0, 1.0, 0.5, np.cos(q[4])
        return B

    def passive_constraints(self, q: Array, t: float) -> dict[str, Any]:
        return {"guide": q[3] - 2.0 * q[4]} if self.guided else {}


Q = np.array([0.4, 0.9, 0.2, -0.6, -0.3])
BEGIN = sc.State(0.0, Q, np.array([0.3, -0.2, 0.5, 0.1, 0.05]))
TASK = {
    "a": sc.Holonomic("cos(a1) + cos(a1 + a2) - 1.5 - 0.1*t"), "x": sc.Holonomic("x - sin(t)"),
    "b": sc.Holonomic("b1 + 0.2*b2 - 0.1*t"),
}  # fmt: skip


def loop_of(law: sc.ConstraintFollowing, task: Any = None, plant: Any = None) -> Loop:
    return Loop(make_system(plant or TwoArms(), task or TASK, law, {}, BEGIN, None, 1e-6))


def assert_equal(divided: Loop, x: Array, limits: Any = (-np.inf, np.inf)) -> None:
    """Rates, row, control and motion are those of the whole machine on paper, with the inputs clipped to limits."""
    rates, row = divided.rates(0.3, x)
    system, slices, n = divided.system, divided.layout.slices, divided.system.model.n
    book = Textbook(system, divided.split(0.3, x)[0])
    u, missed, rank = book.command()
    np.testing.assert_allclose(row[slices["u"]], np.clip(u, *limits), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(rates[n : 2 * n], book.acceleration(row[slices["u"]]), rtol=1e-10, atol=1e-10)
    assert row[slices["rank"]][0] == rank
    if np.isinf(limits).all():
        required = np.abs(missed[system.law.required]).max()  # type: ignore[union-attr]
        np.testing.assert_allclose(row[slices["residual"]], required, rtol=1e-10, atol=1e-10)
    command = divided.control(0.3, x)
    np.testing.assert_allclose(command, row[: len(command)], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(divided.motion(0.3, x, command)[0], rates, rtol=1e-10, atol=1e-10)


BASE = sc.ConstraintFollowing(correction=sc.Baumgarte(5.0, 3.0))
LAWS = {
    "least inputs": BASE,
    "weights": replace(BASE, allocation="weighted", weights={"tb1": 3.0, "fx": 0.2}),
    "least force": replace(BASE, allocation="constraint_force"),
    "least acceleration": replace(BASE, allocation="least_acceleration"),
    "published": replace(BASE, allocation="unprojected"),
    "two allocations": replace(BASE, allocation="constraint_force", feedback_allocation="weighted"),
    "an aim and damping": replace(BASE, secondary=sc.Secondary(damping=0.4)),
}


@pytest.mark.parametrize("guided", [False, True], ids=["open", "with mechanism rows"])
@pytest.mark.parametrize("name", LAWS)
def test_the_law_of_each_part_is_the_law_of_the_whole(name: str, guided: bool) -> None:
    divided = loop_of(LAWS[name], plant=TwoArms(guided=guided))
    assert divided.system.model.parts == [["a1", "a2"], ["x"], ["b1", "b2"]]
    random = np.random.default_rng(3)
    for _ in range(4):
        assert_equal(divided, np.concatenate([Q, BEGIN.v]) + 0.3 * random.standard_normal(10))


def test_rows_that_contradict_each_other_in_one_part_decide_the_status_of_the_whole() -> None:
    divided = loop_of(BASE, {**TASK, "again": sc.Holonomic("b1 + 0.2*b2 + 3*t*t")})
    x = np.concatenate([Q, BEGIN.v])
    assert_equal(divided, x)
    row = divided.rates(0.3, x)[1]
    assert row[divided.layout.slices["status"]] == Status.INFEASIBLE.code
    assert row[divided.layout.slices["rank"]] == 3


def test_a_part_out_of_reach_is_infeasible_and_not_unreachable_while_another_part_is_reached() -> None:
    task = {"x": TASK["x"], "b": sc.SecondOrder(lambda q, v, t: [[0.0, 0.0, 0.0, 0.0, 0.0]], lambda q, v, t: [1.0])}
    divided = loop_of(sc.ConstraintFollowing(), task)
    assert len(divided.system.model.parts) == 1  # a row that acts on nothing belongs to no part
    assert_equal(divided, np.concatenate([Q, BEGIN.v]))


def test_a_number_that_is_not_finite_in_one_part_leaves_no_command_for_any() -> None:
    divided = loop_of(BASE, {"x": TASK["x"], "a": sc.Holonomic("log(a1) - t")})
    x = np.concatenate([Q, BEGIN.v])
    x[0] = -1.0
    row = divided.rates(0.3, x)[1]
    assert row[divided.layout.slices["status"]] == Status.NON_FINITE.code
    assert np.isnan(row[divided.layout.slices["u"]]).all()


COUPLED = {
    "priorities": {"priorities": {"x": 2}},
    "limits": {"limits": {"fx": 3.0}},
    "damping of all": {"on_infeasible": "damp"},
    "a function of the whole state": {"null_space": lambda state: state.q[0] * np.ones(6)},
}


@pytest.mark.parametrize("feature", COUPLED)
def test_a_law_that_couples_the_parts_is_the_law_of_the_whole(feature: str) -> None:
    """The limited input alone moves the part that it acts on."""
    limit = np.array([3.0 if name == "fx" and feature == "limits" else np.inf for name in TwoArms.actuators])
    assert_equal(loop_of(replace(BASE, **COUPLED[feature])), np.concatenate([Q, BEGIN.v]), (-limit, limit))  # type: ignore[arg-type]


def test_a_task_or_a_mass_matrix_that_couples_makes_one_part() -> None:
    system = make_system(TwoArms(), {**TASK, "both": sc.Holonomic("a1 - b1")}, BASE, {}, BEGIN, None, 1e-6)
    assert system.model.parts == [["a1", "a2", "b1", "b2"], ["x"]]
    full = connected_parts(np.ones((3, 3)), np.eye(3), np.zeros((0, 3)), np.eye(3))
    assert len(full) == 1


def test_the_jacobian_of_parts_is_exact() -> None:
    divided = loop_of(BASE)
    x = np.concatenate([Q, BEGIN.v])
    exact = divided.jacobian(0.3, x)
    assert exact is not None
    np.testing.assert_allclose(exact, differences(lambda y: divided.rates(0.3, y)[0], x, 1e-3), rtol=1e-6, atol=1e-6)


def test_a_swarm_is_compiled_robot_by_robot() -> None:
    from plants.swarm import Aggregation, Swarm

    start = sc.State(0.0, 3.0 * np.random.default_rng(0).standard_normal(60), np.zeros(60))
    law = sc.ConstraintFollowing(correction=sc.PFeedback(0.2))
    system = make_system(Swarm(N=30), {"gather": Aggregation()}, law, {}, start, None, 1e-6)
    loop = make_loop(system)
    assert isinstance(loop, Loop) and len(system.model.parts) == 60
    sizes = [each.name() for each in loop.rates_kernel.function.find_functions() if "decompose" in each.name()]
    assert sizes == ["decompose_1x1x0"]
    x = np.concatenate([start.q, np.linspace(-1.0, 1.0, 60)])
    assert_equal(loop, x)


@dataclass(frozen=True)
class GrainAndShip(Masses):
    """Two masses of 1e-5 and 1e6 kg that do not act on each other."""

    forces: str = "F G"
    grain: float = 1e-5
    ship: float = 1e6

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.diag([self.grain, self.ship])


@pytest.mark.parametrize("engine", ["numpy", "vm", "c"])
def test_a_direction_counts_on_the_scale_of_the_whole_machine_on_every_engine(engine: str) -> None:
    """T = diag(1e5, 1e-6), and |A L^-T| |L^-1 B| = 1e5: the ship counts above a tolerance of 1e-11 alone."""
    task = {"x": sc.Holonomic("x - 0.1*t**2"), "y": sc.Holonomic("y - 0.2*t**2")}
    for tolerance, rank in ((1e-10, 1), (1e-12, 2)):
        law = sc.ConstraintFollowing(sc.Baumgarte(4.0, 4.0), rank_tolerance=tolerance)
        run = sc.simulate(GrainAndShip(), task, law, q=0.0, duration=0.05, step=0.01, engine=engine)
        assert (run["rank"] == rank).all()
        assert (run["u.G"][0] > 3e5) == (rank == 2)
