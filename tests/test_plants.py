"""Every plant against an independent model of its physics, from the positions of its bodies."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from plants.coordinated_robots import CoordinatedRobots
from plants.flexible_joint_arm import FlexibleJointArm, FlexibleJointLinks
from plants.harmonic_drive import HarmonicDrive
from plants.linear_motor import LinearMotor
from plants.polar_particle import PolarParticle
from plants.scara import Scara
from plants.swarm import Swarm
from plants.two_mass_spring import TwoMassSpring
from plants.two_wheeled_robot import TwoWheeledRobot
from plants.unicycle import Unicycle
from servoctl.mechanics.plant import Plant
from servoctl.types import Array


@dataclass(frozen=True)
class Case:
    """A plant, and its physics a second time.

    Attributes:
        plant: With parameters that differ from each other, so that no misprint hides.
        bodies: q -> (mass, position, inertia, angle) of each body; complex q pass through.
        potential: q -> potential energy [J].
    """

    plant: Plant
    bodies: Callable[[Array], list[tuple[float, Any, float, Any]]]
    potential: Callable[[Array], Any]


def robots(plant: CoordinatedRobots) -> Case:
    def bodies(q: Array) -> list[tuple[float, Any, float, Any]]:
        x, y, result = 0.0, 0.0, []
        for angle in q:
            centre = [x + plant.l / 2 * np.cos(angle), y + plant.l / 2 * np.sin(angle)]
            result.append((plant.m, centre, plant.I, angle))
            x, y = x + plant.l * np.cos(angle), y + plant.l * np.sin(angle)
        return result

    return Case(plant, bodies, lambda q: sum(plant.m * plant.g * p[1] for _, p, _, _ in bodies(q)))


def arm(plant: FlexibleJointArm | FlexibleJointLinks) -> Case:
    def bodies(q: Array) -> list[tuple[float, Any, float, Any]]:
        a, b = q[0], q[0] + q[1]
        first = [plant.lc1 * np.sin(a), -plant.lc1 * np.cos(a)]
        second = [plant.l1 * np.sin(a) + plant.lc2 * np.sin(b), -plant.l1 * np.cos(a) - plant.lc2 * np.cos(b)]
        links = [(plant.m1, first, plant.I1, a), (plant.m2, second, plant.I2, b)]
        if isinstance(plant, FlexibleJointLinks):
            return links
        return [*links, (0.0, [0.0, 0.0], plant.J1, q[2]), (0.0, [0.0, 0.0], plant.J2, q[3])]

    def potential(q: Array) -> Any:
        wound = q if isinstance(plant, FlexibleJointLinks) else q[:2] - q[2:]
        elastic = plant.K1 * wound[0] ** 2 / 2 + plant.K2 * wound[1] ** 2 / 2
        return elastic + sum(m * plant.g * p[1] for m, p, _, _ in bodies(q)[:2])

    return Case(plant, bodies, potential)


def scara(plant: Scara) -> Case:
    def bodies(q: Array) -> list[tuple[float, Any, float, Any]]:
        a, b, c = q[0], q[0] + q[1], q[0] + q[1] + q[2]
        x, y = -plant.l1 * np.sin(a), plant.l1 * np.cos(a)
        wrist = [x - plant.l2 * np.sin(b), y + plant.l2 * np.cos(b)]
        return [
            (plant.m1, [-plant.r1 * np.sin(a), plant.r1 * np.cos(a), plant.l0], plant.Iz1, a),
            (plant.m2, [x - plant.r2 * np.sin(b), y + plant.r2 * np.cos(b), plant.l0], plant.Iz2, b),
            (plant.m3, [*wrist, plant.l0], plant.Iz3, c),
            (plant.m4, [*wrist, plant.l0 + q[3]], plant.Iz4, c),
        ]

    return Case(plant, bodies, lambda q: plant.m4 * plant.g * (plant.l0 + q[3]))


def two_wheels(plant: TwoWheeledRobot) -> Case:
    def bodies(q: Array) -> list[tuple[float, Any, float, Any]]:
        def rod(height: float) -> list[Any]:
            ahead = height * np.sin(q[3])
            return [q[0] + ahead * np.cos(q[2]), q[1] + ahead * np.sin(q[2]), height * np.cos(q[3])]

        half = np.sqrt(plant.I / plant.m)  # two points have the inertia of the slender rod
        wheels = 2.0 * plant.Jw / plant.r**2  # both turn by v / r and, in opposite senses, by d psi' / r
        return [
            (plant.mb + wheels, q[:2], plant.Jz + wheels * plant.d**2, q[2]),
            (plant.m / 2, rod(plant.l - half), 0.0, 0.0),
            (plant.m / 2, rod(plant.l + half), 0.0, 0.0),
        ]

    return Case(plant, bodies, lambda q: plant.m * plant.g * plant.l * np.cos(q[3]))


def unicycle(plant: Unicycle) -> Case:
    def bodies(q: Array) -> list[tuple[float, Any, float, Any]]:
        centre = [q[0] + plant.c * np.cos(q[2]), q[1] + plant.c * np.sin(q[2])]
        return [(plant.m, centre, plant.J, q[2])]

    return Case(plant, bodies, lambda q: 0.0)


def harmonic_drive(plant: HarmonicDrive) -> Case:
    def potential(q: Array) -> Any:
        e = q[1] / plant.N - q[0]
        soft = (plant.K2 - plant.K1) * plant.w * np.sqrt(e**2 + plant.w**2)
        return plant.K2 * e**2 / 2 - soft - plant.m * plant.g * plant.l * np.cos(q[0])

    def bodies(q: Array) -> list[tuple[float, Any, float, Any]]:
        return [(0.0, [0.0], plant.J, q[0]), (0.0, [0.0], plant.Jw, q[1])]

    return Case(plant, bodies, potential)


def linear_motor(plant: LinearMotor) -> Case:
    wave = plant.pitch / (2 * np.pi)
    return Case(plant, lambda q: [(plant.m, [q[0]], 0.0, 0.0)], lambda q: -plant.Fc * wave * np.cos(q[0] / wave))


SPRING = TwoMassSpring(m1=1.3, m2=2.1, k=7.0, l=0.4)
ROBOTS = CoordinatedRobots(m=1.3, I=0.7, l=0.9, g=9.7, L=2.1)
ARM: dict[str, Any] = {
    "m1": 1.2,
    "m2": 0.7,
    "l1": 1.1,
    "lc1": 0.4,
    "lc2": 0.6,
    "I1": 0.3,
    "I2": 0.5,
    "K1": 2.0,
    "K2": 3.0,
}
SCARA: dict[str, Any] = {"m2": 12.0, "m3": 9.0, "m4": 1.5, "Iz3": 0.03, "Iz4": 0.01, "l0": 0.1}
PARTICLE = PolarParticle(m=1.7)
SWARM = Swarm(m=1.5, N=3)

CASES = {
    "two_mass_spring": Case(
        SPRING,
        lambda q: [(SPRING.m1, [q[0]], 0.0, 0.0), (SPRING.m2, [q[1]], 0.0, 0.0)],
        lambda q: SPRING.k * (q[1] - q[0] - SPRING.l) ** 2 / 2,
    ),
    "coordinated_robots": robots(ROBOTS),
    "coordinated_robots_of_two_links": robots(replace(ROBOTS, s=2)),
    "coordinated_robots_of_four_links": robots(replace(ROBOTS, s=4)),
    "flexible_joint_arm": arm(FlexibleJointArm(**ARM, J1=0.6, J2=0.8)),
    "flexible_joint_arm_driven_at_the_links": arm(FlexibleJointArm(**ARM, J1=0.6, J2=0.8, inputs="link")),
    "flexible_joint_links": arm(FlexibleJointLinks(**ARM)),
    "scara": scara(Scara(**SCARA)),
    "two_wheeled_robot": two_wheels(TwoWheeledRobot(mb=3.0, Jz=0.2, Jw=0.03, r=0.2, d=0.3, m=8.0, I=0.7, l=0.6)),
    "unicycle": unicycle(Unicycle(m=8.0, J=0.3, c=0.2)),
    "harmonic_drive": harmonic_drive(HarmonicDrive(J=0.4, m=4.0, l=0.2, Jw=0.03, N=3.0, K1=5.0, K2=9.0, w=0.8)),
    "linear_motor": linear_motor(LinearMotor(m=3.0, Fc=2.0, pitch=0.7)),
    "polar_particle": Case(
        PARTICLE,
        lambda q: [(PARTICLE.m, [q[0] * np.cos(q[1]), q[0] * np.sin(q[1])], 0.0, 0.0)],
        lambda q: PARTICLE.m * PARTICLE.g * q[0] * np.sin(q[1]),
    ),
    "swarm": Case(SWARM, lambda q: [(SWARM.m, q[2 * i : 2 * i + 2], 0.0, 0.0) for i in range(SWARM.N)], lambda q: 0.0),
}
EVERY = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def random_states(plant: Plant, count: int = 4) -> list[tuple[Array, Array]]:
    """Random states; coordinates stay positive, as a radius must."""
    rng, n = np.random.default_rng(11), len(plant.coordinates)
    return [(rng.uniform(0.5, 3.0, n), rng.normal(size=n)) for _ in range(count)]


def coriolis(plant: Plant) -> Callable[[Array, Array], Array] | None:
    """The plant's Coriolis matrix, of its first coordinates at least; None where it states its force without one."""
    return getattr(plant, "coriolis_matrix", None) or getattr(plant, "link_coriolis_matrix", None)


