"""Plants from energies against equations derived by hand; displacements of motors are conjugate to their efforts.

The Jacobian of `motor_positions` is B^T.
"""

import importlib
import inspect
import pkgutil
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

import plants
import servoctl
import servoctl as sc
from plants.chain import Chain
from plants.coordinated_robots import CoordinatedRobots
from plants.flexible_joint_arm import FlexibleJointArm
from plants.four_bars import FourBars
from plants.parallelogram import Parallelogram
from plants.polar_particle import PolarParticle
from plants.scara import Scara
from plants.two_mass_spring import TwoMassSpring
from plants.two_wheeled_robot import TwoWheeledRobot
from plants.unicycle import Unicycle
from servoctl.engine.kernel import inputs
from servoctl.engine.trace import trace
from servoctl.errors import PlantError
from servoctl.mechanics.model import Model
from servoctl.mechanics.motors import check_motor_positions, displacement_unit, motor_positions
from servoctl.mechanics.planar import Linkage, PlanarLinkage
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State
from tests.small_plants import Masses

ROUNDING = 1e-13
"""Two ways to add up the same ten or so terms."""


@dataclass(frozen=True)
class Pendulum(servoctl.LagrangianPlant):
    """A rod on a hinge that shakes up and down by h(t) = a sin(w t), with friction."""

    m: float = 1.3
    l: float = 0.8  # noqa: E741
    g: float = 9.81
    d: float = 0.2
    a: float = 0.1
    w: float = 5.0

    coordinates: ClassVar = {"angle": "rad"}
    actuators: ClassVar = {"tau": "N m"}

    def kinetic_energy(self, q: Array, v: Array, t: float) -> Any:
        vx = self.l * np.cos(q[0]) * v[0]
        vy = self.l * np.sin(q[0]) * v[0] + self.a * self.w * np.cos(self.w * t)
        return self.m * (vx**2 + vy**2) / 2

    def potential_energy(self, q: Array, t: float) -> Any:
        return self.m * self.g * (self.a * np.sin(self.w * t) - self.l * np.cos(q[0]))

    def dissipation(self, q: Array, v: Array, t: float) -> Any:
        return self.d * v[0] ** 2 / 2

    def actuation(self, q: Array, t: float) -> Array:
        return np.eye(1)

    def by_hand(self, q: Array, v: Array, t: float) -> tuple[Array, Array]:
        g = self.g - self.a * self.w**2 * np.sin(self.w * t)
        return np.array([[self.m * self.l**2]]), np.array([-self.m * g * self.l * np.sin(q[0]) - self.d * v[0]])


@dataclass(frozen=True)
class DoublePendulum(servoctl.LagrangianPlant):
    """Two point masses, absolute angles, and a constant torque on the second that no potential gives."""

    m: tuple[float, ...] = (1.1, 0.7)
    l: tuple[float, ...] = (0.9, 0.6)  # noqa: E741
    g: float = 9.81
    torque: float = 0.3

    coordinates: ClassVar = {"a": "rad", "b": "rad"}
    actuators: ClassVar = {}

    def kinetic_energy(self, q: Array, v: Array, t: float) -> Any:
        first = self.l[0] * v[0] * np.array([np.cos(q[0]), np.sin(q[0])])
        second = first + self.l[1] * v[1] * np.array([np.cos(q[1]), np.sin(q[1])])
        return (self.m[0] * (first @ first) + self.m[1] * (second @ second)) / 2

    def potential_energy(self, q: Array, t: float) -> Any:
        height = -self.l[0] * np.cos(q[0])
        return self.g * (self.m[0] * height + self.m[1] * (height - self.l[1] * np.cos(q[1])))

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([0.0, self.torque])

    def by_hand(self, q: Array, v: Array, t: float) -> tuple[Array, Array]:
        (m1, m2), (l1, l2), s, c = self.m, self.l, np.sin(q[0] - q[1]), np.cos(q[0] - q[1])
        M = np.array([[(m1 + m2) * l1**2, m2 * l1 * l2 * c], [m2 * l1 * l2 * c, m2 * l2**2]])
        first = -m2 * l1 * l2 * s * v[1] ** 2 - (m1 + m2) * self.g * l1 * np.sin(q[0])
        second = m2 * l1 * l2 * s * v[0] ** 2 - m2 * self.g * l2 * np.sin(q[1]) + self.torque
        return M, np.array([first, second])


