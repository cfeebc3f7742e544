"""The planar builder against the same mechanism in complex numbers."""

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from plants.parallelogram import Parallelogram
from servoctl.errors import PlantError, TaskError
from servoctl.mechanics import planar
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.model import Model
from servoctl.mechanics.motors import motor_positions
from servoctl.mechanics.planar import Linkage, PlanarLinkage, PointFollows
from servoctl.reference.curve import Signal, waypoint_curve
from servoctl.types import Array, State
from tests.faces import rows_of
from tests.refused import table

RANDOM = np.random.default_rng(21)
GRAVITY = 1.3 - 9.7j


@dataclass(frozen=True)
class Springs(PlanarLinkage):
    """One of everything that has a potential: free, pinned and turning bodies; every joint, spring, load and motor."""

    k: float = 31.0  # [N/m]
    reach: float = 0.6  # [m]

    def build(self, linkage: Linkage) -> None:
        linkage.gravity(GRAVITY.real, GRAVITY.imag)
        linkage.rotor("disc", J=0.3)
        linkage.pinned("arm", m=1.5, J=0.2, pivot=(0.4, -0.3), at=(-0.5, 0.1))
        linkage.body("beam", m=2.0, J=0.7)
        linkage.body("block", m=0.9, J=0.05)
        linkage.prismatic("slide", "beam", (0.2, 0.3), "block", (0.1, -0.2), axis=(3.0, 4.0), angle=0.25, level=3)
        linkage.gear("belt", "arm", "disc", ratio=2.5, offset=0.4, level=2)
        linkage.revolute("elbow", "arm", (self.reach, 0.0), "beam", (-0.8, 0.1))
        linkage.spring("coil", "arm", (0.3, 0.2), "block", (0.0, 0.4), stiffness=self.k, length=0.7)
        linkage.spring("band", "ground", (1.0, 2.0), "beam", (0.5, -0.1), stiffness=12.0)
        linkage.load("push", "block", (0.3, 0.1), force=(7.0, -2.0), torque=1.1)
        linkage.motor("wheel", "disc")
        linkage.motor("bend", "elbow")
        linkage.motor("thrust", "slide")
        linkage.point("tip", "beam", (0.9, 0.05))


@dataclass(frozen=True)
class Damped(Springs):
    """The same, with a damper."""

    c: float = 2.1  # [N s/m]

    def build(self, linkage: Linkage) -> None:
        super().build(linkage)
        linkage.damper("dashpot", "arm", (0.3, 0.2), "block", (0.0, 0.4), damping=self.c)


PLANT = Springs()
STATES = [(RANDOM.normal(size=8), RANDOM.normal(size=8)) for _ in range(4)]
DISC, ARM, BEAM, BLOCK = range(4)
ANGLES = [0, 1, 4, 7]
"""Where the angles of the four bodies stand among the coordinates."""


def place(q: Array, body: int, point: complex) -> Any:
    """A point of the arm, the beam or the block, as a complex number."""
    turn = np.exp(1j * q[ANGLES[body]])
    if body == ARM:
        return 0.4 - 0.3j + turn * (point - (-0.5 + 0.1j))
    return q[ANGLES[body] - 2] + 1j * q[ANGLES[body] - 1] + turn * point


def angle(q: Array, body: int) -> Any:
    return q[ANGLES[body]]


def path(q: Array) -> Any:
    """How far the block has slid along the beam, and how far it stands off the line."""
    gap = place(q, BLOCK, 0.1 - 0.2j) - place(q, BEAM, 0.2 + 0.3j)
    return gap * np.exp(-1j * q[ANGLES[BEAM]]) * (0.6 - 0.8j)


def joints(q: Array) -> Array:
    """The constraints, in the order of their levels."""
    elbow = place(q, BEAM, -0.8 + 0.1j) - place(q, ARM, 0.6)
    belt = angle(q, DISC) - 2.5 * angle(q, ARM) - 0.4
    return np.array([elbow.real, elbow.imag, belt, path(q).imag, angle(q, BLOCK) - angle(q, BEAM) - 0.25])


def motors(q: Array) -> Array:
    return np.array([angle(q, DISC), angle(q, BEAM) - angle(q, ARM), path(q).real])


