"""Motors and encoders to coordinates: against closed forms, with exact and with quantised samples."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from scipy.linalg import null_space

from hil.drives import Sample
from hil.sensing.channels import Channel, Displacements
from hil.sensing.coordinates import CoordinateEstimate, Coordinates, require_observability
from hil.sensing.sensing import Sensing
from plants.coordinated_robots import CoordinatedRobots
from plants.parallelogram import Parallelogram
from plants.three_rrr import ThreeRRR
from plants.two_mass_spring import TwoMassSpring
from servoctl.errors import ConfigError
from servoctl.mechanics.model import Model
from servoctl.mechanics.motors import motor_positions
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State
from tests.hil.machines import parallelogram, rate, robots, three_rrr
from tests.hil.samples import sense
from tests.small_plants import Masses

FINE = 2 * np.pi / 2**16


def drives(plant: Plant, resolution: float = FINE) -> list[Channel]:
    return [Channel(name, resolution) for name in plant.actuators]


class Eyes:
    """A plant, what is measured of it, and how it is found."""

    def __init__(self, plant: Plant, q: Array, channels: list[Channel] | None = None, engine: str = "vm") -> None:
        self.start = State(0.0, q, np.zeros(len(q)))
        self.model = Model(plant, {}, self.start)
        self.h = Displacements(plant, drives(plant) if channels is None else channels, self.start)
        self.find = Coordinates(self.model, self.h, engine=engine)
        assert self.find.engine == engine

    def measured(self, q: Array) -> Array:
        return self.h(self.model.plant, q)

    def H(self, q: Array) -> Array:
        return self.h.jacobian(self.model.plant, q, 0.0)

    def __call__(self, elapsed: float, q: Array, v: Array, y: Array, rates: Array) -> CoordinateEstimate:
        return self.find(0.0, elapsed, q, v, y, rates, np.zeros(len(y)))


def closure(q: Array) -> float:
    """Largest gap of the robots' loop [m]."""
    return float(np.abs([np.cos(q).sum() - 3.0, np.sin(q).sum()]).max())


@pytest.mark.parametrize("speed", [1.0, 10.0])
def test_six_motors_give_five_angles_along_a_motion(speed: float) -> None:
    def pose(t: float) -> Array:
        return robots(t, speed)

    eyes, period = Eyes(CoordinatedRobots(), pose(0.0)), 0.0025
    q, v = pose(0.0), rate(pose, 0.0)
    for k in range(1, 400):
        true, speeds = pose(k * period), rate(pose, k * period)
        found = eyes(period, q, v, eyes.measured(true), eyes.H(true) @ speeds)
        q, v = found.q, found.v
        assert found.rank == 5
        np.testing.assert_allclose(q, true, atol=1e-11)
        np.testing.assert_allclose(v, speeds, atol=1e-9)  # what the differences of the closed form leave
        assert np.abs(found.residual).max() < 1e-11
        assert closure(q) < 1e-12


def test_resolution_and_geometry_explain_the_error_of_quantised_encoders() -> None:
    plant, period = CoordinatedRobots(), 0.0025
    eyes, worst = Eyes(plant, robots(0.0)), 0.0
    q, v = robots(0.0), rate(robots, 0.0)
    for k in range(1, 400):
        true, speeds = robots(k * period), rate(robots, k * period)
        y = FINE * np.round(eyes.measured(true) / FINE)
        found = eyes(period, q, v, y, eyes.H(true) @ speeds)
        q, v = found.q, found.v
        # an independent least squares: a basis of the loop's freedoms, and NumPy's pseudoinverse
        loop = np.array([-np.sin(true), np.cos(true)])
        free = null_space(loop)
        gain = free @ np.linalg.pinv(plant.actuation(true, 0.0).T @ free)
        allowed = np.abs(gain) @ np.full(6, FINE / 2)
        assert (np.abs(q - true) <= 1.001 * allowed).all()  # curvature adds FINE^2
        np.testing.assert_allclose(eyes.find.accuracy(0.0, true), 2 * allowed, rtol=1e-9)
        assert closure(q) < 1e-12, "the loop is closed exactly, whatever the encoders say"
        assert (np.abs(found.residual) <= found.bound).all()
        worst = max(worst, float(np.abs(found.residual).max() / FINE))
    assert worst > 0.2, "redundant encoders do disagree by a part of their resolution"


def wrong(change: Callable[[Array, int], float]) -> list[tuple[int, str]]:
    """Channel whose sample is changed -> the one that is named, in two ticks in a row."""
    start, said = State(0.0, robots(0.2), np.zeros(5)), []
    model = Model(CoordinatedRobots(), {}, start)
    free = [Channel(name, FINE, leap=np.inf) for name in model.plant.actuators]
    for i in range(6):
        sensing = Sensing(model, free, start, 0.0025, engine="vm")
        y = sensing.displacements(model.plant, start.q)
        y[i] = change(y, i)
        ticks = [sense(sensing, 0.0, now, [Sample(each, 0.0, np.nan, now) for each in y]) for now in (1, 2)]
        (first,), (second,) = (tick.findings for tick in ticks)
        assert not first.stops and second.stops
        assert "encoders contradict each other" in second.reason
        said.append((i, second.channel))
    return said


