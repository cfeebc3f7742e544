"""Single plants against closed forms and the properties of their kind; planar serial chains against sums over links."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

import servoctl as sc
from plants.coordinated_robots import CoordinatedRobots
from plants.crane_rope import CraneRope
from plants.flexible_joint_arm import FlexibleJointArm
from plants.harmonic_drive import HarmonicDrive
from plants.linear_motor import LinearMotor
from plants.polar_particle import PolarParticle
from plants.scara import Scara
from plants.swarm import Aggregation, Swarm
from plants.two_wheeled_robot import TwoWheeledRobot
from plants.unicycle import Unicycle
from servoctl.errors import PlantError
from servoctl.linear import analyse
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.serial import PlanarChain
from servoctl.types import Array


def test_motor_torques_accelerate_no_link_at_once() -> None:
    plant = FlexibleJointArm(inputs="motor")
    q = np.array([0.3, -0.2, 0.1, 0.4])
    reach = np.linalg.solve(plant.mass_matrix(q, 0.0), plant.actuation(q, 0.0))
    np.testing.assert_array_equal(reach[:2], np.zeros((2, 2)))


RANDOM = np.random.default_rng(13)


def test_the_drawn_tool_of_the_scara_is_at_its_published_pose() -> None:
    plant = Scara(l0=0.1)
    for q in RANDOM.normal(size=(5, 4)):
        a, b = q[0], q[0] + q[1]
        # (39) of Xu, Liu 2017
        tool = [
            -plant.l1 * np.sin(a) - plant.l2 * np.sin(b),
            plant.l1 * np.cos(a) + plant.l2 * np.cos(b),
            plant.l0 + q[3],
        ]
        np.testing.assert_allclose(plant.links(q)["slide"][-1], tool, atol=1e-14)


def test_actuation_of_the_robots_is_the_published_one() -> None:
    # (70) of Liu et al. 2015
    published = [[1, -1, 0, 0, 0, 0], [0, 1, -1, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, -1, 1, 0], [0, 0, 0, 0, -1, 1]]
    np.testing.assert_array_equal(CoordinatedRobots().actuation(np.zeros(5), 0.0), published)


@pytest.mark.parametrize("s", [2, 3, 4, 5])
def test_every_joint_motor_of_the_robots_works_on_the_angle_between_its_links(s: int) -> None:
    plant = CoordinatedRobots(s=s)
    n = 2 * s - 1
    # power u_j (w_outer - w_inner), the ground at rest on either side
    w = RANDOM.normal(size=n)
    rates = np.diff(np.concatenate([[0.0], w, [0.0]]))
    signs = np.where(np.arange(n + 1) < s, 1.0, -1.0)
    np.testing.assert_allclose(plant.actuation(np.zeros(n), 0.0).T @ w, signs * rates, atol=1e-15)


def test_the_loop_of_the_robots_closes_at_the_second_base() -> None:
    plant = CoordinatedRobots()
    q = np.deg2rad([60.0, -60.0, 0.0, 60.0, -60.0])
    np.testing.assert_allclose(plant.passive_constraints(q, 0.0)["loop"], [0.0, 0.0], atol=1e-15)
    drawn = plant.links(q)
    np.testing.assert_allclose(drawn["robot2"][-1], [plant.L, 0.0], atol=1e-15)
    np.testing.assert_array_equal(drawn["robot1"][-1], drawn["object"][0])
    np.testing.assert_array_equal(drawn["object"][-1], drawn["robot2"][0])


def test_both_metrics_of_the_particle_have_one_free_motion() -> None:
    true, published = PolarParticle(m=1.7), PolarParticle(m=1.7, published_metric=True)
    assert true.actuators["Ftheta"] == "N m" and published.actuators["Ftheta"] == "N/m"
    for q, v in RANDOM.uniform(0.5, 3.0, size=(5, 2, 2)):
        free = [np.linalg.solve(p.mass_matrix(q, 0.0), p.force(q, v, 0.0)) for p in (true, published)]
        np.testing.assert_allclose(free[0], free[1], rtol=1e-13)
        np.testing.assert_array_equal(published.mass_matrix(q, 0.0), 1.7 * np.eye(2))


def test_aggregation_follows_the_gradient_of_the_swarms_potential() -> None:
    (position, rate), h = RANDOM.normal(size=(2, 8)), 1e-6

    def potential(p: Array, i: int) -> float:
        distances = [np.linalg.norm(p[2 * i : 2 * i + 2] - p[2 * j : 2 * j + 2]) for j in range(4) if j != i]
        return float(sum(-0.7 * d + 1.3 * d**2 / 2 + 50 for d in distances))

    slope = [
        (potential(position + h * e, k // 2) - potential(position - h * e, k // 2)) / (2 * h)
        for k, e in enumerate(np.eye(8))
    ]
    np.testing.assert_allclose(Aggregation(a=1.3, b=0.7).psi(position, rate, 0.0), rate + slope, atol=1e-7)


def test_two_robots_rest_at_the_distance_where_forces_balance() -> None:
    np.testing.assert_allclose(
        Aggregation(a=2.0, b=0.5).psi(np.array([0.0, 0.0, 0.15, 0.2]), np.zeros(4), 0.0), 0.0, atol=1e-16
    )


def test_a_single_robot_has_no_attraction() -> None:
    np.testing.assert_array_equal(Aggregation().psi(np.ones(2), np.array([0.3, -0.4]), 0.0), [0.3, -0.4])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CoordinatedRobots(s=1), "CoordinatedRobots: s: expected at least 2 links in each arm, got 1"),
        (lambda: FlexibleJointArm(inputs="joint"), "FlexibleJointArm: inputs: expected 'motor' or 'link', got 'joint'"),
        (lambda: Swarm(N=0), "Swarm: N: expected at least 1 robot, got 0"),
    ],
)
def test_a_wrong_structure_is_named(build: Callable[[], Plant], message: str) -> None:
    with pytest.raises(PlantError) as error:
        build()
    assert str(error.value) == message


def test_every_body_of_the_crane_with_a_rope_obeys_newton_and_the_rope_pulls() -> None:
    plant = CraneRope(M=17.0, m=41.0, J=0.3, r=0.15, g=9.7)
    for angle, length, F, tau in RANDOM.uniform([-0.7, 1.0, -50, -90], [0.7, 3.0, 50, 0], (6, 4)):
        s, turning, winding, rolling = RANDOM.normal(size=4)
        e, across = np.array([np.sin(angle), -np.cos(angle)]), np.array([np.cos(angle), np.sin(angle)])
        x, y = np.array([s, 0.0]) + length * e
        velocity = np.array([rolling, 0.0]) + winding * e + length * turning * across
        q, v = np.array([s, x, y, length]), np.array([rolling, *velocity, winding])
        assert abs(plant.passive_constraints(q, 0.0)["rope"]) < 1e-12
        A = np.array([[-e[0], *e, -1.0]])
        assert abs(A @ v) < 1e-12
        # the length's second rate at q'' = 0 is that of a point that passes the trolley: length turning^2
        b = np.array([-length * turning**2])
        M, Q, B = plant.mass_matrix(q, 0.0), plant.force(q, v, 0.0), plant.actuation(q, 0.0)
        solved = np.linalg.solve(np.block([[M, -A.T], [A, np.zeros((1, 1))]]), [*(Q + B @ [F, tau]), *b])
        (ds, dx, dy, dl), tension = solved[:4], -solved[4]
        np.testing.assert_allclose(plant.m * np.array([dx, dy + plant.g]), -tension * e, atol=1e-10)
        assert plant.M * ds == pytest.approx(F + tension * e[0])
        assert plant.J * dl / plant.r == pytest.approx(tau + tension * plant.r)
    hanging = np.array([0.0, 0.0, -2.0, 2.0])
    held = plant.force(hanging, np.zeros(4), 0.0) + plant.actuation(hanging, 0.0) @ [0.0, -plant.m * plant.g * plant.r]
    np.testing.assert_allclose(held, -plant.m * plant.g * np.array([0.0, 0.0, 1.0, 1.0]), atol=1e-12)


def ran(name: str, *overrides: str) -> Any:
    return sc.load(name, overrides, engine="vm").simulate()


def test_the_axle_of_the_unicycle_draws_the_tractrix() -> None:
    """psi' = -V / d sin psi: sin psi = sech(V t / d), cos psi = tanh(V t / d)."""
    run, plant, V, d = ran("unicycle"), Unicycle(), 0.5, 0.5
    a = V / d
    t, sech, tanh = run.t, 1 / np.cosh(a * run.t), np.tanh(a * run.t)
    np.testing.assert_allclose(run["q.x"], V * t - d * tanh, atol=1e-9)
    np.testing.assert_allclose(run["q.y"], d * (1 - sech), atol=1e-9)
    np.testing.assert_allclose(np.tan(run["q.psi"] / 2), np.exp(-a * t), atol=1e-9)
    np.testing.assert_allclose(run["u.F"], plant.m * a * (V - plant.c * a) * sech**2, atol=1e-8)
    tau = ((plant.J + plant.m * plant.c**2) * a - plant.m * plant.c * V) * a * sech * tanh
    np.testing.assert_allclose(run["u.tau"], tau, atol=1e-8)
    speed = np.hypot(run["v.x"], run["v.y"])
    np.testing.assert_allclose(speed, V * tanh, atol=1e-9)


