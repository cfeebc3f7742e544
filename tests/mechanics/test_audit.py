"""Errors of a plant away from its start: a mass matrix that is not symmetric, two answers at one state."""

import itertools
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import casadi as ca
import numpy as np
import pytest

import servoctl as sc
from servoctl.assembly import simulate
from servoctl.engine import compiler
from servoctl.engine.structured import certainly_symmetric
from servoctl.engine.symbol import from_sx
from servoctl.engine.trace import mismatch
from servoctl.errors import PlantError, TaskError, TraceError
from servoctl.mechanics.model import Model, structure_of
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array, State
from tests.small_plants import Masses

COMPILED = pytest.param("c", marks=pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler on the path"))
ENGINES = pytest.mark.parametrize("engine", ["vm", "numpy", COMPILED])
START = State(0.0, np.zeros(2), np.array([1.0, 0.0]))


@dataclass(frozen=True)
class Pair(Masses):
    """Two masses with constant forces, of which one is pushed."""

    forces: str = "F"
    coupling: float = 0.6

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([0.3, -0.1]) - 0.0 * q


@dataclass(frozen=True)
class UpperOnly(Pair):
    """The lower triangle is forgotten; at the start the entry is zero."""

    def mass_matrix(self, q: Array, t: float) -> Array:
        M = np.eye(2)
        M[0, 1] = self.coupling * np.sin(q[0])
        return M


@dataclass(frozen=True)
class FarOff(Pair):
    """The same, beyond x = 2, where no random state lies."""

    def mass_matrix(self, q: Array, t: float) -> Array:
        M = np.eye(2)
        M[0, 1] = sc.where(q[0] > 2.0, self.coupling, 0.0)
        return M


@dataclass(frozen=True)
class FarOffOpaque(Pair):
    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[1.0, self.coupling if q[0] > 2.0 else 0.0], [0.0, 1.0]])


@ENGINES
def test_a_mass_matrix_that_is_not_symmetric_away_from_the_start_is_refused(engine: str) -> None:
    message = (
        r"^UpperOnly\.mass_matrix: not symmetric at t=.*, q=.*: \[0, 1\] is -?0\.\d+ and \[1, 0\] is 0 \(fill both"
    )
    with pytest.raises(PlantError, match=message):
        simulate(UpperOnly(), {}, None, q=0.0, v=[1.0, 0.0], duration=3.0, engine=engine)


@ENGINES
@pytest.mark.parametrize("plant", [FarOff(), FarOffOpaque()], ids=lambda plant: type(plant).__name__)
@pytest.mark.parametrize(
    "how", [{"step": 0.01}, {"method": "dop853", "output_step": 0.05}, {"period": 0.02, "step": 0.01}], ids=str
)
def test_a_run_stops_where_its_mass_matrix_ceases_to_be_symmetric(
    plant: Pair, engine: str, how: dict[str, Any]
) -> None:
    run = simulate(plant, {}, None, q=0.0, v=[1.0, 0.0], duration=3.0, engine=engine, **how)
    assert run.metadata["status"] == "stopped"
    assert "mass_matrix not symmetric: [0, 1] is 0.6 and [1, 0] is 0 at t = 1.6" in run.metadata["error"]
    assert run["q.x"][-1] == pytest.approx(2.0, abs=0.06)  # a row before or behind x = 2
    assert run.t[-1] == pytest.approx(1.61, abs=0.05)  # t + 0.15 t^2 = 2


@pytest.mark.parametrize(("upper", "lower", "certain"), [
    ("ca.sin(x)", "ca.sin(x)", True),  # one expression
    ("x * y + x", "x * (y + 1)", True),  # analytic: equal at random states, equal everywhere
    ("ca.fabs(x)", "ca.fabs(x)", True),  # one expression, whatever is in it
    ("ca.fabs(x)", "x", False),
    ("ca.if_else(x > 2, 1, 0)", "ca.SX(0)", False),
])  # fmt: skip
def test_symmetry_is_certain_only_where_no_branch_can_hide_a_difference(upper: str, lower: str, certain: bool) -> None:
    x, y = ca.SX.sym("x"), ca.SX.sym("y")
    entries = [eval(text, {"ca": ca, "x": x, "y": y}) for text in ("ca.SX(1)", lower, upper, "ca.SX(1)")]
    M = from_sx(ca.reshape(ca.vertcat(*entries), 2, 2), (2, 2))
    assert certainly_symmetric(M) is certain


def test_a_symmetric_plant_is_not_compared_at_run_time() -> None:
    assert Model(Pair(), {}, START).symmetric
    assert not Model(FarOff(), {}, START).symmetric
    for name in ("coordinated_robots", "scara", "three_masses", "parallelogram"):
        assert sc.load(name).system.model.symmetric, name


