"""The law of spatial chains whose tip follows a point, as the chain grows: three task rows, one motor at each joint."""

import time
from typing import Any

import numpy as np

from servoctl.assembly.system import make_system
from servoctl.bench import comparison, peers
from servoctl.bench.comparison import Competitor, Contest
from servoctl.bench.inside import Inside
from servoctl.bench.report import BenchReport, Comparison, Effort, Progress, TextTable, at_most
from servoctl.bench.timing import children_time, shown
from servoctl.errors import CompileError
from servoctl.laws.constraint_following import ConstraintFollowing
from servoctl.laws.corrections import Baumgarte
from servoctl.mechanics.spatial.build import RobotBuilder
from servoctl.mechanics.spatial.description import Description, JointDescription, LinkDescription
from servoctl.mechanics.spatial.placement import IDENTITY, Inertial, Placement, Vector3
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.task.pose import Position
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.compiled import CompiledLoop
from servoctl.simulation.engine_choice import make_loop
from servoctl.types import Array, State

LENGTH, MASS, INERTIA = 0.1, 0.5, 1e-3
"""Of a link: length along z [m], mass at half of it [kg], moment about each axis through that point [kg m^2]."""

AXES = ((0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0))
"""Axes of the joints, in turn."""

GAIN = 10.0
"""Baumgarte's alpha = beta [1/s]."""

SIZES = (7, 30, 100)
LIMITS = {30: 10e-6, 100: 100e-6}
"""Joints -> target of one evaluation [s]."""

MOST_COMPILING = 5.0
"""Target of the compiler's processor time [s]."""

TOLERANCE = 1e-8
"""Largest difference of u, relative to the largest, that counts as equal."""

INSIDE = "servoctl C, inside C"
HEADER = ("joints", "engine", "first evaluation", "processor time to compile", "why not C")


def spatial_chain(effort: Effort, progress: Progress) -> BenchReport:
    """One law evaluation of spatial chains to 100 joints whose tip follows a point, and the time to compile it.

    Args:
        effort: Quick takes one short chain.
        progress: Called with the share of chains that are done.
    """
    tables, rows, findings, notes = [], [], [], peers.notes()
    values: dict[str, Any] = {"versions": peers.versions(), "chains": []}
    sizes = (3,) if effort.quick else SIZES
    for number, joints in enumerate(sizes, start=1):
        entries, made = _measured(joints, effort.quick)
        title = f"{joints} joints: one evaluation of the law; difference of u relative"
        tables.append(comparison.table(title, entries))
        compiling = made["compiling"]
        rows.append(
            [str(joints), made["engine"], shown(made["first"]), "-" if compiling is None else shown(compiling),
             made["note"]]
        )  # fmt: skip
        findings += _findings(joints, entries, compiling)
        values["chains"].append({"joints": joints, **made, "rows": comparison.values(entries)})
        progress(number / len(sizes))
    tables.append(TextTable("The fastest engine that can run it, and the time until it is ready", HEADER, rows))
    notes.append("first evaluation: tracing included, from Python; inside C: no Python between clock and law")
    notes.append("Pinocchio gives the terms; the algebra is NumPy, as in a Python program")
    return BenchReport("Spatial chains: the tip follows a point", tables, values, notes, findings)


def axes_of(joints: int) -> list[Vector3]:
    """The axis of each joint."""
    return [AXES[i % len(AXES)] for i in range(joints)]


def chain(joints: int) -> Robot:
    """A chain of equal links, whose joints turn about z, y and x in turn."""
    return tree(joints, joints)


def tree(joints: int, branch: int) -> Robot:
    """The first link of a chain of `branch` links carries chains of as many links, until there are enough joints."""
    names = ["base", *(f"link{i}" for i in range(1, joints + 1))]
    links = [LinkDescription(names[0]), *(LinkDescription(name, _inertial()) for name in names[1:])]
    place = Placement.at((0.0, 0.0, LENGTH))
    parts = [
        JointDescription(f"joint{i + 1}", "continuous", names[parent], names[i + 1], place if i else IDENTITY, axis)
        for i, (axis, parent) in enumerate(zip(axes_of(joints), parents_of(joints, branch), strict=True))
    ]
    builder = RobotBuilder()
    builder.add(Description("chain", tuple(links), tuple(parts)), base="fixed")
    return builder.plant()


