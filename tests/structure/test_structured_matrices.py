"""Mass matrices with structure, and B = I by None: the numbers of the dense plant, and errors that say what to do."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

import servoctl as sc
from servoctl.engine.structured import components
from servoctl.errors import PlantError
from servoctl.types import Array
from tests.mechanics.equations import terms_of
from tests.multipliers import multiplier_equation

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
