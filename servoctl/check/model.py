"""Sections of the report on the model: plant, passive constraints and their hierarchy, task and its reach.

Whether velocity constraints are integrable: for one Pfaffian row `a(q) v = 0` in three coordinates the published test
is `a . curl a = 0`. Frobenius' theorem generalises it: rows `a_i(x) x' = 0`, x = (q, t), are integrable together if and
only if `d a_i(X, Y) = 0` for all X, Y that satisfy them, `d a(X, Y) = X^T (da/dx - (da/dx)^T) Y`.

Time appears in a velocity constraint psi(q, v, t) = 0 where `psi(q, 0, t)` is not zero, or where its matrix depends on
time: a constant rate such as `x' + 2 y y' + z' - 1 = 0` integrates to `x + y^2 + z - t + c = 0`, a surface that moves.

Design: decided by numbers at random states. A failure is certain; success holds for the sampled states. Rows that are
not affine in the velocities are outside the theorem and reported as undecided.

Source: Zhao et al. 2018, Lemma 1, (10)-(17), where the value of (17) is 2, not 1, and (14), (15) for time; Frobenius'
theorem for several rows.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import casadi as ca
import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.start import JointUse, joint_uses
from servoctl.check.sections import Section, shortened
from servoctl.engine.decomposition import pinv
from servoctl.engine.kernel import Kernel, directional, inputs, jacobian
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.symbol import to_sx
from servoctl.errors import Finding, ServoctlError, counted, listed
from servoctl.expression import per_second
from servoctl.mechanics.actuator_parameters import armature_of
from servoctl.mechanics.constraint import Constraint, Rows
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.friction import friction_of
from servoctl.mechanics.hierarchy import largest, level_report, motions
from servoctl.mechanics.initial import consistency
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.description import IMPOSSIBLE
from servoctl.mechanics.spatial.model import WORLD
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.task import CentreOfMass
from servoctl.types import Array, State

PARTS = 4  # number of parts of a machine, and of coordinates of a part, that a sentence names
ROUNDING = 1e-14  # [units of the row] errors and rates below this are printed as 0


def robot_section(run: Run) -> Iterator[Section]:
    """Joints at the start against their limits, and what the files of a robot say."""
    plant = run.system.model.plant
    if not isinstance(plant, Robot):
        return
    joints = joint_uses(run.loop, run.start)
    lines = [*_nearest_limit(joints), *_largest_share(joints)]
    notes = [*plant.tree.notes, *_frictionless(plant), *_rotorless(run, plant), *_weighed(run, plant)]
    lines += [note for note in notes if IMPOSSIBLE not in note]  # which is a warning
    values = {joint.name: _values(joint) for joint in joints}
    yield Section("robot", "robot", lines, {"joints": values, "notes": notes})


def _weighed(run: Run, plant: Robot) -> Iterator[str]:
    """What a task on the centre of mass counts, where some of it cannot move."""
    names = [name for name, constraint in run.system.model.plain.task.items() if isinstance(constraint, CentreOfMass)]
    fixed = [link.name for link in plant.tree.links if link.body == WORLD]
    if names and fixed:
        total, still = (sum(m for link, m in plant.masses.items() if link in of) for of in (plant.masses, fixed))
        yield (
            f"{', '.join(names)}: the centre of mass is that of every link, {total:.4g} kg, of which {still:.4g} kg do "
            f"not move ({', '.join(fixed)})"
        )


def _frictionless(plant: Robot) -> Iterator[str]:
    """Joints whose friction in the file is not in the plant."""
    rough = [joint.name for joint in plant.tree.joints if joint.leads and plant.tree.friction(joint.name)]
    known, driven = friction_of(plant) is not None, plant.tree.motors
    if off := [] if known else [name for name in rough if name in driven]:
        yield f"{', '.join(off)}: the file's friction is off (`plant.friction: robot` turns it on)"
    if off := [name for name in rough if name not in driven]:
        yield f"{', '.join(off)}: the file's friction is off (joints without an actuator have none)"


def _rotorless(run: Run, plant: Robot) -> Iterator[str]:
    """The cost of rotors that the model lacks behind gears, at the joint where it is largest."""
    hil = run.hil
    if hil is None or any(armature_of(plant) or ()):
        return
    M, names = np.asarray(plant.mass_matrix(run.start.q, run.start.t), dtype=float), list(plant.coordinates)
    doubled = {
        drive.actuator: (float(M[at, at]) / drive.gear**2, drive.gear)
        for drive in hil.drives
        if drive.gear > 1.0 and drive.actuator in names and (at := names.index(drive.actuator)) >= 0
    }
    if doubled:
        name, (inertia, gear) = min(doubled.items(), key=lambda pair: pair[1][0])
        yield (
            f"no rotors behind the gears (plant.armature): at {name} a rotor of {inertia:.2g} kg m^2 behind the gear "
            f"of {gear:g} doubles the inertia of the file, and the law leaves it out (servoctl identify finds rotors "
            "from a log)"
        )


def _nearest_limit(joints: list[JointUse]) -> list[str]:
    limited = [joint for joint in joints if math.isfinite(joint.margin)]
    if not limited:
        return ["joint limits: the files give none"]
    least = min(limited, key=lambda joint: joint.margin)
    if least.margin < 0.0:
        return [f"joint limits: {sum(joint.margin < 0.0 for joint in limited)} of {len(limited)} joints start outside"]
    closest = f"{least.name} is closest, by {least.margin:.3g} {least.unit}"
    return [f"joint limits: all {len(limited)} met at the start; {closest}"]


def _largest_share(joints: list[JointUse]) -> list[str]:
    shares = [(joint.share, joint) for joint in joints if joint.share is not None]
    if not shares:
        return []
    share, joint = max(shares, key=lambda pair: pair[0])
    used = f"{abs(joint.u or 0.0):.4g} of {joint.effort:.4g} {joint.u_unit}, {100 * share:.0f} %"
    return [f"first command against effort: {joint.name} uses most, {used}"]


def _values(joint: JointUse) -> dict[str, Any]:
    return {"q": joint.q, "limits": [joint.lower, joint.upper], "u": joint.u, "effort": joint.effort}


def plant_section(run: Run) -> Iterator[Section]:
    """Size, mass matrix and parts of the plant."""
    model = run.system.model
    plant = model.plant
    M = model.matrices(run.start).M
    eigenvalues = np.linalg.eigvalsh(M)
    lines = [
        f"{type(plant).__name__}: {counted(model.n, 'coordinate')} ({_named(plant.coordinates)}), "
        + (f"{counted(model.m, 'input')} ({_named(plant.actuators)})" if model.m else "no inputs"),
        f"mass matrix at the start: eigenvalues {eigenvalues[0]:.4g} to {eigenvalues[-1]:.4g}, "
        f"condition {np.linalg.cond(M):.3g}",
    ]
    if model.opaque is None:
        lines.append("compiled: equal to its NumPy code at 20 random states and parameter sets")
    else:
        lines.append(f"not compiled: {model.opaque}")
    parts = model.parts
    if len(parts) > 1:
        groups = listed((listed(part, PARTS) for part in parts), PARTS, "; ")
        lines.append(f"{len(parts)} separate parts ({groups}): no mass, actuator or constraint joins them")
    values = {
        "class": type(plant).__name__, "coordinates": dict(plant.coordinates), "actuators": dict(plant.actuators),
        "mass_eigenvalues": eigenvalues, "opaque": model.opaque, "parts": len(parts),
    }  # fmt: skip
    yield Section("plant", "plant", lines, values)


def _named(units: Any) -> str:
    first = [f"{name} [{unit}]" for name, unit in list(units.items())[:8]]
    return ", ".join(first) + (f", and {len(units) - 8} more" if len(units) > 8 else "")


def passive_section(run: Run) -> Iterator[Section]:
    """Rank and violation of the plant's own constraints."""
    model = run.system.model
    if not model.passive_rows:
        return
    tolerance = run.system.passive.rank_tolerance
    terms = model.terms(run.start, tolerance)
    if not terms.finite:
        return  # the start is refused, with the rows that are not finite
    rank, rows = terms.passive.rank, len(model.passive_rows)
    lines = [
        f"{counted(rows, 'row')} of rank {rank}" + ("" if rank == rows else f": {rows - rank} dependent"),
        *_violations(run, model.passive_rows),
    ]
    lines.append(f"largest inconsistency |(I - A A^+) b|: {np.abs(terms.consistency).max():.1e}")
    names = [row.name for row in model.passive_rows]
    values = {"rows": names, "rank": rank, "inconsistency": np.abs(terms.consistency).max()}
    yield Section("mechanism constraints", "passive", lines, values)


