"""Grammar of `plant`: a class and its parameters, or robots from files; and its passive constraints."""

import graphlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, model_validator

from servoctl.config.bounds import ShapeConfig
from servoctl.config.corrections import CorrectionConfig
from servoctl.config.document import given, has_robot, mapping
from servoctl.config.robot import NEEDS_ROBOT, PARTS, PLANT_KINDS, BodyConfig, FrameConfig, LoopConfig, RobotConfig
from servoctl.errors import remedy
from servoctl.laws.configured import ConstraintFollowing
from servoctl.laws.corrections import Baumgarte
from servoctl.mechanics.friction import Friction
from servoctl.tree.fields import (
    Broken,
    ClassPath,
    Fraction,
    Name,
    NotNegative,
    NumberField,
    OneOrEach,
    Parameter,
    PerName,
    Ruled,
    ScalarOr,
    Section,
    Xyz,
    fault,
    in_words,
    name_as,
)

GRAVITY = (0.0, 0.0, -9.81)  # default of `plant.gravity` [m/s^2]


def _flag_or_auto(value: Any) -> Any:
    if isinstance(value, bool) or value == "auto":
        return value
    raise fault(f"expected true, false or auto, got {in_words(value)}")


FlagOrAuto = Annotated[StrictBool | Literal["auto"], BeforeValidator(_flag_or_auto)]


class PassiveLevelConfig(Section):
    """Groups of passive constraints that are enforced together."""

    groups: tuple[str, ...] = Field(description="names of the plant's mechanism constraint groups")
    after: tuple[str, ...] = Field(default=(), description="names of the levels that are enforced before this one")
    clearance: OneOrEach[Annotated[float, NumberField("a clearance >= 0, 0 where a row is exact", least=0)]] = Field(
        default=0.0,
        description="compliance R of a row: acceleration per unit of its multiplier [acceleration of the row / "
        "multiplier]; 0 is exact; a number, or a list with one per row, in the order of groups; with a "
        "baumgarte correction such a row is a spring of stiffness beta^2/R with a damper 2 alpha/R",
    )


PASSIVE_CORRECTION = Baumgarte(10.0, 10.0)
"""Default stabilisation of a plant's own constraints in simulation.

Slow enough to keep the accuracy of a fixed step: gains proportional to 1/h cost Runge-Kutta two orders. If rows are
dependent, no gains work from every start, because drift makes the rows look independent. Such plants are projected
after each step instead (`tests/reference/test_dependent_rows.py`).
"""


class Passive(Ruled):
    """How a simulation enforces the plant's own constraints."""

    correction: CorrectionConfig = Field(
        default=CorrectionConfig(baumgarte=PASSIVE_CORRECTION),
        description="correction of the mechanism constraints, in simulation only",
    )
    rank_tolerance: Fraction = Field(
        default=ConstraintFollowing.passive_rank_tolerance,
        description="smallest pivot of an independent mechanism row, relative to |Ahat L^-T|_F [-]",
    )
    projection: FlagOrAuto = Field(
        default="auto",
        description="whether each simulation step ends with a projection onto the mechanism constraints (then no "
        "correction is used unless one is given); auto: true if mechanism rows are dependent; default with a "
        "correction: false",
    )
    levels: dict[Annotated[str, name_as("legs")], PassiveLevelConfig] | None = Field(
        default=None,
        description="name -> groups that `check` enforces level by level; a run takes only the clearances, because the "
        "order does not change the motion",
    )

    @classmethod
    def rules(cls, given: Mapping[str, Any]) -> Broken:
        levels = mapping(given, "levels")
        for path, what in _levels(levels) if isinstance(given.get("levels"), Mapping) else ():
            yield ("levels", *path), what
        for name in levels:
            if given.get("projection") is True and mapping(levels, name).get("clearance") not in (None, 0, 0.0):
                what = f"true would close the rows of level {name!r}, which yield (leave projection out, or clearance)"
                yield ("projection",), what

    @model_validator(mode="before")
    @classmethod
    def _projection_or_correction(cls, given: Any) -> Any:
        """Defaults: projection alone, because an added correction costs accuracy; or the given correction alone."""
        if not isinstance(given, dict):
            return given
        if given.get("projection") is True and given.get("correction") is None:
            return {**given, "correction": {"baumgarte": {"alpha": 0.0, "beta": 0.0}}}
        if given.get("correction") is not None and "projection" not in given:
            return {**given, "projection": False}
        return given


