"""Grammar and rules of `task`: servo constraints as equations, as classes, and on frames of robots.

Design: forms on frames are a table, so that `rules` can say what each form needs, and `assembly` which class it is.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, StrictBool, model_validator

from servoctl.config.corrections import CorrectionConfig
from servoctl.config.document import FieldPath, Problem, given, has_robot, mapping, name_problems, task_entries
from servoctl.config.references import wrong_rates
from servoctl.config.robot import NEEDS_ROBOT
from servoctl.errors import remedy
from servoctl.tree.fields import (
    Broken,
    ClassPath,
    Count,
    Equation,
    EquationText,
    FrameAxis,
    FramePair,
    Name,
    OneOf,
    OneOrEach,
    Parameter,
    RpyEquations,
    Ruled,
    ScalarOr,
    UnitText,
    XyzEquations,
    fault,
)


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


class Task(Ruled):
    """One servo constraint: exactly one of holonomic, nonholonomic, class, or a form on frames of a robot."""

    one_of = OneOf(
        TASK_KINDS, "a task entry has exactly one of them", f"no equation (give exactly one of {', '.join(TASK_KINDS)})"
    )

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

    @classmethod
    def rules(cls, given: Mapping[str, Any]) -> Broken:
        kinds = [kind for kind in TASK_KINDS if given.get(kind) is not None]
        if given.get("parameters") is not None and kinds and "class" not in kinds:
            yield ("parameters",), "needs a class (an equation uses the plant's parameters)"
        if given.get("unit") is not None and any(kind in FRAME_FORMS for kind in kinds):
            yield ("unit",), "does not fit a task on frames (its rows have units: m and rad)"
        if len(kinds) == 1:
            yield from _words(given, kinds[0])

    @model_validator(mode="before")
    @classmethod
    def _class_has_parameters(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("class") is not None and given.get("parameters") is None:
            return {**given, "parameters": {}}
        return given

    @model_validator(mode="after")
    def _low_priority_is_not_required(self) -> Self:
        if self.required and self.priority > 1:
            raise fault(
                f"true, but a task of priority {self.priority} may be missed (leave required out, or use priority 1)",
                "required",
            )
        return self


_WORDS = tuple(dict.fromkeys(word for form in FRAME_FORMS.values() for word in form.words))

MISSING = {
    "xyz": "position [m], [x, y, z]; or reference: NAME, with columns x, y, z",
    "rpy": "roll, pitch, yaw [rad]; or reference: NAME, with columns qx, qy, qz, qw",
    "along": "direction, [x, y, z]",
    "value": "value [m], a number or an equation",
    "reference": "name of a reference, with columns named as joints",
}


def task_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of the task entries."""
    yield from name_problems("task", task_entries(values))
    for index, entry in task_entries(values):
        path: FieldPath = ("task", index)
        kinds = given(entry, TASK_KINDS)
        for rate in wrong_rates(entry.get("holonomic"), values.get("references"))[:1]:
            what = f"der({rate}) in a holonomic equation (write it under 'nonholonomic')"
            yield Problem((*path, "holonomic"), what)
        name, known = entry.get("reference"), mapping(values, "references")
        if isinstance(name, str) and name not in known:
            yield Problem((*path, "reference"), f"there is no reference {name!r} ({remedy(name, known)})")
        if len(kinds) == 1 and kinds[0] in FRAME_FORMS and not has_robot(values):
            yield Problem((*path, kinds[0]), f"{NEEDS_ROBOT} (for a class, give holonomic or nonholonomic)")


def row_count(entry: Mapping[str, Any]) -> int | None:
    """Number of rows of a task entry; None if the entry alone does not tell."""
    kinds = given(entry, TASK_KINDS)
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    if kind in EQUATION_KINDS:
        return 1
    if kind == "com":
        return len(entry[kind]) if isinstance(entry[kind], list) else None
    if kind == "posture":
        return len(entry[kind]) if isinstance(entry[kind], Mapping) else None
    return FRAME_FORMS[kind].rows if kind in FRAME_FORMS else None


def _repeated(axes: Any) -> list[str]:
    """Texts that a list has more than once."""
    words = [axis for axis in axes if isinstance(axis, str)] if isinstance(axes, list) else []
    return [word for word in dict.fromkeys(words) if words.count(word) > 1]


def _words(entry: Mapping[str, Any], kind: str) -> Broken:
    """Keys that do not fit the kind, and those that it lacks."""
    allowed = FRAME_FORMS[kind].words if kind in FRAME_FORMS else ()
    for word in given(entry, _WORDS):
        if word not in allowed:
            fitting = f"it takes {', '.join(allowed)}" if allowed else "it belongs to tasks on frames"
            yield (word,), f"does not fit {kind} ({fitting})"
    if kind == "posture":
        yield from _posture(entry)
        return
    yield from _target(entry, [word for word in ("xyz", "rpy") if word in allowed])
    for word in ("along", "value"):
        if word in allowed and entry.get(word) is None:
            yield (word,), f"missing ({MISSING[word]})"
    for axis in _repeated(entry["com"]) if kind == "com" else []:
        yield ("com",), f"has {axis} twice (name each coordinate once)"
    if kind in ("com", "distance") and entry.get("value") is not None:
        yield from _values(entry, kind)


def _target(entry: Mapping[str, Any], words: list[str]) -> Broken:
    """Position and rotation come from xyz and rpy, or from a reference."""
    left_out = [word for word in words if entry.get(word) is None]
    if entry.get("reference") is None:
        for word in left_out:
            yield (word,), f"missing ({MISSING[word]})"
    elif words and not left_out:
        yield ("reference",), f"cannot be used with {' and '.join(words)} (leave one of them out)"


def _values(entry: Mapping[str, Any], kind: str) -> Broken:
    value, rows = entry["value"], row_count(entry)
    count = len(value) if isinstance(value, list) else 1
    if rows and count != rows:
        many = "1 value" if count == 1 else f"{count} values"
        what = "a distance is one number" if kind == "distance" else f"give one per coordinate: {rows}"
        yield ("value",), f"{many} for {kind} ({what})"


def _posture(entry: Mapping[str, Any]) -> Broken:
    posture = entry["posture"]
    if isinstance(posture, Mapping) and not posture:
        yield ("posture",), "no joint (give initial, reference, or joint -> coordinate)"
    if posture == "reference" and entry.get("reference") is None:
        yield ("reference",), f"missing ({MISSING['reference']})"
    if posture != "reference" and entry.get("reference") is not None:
        yield ("reference",), "does not fit this posture (write posture: reference)"
