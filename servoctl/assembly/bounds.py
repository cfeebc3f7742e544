"""A config's `bounds` and the shapes that they keep apart -> the bounds of the law."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from servoctl.assembly.context import Context
from servoctl.assembly.frame_tasks import equations
from servoctl.assembly.values import Problems, build_equation
from servoctl.config.bounds import BoundConfig
from servoctl.config.load import LoadedConfig
from servoctl.errors import TaskError, no_such
from servoctl.finding import Finding
from servoctl.laws.bounds import Bound, Bounds, ReactionBound
from servoctl.mechanics.constraint import Constraint, Holonomic, Nonholonomic
from servoctl.mechanics.coordinate_bounds import CoordinateRange, CoordinateSpeed, limit_pair
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.shapes import Clearance, SweptSphere, link_problems
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.pose_solver import joint_limits
from servoctl.mechanics.spatial.task import DistanceBound
from servoctl.tree.rules import FieldPath

Shape = tuple[str | None, SweptSphere]  # link whose axes it has, None: those of the world; and the shape


def build_shapes(loaded: LoadedConfig, plant: Plant, problems: Problems) -> dict[str, Shape]:
    """Name of a link or obstacle -> its shape, without those that are wrong."""
    values = loaded.config.plant
    shapes: dict[str, Shape] = {name: (None, shape.swept) for name, shape in (values.obstacles or {}).items()}
    for name, shape in (values.shapes or {}).items():
        wrong = link_problems(plant, name, (shape.swept.start, shape.swept.end))
        for sentence in wrong:
            problems.add(sentence, "plant", "shapes", name)
        if not wrong:
            shapes[name] = name, shape.swept
    return shapes


def unused_shapes(loaded: LoadedConfig) -> list[Finding]:
    """A warning for each shape and obstacle that no bound keeps clear of another."""
    plant = loaded.config.plant
    used = {name for entry in loaded.config.bounds for name in entry.clearance or ()}
    parts = {"shapes": plant.shapes or {}, "obstacles": plant.obstacles or {}}
    unused = "no bound uses it, so nothing keeps clear of it (give clearance: [..., {}] in bounds)"
    return [
        Finding(f"plant.{part}.{name}", unused.format(name))
        for part, shapes in parts.items()
        for name in shapes
        if name not in used
    ]


def build_bounds(loaded: LoadedConfig, context: Context) -> Bounds | None:
    """The bounds of a config, without those that are wrong; None without any. On drives time stands still up to 0."""
    plant, problems = context.plant, context.problems
    shapes = build_shapes(loaded, plant, problems)
    entries: dict[str, Bound] = {}
    for index, entry in enumerate(loaded.config.bounds):
        path: FieldPath = ("bounds", index)
        of = _bound(entry, path, context, shapes)
        if isinstance(of, Constraint):
            for sentence in of.problems(plant):
                problems.add(sentence.removeprefix("value: "), "bounds", index, entry.kind)
            of = of.standing() if context.on_drives else of
        if of is not None:
            entries[entry.name] = Bound(of, entry.rate, entry.acceleration, entry.margin or 0.0)
    if not entries:
        return None
    return Bounds(entries, context.seen, context.estimate_errors)


def _bound(
    entry: BoundConfig, path: FieldPath, context: Context, shapes: Mapping[str, Shape]
) -> Constraint | ReactionBound | None:
    """What an entry keeps at h >= 0; None, and problems noted, if it is wrong."""
    plant, problems, signals = context.plant, context.problems, context.signals
    kind, most = entry.kind, entry.at_most is not None
    given, limit = getattr(entry, kind), (entry.at_most if most else entry.at_least) or 0.0
    if kind in ("holonomic", "nonholonomic"):
        equation = build_equation(given, plant, problems, *path, kind, signals=signals)
        return None if equation is None else (Holonomic if kind == "holonomic" else Nonholonomic)(equation)
    if kind in ("position", "velocity"):
        return _coordinates(given, kind, path, plant, problems)
    if kind == "reaction":
        return ReactionBound(given, limit, most)
    try:
        if kind == "clearance" and all(name in shapes for name in given):
            (link, first), (other, second) = (shapes[name] for name in given)
            return Clearance(first, second, link, other, limit)
        if kind == "distance" and isinstance(plant, Robot):
            frame, to = given
            return DistanceBound(frame, to if isinstance(to, str) else equations(to, signals), limit, most=most)
    except TaskError as error:
        what = str(error).removeprefix("Clearance: value: ")
        problems.add(what, *path, "at_least" if kind == "clearance" else "distance")
    return None


def _coordinates(given: Any, kind: str, path: FieldPath, plant: Plant, problems: Problems) -> Constraint | None:
    if given == "robot":
        limits = _of_robot(plant, kind) if isinstance(plant, Robot) else {}
        if not limits:
            problems.add(f"the robot's file gives no {kind} limits (give coordinate -> limits)", *path, kind)
            return None
    else:
        limits = {name: limit_pair(limit) for name, limit in given.items()}
    for name in [name for name in limits if name not in plant.coordinates]:
        problems.add(no_such("coordinate", name, plant.coordinates), *path, kind, name)
        del limits[name]
    if not limits:
        return None
    return CoordinateRange.of(limits) if kind == "position" else CoordinateSpeed.of(limits)


def _of_robot(plant: Robot, kind: str) -> dict[str, tuple[float, float]]:
    """Coordinate -> limits of the robot's file, of the joints that have some."""
    if kind == "position":
        return {name: ends for name, ends in joint_limits(plant.tree).items() if np.isfinite(ends).any()}
    speeds = {name: plant.tree.velocity(name) for name in plant.tree.motors}
    return {name: (-speed, speed) for name, speed in speeds.items() if speed}
