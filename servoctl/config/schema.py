"""Grammar of a config, field by field; rules between fields are in `rules`.

Design: every field has its unit in its description. Every default is written into the model, so that a dump of a
`Config` is the config as it ran. The models are frozen. They are not the classes of `laws` and `simulation`, which take
values from Python without a config: `assembly` builds those from them.
"""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, StrictBool, ValidationInfo, field_validator, model_validator

from servoctl.config.corrections import BaumgarteConfig, CorrectionConfig
from servoctl.config.document import in_words
from servoctl.config.fields import (
    ClassPath,
    Count,
    Equation,
    EquationText,
    Fraction,
    LawKind,
    Limit,
    Name,
    Natural,
    NotNegative,
    NumberField,
    OneOrEach,
    Parameter,
    PerName,
    Positive,
    PositiveTime,
    Real,
    ScalarOr,
    Section,
    fault,
)
from servoctl.config.hil import Hil
from servoctl.config.realism import RealismConfig
from servoctl.config.references import ReferenceConfig
from servoctl.config.tune import Tune


def _flag_or_auto(value: Any) -> Any:
    if isinstance(value, bool) or value == "auto":
        return value
    raise fault(f"expected true, false or auto, got {in_words(value)}")


FlagOrAuto = Annotated[StrictBool | Literal["auto"], BeforeValidator(_flag_or_auto)]

ADAPTIVE = ("dop853", "radau", "lsoda", "cvodes")
"""Integrators that choose their step from tolerances."""

DEFAULT_STEP = 0.001
"""Longest default step of rk4 [s]."""


def default_step(period: float | None) -> float:
    """Step of rk4 [s] where none is given: the longest that divides the period and does not exceed `DEFAULT_STEP`."""
    return DEFAULT_STEP if period is None else period / math.ceil(period / DEFAULT_STEP * (1 - 1e-9))


def divides(step: float, period: float) -> bool:
    """Whether a whole number of steps makes a period, up to rounding."""
    return abs(max(1, round(period / step)) * step - period) <= 1e-9 * period


class PassiveLevelConfig(Section):
    """Groups of passive constraints that are enforced together."""

    groups: tuple[str, ...] = Field(description="names of the plant's passive constraint groups")
    after: tuple[str, ...] = Field(default=(), description="names of the levels that are enforced before this one")
    clearance: OneOrEach[Annotated[float, NumberField("a clearance >= 0, 0 where a row is exact", least=0)]] = Field(
        default=0.0,
        description="compliance of a row: acceleration per unit of its multiplier [acceleration of the row / "
        "multiplier]; 0 is exact; a number, or a list with one per row, in the order of groups",
    )


class Passive(Section):
    """How a simulation enforces the plant's own constraints."""

    correction: CorrectionConfig = Field(
        default=CorrectionConfig(baumgarte=BaumgarteConfig(alpha=10.0, beta=10.0)),
        description="correction of the passive constraints, in simulation only",
    )
    rank_tolerance: Fraction = Field(
        default=1e-6, description="smallest pivot of an independent passive row, relative to |Ahat L^-T|_F [-]"
    )
    projection: FlagOrAuto = Field(
        default="auto",
        description="whether each simulation step ends with a projection onto the passive constraints (then no "
        "correction is used unless one is given); auto: true if passive rows are dependent; default with a "
        "correction: false",
    )
    levels: dict[str, PassiveLevelConfig] | None = Field(
        default=None,
        description="name -> groups that `check` enforces level by level; runs ignore levels, because their order "
        "does not change the motion of a rigid mechanism and clearances are not simulated",
    )

    @model_validator(mode="before")
    @classmethod
    def _projection_or_correction(cls, given: Any) -> Any:
        """Defaults: projection alone, because a correction beside it costs accuracy; or the given correction alone."""
        if not isinstance(given, dict):
            return given
        if given.get("projection") is True and given.get("correction") is None:
            return {**given, "correction": {"baumgarte": {"alpha": 0.0, "beta": 0.0}}}
        if given.get("correction") is not None and "projection" not in given:
            return {**given, "projection": False}
        return given