def parents_of(joints: int, branch: int) -> list[int]:
    """Number of the link that carries each joint of `tree`, from 1; 0: the base."""
    return [i if i % branch or not i else 1 for i in range(joints)]


def in_pinocchio(joints: int, branch: int) -> Any:
    """The law of `tree` on Pinocchio's terms, whose last joint follows `target(branch)`; Pinocchio must be there."""
    from servoctl.bench.peers.spatial_chain import PinocchioChain

    parents = parents_of(joints, branch)
    return PinocchioChain(axes_of(joints), parents, LENGTH, MASS, INERTIA, target(branch), GAIN)


def _inertial() -> Inertial:
    return Inertial(MASS, (0.0, 0.0, LENGTH / 2), (INERTIA, INERTIA, INERTIA, 0.0, 0.0, 0.0))


def target(joints: int) -> tuple[float, float, float]:
    """The point of the last joint [m]."""
    reach = 0.5 * LENGTH * joints
    return reach, 0.0, reach


def loop_of(joints: int, q: Array, v: Array, engine: str = "auto") -> Loop:
    """The loop whose tip follows the point, from the start q, v."""
    law = ConstraintFollowing(correction=Baumgarte(GAIN, GAIN))
    task = {"tip": Position(f"link{joints}", target(joints))}
    return make_loop(make_system(chain(joints), task, law, {}, State(0.0, q, v), None, 1e-6), engine)


def _measured(joints: int, quick: bool) -> tuple[list[Competitor], dict[str, Any]]:
    """The contestants of one chain; and engine, its reason, and times until it is ready."""
    random, count = np.random.default_rng(0), 5 if quick or joints > SIZES[1] else 50
    q, v = random.uniform(-1.0, 1.0, (2, count, joints))
    x = np.hstack([q, v])
    began = time.perf_counter()
    loop = loop_of(joints, q[0], v[0])
    loop.control(0.0, x[0])
    made: dict[str, Any] = {"first": time.perf_counter() - began, "compiling": None, "note": loop.note or ""}
    made["engine"] = loop.engine
    contest, inputs = Contest(count), loop.layout.slices["u"]
    if isinstance(loop, CompiledLoop):
        before = children_time()
        try:
            inside = Inside(loop.control_kernel.function, np.zeros(count), x, loop.parameters)
            contest.enter_inside(INSIDE, inside, inputs)
            made["compiling"], made["engine"] = inside.compiling, "c"
        except CompileError as error:
            made["compiling"], made["note"] = children_time() - before, str(error)
    contest.enter(_from_python(loop), lambda k: loop.control(0.0, x[k])[inputs])
    if peers.installed()["pinocchio"]:
        theirs = in_pinocchio(joints, joints)
        contest.enter(theirs.name, lambda k: theirs.command(q[k], v[k]))
    reference = loop_of(joints, q[0], v[0], "numpy")
    exact = np.array([reference.control(0.0, each)[inputs] for each in x])
    scale = float(np.abs(exact).max())
    return contest.compare(exact, TOLERANCE, quick or joints > SIZES[1], lambda _: None, scale), made


def _from_python(loop: Loop) -> str:
    return f"servoctl {'VM' if loop.engine == 'vm' else 'NumPy'}, from Python"


def _findings(joints: int, entries: list[Competitor], compiling: float | None) -> list[Comparison]:
    """Our fastest entry against its target and Pinocchio, and the compiler's time against its target."""
    work, ours = f"law of a spatial chain of {joints} joints", entries[0]
    found = comparison.findings(work, entries, ours.name, {"Pinocchio + pinv": None})
    if joints in LIMITS:
        found.append(at_most(work, ours.times.median, LIMITS[joints]))
    if compiling is not None:
        found.append(at_most(f"{work}: processor time to compile", compiling, MOST_COMPILING))
    return found
