"""Grammar and rules of `bounds`: what the law keeps at h >= 0, before every task.

Design: kinds are a table, as those of tasks, so that the rules can say which keys belong to which kind. What is written
differs from `laws.bounds.Bound`: h is an equation, or names of coordinates, frames, shapes and rows, which only a plant
makes a constraint of; rate, acceleration and margin are the same.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from servoctl.config.document import FieldPath, Problem, given, has_robot, mapping, name_problems
from servoctl.config.references import wrong_rates
from servoctl.config.robot import NEEDS_ROBOT
from servoctl.errors import remedy
from servoctl.laws.barrier import LARGEST
from servoctl.mechanics.shapes import SweptSphere
from servoctl.tree.fields import (
    MAPPING,
    SCALAR,
    Broken,
    Equation,
    EquationText,
    FramePair,
    Interval,
    Limit,
    Name,
    NumberField,
    OneOf,
    Positive,
    Real,
    Ruled,
    ScalarOr,
    Section,
    Xyz,
    exactly,
    number_or,
)

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


class ShapeConfig(Ruled):
    """A shape: exactly one of sphere, capsule."""

    one_of = OneOf(("sphere", "capsule"), "a shape has exactly one kind", "no kind (give sphere or capsule)")

    sphere: SphereConfig | None = Field(default=None, description="a sphere")
    capsule: CapsuleConfig | None = Field(default=None, description="a cylinder with a half sphere at both ends")

    @property
    def swept(self) -> SweptSphere:
        """The shape itself."""
        if self.capsule is None:
            assert self.sphere is not None
            return SweptSphere.sphere(_point(self.sphere.at), self.sphere.radius)
        return SweptSphere(_point(self.capsule.from_), _point(self.capsule.to), self.capsule.radius)


def _point(xyz: tuple[float, ...]) -> tuple[float, float, float]:
    x, y, z = map(float, xyz)
    return x, y, z


def _clearance(entry: Mapping[str, Any], values: Mapping[str, Any], path: FieldPath) -> Iterator[Problem]:
    """Shapes of a bound of kind clearance that are not there."""
    pair = entry["clearance"]
    if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
        return
    plant = mapping(values, "plant")
    shapes, obstacles = mapping(plant, "shapes"), mapping(plant, "obstacles")
    known = [*shapes, *obstacles]
    for name in dict.fromkeys(pair):
        if name not in known:
            hint = remedy(name, known) if known else "give plant.shapes, and plant.obstacles where needed"
            yield Problem((*path, "clearance"), f"there is no shape or obstacle {name!r} ({hint})")
    if pair[0] != pair[1] and all(name in obstacles for name in pair):
        yield Problem((*path, "clearance"), "both are obstacles, which never move (give a shape of a link)")


def _auto_or_number(value: Any) -> str:
    return MAPPING if value == "auto" else SCALAR


Margin = Annotated[
    Annotated[float, NumberField("a margin >= 0 [unit of h], or auto", least=0), Tag(SCALAR)]
    | Annotated[Literal["auto"], Tag(MAPPING)],
    Discriminator(_auto_or_number),
]

KEYS: dict[str, tuple[str, ...]] = {
    "holonomic": ("margin",),
    "nonholonomic": ("margin",),
    "position": ("acceleration", "margin"),
    "velocity": ("margin",),
    "distance": ("at_least", "at_most", "margin"),
    "clearance": ("at_least", "margin"),
    "reaction": ("at_least", "at_most"),
}
"""Kind of a bound -> keys that belong to it; `rate` belongs to all."""

ON_FRAMES = ("distance",)  # kinds that need a robot from a file


class BoundConfig(Ruled):
    """One bound: exactly one of holonomic, nonholonomic, position, velocity, distance, clearance, reaction."""

    one_of = OneOf(tuple(KEYS), "a bound has exactly one of them", f"no bound (give exactly one of {', '.join(KEYS)})")

    name: Name = Field(description="name of the bound; where it has several rows, they are name.<coordinate>")
    holonomic: EquationText | None = Field(
        default=None, description="h(q, t) that stays >= 0, an equation of coordinates and time"
    )
    nonholonomic: Annotated[str, Equation(rates=True)] | None = Field(
        default=None, description="h(q, v, t) that stays >= 0, an equation with der(x)"
    )
    position: ScalarOr[Literal["robot"], dict[str, Interval]] | None = Field(
        default=None,
        description="coordinate -> [lower, upper] [its unit]; robot: the limits of its file. The law brakes in time "
        "with `acceleration`",
    )
    velocity: ScalarOr[Literal["robot"], dict[str, Limit]] | None = Field(
        default=None,
        description="coordinate -> largest speed, or [lower, upper] [its unit per s]; robot: the limits of its file",
    )
    distance: FramePair | None = Field(
        default=None,
        description="[frame, frame] or [frame, [x, y, z]]: their distance obeys at_least or at_most",
    )
    clearance: TwoShapes | None = Field(
        default=None,
        description="[shape, shape]: names in plant.shapes or plant.obstacles; the free distance of their surfaces "
        "stays at_least (0 if left out)",
    )
    reaction: str | None = Field(
        default=None,
        description="mechanism row whose multiplier lambda, in M q'' = Q + B u + A^T lambda, stays within at_least or "
        "at_most [N, N m]; of a group of several rows: group.0",
    )
    at_least: Real | None = Field(
        default=None, description="smallest value of a distance or clearance [m] or a reaction [N, N m]"
    )
    at_most: Real | None = Field(default=None, description="largest value of a distance [m] or a reaction [N, N m]")
    acceleration: ScalarOr[Positive, dict[str, Positive]] | None = Field(
        default=None,
        description="acceleration to brake with before a position limit [unit/s^2], one for all or by coordinate; left "
        "out: what law.limits give on the whole way to the limit",
    )
    margin: Margin | None = Field(
        default=None,
        description="the law keeps h at or above this [unit of h]; auto: against what estimation.kind model does not "
        "know yet; left out: 0",
    )
    rate: Positive | None = Field(
        default=None,
        description="p: how fast h may approach 0 [1/s], below 2 / period; left out: min(15, 0.5 / period)",
    )

    @property
    def kind(self) -> str:
        """Its kind among `KEYS`."""
        return next(kind for kind in KEYS if getattr(self, kind) is not None)

    @classmethod
    def rules(cls, given: Mapping[str, Any]) -> Broken:
        kinds = [kind for kind in KEYS if given.get(kind) is not None]
        if len(kinds) == 1:
            yield from _keys(given, kinds[0])


def bound_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of `bounds`."""
    entries = values.get("bounds")
    entries = entries if isinstance(entries, list) else []
    if entries and values.get("law") == "none":
        yield Problem(("bounds",), "need a law that keeps them (an open-loop run has 'law: none'; leave them out)")
    checked = [(index, entry) for index, entry in enumerate(entries) if isinstance(entry, Mapping)]
    yield from name_problems("bounds", checked)
    for index, entry in checked:
        path: FieldPath = ("bounds", index)
        kinds = given(entry, KEYS)
        if len(kinds) == 1:
            yield from _of_kind(entry, kinds[0], values, path)
    yield from _empty_intervals(entries)


