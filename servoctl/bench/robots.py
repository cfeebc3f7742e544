"""Two robots for one second under constant torques: the fastest setting of each program at one accuracy."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from servoctl.bench import comparison, peers
from servoctl.bench.closed_loop import run_rows
from servoctl.bench.peers.algebra import actuation
from servoctl.bench.peers.textbook import TextbookRobots
from servoctl.bench.peers.tree import ROBOTS
from servoctl.bench.report import BenchReport, Comparison, Effort, Progress
from servoctl.bench.robots_case import START, TORQUES, compiled, on_c, open_loop
from servoctl.bench.search import Candidate, Motion, fastest, race, trial_values
from servoctl.run_folder.trajectory import plain
from servoctl.simulation.integrate import integrate
from servoctl.simulation.rows import Integrator
from servoctl.types import Array

TOLERANCE = 1e-6  # [rad]
STEPS = (20, 25, 32, 40, 50, 64, 80, 100, 125, 160, 200)
"""Fixed steps per second."""

GAINS = (1.0, 5.0, 10.0)
"""Baumgarte's alpha = beta [1/s] on the loop."""

RTOLS = (1e-6, 1e-7, 1e-8, 1e-9)
SOFT_STEPS = (100, 200, 500, 1000, 2000)
SOFTNESSES = (2.0, 4.0)
"""MuJoCo's time constant of the loop, in steps; it is unstable below two."""


def robots(effort: Effort, progress: Progress) -> BenchReport:
    """Two robots for 1 s under constant torques to 1e-6 rad, each program with its best method and step.

    Args:
        effort: Quick tries one step of each.
        progress: Called with the share of turns that are done.
    """
    exact = reference()
    notes = peers.notes()
    candidates = list(_ours(effort.quick, notes)) + list(_peers(effort.quick))
    best, trials = fastest(candidates, exact, TOLERANCE)
    entries = race(best, TOLERANCE, progress, effort.quick)
    by_name = dict(zip(best, entries, strict=True))
    findings = [
        Comparison("two robots, open loop, 1 s to 1e-6", peer, by_name["servoctl C"].times.median,
                by_name[peer].times.median, aim)
        for peer, aim in {"Pinocchio": 10.0, "MuJoCo": 20.0}.items()
        if peer in by_name and "servoctl C" in by_name and by_name[peer].equal and by_name["servoctl C"].equal
    ]  # fmt: skip
    notes += [
        "times are processor times of the process",
        "error: largest difference of an angle from a saddle-point solution by DOP853 at 1e-12, at every step",
        f"tried: steps of 1/{STEPS[0]} to 1/{STEPS[-1]} s (MuJoCo 1/{SOFT_STEPS[0]} to 1/{SOFT_STEPS[-1]} s), gains of "
        "1, 5 and 10 1/s (MuJoCo: time constants of 2 and 4 steps), DOP853 at 1e-6 to 1e-9",
    ]
    values = {
        "rows": comparison.values(entries),
        "trials": trial_values(trials),
        "versions": peers.versions(),
    }
    table = comparison.table("The best of each; difference: error [rad]", entries, tails=False)
    return BenchReport("Robots: 1 s to 1e-6 rad", [table], dict(plain(values)), notes, findings)


def reference() -> Callable[[Array], Array]:
    """Times -> absolute angles, from the saddle-point system in NumPy, integrated to 1e-12."""
    book = TextbookRobots()

    def rates(_: float, x: Array) -> Array:
        return np.concatenate([x[5:], book.acceleration(x[:5], x[5:], TORQUES)])

    start = np.concatenate([START, np.zeros(5)])
    dense: Any = solve_ivp(rates, (0.0, 1.0), start, "DOP853", dense_output=True, rtol=1e-12, atol=1e-12).sol
    return lambda t: np.asarray(dense(t)).T[:, :5]


def _ours(quick: bool, notes: list[str]) -> Iterator[Candidate]:
    x = np.concatenate([START, np.zeros(5)])
    loops = {alpha: compiled(open_loop(alpha)) for alpha in (GAINS[1:2] if quick else GAINS)}
    first = next(iter(loops.values()))
    problem = on_c(first, None)
    if problem is not None:
        notes.append(problem)
    else:
        for loop in loops.values():  # gains are inputs of the same code
            if loop.engine != "c":
                loop.run_on(loop.program(None).load(), None)
    name = "servoctl VM" if problem is not None else "servoctl C"
    for steps in STEPS[4:5] if quick else STEPS:
        for alpha, loop in loops.items():

            def run(loop=loop, steps=steps) -> Motion:  # type: ignore[no-untyped-def]
                states = run_rows(loop, x, 1.0, 1.0 / steps, None)
                return np.arange(len(states)) / steps, states[:, :5]

            yield Candidate(name, f"RK4 1/{steps} s, {alpha:g} 1/s", run, f"{alpha}")
    for rtol in () if quick else RTOLS:

        def adaptive(loop=first, rtol=rtol) -> Motion:  # type: ignore[no-untyped-def]
            chunks = list(integrate(loop, x, 0.0, 1.0, Integrator("dop853", rtol=rtol, atol=rtol)))
            t, states = (np.concatenate([getattr(chunk, part) for chunk in chunks]) for part in ("t", "x"))
            return t, states[:, :5]

        yield Candidate(name, f"DOP853 {rtol:g}, {GAINS[0]:g} 1/s", adaptive, "dop853")


def _peers(quick: bool) -> Iterator[Candidate]:
    q, rest, force = ROBOTS.joint_angles(START), np.zeros(5), ROBOTS.joint_forces(actuation() @ TORQUES)
    installed = peers.installed()
    if installed["pinocchio"]:
        from servoctl.bench.peers.pinocchio import PinocchioTree

        trees = {alpha: PinocchioTree(ROBOTS, alpha) for alpha in (GAINS[1:2] if quick else GAINS)}
        for steps in STEPS[4:5] if quick else STEPS:
            for alpha, tree in trees.items():

                def rk4(tree=tree, steps=steps) -> Motion:  # type: ignore[no-untyped-def]
                    states = tree.rk4(q, rest, force, 1.0 / steps, steps)
                    return np.arange(steps + 1) / steps, ROBOTS.angles(states[:, :5])

                yield Candidate("Pinocchio", f"RK4 1/{steps} s, {alpha:g} 1/s", rk4, f"{alpha}")
        adaptive = next(iter(trees.values()))
        for rtol in () if quick else RTOLS:

            def dop853(rtol=rtol) -> Motion:  # type: ignore[no-untyped-def]
                t, states = adaptive.dop853(q, rest, force, 1.0, rtol)
                return t, ROBOTS.angles(states[:, :5])

            yield Candidate("Pinocchio", f"DOP853 {rtol:g}, {GAINS[0]:g} 1/s", dop853, "dop853")
    if installed["mujoco"]:
        from servoctl.bench.peers.mujoco import MujocoTree

        for steps in SOFT_STEPS[:1] if quick else SOFT_STEPS:
            for softness in SOFTNESSES:
                soft = MujocoTree(ROBOTS, 1.0 / steps, softness / steps)

                def native(soft=soft, steps=steps) -> Motion:  # type: ignore[no-untyped-def]
                    states = soft.rk4(q, rest, force, steps)
                    return np.arange(steps + 1) / steps, ROBOTS.angles(states[:, :5])

                yield Candidate("MuJoCo", f"RK4 1/{steps} s, solref {softness:g} steps", native, f"{softness}")
