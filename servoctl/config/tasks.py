"""Grammar of `task`: servo constraints as equations, as classes, and on frames of robots.

Design: forms on frames are a table, so that `rules` can say what each form needs, and `assembly` which class it is.
"""

from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, StrictBool, model_validator

from servoctl.config.corrections import CorrectionConfig
from servoctl.config.fields import (
    ClassPath,
    Count,
    Equation,
    EquationText,
    Name,
    OneOrEach,
    Parameter,
    ScalarOr,
    Section,
    UnitText,
    fault,
)
from servoctl.config.vectors import FrameAxis, FramePair, RpyEquations, XyzEquations


class FrameForm(NamedTuple):
    """A kind of task on frames."""

    rows: int | None  # number of rows; None: it depends on the entry
    words: tuple[str, ...]  # keys that belong to it


FRAME_FORMS = {
    "pose": FrameForm(6, ("xyz", "rpy", "reference", "relative_to")),
    "position": FrameForm(3, ("xyz", "reference", "relative_to")),
    "orientation": FrameForm(3, ("rpy", "reference", "relative_to")),
    "axis": FrameForm(2, ("along", "relative_to")),
    "distance": FrameForm(1, ("value",)),
    "com": FrameForm(None, ("value",)),
    "posture": FrameForm(None, ("reference",)),
}
"""Kind of a task on frames -> its rows and keys."""

EQUATION_KINDS = ("holonomic", "nonholonomic")
TASK_KINDS = (*EQUATION_KINDS, "class", *FRAME_FORMS)  # keys of which a task entry has exactly one


class Task(Section):
    """One servo constraint: exactly one of holonomic, nonholonomic, class, or a form on frames of a robot."""

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
    pose: str | None = Field(
        default=None,
        description="frame that is moved to xyz and rpy: rows name.x, name.y, name.z [m], and name.rx, name.ry, "
        "name.rz, the rotation vector of the error [rad]",
    )
    position: str | None = Field(default=None, description="frame whose origin is moved to xyz: three rows [m]")
    orientation: str | None = Field(default=None, description="frame that is turned to rpy: three rows [rad]")
    axis: FrameAxis | None = Field(
        default=None,
        description="[frame, x], or y, z, -x, -y, -z or three numbers: an axis that points along `along`: two rows "
        "[rad]; the turn about it is free",
    )
    distance: FramePair | None = Field(
        default=None, description="[frame, frame] or [frame, [x, y, z]]: their distance becomes `value`: one row [m]"
    )
    com: Annotated[tuple[Literal["x", "y", "z"], ...], Field(min_length=1)] | None = Field(
        default=None,
        description="coordinates of the centre of mass, such as [x, y], of every link with mass, those of a fixed base "
        "included; they become `value` [m]",
    )
    posture: ScalarOr[Literal["initial", "reference"], dict[str, EquationText]] | None = Field(
        default=None,
        description="joints: initial keeps all at their start, reference follows columns named as joints, or joint -> "
        "coordinate [rad or m]",
    )
    xyz: XyzEquations | None = Field(
        default=None, description="position [m], equations of t, parameters and references"
    )
    rpy: RpyEquations | None = Field(default=None, description="roll, pitch, yaw [rad], equations as in xyz")
    reference: Name | None = Field(
        default=None,
        description="reference in place of xyz (its columns x, y, z) and of rpy (qx, qy, qz, qw), or of a posture",
    )
    relative_to: str | None = Field(
        default=None, description="frame in whose axes xyz, rpy and along are given; left out: world"
    )
    along: XyzEquations | None = Field(default=None, description="direction of an axis [-], equations as in xyz")
    value: OneOrEach[EquationText] | None = Field(
        default=None, description="value of a distance or of the centre of mass [m], equations as in xyz"
    )
    unit: UnitText | None = Field(
        default=None,
        description="unit of the rows of an equation or a class, where their terms do not tell it, such as m; for "
        "tables and pictures",
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

    @property
    def form(self) -> str | None:
        """Its kind among `FRAME_FORMS`; None for an equation or a class."""
        return next((kind for kind in FRAME_FORMS if getattr(self, kind) is not None), None)

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
