"""A pendulum in Cartesian coordinates (IFToMM A01) for 2,000 s by adaptive steps, in a fresh process."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from servoctl.assembly import simulate
from servoctl.bench import peers
from servoctl.bench.fresh import cost
from servoctl.bench.peers.tree import GROUND, Bar, Tree
from servoctl.bench.report import BenchReport, Comparison, Effort, Progress, TextTable, at_most
from servoctl.bench.timing import shown
from servoctl.mechanics.plant import Plant
from servoctl.types import Array

DURATION, QUICK = 2000.0, 20.0  # [s]
PART = 20.0
"""What a peer simulates; the whole is extrapolated [s]."""

GRAVITY = 9.81  # [m/s^2]
RTOL = 1e-10
MOST = 3.5
"""Target of the whole process [s]."""

WORK = "pendulum in Cartesian coordinates, 2,000 s, empty cache"
PROCESS = """
import json, sys
from servoctl.bench.pendulum import process
print(json.dumps(process(float(sys.argv[1]))))
"""
"""Code of the process that is measured."""


@dataclass(frozen=True)
class CartesianPendulum(Plant):
    """A point of mass 1 kg on a rod of 1 m without mass."""

    coordinates: ClassVar = {"x": "m", "y": "m"}
    actuators: ClassVar = {}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.eye(2)

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([0.0, -GRAVITY])

    def passive_constraints(self, q: Array, t: float) -> dict[str, Any]:
        return {"rod": (q[0] ** 2 + q[1] ** 2 - 1.0) / 2.0}


def exact(t: Array) -> Array:
    """Angle from the lowest point, from rest at -90 deg: `sin(angle/2) = k sn(K + omega t)` [rad]."""
    from scipy.special import ellipj, ellipk

    k = np.sin(-np.pi / 4)
    angle: Array = 2.0 * np.arcsin(k * ellipj(ellipk(k**2) + np.sqrt(GRAVITY) * np.asarray(t), k**2)[0])
    return angle


def process(duration: float) -> dict[str, Any]:
    """Simulates; returns the engine, its reason, and the largest errors of angle and energy."""
    run = simulate(
        CartesianPendulum(), {}, None, q=[-1.0, 0.0], duration=duration, method="dop853", rtol=RTOL, output_step=0.01
    )
    if run.metadata["status"] != "done":
        raise SystemExit(f"the run ends as {run.metadata['status']}")
    angle = np.arctan2(run.q[:, 0], -run.q[:, 1])
    energy = 0.5 * (run.v**2).sum(axis=1) + GRAVITY * run.q[:, 1]
    return {
        "engine": run.metadata["engine"],
        "choice": run.summary().get("engine_choice"),
        "angle_error": float(np.abs(angle - exact(run.t)).max()),
        "energy_error": float(np.abs(energy).max()),
    }


def pendulum(effort: Effort, progress: Progress) -> BenchReport:
    """A pendulum in Cartesian coordinates for 2,000 s by adaptive steps: a fresh process with an empty cache.

    Args:
        effort: Quick takes 20 s.
        progress: Called with the share of processes that are done.
    """
    duration, notes = QUICK if effort.quick else DURATION, peers.notes()
    with tempfile.TemporaryDirectory(prefix="servoctl-") as folder:
        spent = cost(["-c", PROCESS, str(duration)], Path(folder) / "cache")
    facts = json.loads(spent.output)
    progress(0.9)
    rows = [
        [f"servoctl, engine auto: {facts['engine']}", shown(spent.wall), shown(spent.processor),
         f"{facts['angle_error']:.1e}", f"{facts['energy_error']:.1e}"]
    ]  # fmt: skip
    findings = []
    if not effort.quick:
        findings.append(at_most(WORK, spent.wall, MOST))
    theirs = _pinocchio()
    if theirs is not None:
        seconds, error = theirs[0] * duration / PART, theirs[1]
        rows.append([f"Pinocchio + SciPy (x {duration / PART:g})", shown(seconds), "", f"{error:.1e}", ""])
        notes.append(
            f"Pinocchio: {PART:g} s in joint coordinates by DOP853 at the same rtol, without import; extrapolated"
        )
        if not effort.quick:
            findings.append(Comparison(WORK, "Pinocchio + SciPy", spent.wall, seconds, None))
    if facts["choice"]:
        notes.append(f"engine: {facts['choice']}")
    notes.append("ours: the process from start to end, import, compiler and a row each 0.01 s included")
    progress(1.0)
    peer = None if theirs is None else {"processor": theirs[0], "duration": PART, "angle_error": theirs[1]}
    times = {"duration": duration, "wall": spent.wall, "processor": spent.processor}
    values = {**times, **facts, "pinocchio": peer, "versions": peers.versions()}
    header = ("", "wall", "processor", "error [rad]", "energy error [J]")
    table = TextTable(f"{duration:g} s from rest at the height of the hinge", header, rows)
    return BenchReport("A pendulum by adaptive steps", [table], values, notes, findings)


def _pinocchio() -> tuple[float, float] | None:
    """Processor time of Pinocchio for `PART` [s] and its largest error [rad]; None if it is not installed."""
    if not peers.installed()["pinocchio"]:
        return None
    import time

    from servoctl.bench.peers.pinocchio import PinocchioTree

    # a bar of 2 m without a moment about its centre: a point at 1 m
    peer = PinocchioTree(Tree([Bar(GROUND, 0.0, 2.0, 1.0, 0.0)], [], GRAVITY), 0.0)
    began = time.process_time()
    t, x = peer.dop853(np.array([-np.pi]), np.zeros(1), np.zeros(1), PART, RTOL)
    seconds = time.process_time() - began
    return seconds, float(np.abs(x[:, 0] + np.pi / 2 - exact(t)).max())