@dataclass(frozen=True)
class Twin(servoctl.LagrangianPlant):
    """A shipped plant's energies without its equations: T = energy(q, v) - energy(q, 0)."""

    plant: servoctl.Plant = field(default_factory=PolarParticle)
    actuators: ClassVar = {}

    @property
    def coordinates(self) -> dict[str, str]:
        return dict(self.plant.coordinates)

    def kinetic_energy(self, q: Array, v: Array, t: float) -> Any:
        return self.plant.energy(q, v, t) - self.plant.energy(q, 0.0 * v, t)

    def potential_energy(self, q: Array, t: float) -> Any:
        return self.plant.energy(q, np.zeros(len(q)), t)

    def by_hand(self, q: Array, v: Array, t: float) -> tuple[Array, Array]:
        return self.plant.mass_matrix(q, t), self.plant.force(q, v, t)


SHIPPED = [PolarParticle(m=1.7), TwoMassSpring(m1=0.7, k=3.0), Scara(), CoordinatedRobots(g=3.0)]
DERIVED = [Pendulum(), DoublePendulum(), *(Twin(plant) for plant in SHIPPED)]


@pytest.mark.parametrize("plant", DERIVED, ids=lambda plant: type(getattr(plant, "plant", plant)).__name__)
def test_energies_give_the_equations_of_motion_derived_by_hand(plant: Any) -> None:
    random, n = np.random.default_rng(7), len(plant.coordinates)
    for _ in range(10):
        q, v, t = random.uniform(0.3, 2.0, n), random.standard_normal(n), random.random()
        M, Q = plant.by_hand(q, v, t)
        np.testing.assert_allclose(plant.mass_matrix(q, t), M, rtol=ROUNDING, atol=ROUNDING * np.abs(M).max())
        scale = max(1.0, np.abs(Q).max())
        np.testing.assert_allclose(plant.right_hand_side(q, v, t), Q, rtol=0, atol=100 * ROUNDING * scale)


def test_parameters_of_a_derived_plant_stay_inputs() -> None:
    q, v = np.array([0.4]), np.array([1.0])
    for plant in (Pendulum(m=2.0), Pendulum(l=1.7, g=1.6), Pendulum(d=5.0)):
        M, Q = plant.by_hand(q, v, 0.2)
        np.testing.assert_allclose(plant.mass_matrix(q, 0.2), M, rtol=ROUNDING)
        np.testing.assert_allclose(plant.right_hand_side(q, v, 0.2), Q, rtol=ROUNDING)
    assert Model(Pendulum(), {}, State(0.0, q, v)).opaque is None


@dataclass(frozen=True)
class Baked(servoctl.LagrangianPlant):
    """What __post_init__ fixes is no parameter: the class must not share it between its instances."""

    m: float = 1.0
    coordinates: ClassVar = {"x": "m"}
    actuators: ClassVar = {}

    def __post_init__(self) -> None:
        object.__setattr__(self, "half", self.m / 2)

    def kinetic_energy(self, q: Array, v: Array, t: float) -> Any:
        return self.half * v[0] ** 2  # type: ignore[attr-defined]


def test_a_value_fixed_in_post_init_belongs_to_its_plant() -> None:
    assert [Baked(m).mass_matrix(np.zeros(1), 0.0)[0, 0] for m in (1.0, 2.0, 5.0)] == [1.0, 2.0, 5.0]
    opaque = Model(Baked(2.0), {}, State(0.0, np.zeros(1), np.zeros(1))).opaque
    assert opaque is not None and "Baked.mass_matrix: symbols and NumPy differ" in opaque


def test_energy_is_given_unless_the_plant_dissipates() -> None:
    q, v = np.array([0.3, 0.8]), np.array([1.0, -2.0])
    plant = Twin()
    assert plant.energy(q, v, 0.0) == pytest.approx(plant.kinetic_energy(q, v, 0.0) + plant.potential_energy(q, 0.0))
    assert Pendulum().energy(q[:1], v[:1], 0.0) is None


