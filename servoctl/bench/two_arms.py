"""The law of two arms with seven joints each that carry one box: 6 passive rows, 6 task rows, 14 inputs."""

from collections.abc import Callable

import numpy as np

from servoctl.assembly import load
from servoctl.bench import comparison, peers
from servoctl.bench.comparison import Competitor
from servoctl.bench.inside import Inside
from servoctl.bench.report import BenchReport, Effort, Progress
from servoctl.bench.robots_from_files import arm_file
from servoctl.bench.timing import Contestant, interleaved, timed
from servoctl.errors import CompileError
from servoctl.run_folder.trajectory import plain
from servoctl.simulation.traced import CompiledLoop
from servoctl.types import Array

CONFIG = "two_arms_box"
POSE_ALONE = [
    "law.preload=",
    "law.limits=",
    'task=[{name: box, pose: box, xyz: [0.5, 0, "0.4 + 0.1*(1 - cos(t))"], rpy: [0, 0, 0]}]',
]
"""Changes of the config: the pose of the box with least torques, as peers can do it."""

TOLERANCE = 1e-6
"""Largest difference of u [N m] that counts as equal: states of a run violate the rows by 1e-10, times gains of 100."""

INSIDE, TICK = "servoctl C, inside C", "servoctl C, the tick"
AIM = 25.0
"""How many times faster than Pinocchio with a pseudoinverse."""


def two_arms(effort: Effort, progress: Progress) -> BenchReport:
    """One law evaluation of two arms from URDFs that carry a box.

    Args:
        effort: Quick times only a few calls.
        progress: Called with the share of turns that are done.
    """
    run = load(CONFIG, [f"run.duration={0.1 if effort.quick else 1}", "run.output_step=0.005"], "vm").simulate()
    loop = load(CONFIG, POSE_ALONE, "vm").loop
    assert isinstance(loop, CompiledLoop)
    t, x = run.t, np.hstack([run.q, run.v])
    count, notes = len(run.t), peers.notes()
    contestants: dict[str, Contestant] = {}
    commands: dict[str, Callable[[int], Array]] = {}
    inputs = loop.layout.slices["u"]
    try:
        inside = Inside(loop.control_kernel.function, t, x, loop.parameters)
        contestants[INSIDE], commands[INSIDE] = inside, lambda k: inside.results[k, inputs]
        tick = loop.tick()

        def ticked(k: int) -> Array:
            tick.t[0], tick.q[:], tick.v[:] = t[k], run.q[k], run.v[k]
            tick()
            return tick.u

        contestants[TICK], commands[TICK] = timed(lambda k: ticked(k % count)), lambda k: ticked(k).copy()
    except CompileError as error:
        notes.append(f"engine C is left out: {error}")
    if peers.installed()["pinocchio"]:
        from servoctl.bench.peers.two_arms import PinocchioTwoArms

        arms = PinocchioTwoArms(arm_file())
        commands[arms.name] = lambda k: arms.command(t[k], run.q[k], run.v[k])
        contestants[arms.name] = timed(lambda k: arms.command(t[k % count], run.q[k % count], run.v[k % count]))
    exact = np.array([loop.control(t[k], x[k])[inputs] for k in range(count)])
    times = interleaved(contestants, 2 if effort.quick else 40, count, progress=progress)
    off = {name: max(float(np.abs(each(k) - exact[k]).max()) for k in range(count)) for name, each in commands.items()}
    entries = [Competitor(name, times[name], off[name], TOLERANCE) for name in contestants]
    notes.append(f"{count} states of the shipped run; difference of u [N m] from our law on the virtual machine")
    notes.append("Pinocchio gives the terms; the algebra is NumPy, as in a Python program")
    findings = comparison.findings("law of two arms with a box", entries, INSIDE, {"Pinocchio + pinv": AIM})
    return BenchReport(
        "Two arms from URDFs carry a box",
        [comparison.table("One evaluation of the law; difference of u [N m]", entries)],
        dict(plain({"rows": comparison.values(entries), "versions": peers.versions()})),
        notes,
        findings,
    )
