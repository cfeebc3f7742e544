"""Two robots for one second under constant torques: the fastest setting of each program at one accuracy."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from servoctl.bench import comparison, peers
from servoctl.bench.peers.algebra import actuation
from servoctl.bench.peers.textbook import TextbookRobots
from servoctl.bench.peers.tree import ROBOTS
from servoctl.bench.report import BenchReport, Effort, Progress
from servoctl.bench.robots_case import START, TORQUES, compiled, open_loop
from servoctl.bench.search import (
    Candidate,
    Choices,
    PeerMotion,
    fastest,
    named,
    our_candidates,
    our_loops,
    peer_candidates,
    race,
    trial_values,
)
from servoctl.types import Array

TOLERANCE = 1e-6  # [rad]
RATES = (20, 25, 32, 40, 50, 64, 80, 100, 125, 160, 200)
"""Fixed steps per second."""

SOFT_RATES = (100, 200, 500, 1000, 2000)
CHOICES = Choices(
    (1.0, 5.0, 10.0), tuple(1.0 / rate for rate in RATES), (1e-6, 1e-7, 1e-8, 1e-9),
    tuple(1.0 / rate for rate in SOFT_RATES), (2.0, 4.0),
)  # fmt: skip


def robots(effort: Effort, progress: Progress) -> BenchReport:
    """Two robots for 1 s under constant torques to 1e-6 rad, each program with its best method and step.

    Args:
        effort: Quick tries one step of each.
        progress: Called with the share of turns that are done.
    """
    exact = reference()
    notes = peers.notes()
    choices = CHOICES.quick() if effort.quick else CHOICES
    candidates = [*_ours(choices, notes), *_peers(choices)]
    best, trials = fastest(candidates, exact, TOLERANCE)
    entries = race(best, TOLERANCE, progress, effort.quick)
    work, aims = "two robots, open loop, 1 s to 1e-6", {"Pinocchio": 10.0, "MuJoCo": 20.0}
    findings = comparison.findings(work, named(best, entries), "servoctl C", aims)
    notes += [
        "times are processor times of the process",
        "error: largest difference of an angle from a saddle-point solution by DOP853 at 1e-12, at every step",
        f"tried: steps of 1/{RATES[0]} to 1/{RATES[-1]} s (MuJoCo 1/{SOFT_RATES[0]} to 1/{SOFT_RATES[-1]} s), gains of "
        "1, 5 and 10 1/s and our projection (MuJoCo: time constants of 2 and 4 steps), DOP853 at 1e-6 to 1e-9",
    ]
    values = {"rows": comparison.values(entries), "trials": trial_values(trials), "versions": peers.versions()}
    table = comparison.table("The best of each; difference: error [rad]", entries, tails=False)
    return BenchReport("Robots: 1 s to 1e-6 rad", [table], values, notes, findings)


def reference() -> Callable[[Array], Array]:
    """Times -> absolute angles, from the saddle-point system in NumPy, integrated to 1e-12."""
    book = TextbookRobots()

    def rates(_: float, x: Array) -> Array:
        return np.concatenate([x[5:], book.acceleration(x[:5], x[5:], TORQUES)])

    start = np.concatenate([START, np.zeros(5)])
    dense: Any = solve_ivp(rates, (0.0, 1.0), start, "DOP853", dense_output=True, rtol=1e-12, atol=1e-12).sol
    return lambda t: np.asarray(dense(t)).T[:, :5]


def _ours(choices: Choices, notes: list[str]) -> Iterator[Candidate]:
    x = np.concatenate([START, np.zeros(5)])
    loops = our_loops(choices.gains, lambda alpha: compiled(open_loop(alpha)))
    return our_candidates(loops, x, 1.0, list(range(5)), choices, notes)


def _peers(choices: Choices) -> Iterator[Candidate]:
    torques = ROBOTS.joint_forces(actuation() @ TORQUES)
    motion = PeerMotion(ROBOTS, ROBOTS.joint_angles(START), np.zeros(5), torques, 1.0, list(range(5)))
    return peer_candidates(motion, choices)
