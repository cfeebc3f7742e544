"""The parallelogram for 20 s: the fastest setting of each program at one accuracy, without and with the flat pose."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from servoctl.assembly.make import load
from servoctl.bench import comparison, peers
from servoctl.bench.parallelogram import DURATION, exact_angle, pose, rotating_angle
from servoctl.bench.peers.tree import PARALLELOGRAM, parallelogram_angles
from servoctl.bench.report import BenchReport, Comparison, Effort, Progress
from servoctl.bench.robots_case import compiled, on_c
from servoctl.bench.search import Candidate, Motion, fastest, race, trial_values
from servoctl.run_folder.trajectory import plain
from servoctl.simulation.integrate import integrate
from servoctl.simulation.rows import Integrator
from servoctl.simulation.traced import CompiledLoop
from servoctl.types import Array

TOLERANCE = 1e-6  # [rad]
LINKS = {"ours": [2, 5, 8], "joints": [0, 2, 3]}
"""Indices of the link angles among the coordinates."""


@dataclass(frozen=True)
class Start:
    """A start, and the settings that are tried from it.

    Attributes:
        name: Name in the table.
        theta: [rad].
        rate: theta' [rad/s].
        exact: Times [s] -> theta [rad].
        gains: Baumgarte's alpha = beta [1/s] for us and for Pinocchio.
        steps: Fixed steps for us and for Pinocchio [s].
        soft_steps: Steps for MuJoCo [s].
        rtols: Relative tolerances of DOP853.
    """

    name: str
    theta: float
    rate: float
    exact: Callable[[Array], Array]
    gains: tuple[float, ...]
    steps: tuple[float, ...]
    soft_steps: tuple[float, ...]
    rtols: tuple[float, ...]


REGULAR = Start(
    "regular: from rest at -30 deg", -np.pi / 6, 0.0, partial(exact_angle, start=-np.pi / 6),
    (2.0, 5.0, 10.0), (0.02, 0.01, 0.005, 0.0025), (0.02, 0.01, 0.005, 0.0025), (1e-6, 1e-7, 1e-8),
)  # fmt: skip
FLAT = Start(
    "singular: turning from the top through the flat pose", np.pi / 2, 1.0, partial(rotating_angle, rate=1.0),
    (10.0, 20.0, 30.0, 50.0), (0.005, 0.0025, 0.00125, 0.001), (1e-3, 2e-4, 5e-5), (1e-7, 1e-8, 1e-9),
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

        def exact(t: Array, start: Start = start) -> Array:
            return start.exact(t)[:, None]

        candidates = [*_ours(start, duration, effort.quick, notes), *_peers(start, duration, effort.quick)]
        best, trials = fastest(candidates, exact, TOLERANCE)
        progress((number + 0.5) / 2)
        entries = race(best, TOLERANCE, lambda _: None, effort.quick)
        progress((number + 1) / 2)
        key, _, words = start.name.partition(":")
        tables.append(comparison.table(f"{key}:{words}; difference: error [rad]", entries, tails=False))
        values[key] = {"rows": comparison.values(entries), "trials": trial_values(trials)}
        by_name = dict(zip(best, entries, strict=True))
        ours = by_name.get("servoctl C")
        for peer in ("Pinocchio", "MuJoCo"):
            if ours is not None and ours.equal and peer in by_name and by_name[peer].equal:
                work = f"parallelogram {duration:g} s to 1e-6, {key}"
                findings.append(Comparison(work, peer, ours.times.median, by_name[peer].times.median, 2.0))
    notes += [
        "times are processor times of the process",
        "error: largest difference of a link's angle from the closed solution (elliptic functions), at every step",
        "not equal: no setting that was tried reaches 1e-6; the most accurate one is shown",
        "joint angles close the loops by symmetry; 12 coordinates do not, so drift can make a dependent row look "
        "independent",
    ]
    return BenchReport("Parallelogram: 20 s to 1e-6 rad", tables, dict(plain(values)), list(dict.fromkeys(notes)),
                       findings)  # fmt: skip


def our_loop(start: Start, alpha: float) -> tuple[CompiledLoop, Array]:
    """The linkage in our 12 coordinates, and its initial state."""
    q, x, y = pose(start.theta), np.cos(start.theta), np.sin(start.theta)
    v = start.rate * np.array([*(3 * [-y / 2, x / 2, 1.0]), -y, x, 0.0])
    overrides = [
        f"initial.q={q.tolist()!r}",
        f"initial.v={v.tolist()!r}",
        "run.integrator={method: rk4, step: 0.01}",
        f"plant.passive.correction={{baumgarte: {{alpha: {alpha!r}, beta: {alpha!r}}}}}",
    ]
    return compiled(load("parallelogram", overrides, "vm")), np.concatenate([q, v])


def _ours(start: Start, duration: float, quick: bool, notes: list[str]) -> Iterator[Candidate]:
    name, gains = "servoctl C", start.gains[1:2] if quick else start.gains
    for alpha in gains:
        loop, x = our_loop(start, alpha)
        problem = "engine C is left out of a quick run" if quick else on_c(loop, None)
        if problem is not None:
            name = "servoctl VM"
            notes.append(problem)

        def run(integrator: Integrator, loop: CompiledLoop = loop, x: Array = x) -> Motion:
            chunks = list(integrate(loop, x, 0.0, duration, integrator))
            t, states = (np.concatenate([getattr(chunk, part) for chunk in chunks]) for part in ("t", "x"))
            return t, states[:, LINKS["ours"]]

        words = f"{alpha:g} 1/s"
        for h in start.steps[1:2] if quick else start.steps:
            yield Candidate(name, f"RK4 {h:g} s, {words}", partial(run, Integrator("rk4", h)), words)
        for rtol in () if quick else start.rtols:
            integrator = Integrator("dop853", rtol=rtol, atol=rtol)
            yield Candidate(name, f"DOP853 {rtol:g}, {words}", partial(run, integrator), f"dop853 {words}")


def _peers(start: Start, duration: float, quick: bool) -> Iterator[Candidate]:
    tree, force, joints = PARALLELOGRAM, np.zeros(4), LINKS["joints"]
    q = tree.joint_angles(parallelogram_angles(start.theta))
    v = tree.joint_angles(start.rate * np.array([1.0, 0.0, 1.0, 1.0]))
    installed = peers.installed()

    def angles(states: Array) -> Array:
        return tree.angles(states[:, :4])[:, joints]

    if installed["pinocchio"]:
        from servoctl.bench.peers.pinocchio import PinocchioTree

        for alpha in start.gains[1:2] if quick else start.gains:
            rigid = PinocchioTree(tree, alpha)

            def rk4(h: float, rigid: PinocchioTree = rigid) -> Motion:
                steps = round(duration / h)
                return h * np.arange(steps + 1), angles(rigid.rk4(q, v, force, h, steps))

            def dop853(rtol: float, rigid: PinocchioTree = rigid) -> Motion:
                t, states = rigid.dop853(q, v, force, duration, rtol)
                return t, angles(states)

            for h in start.steps[1:2] if quick else start.steps:
                yield Candidate("Pinocchio", f"RK4 {h:g} s, {alpha:g} 1/s", partial(rk4, h), f"{alpha}")
            for rtol in () if quick else start.rtols:
                yield Candidate(
                    "Pinocchio", f"DOP853 {rtol:g}, {alpha:g} 1/s", partial(dop853, rtol), f"dop853 {alpha}"
                )
    if installed["mujoco"]:
        from servoctl.bench.peers.mujoco import MujocoTree

        for h in start.soft_steps[1:2] if quick else start.soft_steps:
            soft = MujocoTree(tree, h, 2.0 * h)

            def native(h: float, soft: MujocoTree = soft) -> Motion:
                steps = round(duration / h)
                return h * np.arange(steps + 1), angles(soft.rk4(q, v, force, steps))

            yield Candidate("MuJoCo", f"RK4 {h:g} s, solref 2 steps", partial(native, h))