@pytest.mark.parametrize("size", [20 * FINE, -0.02])
def test_the_encoder_that_jumped_is_named(size: float) -> None:
    assert wrong(lambda y, i: y[i] + size) == [(i, f"u{i + 1}") for i in range(6)]


def test_an_encoder_whose_sign_flips_shows() -> None:
    # a flip is a large error, beyond the first order in which the culprit is certain
    assert len(wrong(lambda y, i: -y[i])) == 6


def test_the_bound_of_the_residual_holds_for_every_error_that_is_allowed() -> None:
    eyes = Eyes(CoordinatedRobots(), robots(0.5))
    random, largest = np.random.default_rng(0), np.zeros(6)
    for _ in range(200):
        signs = np.sign(random.standard_normal(6))
        found = eyes(0.0, robots(0.5), np.zeros(5), eyes.measured(robots(0.5)) + FINE * signs, np.zeros(6))
        assert (np.abs(found.residual) <= found.bound * (1 + 1e-3)).all()
        largest = np.maximum(largest, np.abs(found.residual) / found.bound)
    assert largest.min() > 0.99, "and it is reached"


def test_slack_widens_the_bound() -> None:
    eyes = Eyes(CoordinatedRobots(), robots(0.5))
    y, q = eyes.measured(robots(0.5)), robots(0.5)
    tight = eyes.find(0.0, 0.0, q, np.zeros(5), y, np.zeros(6), np.zeros(6)).bound
    wide = eyes.find(0.0, 0.0, q, np.zeros(5), y, np.zeros(6), np.full(6, FINE)).bound
    np.testing.assert_allclose(wide, 2 * tight, rtol=1e-12)


def test_the_finer_encoder_counts_for_more() -> None:
    plant = CoordinatedRobots()
    channels = [Channel(name, FINE if i else 100 * FINE) for i, name in enumerate(plant.actuators)]
    eyes, true = Eyes(plant, robots(0.2), channels), robots(0.2)
    y = eyes.measured(true) + np.array([50 * FINE, 0, 0, 0, 0, 0])
    weighted = eyes(0.0, true, np.zeros(5), y, np.zeros(6))
    alike = Eyes(plant, robots(0.2))(0.0, true, np.zeros(5), y, np.zeros(6))
    assert np.abs(weighted.q - true).max() < 1e-3 * np.abs(alike.q - true).max()


def test_an_encoder_shows_the_mass_that_no_motor_drives() -> None:
    plant, q = TwoMassSpring(), np.array([0.0, 0.5])
    with pytest.raises(ConfigError) as caught:
        eyes = Eyes(plant, q)
        require_observability(eyes.model, eyes.find, eyes.start)
    assert str(caught.value) == (
        "hil.drives: TwoMassSpring: 1 of 2 degrees of freedom are measured; not measured: x2 "
        "(add an encoder node under hil.sensors for x2)"
    )
    eyes = Eyes(plant, q, [Channel("F", 1e-6), Channel("x2", 1e-5, encoder=True)])
    require_observability(eyes.model, eyes.find, eyes.start)
    found = eyes(0.01, q, np.zeros(2), np.array([0.3, 0.8]), np.array([1.0, 2.0]))
    np.testing.assert_allclose(found.q, [0.3, 0.8], atol=1e-15)
    np.testing.assert_allclose(found.v, [1.0, 2.0], atol=1e-15)
    np.testing.assert_allclose(found.redundancy, [0.0, 0.0], atol=1e-15)
    assert eyes.h.units == ("m", "m")


def test_a_zero_resolution_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hil: F: resolution: expected a positive number \[joint unit\], got 0"):
        Eyes(TwoMassSpring(), np.zeros(2), [Channel("F", 0.0), Channel("x2", 1e-5, True)])


def test_one_motor_gives_twelve_coordinates_under_dependent_rows() -> None:
    plant, period, omega = Parallelogram(motor=2), 0.0025, 4.0
    eyes = Eyes(plant, parallelogram(-1.2))
    require_observability(eyes.model, eyes.find, eyes.start)
    q, v = parallelogram(-1.2), omega * rate(parallelogram, -1.2)
    for k in range(1, 200):
        theta = -1.2 + omega * k * period
        if abs(theta) < 0.02:
            break
        found = eyes(period, q, v, np.array([theta]), np.array([omega]))
        q, v = found.q, found.v
        assert found.rank == 12
        np.testing.assert_allclose(q, parallelogram(theta), atol=1e-9)
        np.testing.assert_allclose(v, omega * rate(parallelogram, theta), atol=1e-8)
    else:
        pytest.fail("the links never came near the flat pose")


def test_flat_links_hide_a_second_degree_of_freedom() -> None:
    eyes = Eyes(Parallelogram(motor=2), parallelogram(0.0))
    with pytest.raises(ConfigError) as caught:
        require_observability(eyes.model, eyes.find, eyes.start)
    message = str(caught.value)
    assert message.startswith("hil.drives: Parallelogram: 1 of 2 degrees of freedom are measured; not measured: ")
    assert "(only at this pose, which is singular: start at another pose, or add an encoder node" in message