@pytest.mark.parametrize("size", [1, 2])
def test_an_opaque_plant_with_a_symmetric_mass_matrix_runs(size: int) -> None:
    @dataclass(frozen=True)
    class Opaque(sc.Plant):
        coordinates: ClassVar = dict.fromkeys("ab"[:size], "rad")
        actuators: ClassVar = {}

        def mass_matrix(self, q: Array, t: float) -> Array:
            return np.eye(size) * 2.0 + 0.1 * float(q[0]) ** 2

        def force(self, q: Array, v: Array, t: float) -> Array:
            return np.ones(size)

    for engine in ("vm", "numpy"):
        run = simulate(Opaque(), {}, None, q=0.0, duration=0.1, step=0.01, engine=engine)
        assert run.metadata["status"] == "done", run.metadata.get("error")
        assert run["q.a"][-1] == pytest.approx(0.1**2 / 4, rel=1e-4)  # a = 1 / 2 while q is small


def test_a_plant_is_evaluated_at_most_28_times_before_a_run_relies_on_it() -> None:
    calls: Counter[str] = Counter()

    @dataclass(frozen=True)
    class Counted(Pair):
        def mass_matrix(self, q: Array, t: float) -> Array:
            calls["mass_matrix"] += np.asarray(q).dtype == float
            return super().mass_matrix(q, t)

        def force(self, q: Array, v: Array, t: float) -> Array:
            calls["force"] += np.asarray(q).dtype == float
            return super().force(q, v, t)

        def passive_constraints(self, q: Array, t: float) -> dict[str, Any]:
            calls["passive_constraints"] += np.asarray(q).dtype == float
            return {}

    model = Model(Counted(), {}, START)
    assert model.opaque is None
    assert set(calls) == {"mass_matrix", "force", "passive_constraints"}
    assert 21 <= min(calls.values()) <= max(calls.values()) <= 28
    calls.clear()
    law = sc.ConstraintFollowing(correction=sc.Baumgarte(10.0, 10.0))
    simulate(Counted(), {"a": sc.Holonomic("x - 0.1*sin(t)")}, law, q=0.0, duration=0.01, engine="vm")
    assert 21 <= min(calls.values()) <= max(calls.values()) <= 28


COUNT = itertools.count()


@dataclass(frozen=True)
class Counting(Pair):
    """A force that grows with every call."""

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([0.1 * next(COUNT), 0.0])


@dataclass(frozen=True)
class Alternating(Pair):
    """A constraint that shifts with every other call, compiled once as if it did not."""

    def passive_constraints(self, q: Array, t: float) -> dict[str, Array]:
        return {"line": q[1] - 0.01 * (next(COUNT) % 2)}


HELD = [np.inf, 0.0]


@dataclass(frozen=True)
class Holding(Pair):
    """A force that is computed every 10 ms and held meanwhile."""

    def force(self, q: Array, v: Array, t: float) -> Array:
        if abs(float(t) - HELD[0]) > 0.01:
            HELD[:] = [float(t), -float(v[0])]
        return np.array([HELD[1], 0.0])


@dataclass(frozen=True)
class Drawing(Pair):
    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[np.random.default_rng().random()], [0.0]])


@ENGINES
@pytest.mark.parametrize(
    ("plant", "method"),
    [(Counting(), "force"), (Alternating(), "passive_constraints"), (Drawing(), "actuation"), (Holding(), "force")],
    ids=["counter", "alternating", "random", "held"],
)
def test_a_plant_with_two_answers_at_one_state_is_refused(plant: Pair, method: str, engine: str) -> None:
    message = (
        rf"^{type(plant).__name__}\.{method}: two answers at one state, \S+ and \S+ at t=.* \(the answer may depend"
    )
    with pytest.raises(PlantError, match=message):
        simulate(plant, {}, None, q=0.0, v=[1.0, 0.0], duration=0.1, engine=engine)


def sided(q: Array) -> Any:
    """1 where q > 0.1, else 3; on symbols, which have no truth, it is 2."""
    try:
        return 1.0 if q[0] > 0.1 else 3.0
    except TraceError:
        return 2.0


@dataclass(frozen=True)
class Sided(Pair):
    def passive_constraints(self, q: Array, t: float) -> dict[str, Array]:
        return {"line": q[1] - sided(q) * q[0]}


