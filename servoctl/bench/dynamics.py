"""One evaluation of forward dynamics with constant inputs."""

from typing import Any

import numpy as np

from servoctl.bench import comparison, peers
from servoctl.bench.comparison import Contest
from servoctl.bench.inside import Inside
from servoctl.bench.peers.algebra import LOOP_GAIN, actuation
from servoctl.bench.peers.textbook import TextbookRobots
from servoctl.bench.peers.tree import ROBOTS
from servoctl.bench.report import BenchReport, Effort, Progress
from servoctl.bench.robots_case import TORQUES, compiled, in_place, open_loop, states
from servoctl.errors import CompileError
from servoctl.types import Array

TOLERANCE = 1e-9
"""Largest difference from the saddle-point system [rad/s^2] at which accelerations count as equal."""

SOFT_TOLERANCE = 0.01
"""The same for MuJoCo, whose loops are soft and exact to 1e-4 at best."""

SOFTNESS = 1.0 / LOOP_GAIN  # [s] MuJoCo's time constant of the same correction
INSIDE, FROM_PYTHON = "servoctl C, inside C", "servoctl C, on its buffers"
LOOP_C, LOOP_VM = "servoctl C, Loop.rates", "servoctl VM, Loop.rates"
KKT = "NumPy, saddle point"


def dynamics(effort: Effort, progress: Progress) -> BenchReport:
    """One forward-dynamics evaluation of two robots: 5 links closed by 2 rows, constant torques.

    Args:
        effort: Quick times only a few calls.
        progress: Called with the share of turns that are done.
    """
    where = states(20 if effort.quick else 500)
    count, notes = len(where.t), peers.notes()
    contest = Contest(count)
    book = TextbookRobots()
    loop, on = compiled(open_loop(LOOP_GAIN)), compiled(open_loop(LOOP_GAIN))
    t, x = where.t.tolist(), where.x
    try:
        rates = in_place(loop, loop.rates_kernel, None, where)
        contest.enter(FROM_PYTHON, lambda k: rates(k)[0][5:])
        inside = Inside(loop.rates_kernel.function, where.t, x, loop.parameters)
        contest.enter_inside(INSIDE, inside, slice(5, 10))
        on.run_on(on.program(None).load(), None)
        contest.enter(LOOP_C, lambda k: on.rates(t[k], x[k])[0][5:])
    except CompileError as error:
        notes.append(f"engine C is left out: {error}")
    contest.enter(LOOP_VM, lambda k: loop.rates(t[k], x[k])[0][5:])
    contest.enter(KKT, lambda k: book.acceleration(where.q[k], where.v[k], TORQUES))
    q, v = ROBOTS.joint_angles(where.q), ROBOTS.joint_angles(where.v)
    force = ROBOTS.joint_forces(actuation() @ TORQUES)
    for peer in _peers():

        def motion(k: int, peer: Any = peer) -> Array:
            joints: Array = peer.acceleration(q[k], v[k], force)
            return joints

        contest.enter(peer.name, motion, lambda k, motion=motion: ROBOTS.angles(motion(k)))  # type: ignore[misc]
    exact = np.array([contest.results[KKT](k) for k in range(count)])
    tolerances = {name: SOFT_TOLERANCE if name == "MuJoCo" else TOLERANCE for name in contest.results}
    entries = contest.compare(exact, tolerances, effort.quick, progress)
    title = "One evaluation; difference of accelerations from the saddle-point system [rad/s^2]"
    notes += [
        f"MuJoCo's loops are soft, here as hard as possible: its accelerations count as equal within "
        f"{SOFT_TOLERANCE:g} rad/s^2, ours within {TOLERANCE:g}",
        "servoctl also evaluates what a run logs: constraint forces, ranks, status",
    ]
    return BenchReport(
        "Dynamics: two robots under constant torques",
        [comparison.table(title, entries)],
        {"rows": comparison.values(entries), "versions": peers.versions()},
        notes,
        comparison.findings("forward dynamics, from Python", entries, FROM_PYTHON, {"Pinocchio": None, "MuJoCo": None}),
    )


def _peers() -> list[Any]:
    installed = peers.installed()
    simulators: list[Any] = []
    if installed["pinocchio"]:
        from servoctl.bench.peers.pinocchio import PinocchioTree

        simulators.append(PinocchioTree(ROBOTS, LOOP_GAIN))
    if installed["mujoco"]:
        from servoctl.bench.peers.mujoco import MujocoTree

        simulators.append(MujocoTree(ROBOTS, 0.001, SOFTNESS))
    return simulators