def factors(plant: TwoWheeledRobot) -> tuple[float, float, float]:
    """c1, c2 and p g of c1 s' + c2 theta'' = p g theta, which no torque of the wheels changes."""
    p = plant.m * plant.l
    rolling = plant.mb + 2 * plant.Jw / plant.r**2 + plant.m
    return plant.r * rolling + p, p * plant.l + plant.I + plant.r * p, p * plant.g


SPEED = "cos(psi)*der(x) + sin(psi)*der(y)"


@pytest.mark.parametrize(("h", "k"), [(1.0, 2.5), (0.7, 1.0), (0.5, 1.0), (0.0, 0.0)])
def test_the_tilt_settles_if_the_point_with_the_speed_is_high_enough(h: float, k: float) -> None:
    """(c1 h - c2) s^2 + c1 k s + p g = 0."""
    task = f"task.speed.nonholonomic={SPEED} + {h}*der(theta) + {k}*theta"
    run = sc.load("two_wheeled_robot", [task, "task.heading.holonomic=psi", "initial.q=0"], engine="vm")
    c1, c2, weight = factors(TwoWheeledRobot())
    expected = np.sort_complex(np.roots([c1 * h - c2, c1 * k, weight]).astype(complex))
    poles = np.array([mode.pole for mode in analyse(run).modes if mode.group == "internal" and abs(mode.pole) > 1e-3])
    np.testing.assert_allclose(np.sort_complex(poles), expected, rtol=1e-6)
    assert (poles.real.max() < 0) == (h > c2 / c1)
    assert 0.5 < c2 / c1 < 0.7


