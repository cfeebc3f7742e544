"""What bounds cost: the law inside C without bounds, with bounds that leave it alone, and with bounds that bind.

Design: a law that acts continuously compares with its rows as they are now. A law whose commands are held also looks at
the state half a period ahead; it is timed one tick after its start, when it knows its last command.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from servoctl.assembly import load
from servoctl.errors import CompileError
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array
from tests.benchmarks import two_robots
from tests.benchmarks.contest import Entry, Line, Results, medians
from tests.benchmarks.inside import Inside
from tests.benchmarks.laws import POSE_ALONE, TWO_ARMS

NONE, FREE, BINDING = "without bounds", "bounds that leave it free", "bounds that bind"

HELD = ["run.period=0.001", "run.integrator={method: rk4, step: 0.001}"]
TOLERANCE = 1e-9
"""Largest difference of u between C and the virtual machine, relative to the largest u."""

ROBOTS = """bounds=[
  {{name: plane, holonomic: "l*sin(theta1) + l*sin(theta2) - l/2*(1 - cos(t)) + {room}"}},
  {{name: joint, holonomic: "theta3 + {room}"}},
  {{name: distance, holonomic: "sqrt((l*cos(theta1) + l*cos(theta2) - 6*l)**2 + (2*l)**2) - l*sqrt(29) + {room}"}},
]"""
"""A plane below the object, the angle of the object and the distance of its end from a point; the task needs them at
`room`."""

ROOM = {FREE: 1.0, BINDING: -0.05}
"""Distance of the path from each bound [m, rad]."""

JOINTS = [f"{side}_joint{i}" for side in ("left", "right") for i in range(1, 8)]
TURNED = ("left_joint2", "left_joint4", "right_joint4")
"""Joints that bounds which bind hold back."""


def bounds(quick: bool) -> Results:
    """One law evaluation inside C with bounds: two robots with three, continuous and held, two arms with a box."""
    where = two_robots.states(20 if quick else 500)
    rows = {NONE: list[str](), **{name: [ROBOTS.format(room=room)] for name, room in ROOM.items()}}
    try:
        yield _compared("two robots, three bounds, held for 1 ms", two_robots.CONFIG,
                        {name: HELD + each for name, each in rows.items()}, where.t, where.x, quick)  # fmt: skip
        if quick:
            return
        yield _compared("two robots, three bounds", two_robots.CONFIG, rows, where.t, where.x, quick)
        run = load(TWO_ARMS, ["run.duration=1", "run.output_step=0.005"], "vm").simulate()
        first = dict(zip(run.coordinates, run.q.min(axis=0), strict=True))
        ranges = {name: [float(first[name]) + 0.05 if name in TURNED else -3.0, 3.0] for name in JOINTS}
        limits = {NONE: [], FREE: ["bounds=[{name: joints, position: robot, acceleration: 20}]"],
                  BINDING: [f"bounds=[{{name: joints, position: {ranges}, acceleration: 20}}]"]}  # fmt: skip
        rows = {name: POSE_ALONE + each for name, each in limits.items()}
        yield _compared("two arms with a box, limits of 14 joints", TWO_ARMS, rows, run.t, np.hstack([run.q, run.v]),
                        quick)  # fmt: skip
    except CompileError:
        return


def _compared(work: str, config: str, settings: Mapping[str, Sequence[str]], t: Array, x: Array, quick: bool) -> Line:
    loops, inside = {}, {}
    for name, each in settings.items():
        loop = load(config, each, "vm", strict=False).loop
        assert isinstance(loop, Loop)
        loops[name] = loop
        inside[name] = Inside(loop.control_kernel, t, _second_tick(loop, t, x), loop.parameters)
    times = medians(inside, 2 if quick else 40, len(t))
    entries = []
    for name, loop in loops.items():
        part = loop.layout.slices["u"]
        u, exact = inside[name].results[:, part], np.array([loop.control(*at)[part] for at in inside[name].states])
        entries.append(Entry(name, times[name], float(np.abs(u - exact).max() / np.abs(exact).max()), TOLERANCE))
    active = inside[BINDING].results[:, loops[BINDING].layout.slices["bound_active"]]
    note = f"{active.sum(axis=1).mean():.2f} of {active.shape[1]} rows bind on average in the last"
    return Line(f"law of {work}, inside C", tuple(entries), note)


def _second_tick(loop: Loop, t: Array, x: Array) -> Array:
    """q, v and the memory of the law one tick after its start, shape (states, size)."""
    period, rate = loop.memory_period, loop.layout.slices["memory_rate"]
    at_start = np.hstack([x, np.tile(loop.memory_start, (len(x), 1))])
    if period is None:
        return at_start
    after = [loop.memory_start + period * loop.control(*at)[rate] for at in zip(t, at_start, strict=True)]
    return np.hstack([x, after])