@dataclass(frozen=True)
class Boom(sc.Plant):
    """A boom on a hinge, raised by a cylinder between the ground and a point of the boom."""

    m: float = 20.0  # [kg] at the tip
    length: float = 2.0  # [m]
    arm: float = 0.8  # [m] from the hinge to the cylinder's rod
    base: float = 0.5  # [m] from the hinge down to the cylinder's foot
    coordinates: ClassVar = {"lift": "rad"}
    actuators: ClassVar = {"cylinder": "N"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[self.m * self.length**2]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([-9.81 * self.m * self.length * np.cos(q[0])])

    def motor_positions(self, q: Array) -> Array:
        # the foot is straight below the hinge
        return np.array([np.hypot(self.arm * np.cos(q[0]), self.arm * np.sin(q[0]) + self.base)])


def lever(boom: Boom, q: float) -> float:
    """The cylinder's moment arm by geometry: the distance of its line from the hinge [m]."""
    rod = boom.arm * np.array([np.cos(q), np.sin(q)])
    foot = np.array([0.0, -boom.base])
    along = (rod - foot) / np.linalg.norm(rod - foot)
    return float(rod[0] * along[1] - rod[1] * along[0])


def test_the_column_of_b_is_the_moment_arm() -> None:
    boom = Boom()
    for q in (-0.6, 0.0, 0.4, 1.1):
        np.testing.assert_allclose(boom.actuation(np.array([q]), 0.0), [[lever(boom, q)]], rtol=1e-14)


def test_parameters_stay_inputs_of_the_derived_matrix() -> None:
    other = Boom(arm=1.3)
    Boom().actuation(np.array([0.4]), 0.0)  # a matrix derived for other parameters must not be used again
    np.testing.assert_allclose(other.actuation(np.array([0.4]), 0.0), [[lever(other, 0.4)]], rtol=1e-14)


@pytest.mark.parametrize("engine", ["numpy", "vm"])
def test_a_run_needs_no_actuation(engine: str) -> None:
    task = {"lift": sc.Holonomic("lift - 0.2*(1 - cos(t))")}
    law = sc.ConstraintFollowing(sc.Baumgarte(10.0, 10.0))
    run = sc.simulate(Boom(), task, law, q=[0.0], v=[0.0], duration=0.5, step=0.005, engine=engine)
    assert run.summary()["tasks"]["lift"]["max_violation"] < 1e-9
    table = run.to_pandas()
    t, q, u = (table[name].to_numpy() for name in ("t", "q.lift", "u.cylinder"))
    boom = Boom()
    moment = boom.m * boom.length**2 * 0.2 * np.cos(t) + 9.81 * boom.m * boom.length * np.cos(q)
    np.testing.assert_allclose(u, moment / [lever(boom, x) for x in q], rtol=1e-6)


def test_the_displacements_are_conjugate_by_construction() -> None:
    check_motor_positions(Boom(), State(0.0, np.array([0.3]), np.zeros(1)))


def test_a_wrong_number_of_displacements_is_an_error() -> None:
    @dataclass(frozen=True)
    class Two(Boom):
        actuators: ClassVar = {"cylinder": "N", "rope": "N"}

    with pytest.raises(PlantError, match=r"Two.motor_positions: expected shape \(2,\), one displacement per actuator"):
        Two().actuation(np.zeros(1), 0.0)


def test_displacements_that_symbols_cannot_follow_are_an_error() -> None:
    @dataclass(frozen=True)
    class Stops(Boom):
        def motor_positions(self, q: Array) -> Array:
            return np.array([1.0 if q[0] > 0 else 0.0])

    with pytest.raises(PlantError, match=r"Stops.motor_positions: .*write actuation\(q, t\)"):
        Stops().actuation(np.zeros(1), 0.0)


def shipped() -> list[Plant]:
    """Every plant of the package with its defaults, and variants that have other motors."""
    found: list[Plant] = []
    for module in pkgutil.iter_modules(plants.__path__):
        for _, kind in inspect.getmembers(importlib.import_module(f"plants.{module.name}"), inspect.isclass):
            if issubclass(kind, Plant) and kind.__module__ == f"plants.{module.name}" and not inspect.isabstract(kind):
                found.append(kind())
    found += [Parallelogram(motor=2), FourBars(motor=True), FlexibleJointArm(inputs="link"), CoordinatedRobots(s=4)]
    return [plant for plant in found if plant.actuators and not rolls(plant)]


def rolls(plant: Plant) -> bool:
    """Whether the way of a wheel matters: then the angle of its motor is no function of the pose."""
    return type(plant).passive_rates is not Plant.passive_rates


PLANTS = shipped()


def states(plant: Plant) -> list[Array]:
    random = np.random.default_rng(5)
    return [random.standard_normal(len(plant.coordinates)) for _ in range(6)]


def test_every_plant_with_actuators_is_here() -> None:
    assert len({type(plant).__name__ for plant in PLANTS}) >= 13


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: type(plant).__name__)
def test_differences_of_the_displacements_are_the_transposed_actuation(plant: Plant) -> None:
    h = 1e-5
    for q in states(plant):
        columns = [
            (motor_positions(plant, q + step) - motor_positions(plant, q - step)) / (2 * h)
            for step in h * np.eye(len(q))
        ]
        # displacements are at most quadratic in h to the third order: round-off of 1 in 2 h remains
        np.testing.assert_allclose(np.stack(columns, axis=1), plant.actuation(q, 0.0).T, atol=1e-9)