TASKS = {
    "counter": (sc.Holonomic(lambda q, t: q[0] - next(COUNT)), "two answers at one state"),
    "two ways": (sc.Holonomic(lambda q, t: q[0] * sided(q) - 0.1), "symbols and NumPy differ"),
    "two ways of rates": (sc.Nonholonomic(lambda q, v, t: v[0] * sided(q) - 0.1), "symbols and NumPy differ"),
    "two ways of A": (sc.SecondOrder(lambda q, v, t: [[sided(q), 0.0]], lambda q, v, t: [0.0]), "symbols and NumPy"),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_the_same_on_symbols_and_numbers_or_refused(name: str) -> None:
    task, sentence = TASKS[name]
    with pytest.raises(TaskError, match=f"^own: {sentence}"):
        simulate(Pair(), {"own": task}, sc.ConstraintFollowing(), q=0.0, v=0.0, duration=0.1)


def test_a_constraint_of_the_plant_is_the_same_on_symbols_and_numbers_or_refused() -> None:
    with pytest.raises(PlantError, match=r"^Sided.passive_constraints: line: symbols and NumPy differ"):
        simulate(Sided(), {}, None, q=0.0, v=0.0, duration=0.1)


def run_of(plant: Pair) -> Trajectory:
    return simulate(plant, {}, None, q=0.0, v=0.0, duration=0.1, step=0.01)


def test_a_mass_matrix_that_is_indefinite_nearby_is_a_warning_that_counts_states() -> None:
    @dataclass(frozen=True)
    class Vanishing(Pair):
        def mass_matrix(self, q: Array, t: float) -> Array:
            return np.diag([1.0, 0.3 - q[1]])

    run = run_of(Vanishing())
    assert run.metadata["status"] == "done"
    (warning,) = run.metadata["warnings"]
    assert warning.startswith(
        "Vanishing.mass_matrix: not positive definite at 3 of 21 states near the start, first at t="
    )
    assert warning.endswith("(a run that gets there stops)")


def test_a_force_that_is_not_finite_nearby_is_a_warning() -> None:
    @dataclass(frozen=True)
    class Root(Pair):
        def force(self, q: Array, v: Array, t: float) -> Array:
            return np.array([np.sqrt(q[0] + 0.3), 0.0])

    (warning,) = run_of(Root()).metadata["warnings"]
    assert warning.startswith("Root.force: not finite at 3 of 21 states near the start, first at t=")


def test_a_plant_that_fails_nearby_is_a_warning_and_not_a_crash() -> None:
    @dataclass(frozen=True)
    class Picky(Pair):
        def force(self, q: Array, v: Array, t: float) -> Array:
            if q[0] < -0.3:
                raise ValueError("x is too small")
            return np.zeros(2)

    said = run_of(Picky()).metadata["warnings"]
    assert any(line.startswith("Picky: failed (ValueError: x is too small (line") for line in said)


def test_symbols_that_are_finite_where_numpy_is_not_differ_from_it() -> None:
    assert mismatch([1.0, np.nan], [1.0, 2.0], 1.0) == np.inf
    assert mismatch([1.0, np.nan], [1.0, np.inf], 1.0) is None


@dataclass(frozen=True)
class LightBesideHeavy(sc.Plant):
    """A wheel of 1e-6 kg m^2 beside a body of 1e5 kg; `light` is doubled where the plant is asked for numbers."""

    heavy: float = 1e5
    light: float = 1e-6
    coordinates: ClassVar = {"x": "m", "wheel": "rad"}
    actuators: ClassVar = {"F": "N", "T": "N m"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        doubled = np.asarray(q).dtype != object
        return np.diag([self.heavy, (1.0 + doubled) * self.light])

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([-self.heavy * 9.8, 0.0 * q[1]])

    def actuation(self, q: Array, t: float) -> Array:
        return np.eye(2)


def test_a_small_entry_beside_a_large_one_is_compared_too() -> None:
    model = Model(LightBesideHeavy(), {}, START)
    assert model.opaque is not None and "mass_matrix: symbols and NumPy differ" in model.opaque
    np.testing.assert_array_equal(np.diag(model.matrices(START).M), [1e5, 2e-6])


@dataclass(frozen=True)
class Made(sc.Holonomic):
    """x + 1 = r^2, with the square made once."""

    r: float = 2.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "square", self.r**2)

    def phi(self, q: Array, t: float) -> Any:
        return q[0] + 1.0 - self.square  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Kept(sc.Holonomic):
    """The same, with the square kept after its first use."""

    r: float = 2.0

    @cached_property
    def square(self) -> float:
        return self.r**2

    def phi(self, q: Array, t: float) -> Any:
        return q[0] + 1.0 - self.square


def test_values_that_a_constraint_makes_of_its_parameters_follow_them() -> None:
    """Made in `__post_init__`, r is no input of compiled functions, and another r is another trace; kept, it is."""
    kept = Kept()
    assert kept.phi(START.q, 0.0) == -3.0
    model = Model(Pair(), {"kept": kept, "made": Made()}, START)
    p = model.parameters
    assert p[-1] == 2.0
    p[-1] = 3.0
    violation = model.rows_kernel(0.0, START.q, START.v, p)[list(model.rows_kernel.outputs).index("task_violation")]
    np.testing.assert_array_equal(violation, [-8.0, -3.0])
    key = structure_of(Pair(), model.task, {})
    assert structure_of(Pair(), {"kept": Kept(3.0), "made": Made()}, {}) == key
    assert structure_of(Pair(), {"kept": Kept(3.0), "made": Made(3.0)}, {}) != key