def _empty_intervals(entries: list[Any]) -> Iterator[Problem]:
    """Entries that leave nothing between the lower limits and the upper limits of the same quantity."""
    room: dict[tuple[str, str], tuple[float, float]] = {}
    for index, entry in enumerate(entries):
        for quantity, lower, upper in _intervals(entry) if isinstance(entry, Mapping) else ():
            low, high = room.get(quantity, (-math.inf, math.inf))
            room[quantity] = max(low, lower), min(high, upper)
            if max(low, lower) > min(high, upper) and lower <= upper:
                other = f"below {high:g}" if lower > high else f"above {low:g}"
                what = f"an earlier entry keeps {quantity[1]} {other} (nothing is left: move one of the limits)"
                yield Problem(("bounds", index, quantity[0]), what)


def _intervals(entry: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], float, float]]:
    """Quantity, and its smallest and largest value, of the limits of an entry that are numbers."""
    for kind in ("position", "velocity"):
        for name, limit in mapping(entry, kind).items():
            ends = limit if isinstance(limit, list) else [f"-({limit})", limit]
            if len(ends) == 2:
                yield (kind, str(name)), number_or(-math.inf, ends[0]), number_or(math.inf, ends[1])
    for kind in ("distance", "clearance", "reaction"):
        if entry.get(kind) is not None:
            least, most = number_or(-math.inf, entry.get("at_least")), number_or(math.inf, entry.get("at_most"))
            yield (kind, str(entry[kind])), least, most