def kinetic_matrix(case: Case, q: Array) -> Array:
    """Mass matrix from the bodies: Jacobians by complex steps, exact to rounding."""
    step = 1e-30
    shifted = [case.bodies(q + 1j * step * e) for e in np.eye(len(q))]
    M = np.zeros((len(q), len(q)))
    for body, (m, _, inertia, _) in enumerate(case.bodies(q)):
        J = np.array([np.imag(np.array(bodies[body][1], dtype=complex)) / step for bodies in shifted])
        w = np.array([np.imag(bodies[body][3]) / step for bodies in shifted])
        M += m * J @ J.T + inertia * np.outer(w, w)
    return M


def lagrange_force(case: Case, q: Array, v: Array) -> Array:
    """dT/dq - M' v - dV/dq by central differences: the right-hand side of Lagrange's equations."""
    h = 1e-5
    slopes = [(kinetic_matrix(case, q + h * e) - kinetic_matrix(case, q - h * e)) / (2 * h) for e in np.eye(len(q))]
    pull = [np.imag(case.potential(q + 1e-30j * e)) / 1e-30 for e in np.eye(len(q))]
    rate = sum(v[k] * slope for k, slope in enumerate(slopes))
    force: Array = np.array([v @ slope @ v / 2 for slope in slopes]) - rate @ v - np.array(pull)
    return force


