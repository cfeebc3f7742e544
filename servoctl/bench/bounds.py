"""What bounds cost: the law inside C without bounds, with bounds that leave it alone, and with bounds that bind."""

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
        return cls(name, loop, Inside(loop.control_kernel.function, t, x, loop.parameters))

    def part(self, name: str) -> Array:
        """A part of the results at all states; without columns if the law has none."""
        slices = self.loop.layout.slices
        return self.inside.results[:, slices[name] if name in slices else slice(0)]


def bounds(effort: Effort, progress: Progress) -> BenchReport:
    """One law evaluation inside C with bounds: two robots with three, two arms with a box with 28.

    Args:
        effort: Quick times only a few calls, of the two robots alone.
        progress: Called with the share of turns that are done.
    """
    title = "Bounds: the law inside C with rows that it keeps before every task"
    share = 1.0 if effort.quick else 0.3
    try:
        tables, values, findings = _robots(effort.quick, lambda done: progress(share * done))
        notes = ["difference: of u from the virtual machine, relative to the largest u"]
        if effort.quick:
            notes.append(f"quick: two arms ({ARMS}) are left out; their law takes the compiler a quarter of a minute")
        else:
            more = _arms(lambda done: progress(share + (1.0 - share) * done))
            tables, values, findings = tables + more[0], values | more[1], findings + more[2]
    except CompileError as error:
        return BenchReport(title, [], {}, [f"engine C is left out: {error}"])
    return BenchReport(title, tables, values, notes, findings)


Part = tuple[list[TextTable], dict[str, Any], list[Comparison]]


def _robots(quick: bool, progress: Progress) -> Part:
    where = robots_case.states(20 if quick else 500)
    settings = {NONE: [], **{name: [ROBOTS.format(room=room)] for name, room in ROOM.items()}}
    cases = [_Case.of(name, robots_case.CONFIG, each, where.t, where.x) for name, each in settings.items()]
    return _compared("two robots, three bounds", cases, quick, LIMITS, progress)


def _arms(progress: Progress) -> Part:
    run = load(ARMS, ["run.duration=1", "run.output_step=0.005"], "vm").simulate()
    t, x = run.t, np.hstack([run.q, run.v])
    first = dict(zip(run.coordinates, run.q.min(axis=0), strict=True))
    robot = "bounds=[{name: joints, position: robot, acceleration: 20}]"
    ranges = {name: [float(first[name]) + 0.05 if name in TURNED else -3.0, 3.0] for name in JOINTS}
    inner = f"bounds=[{{name: joints, position: {ranges}, acceleration: 20}}]"
    settings = {NONE: POSE_ALONE, FREE: [*POSE_ALONE, robot], BINDING: [*POSE_ALONE, inner]}
    cases = [_Case.of(name, ARMS, each, t, x) for name, each in settings.items()]
    return _compared("two arms with a box, 28 rows", cases, False, dict.fromkeys((FREE, BINDING)), progress)


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
