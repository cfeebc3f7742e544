"""Grammar of shapes for clearances: `plant.shapes` on links, and `plant.obstacles`, which do not move."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from servoctl.config.document import FieldPath, Problem, exactly_one, mapping
from servoctl.config.fields import NumberField, Section, Xyz, exactly
from servoctl.expression.suggest import remedy

KINDS = ("sphere", "capsule")

Radius = Annotated[float, NumberField("a radius >= 0 [m]", least=0)]


TwoShapes = Annotated[tuple[str, ...], exactly(2, "two shapes [first, second]")]


class SphereConfig(Section):
    """All points within a radius of a point."""

    at: Xyz = Field(default=(0.0, 0.0, 0.0), description="its centre, in the link's axes or in the world's [m]")
    radius: Radius = Field(description="its radius [m]; 0: the point itself")


class CapsuleConfig(Section):
    """All points within a radius of a straight line between two points."""

    from_: Xyz = Field(alias="from", description="first end of the line, in the link's axes or in the world's [m]")
    to: Xyz = Field(description="second end [m]; equal to the first one: a sphere")
    radius: Radius = Field(description="its radius [m]; 0: the line itself")


class ShapeConfig(Section):
    """A shape: exactly one of sphere, capsule."""

    sphere: SphereConfig | None = Field(default=None, description="a sphere")
    capsule: CapsuleConfig | None = Field(default=None, description="a cylinder with a half sphere at both ends")


def shape_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of shapes and of their names."""
    plant = mapping(values, "plant")
    for part in ("shapes", "obstacles"):
        for name, shape in mapping(plant, part).items():
            if isinstance(shape, Mapping):
                rule, none = "a shape has exactly one kind", f"no kind (give {' or '.join(KINDS)})"
                yield from exactly_one(shape, KINDS, ("plant", part, name), rule, none, KINDS)
    for name in mapping(plant, "obstacles"):
        path: FieldPath = ("plant", "obstacles", name)
        if not name.isidentifier():
            yield Problem(path, f"expected a name of letters, digits and _, got {name!r}")
        elif name in mapping(plant, "shapes"):
            yield Problem(path, f"{name!r} is a name in shapes already (rename the obstacle)")


def clearance_problems(entry: Mapping[str, Any], values: Mapping[str, Any], path: FieldPath) -> Iterator[Problem]:
    """Problems of a bound of kind clearance."""
    pair, least = entry["clearance"], entry.get("at_least")
    if isinstance(least, (int, float)) and not isinstance(least, bool) and least < 0:
        yield Problem((*path, "at_least"), f"expected a clearance >= 0 [m], got {least:g}")
    if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
        return
    plant = mapping(values, "plant")
    shapes, obstacles = mapping(plant, "shapes"), mapping(plant, "obstacles")
    known = [*shapes, *obstacles]
    for name in dict.fromkeys(pair):
        if name not in known:
            hint = remedy(name, known) if known else "give plant.shapes, and plant.obstacles where needed"
            yield Problem((*path, "clearance"), f"there is no shape or obstacle {name!r} ({hint})")
    if pair[0] == pair[1]:
        yield Problem((*path, "clearance"), f"has {pair[0]!r} twice (give two shapes)")
    elif all(name in obstacles for name in pair):
        yield Problem((*path, "clearance"), "both are obstacles, which never move (give a shape of a link)")