def test_the_two_wheeled_robot_leans_into_a_constant_acceleration() -> None:
    """(r (m0 + m) + p cos theta) a = p g sin theta at rest, with the torque p (g sin theta - a cos theta)."""
    a, plant = 1.0, TwoWheeledRobot()
    task = f"task.speed.nonholonomic={SPEED} + 1.0*der(theta) + 2.5*theta - {a}*t"
    run = ran("two_wheeled_robot", task, "task.heading.holonomic=psi", "initial.q={x: 0, y: 0, psi: 0, theta: 0}")
    p = plant.m * plant.l
    rolling = plant.r * (plant.mb + 2 * plant.Jw / plant.r**2 + plant.m)
    tilt = brentq(lambda th: (rolling + p * np.cos(th)) * a - p * plant.g * np.sin(th), 0, 1)
    assert run["q.theta"][-1] == pytest.approx(tilt, abs=1e-6)
    assert 0.1 < tilt < 0.2
    torque = p * (plant.g * np.sin(tilt) - a * np.cos(tilt))
    assert run["u.left"][-1] + run["u.right"][-1] == pytest.approx(torque, abs=1e-5)
    assert run["u.left"] == pytest.approx(run["u.right"], abs=1e-9)


def test_heading_and_speed_decay_together_on_two_motors() -> None:
    """P beta' + beta = 0: of the heading beta = phi' + 2 phi, of the speed the error itself; P = 0.25 s."""
    run = ran("two_wheeled_robot", "initial.q.psi=0.3")
    t = run.t
    heading = 0.4 * np.exp(-2 * t) - 0.1 * np.exp(-4 * t)  # from 0.3 rad and -0.4 rad/s
    np.testing.assert_allclose(run["violation.heading"], heading, atol=1e-8)
    np.testing.assert_allclose(run["violation.speed"], 2.5 * 0.05 * np.exp(-4 * t), atol=1e-8)
    assert np.abs(run["passive.roll"]).max() < 1e-9
    assert np.abs(run["q.theta"]).max() < 0.3, "it does not fall"


