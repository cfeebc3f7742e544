"""A config's `bounds` and the shapes that they keep apart -> the bounds of the law."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from servoctl.assembly.estimation import estimate_errors
from servoctl.assembly.frame_tasks import equations
from servoctl.assembly.timing import predicted, timing_of
from servoctl.assembly.values import NO_SIGNALS, Problems, build_equation
from servoctl.config.bounds import BoundConfig, ShapeConfig
from servoctl.config.document import FieldPath
from servoctl.config.load import LoadedConfig
from servoctl.errors import TaskError
from servoctl.expression.suggest import remedy
from servoctl.laws.bounds import Bound, Bounds, ReactionBound
from servoctl.laws.configured import ConstraintFollowing
from servoctl.laws.law import Law
from servoctl.mechanics.constraint import Constraint, Holonomic, Nonholonomic
from servoctl.mechanics.coordinate_bounds import CoordinateRange, CoordinateSpeed, limit_pair
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.shapes import Clearance, SweptSphere
from servoctl.mechanics.shapes.link_poses import link_problems
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.pose_solver import joint_limits
from servoctl.mechanics.spatial.task import DistanceBound
from servoctl.reference.curve import Signal


class ShapeOfLink(NamedTuple):
    """A sphere or a capsule."""

    link: str | None  # that carries it; None: it is fixed in the world
    shape: SweptSphere  # in the axes of the link or of the world


def build_shapes(loaded: LoadedConfig, plant: Plant, problems: Problems) -> dict[str, ShapeOfLink | None]:
    """Name of a link or obstacle -> its shape; None for one that is wrong."""
    values = loaded.config.plant
    found: dict[str, ShapeOfLink | None] = {}
    for name, shape in (values.obstacles or {}).items():
        found[name] = _shape(shape, None)
    for name, shape in (values.shapes or {}).items():
        made = _shape(shape, name)
        wrong = link_problems(plant, name, (made.shape.start, made.shape.end))
        for sentence in wrong:
            problems.add(sentence, "plant", "shapes", name)
        found[name] = None if wrong else made
    return found


def unused_shapes(loaded: LoadedConfig) -> list[str]:
    """A warning for each shape and obstacle that no bound keeps clear of another."""
    plant = loaded.config.plant
    used = {name for entry in loaded.config.bounds for name in entry.clearance or ()}
    parts = {"shapes": plant.shapes or {}, "obstacles": plant.obstacles or {}}
    return [
        f"plant.{part}.{name}: no bound uses it, so nothing keeps clear of it (give clearance: [..., {name}] in bounds)"
        for part, shapes in parts.items()
        for name in shapes
        if name not in used
    ]


def build_clearance(
    entry: BoundConfig, path: FieldPath, plant: Plant, shapes: Mapping[str, ShapeOfLink | None], problems: Problems
) -> Clearance | None:
    """The clearance of two shapes; None, and problems noted, if it is wrong.

    Args:
        entry: A bound of kind clearance.
        shapes: Result of `build_shapes`.
    """
    first, second = (shapes.get(name) for name in entry.clearance or ("", ""))
    if first is None or second is None:
        return None  # one is wrong
    try:
        return Clearance(first.shape, second.shape, first.link, second.link, entry.at_least or 0.0)
    except TaskError as error:
        problems.add(str(error).removeprefix("Clearance: value: "), *path, "at_least")
        return None


def _shape(values: ShapeConfig, link: str | None) -> ShapeOfLink:
    if values.sphere is not None:
        return ShapeOfLink(link, SweptSphere(_point(values.sphere.at), _point(values.sphere.at), values.sphere.radius))
    assert values.capsule is not None
    ends = _point(values.capsule.from_), _point(values.capsule.to)
    return ShapeOfLink(link, SweptSphere(*ends, values.capsule.radius))


def _point(xyz: tuple[float, ...]) -> tuple[float, float, float]:
    x, y, z = xyz
    return float(x), float(y), float(z)


def build_bounds(
    loaded: LoadedConfig,
    plant: Plant,
    problems: Problems,
    signals: Mapping[str, Signal] = NO_SIGNALS,
    on_drives: bool = False,
) -> Bounds | None:
    """The bounds of a config, without those that are wrong; None without any.

    Args:
        on_drives: Whether the law runs at the period of `hil`, and its time stands still up to 0.
    """
    shapes = build_shapes(loaded, plant, problems)
    entries: dict[str, Bound] = {}
    for index, entry in enumerate(loaded.config.bounds):
        path: FieldPath = ("bounds", index)
        if entry.clearance is not None:
            of: Constraint | ReactionBound | None = build_clearance(entry, path, plant, shapes, problems)
        else:
            of = _bound(entry, path, plant, problems, signals)
        if isinstance(of, Constraint):
            for sentence in of.problems(plant):
                problems.add(sentence.removeprefix("value: "), "bounds", index, entry.kind)
            of = of.standing() if on_drives else of
        if of is not None:
            entries[entry.name] = Bound(of, entry.rate, entry.acceleration, entry.margin or 0.0)
    if not entries:
        return None
    timing = timing_of(loaded, plant, on_drives)
    timing = timing.at_action if predicted(loaded, on_drives) else timing
    return Bounds(entries, timing, estimate_errors(loaded, plant, on_drives))


def constraint_names(law: Law | None) -> list[str]:
    """Names of the bounds of a law that are constraints."""
    return list(law.bounds.constraints) if isinstance(law, ConstraintFollowing) and law.bounds is not None else []


def _bound(
    entry: BoundConfig, path: FieldPath, plant: Plant, problems: Problems, signals: Mapping[str, Signal]
) -> Constraint | ReactionBound | None:
    """What an entry keeps at h >= 0; None, and problems noted, if it is wrong."""
    if entry.holonomic is not None:
        equation = build_equation(entry.holonomic, plant, problems, *path, "holonomic", signals=signals)
        return None if equation is None else Holonomic(equation)
    if entry.nonholonomic is not None:
        equation = build_equation(entry.nonholonomic, plant, problems, *path, "nonholonomic", signals=signals)
        return None if equation is None else Nonholonomic(equation)
    if entry.position is not None or entry.velocity is not None:
        return _coordinates(entry, path, plant, problems)
    most = entry.at_most is not None
    limit = entry.at_most if most else entry.at_least
    assert limit is not None
    if entry.reaction is not None:
        return ReactionBound(entry.reaction, limit, most)
    if entry.distance is not None and isinstance(plant, Robot):
        first, second = entry.distance
        point = second if isinstance(second, str) else equations(second, signals)
        try:
            return DistanceBound(first, point, limit, most=most)
        except TaskError as error:
            problems.add(error, *path, "distance")
    return None


def _coordinates(entry: BoundConfig, path: FieldPath, plant: Plant, problems: Problems) -> Constraint | None:
    kind = "position" if entry.position is not None else "velocity"
    given = getattr(entry, kind)
    if given == "robot":
        limits = _of_robot(plant, kind) if isinstance(plant, Robot) else {}
        if not limits:
            problems.add(f"the robot's file gives no {kind} limits (give coordinate -> limits)", *path, kind)
            return None
    else:
        limits = {name: limit_pair(limit) for name, limit in given.items()}
    for name in [name for name in limits if name not in plant.coordinates]:
        problems.add(f"there is no coordinate '{name}' ({remedy(name, plant.coordinates)})", *path, kind, name)
        del limits[name]
    if not limits:
        return None
    return CoordinateRange.of(limits) if kind == "position" else CoordinateSpeed.of(limits)


def _of_robot(plant: Robot, kind: str) -> dict[str, tuple[float, float]]:
    """Coordinate -> limits of the robot's file, of the joints that have some."""
    if kind == "position":
        pairs = zip(plant.coordinates, *joint_limits(plant.tree), strict=True)
        return {name: (float(low), float(high)) for name, low, high in pairs if np.isfinite([low, high]).any()}
    speeds = {name: plant.tree.velocity(name) for name in plant.tree.motors}
    return {name: (-speed, speed) for name, speed in speeds.items() if speed}
