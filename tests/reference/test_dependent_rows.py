"""The right motion where passive rows are dependent: angle and energy against the reduced pendulum.

`(3 (I + m L^2/4) + m2 L^2) theta'' = -(3 m/2 + m2) g L cos(theta)`; the fixed step is 5 ms where the default is 1 ms,
which costs accuracy and saves minutes.

Bricard's threefold-symmetric linkage has six hinges under six closure rows of rank 5: links of length 1, twists of +90
and -90 deg in turn; theta of odd hinges and phi of even ones keep `cos theta + cos phi + cos theta cos phi = 0`. Each
joint carries a mass of 1 kg and a rotor.

Source: Chen, You, Tarnai 2005, (6), for a twist of 90 deg.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import servoctl as sc
from servoctl.mechanics.model import Model
from servoctl.mechanics.passive_rank import allowed_rank
from servoctl.types import State
from tests.benchmarks.parallelogram import pendulum

STEP = "run.integrator={method: rk4, step: 0.005}"


def run(config: str, *overrides: str, engine: str = "auto") -> tuple[sc.Trajectory, np.ndarray]:
    """The run, and the error of its angle."""
    trajectory = sc.load(config, [STEP, "run.output_step=0.1", *overrides], engine=engine).simulate()
    assert trajectory.metadata["status"] == "done"
    theta = trajectory["q.link1_phi"]
    return trajectory, theta - pendulum(theta[0], trajectory["v.link1_phi"][0], trajectory.t[-1])(trajectory.t)[0]


@pytest.mark.slow
@pytest.mark.optimised
def test_the_parallelogram_swings_right_for_two_hundred_seconds_when_projected() -> None:
    _, error = run("parallelogram", "run.duration=200", "plant.passive={projection: true}", engine="c")
    assert np.abs(error).max() < 1e-6


@pytest.mark.parametrize(("config", "bound"), [("parallelogram", 1e-7), ("parallelogram_flat", 1e-6)])
def test_projection_alone_keeps_the_motion_ten_times_better(config: str, bound: float) -> None:
    trajectory, error = run(config, "run.duration=10", "plant.passive={projection: true}")
    assert np.abs(error).max() < bound
    assert max(trajectory.violation(row).max() for row in trajectory.passive_rows) < 1e-13


@pytest.mark.parametrize("engine", ["vm", "c"])
def test_small_gains_end_before_the_motion_is_lost_at_the_flat_pose_and_the_rank_says_why(engine: str) -> None:
    slow = "plant.passive.correction={baumgarte: {alpha: 5, beta: 5}}"
    trajectory = sc.load("parallelogram_flat", [STEP, "run.duration=20", slow], engine=engine).simulate()
    assert trajectory.metadata["status"] == "stopped"
    theta = trajectory["q.link1_phi"]
    right = np.abs(theta - pendulum(theta[0], 1.0, trajectory.t[-1])(trajectory.t)[0]) < 1e-2
    assert right[trajectory.t < trajectory.t[-1] - 0.2].all()
    assert "rank" in trajectory.metadata["error"]
    assert "plant.passive.projection: true" in trajectory.metadata["error"]


def test_a_configured_correction_replaces_the_projection() -> None:
    written = sc.load("parallelogram", ["plant.passive.correction={baumgarte: {alpha: 10, beta: 10}}"], engine="vm")
    assert not written.system.passive.projection
    assert written.system.passive.correction.stiffness == (100.0,) * 12
    default = sc.load("parallelogram", engine="vm").system.passive
    assert (default.projection, default.correction.stiffness, default.allowed) == (True, (0.0,) * 12, 11)


@dataclass(frozen=True)
class Bricard(sc.LagrangianPlant):
    """A closed chain of six links; the last one stands."""

    mass: float = 1.0  # [kg] at each joint
    rotor: float = 0.1  # [kg m^2] about each hinge
    g: float = 9.81  # [m/s^2]
    coordinates: ClassVar[dict[str, str]] = {f"hinge{i}": "rad" for i in range(1, 7)}
    actuators: ClassVar[dict[str, str]] = {}

    def chain(self, q):
        """Origins and hinge axes from the standing link on, and the orientation behind the last hinge."""
        R, place, origins, axes = np.eye(3), np.zeros(3), [], []
        for i in range(6):
            axes.append(R[:, 2])
            c, s, twist = np.cos(q[i]), np.sin(q[i]), 1.0 - 2.0 * (i % 2)
            R = R @ np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
            place = place + R[:, 0]
            R = R @ np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -twist], [0.0, twist, 0.0]])
            origins.append(place)
        return origins, axes, R

    def kinetic_energy(self, q, v, t):
        origins, axes, _ = self.chain(q)
        turning, moving, last, total = np.zeros(3), np.zeros(3), np.zeros(3), 0.0
        for i in range(6):
            turning = turning + axes[i] * v[i]
            moving = moving + np.cross(turning, origins[i] - last)
            last = origins[i]
            total = total + 0.5 * self.rotor * v[i] ** 2 + 0.5 * self.mass * (moving @ moving)
        return total

    def potential_energy(self, q, t):
        origins, _, _ = self.chain(q)
        return sum(self.mass * self.g * origin[1] for origin in origins)

    def passive_constraints(self, q, t):
        origins, _, R = self.chain(q)
        return {"place": origins[-1], "direction": np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]])}


def closed(theta: float) -> np.ndarray:
    """Hinge angles of the closed linkage."""
    phi = np.arccos(-np.cos(theta) / (1.0 + np.cos(theta)))
    return np.array([theta, phi] * 3)


def test_six_closure_rows_of_the_linkage_have_rank_five() -> None:
    state = State(0.0, closed(1.0), np.zeros(6))
    assert allowed_rank(Model(Bricard(), {}, state), state) == 5


@pytest.mark.parametrize("how", [{"method": "rk4", "step": 0.005}, {"method": "dop853", "rtol": 1e-9}])
def test_the_linkage_keeps_one_degree_of_freedom_and_its_energy_by_default(how) -> None:
    run = sc.simulate(Bricard(), {}, None, q=closed(1.0), duration=5, output_step=0.05, **how)
    assert run.metadata["status"] == "done"
    theta, phi = np.cos(run["q.hinge1"]), np.cos(run["q.hinge2"])
    assert np.ptp(run["q.hinge1"]) > 0.5
    assert np.abs(theta + phi + theta * phi).max() < 1e-6
    assert np.abs(run["q.hinge3"] - run["q.hinge1"]).max() < 1e-6
    assert run.metadata["energy_drift"] < 1e-4
    assert set(run["passive_rank"]) == {5}
