"""The parallelogram for 20 s: the fastest setting of each program at one accuracy, without and with the flat pose."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from servoctl.assembly.make import load
from servoctl.bench import comparison, peers
from servoctl.bench.parallelogram import DURATION, exact_angle, pose, pose_rate, rotating_angle, start_overrides
from servoctl.bench.peers.tree import PARALLELOGRAM, parallelogram_angles
from servoctl.bench.report import BenchReport, Effort, Progress
from servoctl.bench.robots_case import baumgarte, compiled
from servoctl.bench.search import (
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
from servoctl.simulation.compiled import CompiledLoop
from servoctl.types import Array

TOLERANCE = 1e-6  # [rad]
LINKS = {"ours": [2, 5, 8], "joints": [0, 2, 3]}
"""Indices of the link angles among the coordinates."""


@dataclass(frozen=True)
class LinkageStart:
    """A start, and the settings that are tried from it.

    Attributes:
        name: Name in the table.
        theta: [rad].
        rate: theta' [rad/s].
        exact: Times [s] -> theta [rad].
        choices: Settings to try.
    """

    name: str
    theta: float
    rate: float
    exact: Callable[[Array], Array]
    choices: Choices


REGULAR = LinkageStart(
    "regular: from rest at -30 deg", -np.pi / 6, 0.0, partial(exact_angle, start=-np.pi / 6),
    Choices((2.0, 5.0, 10.0), (0.02, 0.01, 0.005, 0.0025), (1e-6, 1e-7, 1e-8), (0.02, 0.01, 0.005, 0.0025)),
)  # fmt: skip
FLAT = LinkageStart(
    "singular: turning from the top through the flat pose", np.pi / 2, 1.0, partial(rotating_angle, rate=1.0),
    Choices((10.0, 20.0, 30.0, 50.0), (0.005, 0.0025, 0.00125, 0.001), (1e-7, 1e-8, 1e-9), (1e-3, 2e-4, 5e-5)),
)  # fmt: skip


def parallelogram(effort: Effort, progress: Progress) -> BenchReport:
    """Three links and a coupler for 20 s to 1e-6 rad: ours with 12 coordinates and rank 11, peers with 4 joint angles.

    Args:
        effort: Quick takes half a second and one setting of each program.
        progress: Called with the share of the work that is done.
    """
    duration = 0.5 if effort.quick else DURATION
    notes, tables, findings = peers.notes(), [], []
    values: dict[str, object] = {"versions": peers.versions(), "duration": duration}
    for number, start in enumerate((REGULAR, FLAT)):

        def exact(t: Array, start: LinkageStart = start) -> Array:
            return start.exact(t)[:, None]

        choices = start.choices.quick() if effort.quick else start.choices
        loops = our_loops(choices.gains, partial(our_loop, start))
        x, on_vm = our_state(start), "engine C is left out of a quick run" if effort.quick else ""
        ours = our_candidates(loops, x, duration, LINKS["ours"], choices, notes, on_vm)
        candidates = [*ours, *peer_candidates(peer_motion(start, duration), choices)]
        best, trials = fastest(candidates, exact, TOLERANCE)
        progress((number + 0.5) / 2)
        entries = race(best, TOLERANCE, lambda _: None, effort.quick)
        progress((number + 1) / 2)
        key, _, words = start.name.partition(":")
        tables.append(comparison.table(f"{key}:{words}; difference: error [rad]", entries, tails=False))
        values[key] = {"rows": comparison.values(entries), "trials": trial_values(trials)}
        work, aims = f"parallelogram {duration:g} s to 1e-6, {key}", {"Pinocchio": 2.0, "MuJoCo": 2.0}
        findings += comparison.findings(work, named(best, entries), "servoctl C", aims)
    notes += [
        "times are processor times of the process",
        "error: largest difference of a link's angle from the closed solution (elliptic functions), at every step",
        "not equal: no setting that was tried reaches 1e-6; the most accurate one is shown",
        "projection: each of our steps ends on the constraints, our default; Baumgarte's gains [1/s] are tried too",
        "joint angles close the loops by symmetry; 12 coordinates do not, so drift can make a dependent row look "
        "independent",
    ]
    return BenchReport("Parallelogram: 20 s to 1e-6 rad", tables, values, list(dict.fromkeys(notes)),
                       findings)  # fmt: skip


def our_state(start: LinkageStart) -> Array:
    """The start in our 12 coordinates and velocities."""
    return np.concatenate([pose(start.theta), pose_rate(start.theta, start.rate)])


def our_loop(start: LinkageStart, alpha: float | None) -> CompiledLoop:
    """The linkage in our coordinates, with Baumgarte's alpha = beta [1/s] or, by default, projection."""
    overrides = [
        *start_overrides(start.theta, start.rate),
        "run.integrator={method: rk4, step: 0.01}",
        *baumgarte(alpha),
    ]
    return compiled(load("parallelogram", overrides, "vm"))


def peer_motion(start: LinkageStart, duration: float) -> PeerMotion:
    """The motion in four joint angles."""
    tree = PARALLELOGRAM
    q = tree.joint_angles(parallelogram_angles(start.theta))
    v = tree.joint_angles(start.rate * np.array([1.0, 0.0, 1.0, 1.0]))
    return PeerMotion(tree, q, v, np.zeros(4), duration, LINKS["joints"])