def hierarchy_section(run: Run) -> Iterator[Section]:
    """The levels of the plant's own constraints, one after the other."""
    if not run.levels:
        return
    model, tolerance = run.system.model, run.system.passive.rank_tolerance
    try:
        free, *enforced = motions(model, run.start, run.levels, rank_tolerance=tolerance)
    except ServoctlError as error:
        yield Section("hierarchy", "hierarchy", [f"cannot be enforced: {error}"], {"reason": str(error)})
        return
    coordinates, last = model.plant.coordinates, enforced[-1]
    reports = [level_report(*pair, last, coordinates) for pair in pairwise([free, *enforced])]
    at_once = model.terms(run.start, tolerance).acceleration(np.zeros(model.m))
    apart = last.acceleration - at_once
    lines = [
        "level by level at the start, with zero inputs; trace of P: remaining degrees of freedom",
        *shortened([line for line, _ in reports]),
        f"difference from all rows at once, without clearance: {largest(apart, coordinates)}",
    ]
    if any(run.system.passive.clearance) and run.system.law is not None:
        lines.append(
            "the law takes every row as exact: where one yields, task errors do not decay by its correction alone"
        )
    values = {
        "free": dict(zip(coordinates, free.acceleration, strict=True)),
        "levels": {level.name: values for level, (_, values) in zip(last.levels, reports, strict=True)},
        "off_all_at_once": np.abs(apart).max(),
    }
    yield Section("hierarchy", "hierarchy", lines, values)