def motions(t: Any) -> tuple[Any, Any, Any]:
    """The path that is asked for, 0.13 sin(4 t), and its two rates."""
    return 0.13 * np.sin(4 * t), 0.52 * np.cos(4 * t), -2.08 * np.sin(4 * t)


def thrust(plant: LinearMotor, x: Array, v: Array, a: Array) -> Array:
    """Force for a motion, with the friction of the config."""
    cogging: Array = plant.Fc * np.sin(2 * np.pi * x / plant.pitch)
    return plant.m * a + cogging + 6 * np.tanh(v / 0.01) + 15 * v


def test_the_linear_motor_brakes_in_time_and_waits_at_the_end_of_its_stroke() -> None:
    run, L, A, p = ran("linear_motor"), 0.1, 20.0, 100.0
    x, v, t = run["q.x"], run["v.x"], run.t
    assert np.abs(x).max() <= L and L - np.abs(x).max() < 1e-9
    # h' = -alpha(h) while it brakes towards the end; a held command follows it up to the period
    h = L - x
    alpha = A / p * (np.sqrt(1 + 2 * p**2 * np.maximum(h, 0) / A) - 1)
    braking = (t > 0.2) & (t < 0.3) & (h > 1e-5)
    np.testing.assert_allclose(v[braking], alpha[braking], rtol=0.06)
    assert np.diff(v).min() / 1e-3 > -1.05 * A
    # it leaves where the row, at rest there, asks for an acceleration back
    leaves = brentq(lambda s: motions(s)[2] + 40 * motions(s)[1] + 400 * (motions(s)[0] - L), np.pi / 8, np.pi / 4)
    waits = (t > 0.35) & (t < leaves - 1e-3)
    assert np.all(h[waits] < 1e-6) and np.all(h[(t > leaves + 0.01) & (t < leaves + 0.1)] > 1e-5)


def test_the_linear_motor_cancels_cogging_and_friction_before_the_bound() -> None:
    run, plant = ran("linear_motor"), LinearMotor()
    ahead = run.t < 0.18
    t, x, v = run.t[ahead], run["q.x"][ahead], run["v.x"][ahead]
    path, rate, second = motions(t)
    asked = second - 40 * (v - rate) - 400 * (x - path)
    np.testing.assert_allclose(run["u.F"][ahead], thrust(plant, x, v, asked), atol=1e-9)
    assert np.abs(x - path).max() < 1e-4


def test_the_link_of_the_harmonic_drive_decays_with_four_equal_poles() -> None:
    """(s + 80)^4 from an error of -5 mrad at rest, whose 2nd and 3rd derivatives are 0."""
    run = ran("harmonic_drive", "run.output_step=0.001")
    s = 80 * run.t
    exact = -0.005 * np.exp(-s) * (1 + s + s**2 / 2 + s**3 / 6)
    np.testing.assert_allclose(run["violation.link"], exact, atol=1e-8)


def torque(plant: HarmonicDrive, e: float) -> float:
    """Torque of the flexspline at a twist."""
    return plant.K2 * e - (plant.K2 - plant.K1) * plant.w * float(np.sin(np.arctan2(e, plant.w)))


def test_the_motor_of_the_harmonic_drive_holds_the_weight_through_a_stiffening_spring() -> None:
    start = "initial={q: {link: 0.9, motor: 90.1}, v: 0}"
    run, plant = ran("harmonic_drive", "task.link.holonomic=link - 0.9", start, "run.duration=1"), HarmonicDrive()
    weight = plant.m * plant.g * plant.l * np.sin(0.9)
    twist = brentq(lambda e: torque(plant, e) - weight, 0, 0.01)
    assert twist < 0.95 * weight / plant.K1, "the spring has stiffened"
    assert run["u.tau"][-1] == pytest.approx(weight / plant.N, abs=1e-7)
    assert run["q.motor"][-1] == pytest.approx(plant.N * (0.9 + twist), abs=1e-6)