class PlantConfig(Section):
    """Which plant, and its parameters."""

    class_: ClassPath = Field(
        alias="class", description="package.module:ClassName, or file.py:ClassName relative to the config's folder"
    )
    parameters: dict[str, Parameter] = Field(
        default={}, description="fields of the class, in their own units; the rest keep their defaults"
    )
    passive: Passive = Field(default=Passive(), description="passive constraints: correction, rank tolerance, levels")


class Fixed(Section):
    """Coordinates that a projection does not change."""

    fix: tuple[str, ...] = Field(description="names of the coordinates that keep their value")


class Initial(Section):
    """Initial state of a run."""

    q: PerName[Real] = Field(
        description="coordinates [units of the plant]: mapping by name, list in the plant's order, or one for all"
    )
    v: PerName[Real] = Field(default=0.0, description="velocities [units of the plant per s], written as q is")
    project: ScalarOr[StrictBool, Fixed] = Field(
        default=False,
        description="whether to move to the nearest state that satisfies the constraints; or {fix: names}",
    )
    max_violation: Positive = Field(
        default=1.0, description="a start with a larger holonomic violation is refused [units of the row]"
    )


class Task(Section):
    """One servo constraint: exactly one of holonomic, nonholonomic, class."""

    name: Name = Field(description="name of the entry; the rows of a class are name.0, name.1, ...")
    holonomic: EquationText | None = Field(
        default=None, description="equation of coordinates and time that becomes zero, left-hand minus right-hand side"
    )
    nonholonomic: Annotated[str, Equation(rates=True)] | None = Field(
        default=None, description="equation with der(x) that becomes zero, left-hand minus right-hand side"
    )
    class_: ClassPath | None = Field(
        default=None, alias="class", description="package.module:ClassName or file.py:ClassName of a constraint"
    )
    parameters: dict[str, Parameter] | None = Field(
        default=None, description="fields of the class, in their own units; the rest keep their defaults"
    )
    correction: CorrectionConfig | None = Field(
        default=None, description="correction of this entry instead of the law's; a list has one value per row"
    )
    priority: Count = Field(
        default=1,
        description="priority level [-], 1 is the highest: a task never disturbs tasks of higher levels; from level "
        "2 on it may be missed: the summary shows the error as given_up.<task>, and the run does not fail",
    )
    required: StrictBool | None = Field(
        default=None,
        description="whether a run fails if it misses this task most of the time; left out: true for priority 1, "
        "else false",
    )

    @model_validator(mode="before")
    @classmethod
    def _class_has_parameters(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("class") is not None and given.get("parameters") is None:
            return {**given, "parameters": {}}
        return given

    @model_validator(mode="after")
    def _wishes_are_not_required(self) -> Self:
        if self.required and self.priority > 1:
            raise fault(
                f"true, but a task of priority {self.priority} may be missed (leave required out, or use priority 1)",
                "required",
            )
        return self


class Weighted(Section):
    """The smallest weighted sum of squared inputs."""

    weighted: dict[str, Positive] = Field(description="weight of each actuator's squared input [-]; 1 where left out")


class SecondaryConfig(Section):
    """Goals for the free inputs: used in the null space of the task."""

    centre: StrictBool = Field(default=False, description="seek the middle of law.limits")
    preload: dict[str, Real] | None = Field(
        default=None, description="actuator -> desired input [actuator units], such as an internal force"
    )
    damping: NotNegative = Field(
        default=0.0, description="D of -D B^T v on the free motion [actuator unit per its speed]"
    )


class LawConfig(Section):
    """The control law."""

    kind: LawKind = Field(
        default="constraint_following",
        description="constraint_following, or input_output for rows of higher relative degree",
    )
    correction: CorrectionConfig | None = Field(
        default=None, description="feedback that drives violations back to zero; left out: no feedback"
    )
    allocation: ScalarOr[Literal["minimum_norm", "unprojected", "constraint_force"], Weighted] = Field(
        default="minimum_norm", description="choice among the inputs that meet the task, or {weighted: {u1: 1}}"
    )
    feedback_allocation: Literal["minimum_norm", "constraint_force", "least_acceleration"] | None = Field(
        default=None, description="allocation of the input of the correction; left out: as allocation"
    )
    null_space: dict[str, EquationText] | None = Field(
        default=None, description="actuator -> equation of s in u = T^+ bbar + (I - T^+ T) s [actuator units]"
    )
    secondary: SecondaryConfig | None = Field(
        default=None, description="goals for the free inputs, added to null_space"
    )
    limits: dict[str, Limit] | None = Field(
        default=None, description="actuator -> symmetric limit, or [lower, upper] [actuator units]"
    )
    rank_tolerance: Fraction = Field(
        default=1e-10, description="smallest pivot that counts, relative to |A L^-T|_F |L^-1 B|_F [-]"
    )
    on_infeasible: Literal["warn", "damp", "fault"] = Field(
        default="warn",
        description="if the task cannot be met: warn uses least squares, damp uses u = -D B^T v, fault stops",
    )
    damping: NotNegative = Field(default=1.0, description="D of damp [actuator unit per its speed]")
    residual_tolerance: Positive = Field(default=1e-8, description="infeasible above this times 1 + |bbar|_inf [-]")


class IntegratorConfig(Section):
    """How a run is integrated."""

    method: Literal["rk4", "dop853", "radau", "lsoda", "cvodes"] = Field(
        default="rk4", description="rk4 uses fixed steps, the others keep tolerances"
    )
    step: PositiveTime | None = Field(
        default=None,
        description="step of rk4 [s], which must divide the period; left out: 0.001, or the next shorter step that "
        "divides the period",
    )
    rtol: Positive | None = Field(default=None, description="relative tolerance [-]; default 1e-10, not with rk4")
    atol: Positive | None = Field(
        default=None, description="absolute tolerance [units of the plant]; default 1e-12, not with rk4"
    )

    @model_validator(mode="before")
    @classmethod
    def _tolerances(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("method") in ADAPTIVE:
            return {"rtol": 1e-10, "atol": 1e-12} | {key: value for key, value in given.items() if value is not None}
        return given

    def with_step(self, period: float | None) -> Self:
        """The same integrator with a step that divides the period [s].

        Raises:
            PydanticCustomError: The given step does not divide it.
        """
        if self.method != "rk4":
            return self
        if self.step is None:
            return self.model_copy(update={"step": default_step(period)})
        if period is not None and not divides(self.step, period):
            parts = max(1, round(period / self.step))
            nearest = f"{period:.12g}/{parts}" if parts > 1 else f"{period:.12g}"
            raise fault(
                f"{self.step:.12g} does not divide run.period {period:.12g} (nearest step that does: {nearest})",
                "step",
            )
        return self


class RunConfig(Section):
    """Duration, sampling, integration and seed of a run."""

    duration: PositiveTime = Field(description="time to simulate [s]")
    period: PositiveTime | None = Field(
        default=None,
        description="period of a sampled law with zero-order hold [s]; left out: the law acts continuously",
    )
    integrator: IntegratorConfig = Field(
        default_factory=IntegratorConfig,
        validate_default=True,
        description="integration method and its step or tolerances",
    )
    output_step: PositiveTime | None = Field(
        default=None, description="spacing of the rows written [s]; left out: every step"
    )
    settling_band: Positive = Field(
        default=1e-3, description="a violation has settled once it stays below this [units of the row]"
    )
    seed: Natural = Field(default=0, description="seed of all random numbers of the run [-]")

    @field_validator("integrator", mode="after")
    @classmethod
    def _fit_step(cls, integrator: IntegratorConfig, info: ValidationInfo) -> IntegratorConfig:
        return integrator.with_step(info.data.get("period"))


class Config(Section):
    """A complete run: plant, initial state, task, law, and how to run."""

    plant: PlantConfig = Field(description="the physics: a class and its parameters")
    initial: Initial = Field(description="state at t = 0")
    references: dict[str, ReferenceConfig] = Field(
        default={}, description="name -> a file or waypoints, whose columns equations use as <name>_<column>"
    )
    task: tuple[Task, ...] = Field(default=(), description="servo constraints, in order")
    law: ScalarOr[Literal["none"], LawConfig] = Field(description="the control law, or none for an open-loop run")
    inputs: dict[str, EquationText] | None = Field(
        default=None, description="open loop only: actuator -> equation [actuator units]; zero where left out"
    )
    run: RunConfig = Field(description="duration, sampling and integration")
    realism: RealismConfig | None = Field(
        default=None, description="noise, delay, actuator dynamics and model errors of a simulated run"
    )
    tune: Tune | None = Field(default=None, description="search for the best numbers of this config")
    hil: Hil | None = Field(default=None, description="the real-time loop on drives")