@pytest.mark.parametrize("plant", [Unicycle(), TwoWheeledRobot()], ids=lambda plant: type(plant).__name__)
def test_a_wheel_that_rolls_has_no_displacement(plant: Plant) -> None:
    with pytest.raises(
        PlantError, match=r"motor_positions: cannot be derived, since actuation\(q, t\) is not constant"
    ):
        motor_positions(plant, np.zeros(len(plant.coordinates)))


def test_a_motor_between_two_links_turns_by_their_difference() -> None:
    np.testing.assert_allclose(motor_positions(Chain(N=3), np.array([0.1, 0.4, 1.0])), [0.1, 0.3, 0.6], atol=1e-15)
    rho = motor_positions(CoordinatedRobots(), np.array([1.0, 2.0, 4.0, 7.0, 11.0]))
    np.testing.assert_allclose(rho, [1.0, 1.0, 2.0, -3.0, -4.0, 11.0], atol=1e-15)


@dataclass(frozen=True)
class Slide(PlanarLinkage):
    """A block driven along a bar that turns: B depends on q."""

    def build(self, linkage: Linkage) -> None:
        linkage.body("bar", 1.0, 0.1)
        linkage.body("block", 1.0, 0.1)
        linkage.revolute("axle", "ground", (0.0, 0.0), "bar", (0.0, 0.0))
        linkage.prismatic("slide", "bar", (0.2, 0.1), "block", (0.0, 0.3), axis=(3.0, 4.0))
        linkage.motor("push", "slide")


def test_a_motor_on_a_slide_that_turns_is_conjugate_too() -> None:
    plant = Slide()
    first, second = (plant.actuation(q, 0.0) for q in states(plant)[:2])
    assert np.abs(first - second).max() > 0.1
    check_motor_positions(plant, State(0.0, np.zeros(6), np.zeros(6)))


@dataclass(frozen=True)
class Winch(Masses):
    """A load on a rope from the origin, pulled towards it: the column of B has the direction of the rope."""

    gain: float = 1.0
    exponent: float = 0.0
    coordinates: ClassVar = {"x": "m", "y": "m"}
    actuators: ClassVar = {"F": "N"}

    def actuation(self, q: Array, t: float) -> Array:
        length = np.sqrt(q[0] ** 2 + q[1] ** 2)
        return -np.array([[q[0]], [q[1]]]) / length


@dataclass(frozen=True)
class MeasuredWinch(Winch):
    def motor_positions(self, q: Array) -> Array:
        return np.array([-self.gain * np.sqrt(q[0] ** 2 + q[1] ** 2)])


@dataclass(frozen=True)
class OpaqueWinch(Winch):
    """The same by code that symbols cannot follow."""

    def motor_positions(self, q: Array) -> Array:
        return np.array([-self.gain * float(np.hypot(q[0], q[1]))])


HERE = State(0.0, np.array([3.0, 4.0]), np.zeros(2))