class PlantConfig(Ruled):
    """The machine: exactly one of class, robot, robots."""

    class_: ClassPath | None = Field(
        default=None,
        alias="class",
        description="package.module:ClassName, or file.py:ClassName relative to the config's folder",
    )
    robot: RobotConfig | None = Field(
        default=None, description="one robot from a file; links and joints keep the file's names"
    )
    robots: dict[Name, RobotConfig] | None = Field(
        default=None, description="name -> robot from a file; links and joints are <robot>_<name>"
    )
    bodies: dict[Name, BodyConfig] | None = Field(
        default=None, description="name -> rigid body on a link of a robot, such as a payload"
    )
    frames: dict[Name, FrameConfig] | None = Field(
        default=None, description="name -> further frame; every link and body is a frame already, and so is world"
    )
    loops: dict[Name, LoopConfig] | None = Field(
        default=None, description="name -> joint that closes a loop; a mechanism constraint of this name"
    )
    gravity: Xyz | None = Field(
        default=None, description="gravity of robots [m/s^2]; left out: [0, 0, -9.81], or parameters.gravity"
    )
    parameters: dict[str, Parameter] = Field(
        default={},
        description="fields of the class, in their own units, or <link>_m, <link>_com, <link>_I of a robot [kg, m, "
        "kg m^2]; the rest keep their defaults",
    )
    armature: PerName[NotNegative] | None = Field(
        default=None,
        description="inertia of each rotor at its actuator's own coordinate, with its gear squared [kg m^2, kg "
        "where the actuator gives a force]: one for all, list in the plant's order, or by name; adds B diag(J) B^T to "
        "M; left out: that of the MJCF, else 0",
    )
    friction: ScalarOr[Literal["robot"], Friction] | None = Field(
        default=None,
        description="friction at the actuators that the law knows and cancels; robot: the dry friction of its file; "
        "the machine has it too, unless realism.friction or hil.emulation says otherwise",
    )
    shapes: dict[str, ShapeConfig] | None = Field(
        default=None,
        description="link -> sphere or capsule around it, for clearances in bounds: a link, body or frame of a robot, "
        "a body of a linkage, or NAME_i: the piece of the polyline NAME of `links` from its point i on, x along it",
    )
    obstacles: dict[Name, ShapeConfig] | None = Field(
        default=None, description="name -> sphere or capsule that is fixed in the world, for clearances in bounds"
    )
    passive: Passive = Field(default=Passive(), description="mechanism constraints: correction, rank tolerance, levels")

    @classmethod
    def rules(cls, given: Mapping[str, Any]) -> Broken:
        yield from _kind_of_plant(given)
        yield from _names(given)

    @model_validator(mode="before")
    @classmethod
    def _default_gravity(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("gravity") is not None:
            return given
        parameters = given.get("parameters")
        if isinstance(parameters, dict) and "gravity" in parameters:
            return given
        is_robot = given.get("robot") is not None or given.get("robots") is not None
        return {**given, "gravity": list(GRAVITY)} if is_robot else given

    @property
    def every_robot(self) -> dict[str, RobotConfig]:
        """Prefix of its names -> robot; "" for `robot`."""
        return {"": self.robot} if self.robot is not None else dict(self.robots or {})


def _kind_of_plant(plant: Mapping[str, Any]) -> Broken:
    kinds = given(plant, PLANT_KINDS)
    for other in kinds[1:]:
        what = f"cannot be used with {kinds[0]} (a plant has exactly one of {', '.join(PLANT_KINDS)})"
        yield (other,), what
    if not kinds and "class" not in plant:
        what = "package.module:ClassName, or file.py:ClassName relative to the config's folder; or robot, or robots"
        yield ("class",), f"missing ({what})"
    elif not kinds:
        yield ("class",), "expected text, got nothing"
    is_robot = has_robot({"plant": plant})
    for word in [] if is_robot else given(plant, (*PARTS, "gravity")):
        yield (word,), f"{NEEDS_ROBOT} (a class has its own parts and parameters)"
    if is_robot and plant.get("gravity") is not None and "gravity" in mapping(plant, "parameters"):
        yield ("parameters", "gravity"), "cannot be used with plant.gravity (give one of them)"


def _names(plant: Mapping[str, Any]) -> Broken:
    first: dict[str, str] = {"world": "frames"}
    for part in ("bodies", "frames"):
        for name in mapping(plant, part):
            if first.setdefault(name, part) != part:
                yield (part, name), f"{name!r} is a name in {first[name]} already (rename one)"
            elif part == "frames" and name == "world":
                yield (part, name), "'world' is a frame already (rename it)"
    for name in mapping(plant, "obstacles"):
        if name in mapping(plant, "shapes"):
            yield ("obstacles", name), f"{name!r} is a name in shapes already (rename the obstacle)"
    if plant.get("robots") is not None and not mapping(plant, "robots") and isinstance(plant["robots"], Mapping):
        yield ("robots",), "no robot (give name: {urdf: FILE})"


def _levels(levels: Mapping[str, Any]) -> Broken:
    """Problems of `levels` that do not depend on the plant; paths start below it."""
    if not levels:
        yield (), "no level (name at least one, or leave levels out)"
    level_of: dict[str, str] = {}
    for name, level in levels.items():
        if mapping(levels, name).get("groups") == []:
            yield (name, "groups"), "no group (give the level a mechanism group, or take it out)"
        for i, group in _words(level, "groups"):
            if group in level_of:
                yield (name, "groups", i), f"{group!r} is in level {level_of[group]!r} already (keep it in one place)"
            level_of.setdefault(group, name)
    after = {name: _words(level, "after") for name, level in levels.items()}
    for name, words in after.items():
        for i, word in words:
            if word not in levels:
                yield (name, "after", i), f"there is no level {word!r} ({remedy(word, levels)})"
    for cycle in _cycles({name: [word for _, word in words if word in levels] for name, words in after.items()}):
        yield (cycle[0], "after"), f"levels after each other: {' -> '.join(cycle)} (take one 'after' out)"


def in_order(after: Mapping[str, Collection[str]]) -> list[str]:
    """Levels sorted so that each comes after its predecessors; otherwise in the order of the config.

    Args:
        after: Level -> its predecessors; a cycle, which `level_problems` reports, is broken at its first level.
    """
    left, ordered = dict(after), list[str]()
    while left:
        free = (name for name, before in left.items() if not any(other in left for other in before))
        ordered.append(next(free, next(iter(left))))
        del left[ordered[-1]]
    return ordered


def _words(level: Any, field: str) -> list[tuple[int, str]]:
    """The texts in a list of a level, with their indices; the field's own type refuses other values."""
    value = level.get(field) if isinstance(level, Mapping) else None
    return [(i, word) for i, word in enumerate(value) if isinstance(word, str)] if isinstance(value, list) else []


def _cycles(after: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Cycles without common levels, each as a path from its first level in the config back to it."""
    left, order = dict(after), list(after)
    while True:
        try:
            graphlib.TopologicalSorter(left).prepare()
            return
        except graphlib.CycleError as error:
            ring = error.args[1][:0:-1]  # from each level to one that it comes after
            start = ring.index(min(ring, key=order.index))
            yield [*ring[start:], *ring[: start + 1]]
            left = {name: [] if name in ring else before for name, before in left.items()}