def test_a_machine_passes_a_singular_pose_at_constant_speed() -> None:
    eyes, period, omega = Eyes(Parallelogram(motor=2), parallelogram(-0.05)), 0.0025, 4.0
    q, v, ranks = parallelogram(-0.05), omega * rate(parallelogram, -0.05), []
    for k in range(1, 12):
        theta = -0.05 + omega * k * period
        found = eyes(period, q, v, np.array([theta]), np.array([omega]))
        q, v = found.q, found.v
        ranks.append(found.rank)
        np.testing.assert_allclose(q, parallelogram(theta), atol=1e-6)
        np.testing.assert_allclose(v, omega * rate(parallelogram, theta), atol=omega**2 * period)
    assert min(ranks) == 11 and ranks[0] == ranks[-1] == 12, "the fifth tick finds the links flat"


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_three_motors_keep_the_assembly_branch_of_a_parallel_robot(side: float) -> None:
    def pose(t: float) -> Array:
        return three_rrr(t, side)

    plant, period = ThreeRRR(), 0.0025
    eyes = Eyes(plant, pose(0.0))
    require_observability(eyes.model, eyes.find, eyes.start)
    q, v, unwrapped = pose(0.0), rate(pose, 0.0), pose(0.0)
    for k in range(1, 300):
        speeds, step = rate(pose, k * period), pose(k * period) - unwrapped
        unwrapped = unwrapped + np.mod(step + np.pi, 2 * np.pi) - np.pi
        found = eyes(period, q, v, eyes.measured(unwrapped), eyes.H(unwrapped) @ speeds)
        q, v = found.q, found.v
        assert found.rank == 18
        np.testing.assert_allclose(q, unwrapped, atol=1e-9)
        np.testing.assert_allclose(v, speeds, atol=1e-7)


@dataclass(frozen=True)
class Opaque(CoordinatedRobots):
    """The same robots, by code that symbols cannot follow."""

    def motor_positions(self, q: Array) -> Array:
        return np.array([float(x) for x in motor_positions(CoordinatedRobots(), q)])


def test_engines_agree() -> None:
    plant, random = CoordinatedRobots(), np.random.default_rng(7)
    eyes = [Eyes(plant, robots(0.0), engine=engine) for engine in ("vm", "c", "numpy")]
    for _ in range(10):
        true = robots(float(random.random()))
        arguments = (0.002, true, random.standard_normal(5), eyes[0].measured(true), random.standard_normal(6))
        first, *others = (np.concatenate([np.ravel(part) for part in eye(*arguments)]) for eye in eyes)
        for other in others:
            np.testing.assert_allclose(other, first, rtol=1e-9, atol=1e-11)


def test_a_plant_that_cannot_be_traced_is_measured_in_numpy() -> None:
    start = State(0.0, robots(0.0), np.zeros(5))
    model = Model(Opaque(), {}, start)
    find = Coordinates(model, Displacements(Opaque(), drives(Opaque()), start))
    assert find.engine == "numpy"
    y = motor_positions(Opaque(), robots(0.01))
    found = find(0.0, 0.01, start.q, start.v, y, np.zeros(6), np.zeros(6))
    np.testing.assert_allclose(found.q, robots(0.01), atol=1e-11)


@dataclass(frozen=True)
class Skate(Masses):
    """A blade on ice glides along itself: psi = x' sin - y' cos; and its height is driven: phi = z - sin t."""

    coordinates: ClassVar = {"x": "m", "y": "m", "angle": "rad", "z": "m"}
    actuators: ClassVar = {"torque": "N m"}

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[0.0], [0.0], [1.0], [0.0]])

    def passive_constraints(self, q: Array, t: float) -> dict[str, Array]:
        return {"height": q[3] - np.sin(t)}

    def passive_rates(self, q: Array, v: Array, t: float) -> dict[str, Array]:
        return {"blade": v[0] * np.sin(q[2]) - v[1] * np.cos(q[2])}


@pytest.mark.parametrize("engine", ["vm", "numpy"])
def test_rolling_and_moving_constraints_count_for_velocities(engine: str) -> None:
    place = [Channel("x", 1e-4, encoder=True), Channel("y", 1e-4, encoder=True)]
    eyes = Eyes(Skate(), np.array([0.0, 0.0, 0.5, 0.0]), [Channel("torque", 1e-4), *place], engine)
    y, rates, t = np.array([0.6, 1.0, 2.0]), np.array([0.3, 2.0, 0.5]), 0.7
    found = eyes.find(t, 0.1, eyes.start.q, eyes.start.v, y, rates, np.zeros(3))
    np.testing.assert_allclose(found.q, [1.0, 2.0, 0.6, np.sin(t)], atol=1e-14)
    along = np.array([np.cos(0.6), np.sin(0.6)])
    # least squares of the two speeds along the blade: their projection
    np.testing.assert_allclose(found.v, [*(along @ rates[1:] * along), 0.3, np.cos(t)], atol=1e-14)