def potential(q: Array) -> float:
    weights = [(1.5, ARM), (2.0, BEAM), (0.9, BLOCK)]
    total = -sum(m * (np.conj(GRAVITY) * place(q, body, 0)).real for m, body in weights)
    total += 31.0 * (abs(place(q, ARM, 0.3 + 0.2j) - place(q, BLOCK, 0.4j)) - 0.7) ** 2 / 2
    total += 12.0 * abs(place(q, BEAM, 0.5 - 0.1j) - (1.0 + 2.0j)) ** 2 / 2
    total -= ((7.0 + 2.0j) * place(q, BLOCK, 0.3 + 0.1j)).real + 1.1 * angle(q, BLOCK)
    return float(total)


def slope(function: Callable[[Array], Any], x: Array, h: float = 1e-6) -> Array:
    """Jacobian by central differences."""
    columns = [(function(x + h * e) - function(x - h * e)) / (2 * h) for e in np.eye(len(x))]
    return np.stack(columns, axis=-1)


def test_coordinates_have_the_names_of_bodies_and_units() -> None:
    assert PLANT.coordinates == {
        "disc_phi": "rad",
        "arm_phi": "rad",
        "beam_x": "m",
        "beam_y": "m",
        "beam_phi": "rad",
        "block_x": "m",
        "block_y": "m",
        "block_phi": "rad",
    }
    assert PLANT.actuators == {"wheel": "N m", "bend": "N m", "thrust": "N"}


def test_mass_matrix_is_diagonal_and_constant() -> None:
    about_pivot = 0.2 + 1.5 * (0.5**2 + 0.1**2)
    M = np.diag([0.3, about_pivot, 2.0, 2.0, 0.7, 0.9, 0.9, 0.05])
    for q, _ in STATES:
        np.testing.assert_allclose(PLANT.mass_matrix(q, 0.0), M, rtol=1e-15)


def test_joint_violations_are_the_gaps_between_points() -> None:
    for q, _ in STATES:
        groups = PLANT.passive_constraints(q, 0.0)
        np.testing.assert_allclose(np.concatenate([*groups.values()]), joints(q), atol=1e-14)


def test_constraints_are_in_order_of_levels() -> None:
    assert PLANT.levels == {"elbow": 1, "belt": 2, "slide": 3}
    assert list(PLANT.passive_constraints(STATES[0][0], 0.0)) == list(PLANT.levels)


def test_rows_are_the_derivatives_of_the_joints() -> None:
    model = Model(PLANT, {}, State(0.0, *STATES[0]))
    assert model.opaque is None
    for q, v in STATES:
        rows = model.matrices(State(0.0, q, v)).passive
        np.testing.assert_allclose(rows.A, slope(joints, q), atol=1e-8)  # second-order differences
        h = 1e-4
        curve = (joints(q + h * v) - 2 * joints(q) + joints(q - h * v)) / h**2
        np.testing.assert_allclose(rows.b, -curve, atol=1e-6)
        np.testing.assert_allclose(rows.violation_rate, rows.A @ v, atol=1e-13)


def test_motors_work_on_what_they_measure() -> None:
    for q, _ in STATES:
        np.testing.assert_allclose(motor_positions(PLANT, q), motors(q), atol=1e-14)
        # the power u s' of an effort u: B is the transposed Jacobian
        np.testing.assert_allclose(PLANT.actuation(q, 0.0), slope(motors, q).T, atol=1e-8)


def test_force_is_the_slope_of_the_potential() -> None:
    for q, v in STATES:
        np.testing.assert_allclose(PLANT.force(q, v, 0.0), -slope(potential, q), atol=1e-6)  # differences


def test_energy_is_kinetic_and_potential() -> None:
    for q, v in STATES:
        kinetic = v @ PLANT.mass_matrix(q, 0.0) @ v / 2
        assert PLANT.energy(q, v, 0.0) == pytest.approx(kinetic + potential(q), rel=1e-13)


def test_dampers_follow_rayleighs_function() -> None:
    plant = Damped()

    def stretch(q: Array) -> Array:
        return np.array([abs(place(q, ARM, 0.3 + 0.2j) - place(q, BLOCK, 0.4j))])

    for q, v in STATES:
        damping = plant.force(q, v, 0.0) - PLANT.force(q, v, 0.0)
        J = slope(stretch, q)
        np.testing.assert_allclose(damping, -J.T @ (2.1 * (J @ v)), atol=1e-7)  # second-order differences
        assert plant.energy(q, v, 0.0) is None


