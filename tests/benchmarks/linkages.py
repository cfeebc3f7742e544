"""Linkages: the parallelogram for 20 s at one accuracy, and forty four-bars in a row (IFToMM A02)."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from servoctl.assembly import simulate
from servoctl.assembly.classes import load_class
from servoctl.assembly.make import load
from servoctl.laws.corrections import Baumgarte
from servoctl.mechanics.plant import Plant
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array
from tests.benchmarks.contest import Entry, Line, Results
from tests.benchmarks.parallelogram import DURATION, exact_angle, pose, pose_rate, rotating_angle, start_overrides
from tests.benchmarks.peers.tree import PARALLELOGRAM, parallelogram_angles
from tests.benchmarks.search import Choices, PeerMotion, fastest, our_candidates, peer_candidates, race
from tests.benchmarks.two_robots import baumgarte, compiled

TOLERANCE = 1e-6  # [rad]
OURS, JOINTS = [2, 5, 8], [0, 2, 3]
"""Indices of the link angles among our coordinates, and among the absolute angles of the peers."""


@dataclass(frozen=True)
class LinkageStart:
    """A start, and the settings that are tried from it."""

    name: str
    theta: float  # [rad]
    rate: float  # [rad/s]
    exact: Callable[[Array], Array]  # times [s] -> theta [rad]
    choices: Choices

    def ours(self) -> Array:
        """The start in our 12 coordinates and velocities."""
        return np.concatenate([pose(self.theta), pose_rate(self.theta, self.rate)])

    def loop(self, alpha: float | None) -> Loop:
        """The linkage in our coordinates, with Baumgarte's alpha = beta [1/s] or, by default, projection."""
        overrides = [*start_overrides(self.theta, self.rate), "run.integrator={method: rk4, step: 0.01}"]
        return compiled(load("parallelogram", [*overrides, *baumgarte(alpha)], "vm"))

    def theirs(self, duration: float) -> PeerMotion:
        """The motion in four joint angles."""
        q = PARALLELOGRAM.joint_angles(parallelogram_angles(self.theta))
        v = PARALLELOGRAM.joint_angles(self.rate * np.array([1.0, 0.0, 1.0, 1.0]))
        return PeerMotion(PARALLELOGRAM, q, v, np.zeros(4), duration, JOINTS)


REGULAR = LinkageStart(
    "from rest at -30 deg", -np.pi / 6, 0.0, partial(exact_angle, start=-np.pi / 6),
    Choices((2.0, 5.0, 10.0), (0.02, 0.01, 0.005, 0.0025), (1e-6, 1e-7, 1e-8), (0.02, 0.01, 0.005, 0.0025)),
)  # fmt: skip
FLAT = LinkageStart(
    "through its singular pose", np.pi / 2, 1.0, partial(rotating_angle, rate=1.0),
    Choices((10.0, 20.0, 30.0, 50.0), (0.005, 0.0025, 0.00125, 0.001), (1e-7, 1e-8, 1e-9), (1e-3, 2e-4, 5e-5)),
)  # fmt: skip


def parallelogram(quick: bool) -> Results:
    """A parallelogram for 20 s to 1e-6 rad: ours with 12 coordinates and rank 11, peers with 4 joint angles."""
    duration = 0.5 if quick else DURATION
    for start in (REGULAR,) if quick else (REGULAR, FLAT):

        def exact(t: Array, start: LinkageStart = start) -> Array:
            return start.exact(t)[:, None]

        choices = start.choices.quick() if quick else start.choices
        ours = our_candidates(start.loop, start.ours(), duration, OURS, choices, "vm" if quick else "c")
        best = fastest([*ours, *peer_candidates(start.theirs(duration), choices)], exact, TOLERANCE, quick)
        yield race(f"parallelogram, {duration:g} s to 1e-6 rad, {start.name}", best, TOLERANCE, quick)


STEP, LAST = 0.01, 1.0  # [s]
GAIN = 10.0
"""Baumgarte's alpha = beta [1/s]."""

THETA, RATE = np.pi / 2, -1.0
"""Angle of the posts at the start [rad] and its rate [rad/s]."""


def four_bars(quick: bool) -> Results:
    """Forty four-bar linkages in a row, 243 coordinates, fall from upright: one second by RK4 at 10 ms."""
    loops = 3 if quick else 40
    plant: Plant = load_class("plants.four_bars:FourBars", Path(), Plant)(N=loops)
    q, v = upright(loops)
    began = time.process_time()
    run = simulate(plant, {}, None, q=q, v=v, duration=LAST, step=STEP, passive_correction=Baumgarte(GAIN, GAIN))
    seconds = time.process_time() - began
    error = float(np.abs(run["q.post0_phi"] - exact_post(run.t, loops)).max())
    yield Line(f"{loops} four-bars in a row, 1 s, RK4 at 10 ms", (Entry("servoctl", seconds, error, 1e-5),),
               f"processor time on {run.metadata['engine']}; difference: angle of a post [rad]")  # fmt: skip


def upright(loops: int) -> tuple[dict[str, float], dict[str, float]]:
    """Coordinates and rates of the upright row whose tips move at 1 m/s."""
    q: dict[str, float] = {}
    v: dict[str, float] = {}
    for i in range(loops + 1):
        q |= {f"post{i}_x": float(i), f"post{i}_y": 0.5, f"post{i}_phi": THETA}
        v |= {f"post{i}_x": -0.5 * RATE, f"post{i}_phi": RATE}
    for i in range(1, loops + 1):
        q |= {f"coupler{i}_x": i - 0.5, f"coupler{i}_y": 1.0, f"coupler{i}_phi": 0.0}
        v |= {f"coupler{i}_x": -RATE}
    return q, v


def exact_post(t: Array, loops: int) -> Array:
    """Angle of the posts, from the equation of the pendulum to which the row reduces, integrated to 1e-12 [rad]."""
    pull = -9.81 * ((loops + 1) / 2 + loops) / ((loops + 1) / 3 + loops)
    swing: Any = solve_ivp(
        lambda _, y: [y[1], pull * np.cos(y[0])], (0.0, LAST), [THETA, RATE], "DOP853", t, rtol=1e-12, atol=1e-12
    )
    return np.asarray(swing.y[0])