def _violations(run: Run, rows: list[Row]) -> list[str]:
    at = consistency(run.system.model, run.start)
    lines = []
    passive, task, _ = run.system.model.row_units
    units = passive | task
    for row, violation, rate in at.each(rows):
        unit = units.get(row.name, "")
        error = "" if np.isnan(violation) else f": error {_plain(violation):.3g} {unit or '[-]'}"
        rated = "" if np.isnan(rate) else f", rate {_plain(rate):.3g} {per_second(unit) or '[-]'}"
        lines.append(f"{row.name}: {row.kind}{error}{rated}")
    return shortened(lines)


def _plain(value: float) -> float:
    """The value, 0 where it is rounding."""
    return 0.0 if abs(value) < ROUNDING else value


def task_section(run: Run) -> Iterator[Section]:
    """Kind and violation of each task, as it is written."""
    model = run.system.model.plain
    if not model.task:
        return
    lines, values, findings = [], {}, []
    for name, constraint in model.task.items():
        try:
            kind = classify(constraint, model.plant, run.start)
            lines.append(f"{name}: {constraint.kind}, {kind.time}; {kind.reason}")
            values[name] = {"kind": constraint.kind, **vars(kind)}
        except ServoctlError as error:
            lines.append(f"{name}: {constraint.kind}; not classified: {error}")
        equation = getattr(constraint, "equation", None)
        if equation is not None and equation.kinked and constraint.kind == "holonomic":
            words = ", ".join(equation.kinked)
            kink = f"{words} in a holonomic row: its second derivative ignores the kink"
            findings.append(Finding(f"task.{name}", kink))
    yield Section("task", "task", lines + _violations(run, model.task_rows), values, findings)


def reach_section(run: Run) -> Iterator[Section]:
    """How the actuators act on each row of the task, and the motions that it leaves free."""
    task_map = run.task_map
    if task_map is None:
        return
    count = counted(len(task_map.rows), "row")
    lines = [f"rank of A Phi B: {task_map.rank} at the start, {task_map.generic_rank} nearby, of {count}"]
    motions = run.motions
    if motions is not None:
        lines.append(motions.line)
        yield Section(key="motions", values=motions)
    rows, unreachable, dependent = [], set(task_map.unreachable), set(task_map.dependent)
    for row, gain in zip(task_map.rows, task_map.gain, strict=True):
        remark = ""
        if row in task_map.idle:
            remark = ": no motion of the machine changes this row"
        elif row in unreachable:
            remark = ": OUT OF REACH: no actuator acts on this row's acceleration"
        elif row in dependent:
            remark = ": dependent: cannot be controlled independently of the rows above"
        rows.append(f"{row.name}: relative degree {task_map.degree(row)}, gain {gain:.3g}{remark}")
    values = {
        "rank": task_map.rank, "generic_rank": task_map.generic_rank, "pivot": task_map.pivot,
        "rows": {
            row.name: {"degree": task_map.degree(row), "gain": gain, "reachable": row not in unreachable}
            for row, gain in zip(task_map.rows, task_map.gain, strict=True)
        },
    }  # fmt: skip
    yield Section("controllability of the task", "reach", lines + shortened(rows), values)