def test_rotor_and_link_of_the_harmonic_drive_swing_against_each_other_at_the_known_frequency() -> None:
    """w^2 = K1 (1 / J + 1 / (N^2 (Jw + rotor))) without gravity."""
    plant = HarmonicDrive()
    frequency = np.sqrt(plant.K1 * (1 / plant.J + 1 / (plant.N**2 * (plant.Jw + 6e-5))))
    start = "initial={q: {link: 0, motor: 1e-4}, v: 0}"
    run = ran(
        "harmonic_drive", "law=none", "plant.parameters.g=0", "plant.friction=", start, "run.duration=0.2",
        "run.output_step=0.001",
    )  # fmt: skip
    e = run["q.motor"] / plant.N - run["q.link"]
    np.testing.assert_allclose(e, 1e-6 * np.cos(frequency * run.t), atol=1e-9)


def test_slow_poles_on_a_stiff_spring_have_no_margin() -> None:
    quick, slow = (
        analyse(sc.load("harmonic_drive", [f"law.correction.poles={poles}"], engine="vm")) for poles in (-80, -8)
    )
    gain, other = (each.margins[-1].actuators[0].gain for each in (quick, slow))
    assert gain > 10 and other < 1.01
    assert not [text for text in quick.warnings if "unstable" in text]
    assert any(text.startswith("J: unstable if it is 10 % larger") for text in slow.warnings)


DRAWS = np.random.default_rng(7)
M1, M2, M3, M4, M5 = MASSES = (1.3, 0.7, 2.1, 0.9, 1.6)
LENGTHS = (0.8, 1.1, 0.6, 1.4, 0.9)
INERTIAS = (0.11, 0.23, 0.31, 0.17, 0.29)
GENERAL = PlanarChain(MASSES, INERTIAS, LENGTHS, (0.5, -0.2, 0.6, 0.3, 1.1), 9.8)


def test_planar_mass_matrix_is_the_sum_over_link_jacobians() -> None:
    q = DRAWS.normal(size=5)
    arms = np.tri(5, k=-1) * LENGTHS + np.diag(GENERAL.centres)  # along link j to the centre of link i
    jacobians = np.stack([-arms * np.sin(q), arms * np.cos(q)], axis=1)
    M = sum(m * J.T @ J for m, J in zip(MASSES, jacobians, strict=True)) + np.diag(INERTIAS)
    np.testing.assert_allclose(GENERAL.mass_matrix(q), M, atol=1e-13)
    weights = sum(m * 9.8 * J[1] for m, J in zip(MASSES, jacobians, strict=True))
    np.testing.assert_allclose(GENERAL.gravity_force(q), -weights, atol=1e-12)


def test_planar_gravity_is_the_slope_of_the_potential_energy() -> None:
    q, h = DRAWS.normal(size=5), 1e-6
    slope = [(GENERAL.potential_energy(q + h * e) - GENERAL.potential_energy(q - h * e)) / (2 * h) for e in np.eye(5)]
    np.testing.assert_allclose(GENERAL.gravity_force(q), -np.array(slope), atol=1e-7)


def test_planar_joints_are_a_length_apart() -> None:
    joints = GENERAL.joints(DRAWS.normal(size=5))
    assert joints.shape == (6, 2)
    np.testing.assert_allclose(np.linalg.norm(np.diff(joints, axis=0), axis=1), LENGTHS, atol=1e-14)


def test_planar_coriolis_matrix_is_the_christoffel_one() -> None:
    q, v, h = DRAWS.normal(size=5), DRAWS.normal(size=5), 1e-5
    dM = np.stack([(GENERAL.mass_matrix(q + h * e) - GENERAL.mass_matrix(q - h * e)) / (2 * h) for e in np.eye(5)])
    C = 0.5 * (np.einsum("kij,k->ij", dM, v) + np.einsum("jik,k->ij", dM, v) - np.einsum("ijk,k->ij", dM, v))
    np.testing.assert_allclose(GENERAL.coriolis_matrix(q, v), C, atol=1e-8)  # second-order differences
