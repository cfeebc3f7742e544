"""What bounds cost: the law inside C without bounds, with bounds that leave it alone, and with bounds that bind.

Design: a law that acts continuously compares with its rows as they are now. A law whose commands are held also looks at
the state half a period ahead; it is timed one tick after its start, when it knows its last command.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.assembly import load
from servoctl.bench import comparison, robots_case
from servoctl.bench.comparison import Competitor
from servoctl.bench.inside import Inside
from servoctl.bench.report import BenchReport, Comparison, Effort, Progress, TextTable
from servoctl.bench.timing import interleaved, shown
from servoctl.bench.two_arms import CONFIG as ARMS
from servoctl.bench.two_arms import POSE_ALONE
from servoctl.errors import CompileError
from servoctl.simulation.compiled import CompiledLoop
from servoctl.types import Array

NONE, FREE, BINDING = "without bounds", "bounds that leave it free", "bounds that bind"
LIMITS = {FREE: 1.3, BINDING: 2.5}
"""Targets of two robots with three bounds: time inside C over that without bounds."""

PERIOD = 0.001
"""Period of the laws whose commands are held [s]."""

CONTINUOUS, HELD = "", f", held for {1e3 * PERIOD:g} ms"
"""Ends of the name of a work -> how its law acts."""

SETTINGS: dict[str, list[str]] = {
    CONTINUOUS: [],
    HELD: [f"run.period={PERIOD}", f"run.integrator={{method: rk4, step: {PERIOD}}}"],
}

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


@dataclass(frozen=True)
class _Case:
    """One law at many states.

    Attributes:
        name: What its bounds do.
        loop: It runs on the virtual machine.
        inside: It runs in C.
    """

    name: str
    loop: CompiledLoop
    inside: Inside

    @classmethod
    def of(cls, name: str, config: str, settings: Sequence[str], t: Array, x: Array) -> "_Case":
        loop = load(config, settings, "vm", strict=False).loop
        assert isinstance(loop, CompiledLoop)
        return cls(name, loop, Inside(loop.control_kernel.function, t, _second_tick(loop, t, x), loop.parameters))

    def part(self, name: str) -> Array:
        """A part of the results at all states; without columns if the law has none."""
        slices = self.loop.layout.slices
        return self.inside.results[:, slices[name] if name in slices else slice(0)]


def _second_tick(loop: CompiledLoop, t: Array, x: Array) -> Array:
    """q, v and the memory of the law one tick after its start, shape (states, size)."""
    period, rate = loop.memory_period, loop.layout.slices["memory_rate"]
    at_start = np.hstack([x, np.tile(loop.memory_start, (len(x), 1))])
    if period is None:
        return at_start
    after = [loop.memory_start + period * loop.control(*at)[rate] for at in zip(t, at_start, strict=True)]
    return np.hstack([x, after])


def bounds(effort: Effort, progress: Progress) -> BenchReport:
    """One law evaluation inside C with bounds: two robots with three, two arms with a box with 28.

    Args:
        effort: Quick times only a few calls, of the two robots alone.
        progress: Called with the share of turns that are done.
    """
    title = "Bounds: the law inside C with rows that it keeps before every task"
    notes = ["difference: of u from the virtual machine, relative to the largest u"]
    every = [(work, acts) for work in (_robots, _arms) for acts in SETTINGS]
    works = [(_robots, HELD)] if effort.quick else every
    if effort.quick:
        notes.append(f"quick: continuous laws and two arms ({ARMS}) are left out; these take the compiler a minute")
    parts: list[Part] = []
    try:
        for work, acts in works:
            parts.append(work(acts, effort.quick, lambda done: progress((len(parts) + done) / len(works))))
    except CompileError as error:
        return BenchReport(title, [], {}, [f"engine C is left out: {error}"])
    values = {name: each for part in parts for name, each in part[1].items()}
    tables = [table for part in parts for table in part[0]]
    return BenchReport(title, tables, values, notes, [finding for part in parts for finding in part[2]])


Part = tuple[list[TextTable], dict[str, Any], list[Comparison]]


def _robots(acts: str, quick: bool, progress: Progress) -> Part:
    where = robots_case.states(20 if quick else 500)
    settings = {NONE: [], **{name: [ROBOTS.format(room=room)] for name, room in ROOM.items()}}
    cases = [
        _Case.of(name, robots_case.CONFIG, SETTINGS[acts] + each, where.t, where.x) for name, each in settings.items()
    ]
    return _compared(f"two robots, three bounds{acts}", cases, quick, LIMITS, progress)


def _arms(acts: str, quick: bool, progress: Progress) -> Part:
    run = load(ARMS, ["run.duration=1", "run.output_step=0.005"], "vm").simulate()
    t, x = run.t, np.hstack([run.q, run.v])
    first = dict(zip(run.coordinates, run.q.min(axis=0), strict=True))
    robot = "bounds=[{name: joints, position: robot, acceleration: 20}]"
    ranges = {name: [float(first[name]) + 0.05 if name in TURNED else -3.0, 3.0] for name in JOINTS}
    inner = f"bounds=[{{name: joints, position: {ranges}, acceleration: 20}}]"
    settings = {NONE: POSE_ALONE, FREE: [*POSE_ALONE, robot], BINDING: [*POSE_ALONE, inner]}
    cases = [_Case.of(name, ARMS, SETTINGS[acts] + each, t, x) for name, each in settings.items()]
    return _compared(f"two arms with a box, 28 rows{acts}", cases, quick, dict.fromkeys((FREE, BINDING)), progress)


def _compared(
    work: str, cases: Sequence[_Case], quick: bool, limits: dict[str, float] | dict[str, None], progress: Progress
) -> Part:
    """Times of the cases, what their bounds do, and the targets."""
    inside = {case.name: case.inside for case in cases}
    count = len(cases[0].inside.results)
    times = interleaved(inside, 2 if quick else 40, count, progress)
    entries, rows = [], []
    for case in cases:
        u = case.part("u")
        exact = np.array([case.loop.control(*at)[case.loop.layout.slices["u"]] for at in case.inside.states])
        difference = float(np.abs(u - exact).max() / np.abs(exact).max())
        entries.append(Competitor(case.name, times[case.name], difference, TOLERANCE))
        changed = float(np.abs(u - cases[0].part("u")).max())
        binding, lack = case.part("bound_active"), case.part("bound_lack")
        rows.append([case.name, *_said(binding, lack), f"{changed:.1e}", shown(case.inside.compiling)])
    base = times[NONE].median
    findings = [
        Comparison(f"{work}: {name}", "the law without" if most is None else f"at most {most} times the law without",
                   times[name].median, base if most is None else most * base, None if most is None else 1.0)
        for name, most in limits.items()
    ]  # fmt: skip
    header = ("", "rows that bind", "largest lack", "change of u", "compiling")
    tables = [
        comparison.table(f"One evaluation of the law of {work}", entries),
        TextTable(f"What the bounds of {work} do", header, rows),
    ]
    return tables, {work: comparison.values(entries)}, findings


def _said(binding: Array, lack: Array) -> tuple[str, str]:
    """How many bounds bind at a state on average, and what they lack at most."""
    if not binding.shape[1]:
        return "-", "-"
    return f"{binding.sum(axis=1).mean():.2f} of {binding.shape[1]}", f"{lack.max():.1e}"
