"""The robots of the example-robot-data wheel: our terms from their URDFs against Pinocchio's."""

from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from servoctl.bench import peers
from servoctl.bench.report import BenchReport, Effort, Progress, TextTable
from servoctl.errors import ConfigError, PlantError, in_one_line
from servoctl.mechanics.spatial import dynamics
from servoctl.mechanics.spatial.names import identifier
from servoctl.mechanics.spatial.plant import Robot
from servoctl.types import Array

WHEEL = "example-robot-data"
STATES = 5
LIMIT = 1e-10
"""Largest difference, relative to the largest entry, that counts as equal."""

TERMS = ("M", "bias", "rotations", "positions", "Jacobians")


def example_robots(effort: Effort, progress: Progress) -> BenchReport:
    """Robots of the example-robot-data wheel: M, bias, poses and Jacobians of all links against Pinocchio.

    Args:
        effort: Quick takes only the first five files.
        progress: Called with the share of files that are done.
    """
    title, notes = "Robots from files against Pinocchio", peers.notes()
    try:
        files = sorted(Path(str(file.locate())) for file in metadata.files(WHEEL) or [] if file.suffix == ".urdf")
    except metadata.PackageNotFoundError:
        files = []
    if not files or not peers.installed()["pinocchio"]:
        missing = WHEEL if not files else "pin"
        return BenchReport(title, [], {"rows": []}, [*notes, f"left out: {missing} is not installed"], [])
    rows: list[list[str]] = []
    values: list[dict[str, Any]] = []
    worst = 0.0
    for count, file in enumerate(files[:5] if effort.quick else files, start=1):
        try:
            n, off = _differences(file)
        except (ConfigError, PlantError, ValueError) as error:
            rows.append([file.name, "", "refused", *[""] * (len(TERMS) - 1)])
            notes.append(f"{file.name}: {in_one_line(error)[:200]}")
            values.append({"file": file.name, "refused": str(error)})
            continue
        finally:
            progress(count / len(files))
        worst = max(worst, *off)
        rows.append([file.name, str(n), *(f"{x:.1e}" for x in off)])
        values.append({"file": file.name, "coordinates": n, **dict(zip(TERMS, off, strict=True))})
    table = TextTable(f"Largest relative difference at {STATES} random states", ("file", "n", *TERMS), rows, left=1)
    notes.insert(0, f"largest difference {worst:.1e}; up to {LIMIT:.0e} counts as equal")
    return BenchReport(title, [table], {"rows": values, "versions": peers.versions()}, notes, [])


def _differences(file: Path) -> tuple[int, list[float]]:
    """Number of our coordinates, and the largest relative difference of each term."""
    import pinocchio as pin

    robot = Robot.from_urdf(file)
    n = len(robot.coordinates)
    if not n:  # Pinocchio's Jacobians of such a model crash
        raise PlantError("no joint moves")
    model = pin.buildModelFromUrdf(str(file))
    data = model.createData()
    P, offset = _followed(robot, model)
    names = {frame.name for frame in robot.tree.frames}
    links = {frame.name: i for i, frame in enumerate(model.frames) if frame.type == pin.FrameType.BODY}
    known = {identifier(name): i for name, i in links.items() if identifier(name) in names}
    random, off = np.random.default_rng(0), np.zeros(len(TERMS))
    for _ in range(STATES):
        q, v = random.uniform(-1.0, 1.0, (2, n))
        at = _configuration(model, P @ q + offset)
        M = np.array(pin.crba(model, data, at))
        M = np.triu(M) + np.triu(M, 1).T
        bias = np.array(pin.nonLinearEffects(model, data, at, P @ v))
        pin.computeJointJacobians(model, data, at)
        pin.updateFramePlacements(model, data)
        motions = robot.frame_motions(list(known), q, v)
        places: Any = data.oMf
        ours = [
            dynamics.mass_matrix(robot.tree, robot.body_moments(), q),
            dynamics.bias(robot.tree, robot.body_moments(), robot.gravity, q, v),
            np.array([motions[name].rotation for name in known]),
            np.array([motions[name].position for name in known]),
            np.array([np.vstack([motions[name].linear, motions[name].angular]) for name in known]),
        ]
        world = pin.LOCAL_WORLD_ALIGNED
        theirs = [
            P.T @ M @ P,
            P.T @ bias,
            np.array([places[i].rotation for i in known.values()]),
            np.array([places[i].translation for i in known.values()]),
            np.array([pin.getFrameJacobian(model, data, i, world) @ P for i in known.values()]),
        ]
        off = np.maximum(off, [_relative(a, b) for a, b in zip(ours, theirs, strict=True)])
    return n, [float(x) for x in off]


def _relative(ours: Array, theirs: Array) -> float:
    return float(np.abs(np.asarray(ours, dtype=float) - theirs).max(initial=0.0) / max(1e-3, np.abs(theirs).max()))


def _followed(robot: Robot, model: Any) -> tuple[Array, Array]:
    """P and the offset: Pinocchio's joint coordinates, mimic joints included, are `P q + offset`."""
    P, offset = np.zeros((model.nv, len(robot.coordinates))), np.zeros(model.nv)
    ours = {joint.name: i for i, joint in enumerate(robot.tree.joints)}
    for k in range(1, model.njoints):
        i = ours[identifier(model.names[k])]
        joint, row = robot.tree.joints[i], model.joints[k].idx_v
        P[row, robot.tree.columns[i][0]], offset[row] = joint.multiplier, joint.offset
    return P, offset


def _configuration(model: Any, angles: Array) -> Array:
    """Pinocchio's q, in which a continuous joint is its cosine and sine."""
    q = np.zeros(model.nq)
    for k in range(1, model.njoints):
        joint, x = model.joints[k], angles[model.joints[k].idx_v]
        q[joint.idx_q : joint.idx_q + joint.nq] = [x] if joint.nq == 1 else [np.cos(x), np.sin(x)]
    return q