def test_motor_positions_are_required_if_actuation_depends_on_the_pose() -> None:
    message = r"Winch.motor_positions: cannot be derived, since actuation\(q, t\) is not constant \(write"
    with pytest.raises(PlantError, match=message):
        motor_positions(Winch(), HERE.q)
    with pytest.raises(PlantError, match=message):
        trace(partial(motor_positions, Winch()), inputs({"q": (2,)})["q"])
    with pytest.raises(PlantError, match=message):
        check_motor_positions(Winch(), HERE)


@dataclass(frozen=True)
class Switching(Winch):
    """Its motor is coupled in from t = 1 s on: constant in q, not in time."""

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[1.0], [0.0]]) * (1.0 if t > 1.0 else 0.5)


def test_motor_positions_are_required_if_actuation_depends_on_time() -> None:
    with pytest.raises(PlantError, match=r"Switching.motor_positions: cannot be derived"):
        motor_positions(Switching(), HERE.q)


@pytest.mark.parametrize("kind", [MeasuredWinch, OpaqueWinch])
def test_motor_positions_of_a_plant_are_checked(kind: type[Winch]) -> None:
    check_motor_positions(kind(), HERE)
    with pytest.raises(
        PlantError, match=r"Winch.motor_positions: not conjugate to 'F': its gradient is \[-1.2, -1.6\]"
    ):
        check_motor_positions(kind(gain=2.0), HERE)


@dataclass(frozen=True)
class TwoRopes(Winch):
    def motor_positions(self, q: Array) -> Array:
        return np.array([q[0], q[1]])


def test_there_is_one_displacement_per_actuator() -> None:
    with pytest.raises(PlantError, match=r"TwoRopes.motor_positions: expected shape \(1,\), got"):
        check_motor_positions(TwoRopes(), HERE)


def test_the_published_metric_has_no_conjugate_displacement() -> None:
    with pytest.raises(PlantError, match=r"published_metric Ftheta .* has no conjugate displacement"):
        motor_positions(PolarParticle(published_metric=True), np.array([1.0, 0.5]))


def test_units_of_displacements() -> None:
    assert displacement_unit(CoordinatedRobots(), "u1") == "rad"
    assert displacement_unit(Winch(), "F") == "m"
    assert displacement_unit(PolarParticle(published_metric=True), "Ftheta") == "J/(N/m)"


PULL = 1.5  # [N] a number of the script, or of a cell of a notebook, that plants read


@dataclass(frozen=True)
class Falling(sc.LagrangianPlant):
    coordinates: ClassVar = {"x": "m"}
    actuators: ClassVar = {"F": "N"}

    def kinetic_energy(self, q: Array, v: Array, t: float) -> Any:
        return 0.5 * v[0] ** 2

    def potential_energy(self, q: Array, t: float) -> Any:
        return -PULL * q[0]

    def actuation(self, q: Array, t: float) -> Array:
        return np.eye(1)


@dataclass(frozen=True)
class Geared(sc.Plant):
    coordinates: ClassVar = {"x": "m"}
    actuators: ClassVar = {"F": "N"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.eye(1)

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.zeros(1)

    def motor_positions(self, q: Array) -> Array:
        return np.array([PULL * q[0]])


class Hanging(PlanarLinkage):
    def build(self, linkage: Linkage) -> None:
        linkage.gravity(PULL, 0.0)
        linkage.body("ball", m=1.0, J=1.0)
        linkage.prismatic("rail", "ground", (0.0, 0.0), "ball", (0.0, 0.0), axis=(1.0, 0.0))


@pytest.mark.parametrize("plant", [Falling(), Geared(), Hanging()], ids=lambda plant: type(plant).__name__)
def test_a_run_uses_the_numbers_that_the_code_of_a_plant_reads_now(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs_of = {"F": "1"} if isinstance(plant, Geared) else {}

    def speed() -> float:
        run = sc.simulate(plant, {}, None, q=0.0, duration=0.1, step=0.01, inputs=inputs_of, engine="vm")
        return float(run.v[-1, 0]) / 0.1

    assert speed() == pytest.approx(1.5)
    monkeypatch.setattr(f"{__name__}.PULL", 2.5)
    assert speed() == pytest.approx(2.5)