@EVERY
def test_mass_matrix_is_that_of_the_bodies(case: Case) -> None:
    for q, _ in random_states(case.plant):
        M = case.plant.mass_matrix(q, 0.0)
        np.testing.assert_allclose(M, kinetic_matrix(case, q), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(M, M.T, atol=1e-14)
        assert np.linalg.eigvalsh(M).min() > 0


@EVERY
def test_force_is_that_of_lagranges_equations(case: Case) -> None:
    for q, v in random_states(case.plant):
        # second-order differences of the mass matrix
        np.testing.assert_allclose(case.plant.force(q, v, 0.0), lagrange_force(case, q, v), rtol=1e-7, atol=1e-7)


@EVERY
def test_energy_is_that_of_the_bodies(case: Case) -> None:
    def excess(q: Array, v: Array) -> float:
        energy = case.plant.energy(q, v, 0.0)
        assert energy is not None
        return float(energy - v @ kinetic_matrix(case, q) @ v / 2 - case.potential(q))

    # up to a constant
    offsets = [excess(q, v) for q, v in random_states(case.plant)]
    np.testing.assert_allclose(offsets, offsets[0], atol=1e-11)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if coriolis(case.plant)])
def test_mass_rate_less_twice_coriolis_is_skew_symmetric(name: str) -> None:
    plant, h = CASES[name].plant, 1e-5
    matrix = coriolis(plant)
    assert matrix is not None
    for q, v in random_states(plant):
        C = matrix(q, v)
        rate = (plant.mass_matrix(q + h * v, 0.0) - plant.mass_matrix(q - h * v, 0.0)) / (2 * h)
        S = rate[: len(C), : len(C)] - 2 * C
        np.testing.assert_allclose(S, -S.T, atol=1e-8)  # second-order differences


@EVERY
def test_shapes_and_names_agree(case: Case) -> None:
    plant = case.plant
    (q, v), *_ = random_states(plant)
    n, m = len(plant.coordinates), len(plant.actuators)
    assert plant.force(q, v, 0.0).shape == (n,)
    assert plant.actuation(q, 0.0).shape == (n, m)
    assert len({*plant.coordinates, *plant.actuators}) == n + m
    for points in plant.links(q).values():
        assert points.ndim == 2 and len(points) and points.shape[1] in (2, 3)  # one is a point
        assert np.isfinite(points).all()