def test_the_ends_of_a_spring_without_a_length_may_meet() -> None:
    @dataclass(frozen=True)
    class Tether(PlanarLinkage):
        def build(self, linkage: Linkage) -> None:
            linkage.body("ball", m=1.0, J=0.1)
            linkage.spring("tether", "ground", (0.0, 0.0), "ball", (0.0, 0.0), stiffness=3.0)

    np.testing.assert_array_equal(Tether().force(np.zeros(3), np.zeros(3), 0.0), np.zeros(3))
    np.testing.assert_array_equal(Tether().force(np.array([2.0, 0.0, 0.0]), np.zeros(3), 0.0), [-6.0, 0.0, 0.0])


def test_bodies_are_drawn_through_their_joints() -> None:
    q, _ = STATES[0]
    drawn = {name: points @ [1.0, 1.0j] for name, points in PLANT.links(q).items()}
    assert list(drawn) == ["arm", "beam", "block", "coil", "band", "tip"]  # a rotor has no extent
    np.testing.assert_allclose(drawn["arm"], [0.4 - 0.3j, place(q, ARM, 0.6)], atol=1e-14)
    corners = [place(q, BEAM, point) for point in (0.2 + 0.3j, -0.8 + 0.1j, 0.9 + 0.05j, 0.2 + 0.3j)]
    np.testing.assert_allclose(drawn["beam"], corners, atol=1e-14)
    np.testing.assert_allclose(drawn["coil"], [place(q, ARM, 0.3 + 0.2j), place(q, BLOCK, 0.4j)], atol=1e-14)
    np.testing.assert_allclose(drawn["tip"], [PLANT.point("tip", q) @ [1.0, 1.0j]], atol=1e-14)


def test_a_named_point_follows_a_position() -> None:
    task: dict[str, Constraint] = {"tip": PointFollows("tip", x="reach + 0.1*cos(t)", y="block_y - 0.2")}
    q, v = STATES[1]
    rows = rows_of(PLANT, task, State(0.7, q, v))

    def gap(q: Array, t: float = 0.7) -> Array:
        tip = place(q, BEAM, 0.9 + 0.05j)
        return np.array([tip.real - 0.6 - 0.1 * np.cos(t), tip.imag - q[6] + 0.2])

    h = 1e-4
    curve = (gap(q + h * v, 0.7 + h) - 2 * gap(q) + gap(q - h * v, 0.7 - h)) / h**2
    np.testing.assert_allclose(rows.violation, gap(q), atol=1e-14)
    np.testing.assert_allclose(rows.A, slope(gap, q), atol=1e-8)
    np.testing.assert_allclose(rows.b, -curve, atol=1e-6)  # second-order differences


