"""Shipped linkages against closed forms of their kinematics, their reduced motion and a published hierarchy."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.integrate import cumulative_simpson

import servoctl as sc
from plants.four_bar import FourBar
from plants.four_bars import FourBars
from plants.parallelogram import Parallelogram
from plants.slider_crank import SliderCrank
from plants.three_rrr import ThreeRRR
from servoctl.assembly.direct import fundamental_acceleration
from servoctl.assembly.make import make_system
from servoctl.errors import PlantError
from servoctl.mechanics.motors import motor_positions
from servoctl.simulation.engine_choice import make_loop
from servoctl.types import Array, State
from tests.benchmarks.parallelogram import pendulum
from tests.textbook import Textbook


@cache
def trajectory(config: str) -> sc.Trajectory:
    run = sc.load(config).simulate()
    assert run.metadata["status"] == "done", run.metadata
    return run


def pose(centres: list[complex], angles: list[float]) -> Array:
    """x, y, phi of each body, one after the other."""
    return np.array([[z.real, z.imag, phi] for z, phi in zip(centres, angles, strict=True)]).ravel()


def turned(theta: float, rate: float) -> tuple[Array, Array]:
    """The parallelogram with its links at an angle, and its velocities."""
    e = np.exp(1j * theta)
    q = pose([e / 2, 1 + e / 2, 2 + e / 2, 1 + e], [theta, theta, theta, 0.0])
    v = rate * pose([1j * e / 2, 1j * e / 2, 1j * e / 2, 1j * e], [1.0, 1.0, 1.0, 0.0])
    return q, v


def row_of(posts: int, theta: float, rate: float) -> tuple[Array, Array]:
    """The row of four-bars with its posts at an angle, and its velocities."""
    e, couplers = np.exp(1j * theta), posts - 1
    centres = [i + e / 2 for i in range(posts)] + [i + 0.5 + e for i in range(couplers)]
    speeds = posts * [1j * e / 2] + couplers * [1j * e]
    return (
        pose(centres, posts * [theta] + couplers * [0.0]),
        rate * pose(speeds, posts * [1.0] + couplers * [0.0]),
    )


@pytest.mark.parametrize(("theta", "rate"), [(-np.pi / 4, 0.0), (np.pi / 2, 1.0), (2.1, -3.0)])
def test_the_parallelogram_accelerates_as_one_pendulum(theta: float, rate: float) -> None:
    motion = fundamental_acceleration(Parallelogram(), State(0.0, *turned(theta, rate)))
    alpha = -3.5 * 9.81 * np.cos(theta) / 3.05
    along, normal = turned(theta, 1.0)[1], rate**2
    e = np.exp(1j * theta)
    inward = pose([-e / 2, -e / 2, -e / 2, -e], [0.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(motion.acceleration, alpha * along + normal * inward, atol=1e-12)
    assert motion.rank == 11
    np.testing.assert_allclose(motion.inconsistency, 0.0, atol=1e-12)


def test_one_row_of_the_parallelogram_is_redundant_and_two_where_it_lies_flat() -> None:
    assert fundamental_acceleration(Parallelogram(), State(0.0, *turned(0.3, 1.0))).rank == 11
    assert fundamental_acceleration(Parallelogram(), State(0.0, *turned(0.0, 1.0))).rank == 10
    assert fundamental_acceleration(Parallelogram(), State(0.0, *turned(np.pi, 1.0))).rank == 10


@pytest.mark.parametrize("motor", [1, 2, 3])
def test_the_motor_of_the_parallelogram_turns_its_link(motor: int) -> None:
    plant = Parallelogram(motor=motor)
    q, v = turned(0.4, 1.7)
    B = plant.actuation(q, 0.0)
    assert list(plant.actuators.items()) == [("tau", "N m")]
    assert v @ B[:, 0] == pytest.approx(1.7)
    assert motor_positions(plant, q) == pytest.approx([0.4])


def test_the_slider_is_at_the_position_of_the_closed_form() -> None:
    run = trajectory("slider_crank")
    crank = 2 * np.pi * run.t
    assert np.abs(run["q.crank_phi"] - crank).max() < 1e-9
    assert np.abs(run["q.slider_x"] - 0.2 * np.cos(crank) - np.sqrt(0.36 - (0.2 * np.sin(crank)) ** 2)).max() < 1e-9
    assert np.abs(run["q.rod_phi"] + np.arcsin(0.2 * np.sin(crank) / 0.6)).max() < 1e-9


def test_the_motor_of_the_slider_crank_supplies_the_energy() -> None:
    run, plant = trajectory("slider_crank"), SliderCrank()
    energies = [plant.energy(q, v, 0.0) for q, v in zip(run.q, run.v, strict=True)]
    gained = np.array(energies, dtype=float) - np.array(energies[0])
    work = cumulative_simpson(run["u.tau"] * run["v.crank_phi"], x=run.t, initial=0)
    assert np.ptp(gained) > 1.0
    np.testing.assert_allclose(gained[::2], work[::2], atol=1e-6)  # Simpson's rule over pairs of rows 5 ms apart


def test_an_offset_guide_lifts_the_slider() -> None:
    plant = SliderCrank(e=0.15)
    crank = 0.8
    rod = np.arcsin((0.15 - 0.2 * np.sin(crank)) / 0.6)
    pin = 0.2 * np.exp(1j * crank)
    wrist = pin + 0.6 * np.exp(1j * rod)
    q = pose([pin / 2, (pin + wrist) / 2, wrist], [crank, rod, 0.0])
    assert wrist.imag == pytest.approx(0.15)
    for name, violation in plant.passive_constraints(q, 0.0).items():
        np.testing.assert_allclose(violation, 0.0, atol=1e-15, err_msg=name)


def test_the_four_bar_satisfies_freudensteins_equation() -> None:
    run, plant = trajectory("four_bar"), FourBar()
    crank, coupler, rocker = (run[f"q.{name}_phi"] for name in ("crank", "coupler", "rocker"))
    k = plant.d / plant.a, plant.d / plant.c, (plant.a**2 - plant.b**2 + plant.c**2 + plant.d**2)
    closure = k[0] * np.cos(rocker) - k[1] * np.cos(crank) + k[2] / (2 * plant.a * plant.c) - np.cos(crank - rocker)
    assert np.abs(closure).max() < 1e-9
    chain = plant.a * np.exp(1j * crank) + plant.b * np.exp(1j * coupler) - plant.c * np.exp(1j * rocker) - plant.d
    assert np.abs(chain).max() < 1e-9


def test_the_pen_of_the_four_bar_follows_the_task() -> None:
    run, plant = trajectory("four_bar"), FourBar()
    pen = np.array([plant.point("pen", q) for q in run.q])
    assert np.abs(pen[:, 0] - 0.14 - 0.15 * np.cos(np.pi * run.t)).max() < 1e-9
    np.testing.assert_allclose(pen, [plant.links(q)["pen"][0] for q in run.q], atol=1e-15)


@pytest.mark.parametrize("N", [1, 2, 5])
def test_four_bars_in_a_row_move_as_one_pendulum(N: int) -> None:
    theta, rate = 1.1, -0.8
    motion = fundamental_acceleration(FourBars(N=N), State(0.0, *row_of(N + 1, theta, rate)))
    alpha = -9.81 * ((N + 1) / 2 + N) / ((N + 1) / 3 + N) * np.cos(theta)
    angles = [3 * i + 2 for i in range(N + 1)]
    np.testing.assert_allclose(motion.acceleration[angles], alpha, rtol=1e-11)
    assert motion.rank == 6 * N + 2
    assert fundamental_acceleration(FourBars(N=N), State(0.0, *row_of(N + 1, 0.0, rate))).rank == 5 * N + 2


@pytest.mark.slow
def test_the_row_of_four_bars_keeps_its_branch_where_it_lies_flat() -> None:
    run = trajectory("four_bars")
    exact = pendulum(np.pi / 2, -1.0, run.t[-1], -9.81 * 5.0 / (4 / 3 + 3))(run.t)[0]
    assert np.count_nonzero(np.diff(np.floor(exact / np.pi))) == 5
    for i in range(4):
        assert np.abs(run[f"q.post{i}_phi"] - exact).max() < 5e-4


def test_the_platform_of_the_3rrr_follows_its_circle() -> None:
    run = trajectory("three_rrr")
    turn = np.exp(1j * np.pi * run.t)
    assert np.abs(run["q.platform_x"] + 1j * run["q.platform_y"] - 0.1 * turn).max() < 1e-8
    assert np.abs(run["q.platform_phi"]).max() < 1e-9
    plant = ThreeRRR()
    for q in run.q[::50]:
        ends: dict[str, Any] = {name: points @ [1.0, 1.0j] for name, points in plant.links(q).items()}
        for i, k in enumerate("abc"):
            spoke = np.exp(1j * (np.pi / 2 + i * 2 * np.pi / 3))
            foot, elbow = ends[f"arm_{k}"]
            assert foot == pytest.approx(spoke)
            assert abs(elbow - foot) == pytest.approx(plant.l1)
            corner = q[-3] + 1j * q[-2] + plant.platform * spoke * np.exp(1j * q[-1])
            assert ends[f"forearm_{k}"] == pytest.approx([elbow, corner], abs=1e-8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Parallelogram(motor=4), r"^Parallelogram: motor: expected a link, 1 to 3, or 0 for none, got 4$"),
        (lambda: FourBars(N=0), r"^FourBars: N: expected at least 1 loop, got 0$"),
        (
            lambda: Parallelogram(m=-1.0),
            r"^Parallelogram: body 'link1': m: expected a positive mass \[kg\], got -1\.0$",
        ),
    ],
)
def test_a_wrong_structure_is_refused(make: Any, message: str) -> None:
    with pytest.raises(PlantError, match=message):
        make()


@pytest.mark.parametrize("loops", [3, 9, 11], ids=["written out", "matrix by matrix", "by bands"])
def test_a_row_of_four_bars_moves_as_on_paper_however_its_rows_are_decomposed(loops: int) -> None:
    """In the flat pose rows depend on each other: bands must leave it to the pivots."""
    posts = loops + 1
    start = State(0.0, *row_of(posts, 1.1, -0.8))
    loop = make_loop(make_system(FourBars(N=loops), {}, None, {}, start, None, 1e-6))
    for theta, rank in ((1.1, 6 * loops + 2), (0.0, 5 * loops + 2)):
        q, v = row_of(posts, theta, -0.8)
        rates, row = loop.rates(0.0, np.concatenate([q, v]))
        expected = Textbook(loop.system, State(0.0, q, v)).acceleration(np.zeros(0))
        np.testing.assert_allclose(rates[len(q) :], expected, atol=1e-10 * np.abs(expected).max())
        assert row[loop.layout.slices["passive_rank"]] == rank


def test_a_machine_whose_bands_are_taken_in_numpy_has_no_derivatives_and_runs_in_c_if_asked() -> None:
    start = State(0.0, *row_of(12, 1.1, -0.8))
    loop = make_loop(make_system(FourBars(N=11), {}, None, {}, start, None, 1e-6))
    x = np.concatenate([start.q, start.v])
    assert loop.traced and not loop.differentiable and loop.jacobian(0.0, x) is None
    expected = loop.rates(0.0, x)[0]
    loop.run_on(loop.program(None).load(), None)
    np.testing.assert_allclose(loop.rates(0.0, x)[0], expected, atol=1e-10 * np.abs(expected).max())
