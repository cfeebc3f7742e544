"""Grammar and rules of `bounds`: what the law keeps at h >= 0, before every task.

Design: kinds are a table, as those of tasks, so that the rules can say which keys belong to which kind. What is written
differs from `laws.bounds.Bound`: h is an equation, or names of coordinates, frames, shapes and rows, which only a plant
makes a constraint of; rate, acceleration and margin are the same.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from servoctl.config.references import wrong_rates
from servoctl.config.robot import NEEDS_ROBOT, FramePair, Xyz
from servoctl.errors import remedy
from servoctl.laws.barrier import too_fast
from servoctl.mechanics.coordinate_bounds import limit_pair
from servoctl.mechanics.shapes import SweptSphere
from servoctl.tree.fields import (
    Equation,
    EquationText,
    Interval,
    Limit,
    Name,
    NumberField,
    Positive,
    Real,
    ScalarOr,
    exactly,
)
from servoctl.tree.rules import WRONG, Broken, FieldPath, OneKind, OneOf, Section, known, outer_rule, right, rule

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


class ShapeConfig(OneKind):
    """A shape: exactly one of sphere, capsule."""

    one_of = OneOf({"sphere": (), "capsule": ()}, "a shape has exactly one kind", "kind")

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


Margin = Annotated[float | Literal["auto"], NumberField("a margin >= 0 [unit of h], or auto", least=0, word="auto")]

KEYS: dict[str, tuple[str, ...]] = {
    "holonomic": ("margin", "rate"),
    "nonholonomic": ("margin", "rate"),
    "position": ("acceleration", "margin", "rate"),
    "velocity": ("margin", "rate"),
    "distance": ("at_least", "at_most", "margin", "rate"),
    "clearance": ("at_least", "margin", "rate"),
    "reaction": ("at_least", "at_most", "rate"),
}
"""Kind of a bound -> keys that belong to it."""


class BoundConfig(OneKind):
    """One bound: exactly one of holonomic, nonholonomic, position, velocity, distance, clearance, reaction."""

    one_of = OneOf(KEYS, "a bound has exactly one of them", "bound")

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
    def intervals(self) -> Iterator[tuple[tuple[str, str], float, float]]:
        """Quantity, and its smallest and largest value, of the limits that are numbers."""
        for kind in ("position", "velocity"):
            limits = getattr(self, kind)
            for name, limit in limits.items() if isinstance(limits, Mapping) else ():
                if limit is not WRONG:
                    yield (kind, name), *limit_pair(limit)
        for kind in self.given(("distance", "clearance", "reaction")):
            least = -math.inf if self.at_least is None else self.at_least
            yield (kind, str(getattr(self, kind))), least, math.inf if self.at_most is None else self.at_most

    @rule
    def _one_limit(self) -> Broken:
        ends = self.given(("at_least", "at_most"))
        if self.kind in ("distance", "reaction") and len(ends) == 2:
            yield ("at_most",), "cannot be used with at_least (give the other limit an entry of its own)"
        elif self.kind in ("distance", "reaction") and not ends:
            yield (), "no limit (give at_least or at_most)"

    @rule
    def _two_shapes_apart(self) -> Broken:
        if self.clearance is None:
            return
        if self.at_least is not None and self.at_least < 0.0:
            yield ("at_least",), f"expected a clearance >= 0 [m], got {self.at_least:g}"
        first, second = self.clearance
        if first == second:
            yield ("clearance",), f"has {first!r} twice (give two shapes)"

    @rule
    def _limits_of_coordinates(self) -> Broken:
        for kind in self.given(("position", "velocity")):
            if getattr(self, kind) == {}:
                yield (kind,), "no coordinate (give coordinate -> limits)"
        if isinstance(self.acceleration, Mapping) and isinstance(self.position, Mapping):
            for name in self.acceleration:
                if name not in self.position:
                    yield ("acceleration", name), f"no position of this bound ({remedy(name, self.position)})"

    @outer_rule
    def _needs(self, config: Any, at: FieldPath) -> Broken:
        if not self.kind:
            return
        estimated = config.estimation is not None and config.estimation.kind == "model"
        if self.margin == "auto" and not estimated:
            yield (*at, "margin"), "auto needs estimation.kind: model (give it, or a number)"
        if self.kind == "distance" and not config.plant.is_robot:
            yield (*at, "distance"), f"{NEEDS_ROBOT} (for a class, give clearance or holonomic)"
        if "robot" in (self.position, self.velocity) and not config.plant.is_robot:
            yield (*at, self.kind), f"{NEEDS_ROBOT} (for a class, give coordinate -> limits)"
        if self.position is not None and self.acceleration is None and getattr(config.law, "limits", None) is None:
            yield at, "no acceleration to brake with (give acceleration [unit/s^2], or law.limits)"

    @outer_rule
    def _unknown_shapes(self, config: Any, at: FieldPath) -> Broken:
        shapes, obstacles = config.plant.shapes or {}, config.plant.obstacles or {}
        names, known = dict.fromkeys(self.clearance or ()), [*shapes, *obstacles]
        for name in names:
            if name not in known:
                hint = remedy(name, known) if known else "give plant.shapes, and plant.obstacles where needed"
                yield (*at, "clearance"), f"there is no shape or obstacle {name!r} ({hint})"
        if len(names) == 2 and all(name in obstacles for name in names):
            yield (*at, "clearance"), "both are obstacles, which never move (give a shape of a link)"

    @outer_rule
    def _too_fast(self, config: Any, at: FieldPath) -> Broken:
        """A sampled law keeps a bound inside with a rate below 2 / period."""
        for name in ("run", "hil"):
            period = getattr(getattr(config, name), "period", None)
            if self.rate is not None and (what := too_fast(self.rate, period, f"{name}.period")):
                yield (*at, "rate"), what

    @outer_rule
    def _der_of_positions(self, config: Any, at: FieldPath) -> Broken:
        for rate in wrong_rates(self.holonomic, config.references)[:1]:
            yield (*at, "holonomic"), f"der({rate}) in a holonomic bound (write it under 'nonholonomic')"


def empty_intervals(entries: Sequence[BoundConfig]) -> Broken:
    """Entries that leave nothing between the lower limits and the upper limits of the same quantity."""
    room: dict[tuple[str, str], tuple[float, float]] = {}
    for index, entry in right(entries):
        yield from known(_crossing(index, entry, room))


def _crossing(index: int, entry: BoundConfig, room: dict[tuple[str, str], tuple[float, float]]) -> Broken:
    for quantity, lower, upper in entry.intervals:
        low, high = room.get(quantity, (-math.inf, math.inf))
        room[quantity] = max(low, lower), min(high, upper)
        if max(low, lower) > min(high, upper) and lower <= upper:
            other = f"below {high:g}" if lower > high else f"above {low:g}"
            what = f"an earlier entry keeps {quantity[1]} {other} (nothing is left: move one of the limits)"
            yield (index, quantity[0]), what