def test_a_named_point_follows_columns_of_a_reference() -> None:
    curve = waypoint_curve(np.array([0.0, 1.0]), np.array([[0.2, 0.1], [0.5, 0.4]]), "quintic")
    signals = {f"path_{name}": Signal("path", name, curve, i) for i, name in enumerate("xy")}
    task = PointFollows("tip", x="path_x", y="path_y - 0.2").with_signals(signals)
    q, v = STATES[1]
    rows = rows_of(PLANT, {"tip": task}, State(0.7, q, v))
    share = 10 * 0.7**3 - 15 * 0.7**4 + 6 * 0.7**5
    tip = place(q, BEAM, 0.9 + 0.05j)
    wanted = [0.2 + 0.3 * share, 0.1 + 0.3 * share - 0.2]
    np.testing.assert_allclose(rows.violation, [tip.real - wanted[0], tip.imag - wanted[1]], atol=1e-14)
    wrong = PointFollows("tip", x="path_z", y="0").with_signals(signals)
    with pytest.raises(TaskError, match=r"aim: x: unknown word 'path_z' \(did you mean 'path_[xy]'\?\)"):
        Model(PLANT, {"aim": wrong}, State(0.0, q, v))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (PointFollows("tipp", "0", "0"), r"aim: point: there is no point 'tipp' \(did you mean 'tip'\?\)"),
        (PointFollows("tip", "0", "reech"), r"aim: y: unknown word 'reech' \(did you mean 'reach'\?\)"),
        (PointFollows("tip", "1 +", "0"), "aim: x: "),
        (PointFollows("tip", "der(beam_x)", "0"), r"aim: x: a position cannot contain a velocity, got der\(beam_x\)"),
    ],
)
def test_the_error_of_a_point_task_names_the_field(task: PointFollows, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        Model(PLANT, {"aim": task}, State(0.0, *STATES[0]))


@pytest.mark.parametrize(("call", "sentence"), [(words[0], sentence) for _, words, (sentence,) in table("linkage")])
def test_a_wrong_linkage_is_refused_by_its_constructor(call: str, sentence: str) -> None:
    @dataclass(frozen=True)
    class Wrong(PlanarLinkage):
        def build(self, linkage: Linkage) -> None:
            linkage.body("crank", m=1.0, J=0.1)
            linkage.body("rod", m=1.0, J=0.1)
            linkage.revolute("axle", "ground", (0, 0), "crank", (-1, 0))
            eval(f"linkage.{call}")

    with pytest.raises(PlantError, match=f"^{re.escape(sentence)}$"):
        Wrong()


def test_the_example_of_the_package_is_the_mechanism_it_shows() -> None:
    assert planar.__doc__ is not None
    example = re.search(r"^    @dataclass.*?(?=^\S)", planar.__doc__, re.MULTILINE | re.DOTALL)
    assert example is not None
    names: dict[str, Any] = {"dataclass": dataclass, "PlanarLinkage": PlanarLinkage, "Linkage": Linkage}
    exec(textwrap.dedent(example.group()), names)
    plant = names["SliderCrank"]()
    straight = np.array([0.1, 0.0, 0.0, 0.5, 0.0, 0.0, 0.8, 0.0, 0.0])
    for name, violation in plant.passive_constraints(straight, 0.0).items():
        np.testing.assert_allclose(violation, 0.0, atol=1e-15, err_msg=name)
    assert plant.actuators == {"tau": "N m"}


def test_an_unknown_point_is_named() -> None:
    with pytest.raises(PlantError, match=r"^Springs: there is no point 'tp' \(did you mean 'tip'\?\)$"):
        PLANT.point("tp", STATES[0][0])


def test_parameters_of_a_linkage_remain_inputs() -> None:
    model = Model(Damped(), {}, State(0.0, *STATES[0]))
    assert model.opaque is None
    changed = Damped(k=11.0, reach=0.9, c=0.4)
    other = model.of(changed, {}, State(0.0, *STATES[0]))
    for q, v in STATES:
        at = other.matrices(State(0.0, q, v))
        np.testing.assert_allclose(at.M, changed.mass_matrix(q, 0.0), atol=1e-14)
        np.testing.assert_allclose(at.Q, changed.force(q, v, 0.0), atol=1e-12)
        np.testing.assert_allclose(at.B, changed.actuation(q, 0.0), atol=1e-14)


def test_a_linkage_that_cannot_be_built_from_symbols_is_refused() -> None:
    @dataclass(frozen=True)
    class Rounded(PlanarLinkage):
        m: float = 1.0

        def build(self, linkage: Linkage) -> None:
            linkage.body("block", float(self.m), 1.0)

    with pytest.raises(PlantError, match=r"^Rounded\.build: .*\(parameters must stay inputs\)$"):
        Rounded().force(np.zeros(3), np.zeros(3), 0.0)


def test_two_plants_of_one_class_keep_their_own_values() -> None:
    light, heavy = Parallelogram(), Parallelogram(m=3.0)
    for _ in range(2):
        assert [float(plant.mass_matrix(np.zeros(12), 0.0)[0, 0]) for plant in (light, heavy)] == [1.0, 3.0]


def test_a_field_that_changes_in_place_is_read_again() -> None:
    @dataclass(frozen=True)
    class Listed(PlanarLinkage):
        masses: list[float]

        def build(self, linkage: Linkage) -> None:
            linkage.body("block", self.masses[0], 1.0)

    masses = [1.0]
    plant = Listed(masses)
    masses[0] = 2.0
    assert plant.mass_matrix(np.zeros(3), 0.0)[0, 0] == 2.0
