"""Shapes of a config -> spheres and capsules on links and in the world, and the clearances between them."""

from collections.abc import Mapping
from typing import NamedTuple

from servoctl.assembly.problems import Problems
from servoctl.config.bounds import BoundConfig
from servoctl.config.document import FieldPath
from servoctl.config.load import LoadedConfig
from servoctl.config.shapes import ShapeConfig
from servoctl.errors import TaskError
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.shapes import Clearance, SweptSphere
from servoctl.mechanics.shapes.link_poses import link_problems


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
        path: Its path in the config.
        plant: The plant.
        shapes: Result of `build_shapes`.
        problems: Takes what is wrong.
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
