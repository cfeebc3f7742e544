"""Parameters stay inputs of compiled functions; code that symbols cannot follow makes a plant opaque."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

import servoctl
from servoctl.engine.kernel import Kernel, directional, inputs, jacobian
from servoctl.engine.parameters import (
    annotated,
    parameter_fields,
    parameter_names,
    parameter_values,
    structure,
    with_parameters,
)
from servoctl.engine.trace import mismatch, trace
from servoctl.mechanics.model import Model
from servoctl.types import Array, State


@dataclass(frozen=True)
class Spring(servoctl.Plant):
    """m x'' = -k0 x - k1 x^3 + F."""

    m: float = 2.0
    k: tuple[float, ...] = (3.0, 0.5)
    F: float | None = None  # structural: not plainly a float
    order: int = 2
    name: str = "spring"
    stiff: bool = False

    coordinates: ClassVar = {"x": "m"}
    actuators: ClassVar = {"f": "N"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[self.m]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([-sum(k * q[0] ** (2 * i + 1) for i, k in enumerate(self.k))])

    def actuation(self, q: Array, t: float) -> Array:
        return np.eye(1)


START = State(0.0, np.array([0.4]), np.array([0.1]))


def model(plant: servoctl.Plant) -> Model:
    return Model(plant, {}, START)


def test_floats_and_tuples_of_floats_are_parameters_and_nothing_else() -> None:
    plant = Spring(k=(1.0, 2.0, 3.0))
    assert parameter_fields(plant) == {"m": None, "k": 3}
    assert parameter_names(plant) == ["m", "k[0]", "k[1]", "k[2]"]
    assert parameter_values(plant).tolist() == [2.0, 1.0, 2.0, 3.0]
    assert with_parameters(plant, [5.0, 6.0, 7.0, 8.0]) == Spring(5.0, (6.0, 7.0, 8.0))
    assert plant == Spring(k=(1.0, 2.0, 3.0))


def test_a_tuple_of_a_fixed_length_is_one_too() -> None:
    @dataclass(frozen=True)
    class Geared(servoctl.Plant):
        ratios: tuple[float, float] = (2.0, 0.5)
        teeth: tuple[int, int] = (20, 40)

    assert annotated(Geared) == {"ratios": (True, 2)}


def test_an_object_without_parameters_is_returned_unchanged() -> None:
    assert parameter_values(None).tolist() == []
    assert with_parameters(None, []) is None


@pytest.mark.parametrize("change", [{"order": 3}, {"name": "other"}, {"stiff": True}, {"k": (1.0,)}, {"F": 1.0}])
def test_a_structural_change_is_another_structure(change: dict[str, Any]) -> None:
    assert structure(replace(Spring(), **change)) != structure(Spring())


@pytest.mark.parametrize("change", [{"m": 9.0}, {"k": (8.0, 7.0)}])
def test_another_value_of_a_parameter_is_the_same_structure(change: dict[str, Any]) -> None:
    assert structure(replace(Spring(), **change)) == structure(Spring())


def test_a_compiled_plant_follows_its_parameters_without_being_traced_again() -> None:
    bound = model(Spring())
    assert bound.opaque is None and bound.plant_kernel is not None
    other = Spring(7.0, (11.0, -2.0))
    at = bound.of(other, bound.task, START).matrices(START)
    assert at.M.tolist() == [[7.0]] and at.B.tolist() == [[1.0]] and at.c.tolist() == [0.0]
    np.testing.assert_allclose(at.Q, [-(11.0 * 0.4 - 2.0 * 0.4**3)], rtol=1e-15)


def test_a_kernel_gives_copies_and_takes_one_number_for_an_entry_of_one() -> None:
    given = inputs({"t": (1,), "x": (2,)})
    kernel = Kernel.compile("f", given, {"y": given["x"] * given["t"][0], "z": np.outer(given["x"], [1.0, 2.0, 3.0])})
    first, matrix = kernel(2.0, np.array([3.0, 4.0]))
    kernel(5.0, np.array([0.0, 0.0]))
    assert first.tolist() == [6.0, 8.0]
    assert matrix.tolist() == [[3.0, 6.0, 9.0], [4.0, 8.0, 12.0]]


def test_derivatives_equal_complex_steps() -> None:
    def f(x: Array) -> Array:
        return np.array([np.sin(x[0]) * x[1] ** 3, np.exp(x[0] * x[2]) / x[1]])

    given = inputs({"x": (3,), "d": (3,)})
    y = trace(f, given["x"])
    outputs = {"J": jacobian(y, given["x"]), "along": directional(y, given["x"], given["d"])}
    x, d, h = np.array([0.3, -0.7, 1.2]), np.array([1.0, 2.0, -0.5]), 1e-30
    J, along = Kernel.compile("J", given, outputs)(x, d)
    expected = np.stack([f(x + 1j * h * e).imag / h for e in np.eye(3)], axis=1)
    np.testing.assert_allclose(J, expected, rtol=1e-14)  # a complex step has no truncation error at h = 1e-30
    np.testing.assert_allclose(along, expected @ d, rtol=1e-14)


def test_derivatives_of_nothing_are_empty() -> None:
    x = inputs({"x": (3,)})["x"]
    assert jacobian(np.zeros(0), x).shape == (0, 3)
    assert directional(np.zeros(0), x, x).shape == (0,)


@dataclass(frozen=True)
class Branching(Spring):
    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([-1.0 if float(q[0]) > 0.0 else 1.0])


@dataclass(frozen=True)
class Mathematical(Spring):
    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([math.cos(q[0])])


@dataclass(frozen=True)
class Fixed(Spring):
    def __post_init__(self) -> None:
        object.__setattr__(self, "doubled", 2.0 * self.m)

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[self.doubled]])  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Identity(Spring):
    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([1.0 if isinstance(q[0], float) else 2.0])


@dataclass(frozen=True)
class Tiny(Spring):
    """A machine of some picograms, whose mass is fixed too early."""

    m: float = 1e-12

    def __post_init__(self) -> None:
        object.__setattr__(self, "own", self.m)

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[self.own]])  # type: ignore[attr-defined]

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.zeros(1)


@pytest.mark.parametrize(("kind", "line"), [(Branching, "if float(q[0]) > 0.0"), (Mathematical, "math.cos(q[0])")])
def test_a_branch_on_the_state_makes_a_plant_opaque_and_names_the_line(kind: type[Spring], line: str) -> None:
    bound = model(kind())
    assert bound.opaque is not None and bound.plant_kernel is None
    assert bound.opaque.startswith(__file__ + ":")
    assert line in bound.opaque and "the value of a symbol is not known" in bound.opaque


@pytest.mark.parametrize(("kind", "method"), [(Fixed, "mass_matrix"), (Identity, "force"), (Tiny, "mass_matrix")])
def test_a_plant_whose_symbols_differ_from_its_numbers_is_opaque_by_name(kind: type[Spring], method: str) -> None:
    bound = model(kind())
    assert bound.opaque is not None and bound.plant_kernel is None
    assert bound.opaque.startswith(f"{kind.__name__}.{method}: symbols and NumPy differ by ")
    assert "a value fixed in __post_init__?" in bound.opaque


def test_an_opaque_plant_moves_as_its_numpy_code_computes() -> None:
    matrices = model(Branching()).matrices(State(0.0, np.array([-0.4]), np.zeros(1)))
    assert matrices.Q.tolist() == [1.0]


def test_a_difference_is_measured_against_the_scale() -> None:
    assert mismatch(np.array([100.0, 1.0]), np.array([100.0, 1.0 + 5e-9]), 100.0) is None
    assert mismatch(np.array([100.0, 1.0]), np.array([100.0, 1.0 + 2e-8]), 100.0) == pytest.approx(2e-10, rel=1e-6)
    assert mismatch(np.ones(2), np.ones(3), 1.0) == math.inf
    assert mismatch(np.array([np.nan, 1.0]), np.array([3.0, 1.0]), 1.0) == math.inf
    assert mismatch(np.array([1.0]), np.array([np.nan]), 1.0) == math.inf
    assert mismatch(np.array([np.nan, 1.0]), np.array([np.nan, 1.0]), 1.0) is None
