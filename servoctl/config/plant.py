"""Grammar of `plant`: a class and its parameters, or robots from files; and its passive constraints."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, model_validator

from servoctl.config.bounds import ShapeConfig
from servoctl.config.corrections import CorrectionConfig
from servoctl.config.robot import BodyConfig, FrameConfig, LoopConfig, RobotConfig
from servoctl.laws.corrections import Baumgarte
from servoctl.tree.fields import (
    ClassPath,
    Fraction,
    NotNegative,
    NumberField,
    OneOrEach,
    Parameter,
    PerName,
    Positive,
    ScalarOr,
    Section,
    Xyz,
    fault,
    in_words,
)


class FrictionConfig(Section):
    """Friction at each actuator: coulomb tanh(s / speed) + viscous s, where s is its speed B^T v."""

    coulomb: PerName[NotNegative] = Field(
        default=0.0, description="dry friction [actuator units]: one for all, list in the plant's order, or by name"
    )
    viscous: PerName[NotNegative] = Field(
        default=0.0, description="friction per speed [actuator units per its speed], written as coulomb is"
    )
    speed: PerName[Positive] = Field(
        default=0.01, description="speed at which dry friction reaches 76 % (tanh 1), written as coulomb is"
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


class Passive(Section):
    """How a simulation enforces the plant's own constraints."""

    correction: CorrectionConfig = Field(
        default=CorrectionConfig(baumgarte=Baumgarte(alpha=10.0, beta=10.0)),
        description="correction of the mechanism constraints, in simulation only",
    )
    rank_tolerance: Fraction = Field(
        default=1e-6, description="smallest pivot of an independent mechanism row, relative to |Ahat L^-T|_F [-]"
    )
    projection: FlagOrAuto = Field(
        default="auto",
        description="whether each simulation step ends with a projection onto the mechanism constraints (then no "
        "correction is used unless one is given); auto: true if mechanism rows are dependent; default with a "
        "correction: false",
    )
    levels: dict[str, PassiveLevelConfig] | None = Field(
        default=None,
        description="name -> groups that `check` enforces level by level; a run takes only the clearances, because the "
        "order does not change the motion",
    )

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


class PlantConfig(Section):
    """The machine: exactly one of class, robot, robots."""

    class_: ClassPath | None = Field(
        default=None,
        alias="class",
        description="package.module:ClassName, or file.py:ClassName relative to the config's folder",
    )
    robot: RobotConfig | None = Field(
        default=None, description="one robot from a file; links and joints keep the file's names"
    )
    robots: dict[str, RobotConfig] | None = Field(
        default=None, description="name -> robot from a file; links and joints are <robot>_<name>"
    )
    bodies: dict[str, BodyConfig] | None = Field(
        default=None, description="name -> rigid body on a link of a robot, such as a payload"
    )
    frames: dict[str, FrameConfig] | None = Field(
        default=None, description="name -> further frame; every link and body is a frame already, and so is world"
    )
    loops: dict[str, LoopConfig] | None = Field(
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
    friction: ScalarOr[Literal["robot"], FrictionConfig] | None = Field(
        default=None,
        description="friction at the actuators that the law knows and cancels; robot: the dry friction of its file; "
        "the machine has it too, unless realism.friction or hil.emulation says otherwise",
    )
    shapes: dict[str, ShapeConfig] | None = Field(
        default=None,
        description="link -> sphere or capsule around it, for clearances in bounds: a link, body or frame of a robot, "
        "a body of a linkage, or NAME_i: the piece of the polyline NAME of `links` from its point i on, x along it",
    )
    obstacles: dict[str, ShapeConfig] | None = Field(
        default=None, description="name -> sphere or capsule that is fixed in the world, for clearances in bounds"
    )
    passive: Passive = Field(default=Passive(), description="mechanism constraints: correction, rank tolerance, levels")

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
