"""Grammar of `plant`: a class and its parameters, or robots from files; and its passive constraints."""

import graphlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, model_validator

from servoctl.config.bounds import ShapeConfig
from servoctl.config.robot import NEEDS_ROBOT, BodyConfig, FrameConfig, LoopConfig, RobotConfig, Xyz
from servoctl.config.tasks import CorrectionConfig
from servoctl.errors import no_such
from servoctl.laws.configured import ConstraintFollowing
from servoctl.laws.corrections import Baumgarte
from servoctl.mechanics.friction import Friction
from servoctl.tree.fields import (
    ClassPath,
    Name,
    NotNegative,
    NumberField,
    OneOrEach,
    Parameter,
    PerName,
    ScalarOr,
    Share,
    name_as,
    only,
)
from servoctl.tree.rules import Broken, OneKind, OneOf, Section, below, known, right, rule

PARTS = ("bodies", "frames", "loops")  # with names; a problem of the builder begins with one of these and the name

GRAVITY = (0.0, 0.0, -9.81)  # default of `plant.gravity` [m/s^2]


FlagOrAuto = Annotated[
    StrictBool | Literal["auto"],
    BeforeValidator(only(lambda value: isinstance(value, bool) or value == "auto", "true, false or auto")),
]


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


class Passive(Section):
    """How a simulation enforces the plant's own constraints."""

    correction: CorrectionConfig = Field(
        default=CorrectionConfig(baumgarte=PASSIVE_CORRECTION),
        description="correction of the mechanism constraints, in simulation only",
    )
    rank_tolerance: Share = Field(
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

    @rule
    def _correction_fits(self) -> Broken:
        yield from below(("correction",), self.correction.wrong_gains(None))
        if self.correction.funnel is not None:
            yield ("correction", "funnel"), "does not fit mechanism constraints (use baumgarte)"

    @rule
    def _levels_follow_each_other(self) -> Broken:
        for path, what in () if self.levels is None else _levels(self.levels):
            yield ("levels", *path), what

    @rule
    def _projected_rows_do_not_yield(self) -> Broken:
        for name, level in (self.levels or {}).items():
            if self.projection is True and level.clearance != 0.0:
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


IN_A_PACKAGE_OR_FILE = "package.module:ClassName, or file.py:ClassName relative to the config's folder"


class PlantConfig(OneKind):
    """The machine: exactly one of class, robot, robots."""

    one_of = OneOf(
        {"class": (), "robot": (), "robots": ()},
        "a plant has exactly one of class, robot, robots",
        "plant",
        f"missing ({IN_A_PACKAGE_OR_FILE}; or robot, or robots)",
        ("class",),
    )

    class_: ClassPath | None = Field(default=None, alias="class", description=IN_A_PACKAGE_OR_FILE)
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
        default=None, description="gravity of robots; left out: (0, 0, -9.81), or parameters.gravity [m/s^2]"
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

    @property
    def is_robot(self) -> bool:
        """Whether it is made of robots from files."""
        return self.robot is not None or self.robots is not None

    @rule
    def _parts_belong_to_robots(self) -> Broken:
        for word in [] if self.is_robot else self.given((*PARTS, "gravity")):
            yield (word,), f"{NEEDS_ROBOT} (a class has its own parts and parameters)"
        if self.is_robot and self.gravity is not None and "gravity" in self.parameters:
            yield ("parameters", "gravity"), "cannot be used with plant.gravity (give one of them)"

    @rule
    def _each_name_once(self) -> Broken:
        first: dict[str, str] = {"world": "frames"}
        for part, named in {"bodies": self.bodies, "frames": self.frames}.items():
            for name in named or {}:
                if first.setdefault(name, part) != part:
                    yield (part, name), f"{name!r} is a name in {first[name]} already (rename one)"
                elif part == "frames" and name == "world":
                    yield (part, name), "'world' is a frame already (rename it)"
        for name in self.obstacles or {}:
            if name in (self.shapes or {}):
                yield ("obstacles", name), f"{name!r} is a name in shapes already (rename the obstacle)"
        if self.robots is not None and not self.robots:
            yield ("robots",), "no robot (give name: {urdf: FILE})"

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


def _levels(levels: Mapping[str, PassiveLevelConfig]) -> Broken:
    """Problems of levels that do not depend on the plant; paths start below them."""
    if not levels:
        yield (), "no level (name at least one, or leave levels out)"
    level_of: dict[str, str] = {}
    for name, level in levels.items():
        yield from known(_groups(name, level, level_of))
    for name, level in levels.items():
        for i, word in right(level.after):
            if word not in levels:
                yield (name, "after", i), no_such("level", word, levels)
    after = {name: [word for word in level.after if word in levels] for name, level in levels.items()}
    for cycle in _cycles(after):
        yield (cycle[0], "after"), f"levels after each other: {' -> '.join(cycle)} (take one 'after' out)"


def _groups(name: str, level: PassiveLevelConfig, level_of: dict[str, str]) -> Broken:
    """A level without groups, and groups that are in an earlier level."""
    if not level.groups:
        yield (name, "groups"), "no group (give the level a mechanism group, or take it out)"
    for i, group in right(level.groups):
        if group in level_of:
            yield (name, "groups", i), f"{group!r} is in level {level_of[group]!r} already (keep it in one place)"
        level_of.setdefault(group, name)


def in_order(after: Mapping[str, Collection[str]]) -> list[str]:
    """Levels sorted so that each comes after its predecessors; otherwise in the order of the config.

    Args:
        after: Level -> its predecessors, without a cycle, which a rule refuses.
    """
    left, ordered = dict(after), list[str]()
    while left:
        ordered.append(next(name for name, before in left.items() if left.keys().isdisjoint(before)))
        del left[ordered[-1]]
    return ordered


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