SAMPLES = 12
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Classification:
    """The kind of a constraint."""

    time: str  # `scleronomic` (time appears neither in the constraint nor in its rate form) or `rheonomic`
    integrable: bool | None  # true, False, or None if undecided
    reason: str  # the reason in one sentence


def classify(constraint: Constraint, plant: Plant, around: State) -> Classification:
    """Classifies the rows of a constraint together.

    Args:
        plant: The plant whose coordinates it uses.
        around: The random states are near this state.
    """
    n = len(plant.coordinates)
    symbols = inputs({"t": (1,), "q": (n,), "v": (n,)})
    t, q, v = symbols["t"], symbols["q"], symbols["v"]
    bound = with_parameters(plant, parameter_values(plant))
    rows = constraint.rows(bound, t[0], q, v)
    samples = _samples(around, n)
    time = "rheonomic" if _moves(constraint, rows, symbols, samples) else "scleronomic"
    if constraint.kind == "holonomic":
        return Classification(time, True, "given at position level")
    if constraint.kind != "nonholonomic":
        return Classification(time, None, "given at acceleration level: integrability is not decided")
    if ca.depends_on(to_sx(rows.A.ravel()), to_sx(v)):
        return Classification(time, None, "not affine in the velocities: integrability is not decided")
    zero = directional(rows.violation, v, v) - rows.violation
    # psi = A v - zero is affine in v, so [A, -zero] (q', t') = 0 is the Pfaffian form of the rows
    form = np.concatenate([rows.A, -zero[:, None]], axis=1)
    kernel = Kernel.compile("form", symbols, _curls(form, np.concatenate([q, t])) | {"form": form})
    worst = 0.0
    for state in samples:
        *curls, matrix = kernel(state.t, state.q, state.v)
        if not np.isfinite(matrix).all():
            continue
        # X and Y run over the null space of the form
        tangent = np.eye(n + 1) - pinv(matrix) @ matrix
        size = max(1.0, float(np.abs(matrix).max()), *[float(np.abs(curl).max()) for curl in curls])
        worst = max(worst, *[float(np.abs(tangent @ curl @ tangent).max()) / size for curl in curls])
    if worst > TOLERANCE:
        return Classification(time, False, f"not integrable: Frobenius' form is {worst:.1e}, not 0")
    return Classification(time, True, f"integrable: Frobenius' form vanishes at {SAMPLES} states")


def _moves(constraint: Constraint, rows: Rows, symbols: dict[str, Array], samples: list[State]) -> bool:
    """Whether time appears: in the position form, or as a rate at zero velocity."""
    kind = constraint.kind
    forms = [rows.violation] if kind == "holonomic" else [rows.A.ravel()]
    forms += [rows.b] if kind == "second_order" else []
    held = np.concatenate(forms)
    slope = jacobian(held, symbols["t"])[:, 0]
    rest = rows.violation if kind == "nonholonomic" else np.zeros(0)
    # a reference may rest at all samples
    if constraint.signals and ca.depends_on(to_sx(np.concatenate([held, rest])), to_sx(symbols["t"])):
        return True
    kernel = Kernel.compile("time", symbols, {"held": held, "slope": slope, "rest": rest})
    for t, q, v in samples:
        value, change, _ = kernel(t, q, v)
        speed = kernel(t, q, np.zeros(len(v)))[2]
        for size, reference in ((change, value), (speed, np.ones(1))):
            known = np.abs(size[np.isfinite(size)])
            scale = max(1.0, float(np.abs(reference[np.isfinite(reference)]).max(initial=0.0)))
            if known.max(initial=0.0) > TOLERANCE * scale:
                return True
    return False


def _curls(form: Array, x: Array) -> dict[str, Array]:
    slopes = [jacobian(row, x) for row in form]
    return {f"curl{i}": slope - slope.T for i, slope in enumerate(slopes)}


def _samples(around: State, n: int) -> list[State]:
    random = np.random.default_rng(2)
    return [
        State(around.t + random.random(), around.q + random.standard_normal(n), random.standard_normal(n))
        for _ in range(SAMPLES)
    ]