def _keys(entry: Mapping[str, Any], kind: str) -> Broken:
    """Keys that do not fit the kind, and those that it lacks."""
    allowed, ends, bounded = KEYS[kind], given(entry, ("at_least", "at_most")), entry[kind]
    for key in (*ends, *given(entry, ("acceleration", "margin"))):
        if key not in allowed:
            yield (key,), f"does not fit {kind} (it takes {', '.join([*allowed, 'rate'])})"
    if "at_most" in allowed and len(ends) == 2:
        yield ("at_most",), "cannot be used with at_least (give the other limit an entry of its own)"
    elif "at_most" in allowed and not ends:
        yield (), "no limit (give at_least or at_most)"
    if kind == "clearance" and number_or(0.0, entry.get("at_least")) < 0.0:
        yield ("at_least",), f"expected a clearance >= 0 [m], got {number_or(0.0, entry['at_least']):g}"
    if kind == "clearance" and isinstance(bounded, list) and len(bounded) == 2 and bounded[0] == bounded[1]:
        yield (kind,), f"has {bounded[0]!r} twice (give two shapes)"
    if isinstance(bounded, Mapping) and not bounded:
        yield (kind,), "no coordinate (give coordinate -> limits)"
    acceleration = entry.get("acceleration")
    if kind == "position" and isinstance(acceleration, Mapping) and isinstance(bounded, Mapping):
        for name in acceleration:
            if name not in bounded:
                yield ("acceleration", name), f"no position of this bound ({remedy(name, bounded)})"


def _of_kind(entry: Mapping[str, Any], kind: str, values: Mapping[str, Any], path: FieldPath) -> Iterator[Problem]:
    """What does not fit the rest of the config."""
    if entry.get("margin") == "auto" and mapping(values, "estimation").get("kind") != "model":
        yield Problem((*path, "margin"), "auto needs estimation.kind: model (give it, or a number)")
    if kind == "clearance":
        yield from _clearance(entry, values, path)
    if kind in ON_FRAMES and not has_robot(values):
        yield Problem((*path, kind), f"{NEEDS_ROBOT} (for a class, give clearance or holonomic)")
    if entry[kind] == "robot" and kind in ("position", "velocity") and not has_robot(values):
        yield Problem((*path, kind), f"{NEEDS_ROBOT} (for a class, give coordinate -> limits)")
    if kind == "position" and entry.get("acceleration") is None and mapping(values, "law").get("limits") is None:
        yield Problem(path, "no acceleration to brake with (give acceleration [unit/s^2], or law.limits)")
    yield from _rate(entry, values, path)
    for rate in wrong_rates(entry.get("holonomic"), values.get("references"))[:1]:
        yield Problem((*path, "holonomic"), f"der({rate}) in a holonomic bound (write it under 'nonholonomic')")


def _rate(entry: Mapping[str, Any], values: Mapping[str, Any], path: FieldPath) -> Iterator[Problem]:
    """A sampled law keeps a bound inside with a rate below 2 / period."""
    rate = number_or(0.0, entry.get("rate"))
    for section in ("run", "hil"):
        period = number_or(math.nan, mapping(values, section).get("period"))
        if rate * period >= LARGEST:
            what = f"{rate:g} 1/s times {section}.period of {period:g} s is {rate * period:g}, beyond which samples"
            yield Problem((*path, "rate"), f"{what} leave the bound (stay below {LARGEST / period:g} 1/s)")
