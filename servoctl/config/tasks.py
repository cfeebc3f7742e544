"""Grammar and rules of `task`: servo constraints as equations, as classes, and on frames of robots.

And of `correction`: the feedback that drives a constraint violation back to zero.

Design: forms on frames are a table, so that rules can say what each form needs, and `assembly` which class it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool

from servoctl.config.references import wrong_rates
from servoctl.config.robot import NEEDS_ROBOT, FrameAxis, FramePair, RpyEquations, XyzEquations
from servoctl.errors import counted, no_such
from servoctl.laws.corrections import PER_ROW, Baumgarte, Correction, PFeedback, Poles, SecondOrderCorrection
from servoctl.laws.funnel import Funnel
from servoctl.tree.fields import (
    ClassParameters,
    ClassPath,
    Count,
    Equation,
    EquationText,
    Name,
    OneOrEach,
    PerName,
    PoleSet,
    ScalarOr,
    UnitText,
    gain_fields,
)
from servoctl.tree.rules import WRONG, Broken, FieldPath, OneKind, OneOf, below, outer_rule, rule

KINDS = ("baumgarte", "second_order", "p_feedback", "funnel")


class CorrectionConfig(OneKind):
    """One correction; exactly one of its kinds is given."""

    one_of = OneOf(dict.fromkeys((*KINDS, "poles"), ()), "a correction has exactly one kind", "kind")

    baumgarte: Baumgarte | None = Field(default=None, description="phi'' + 2 alpha phi' + beta^2 phi = 0")
    second_order: SecondOrderCorrection | None = Field(
        default=None, description="phi'' + damping phi' + stiffness phi = 0"
    )
    p_feedback: PFeedback | None = Field(default=None, description="P beta' + beta = 0")
    funnel: Funnel | None = Field(
        default=None, description="beta' = -F(beta): p_feedback whose gain grows towards the edge of a corridor"
    )
    poles: PerName[PoleSet] | None = Field(
        default=None,
        description="law input_output: poles of the task error [1/s], one number or as many as the row's "
        f"relative degree{PER_ROW}",
    )

    @property
    def chosen(self) -> Correction:
        """The one that is given."""
        chosen: Any = next(value for _, value in self if value is not None)
        return chosen if self.poles is None else Poles(chosen)

    def unfit_kinds(self, law: str | None) -> Broken:
        """Kinds that do not fit the kind of the law: `poles` is that of input_output, and of no other law."""
        for kind in self.given((*KINDS, "poles")):
            if law == "input_output" and kind != "poles":
                yield (kind,), "does not fit law.kind input_output (use poles)"
            if law != "input_output" and kind == "poles":
                yield (kind,), "needs law.kind input_output (or use baumgarte, second_order, p_feedback or funnel)"

    def wrong_gains(self, rows: int | None) -> Broken:
        """Gains of a task entry, or of the plant, that are not one number, or one for each of so many rows.

        Args:
            rows: None: only a class knows their number.
        """
        for path, gain in self.gains:
            if isinstance(gain, Mapping):
                yield path, "a mapping by task name (only law.correction has one; here a number, or one per row)"
            elif isinstance(gain, tuple) and rows is not None and path != ("poles",):  # a row has several poles
                yield from wrong_length(path, gain, rows)

    @property
    def gains(self) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Path and value of each gain, of which rows may have their own."""
        if self.poles is not None:
            yield ("poles",), self.poles
        for kind in self.given(KINDS):
            correction = getattr(self, kind)
            of: Any = type(correction)
            for name in () if correction is WRONG else gain_fields(of):
                yield (kind, name), getattr(correction, name)


def wrong_length(path: FieldPath, gains: Sequence[Any], rows: int, which: str = "") -> Broken:
    """Gains that are not one for each row."""
    if len(gains) != rows:
        many = f"{counted(len(gains), 'value')} for {counted(rows, 'row')}"
        yield path, f"{many} (give one per row{which})"


FRAME_FORMS: dict[str, tuple[str, ...]] = {
    "pose": ("xyz", "rpy", "reference", "relative_to"),
    "position": ("xyz", "reference", "relative_to"),
    "orientation": ("rpy", "reference", "relative_to"),
    "axis": ("along", "relative_to"),
    "distance": ("value",),
    "com": ("value",),
    "posture": ("reference",),
}
"""Kind of a task on frames -> further keys that belong to it."""

ROWS = {"pose": 6, "position": 3, "orientation": 3, "axis": 2, "distance": 1}  # of those that have always so many

TASK_KINDS = {"holonomic": (), "nonholonomic": (), "class": (), **FRAME_FORMS}  # a task entry has exactly one of these


class Task(OneKind):
    """One servo constraint: exactly one of holonomic, nonholonomic, class, or a form on frames of a robot."""

    one_of = OneOf(TASK_KINDS, "a task entry has exactly one of them", "equation")

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
    parameters: ClassParameters = None
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
        return self.kind if self.kind in FRAME_FORMS else None

    @property
    def row_count(self) -> int | None:
        """Number of its rows; None if the entry alone does not tell."""
        named = self.posture if self.com is None else self.com
        if self.kind in ("", "class"):
            return None
        if isinstance(named, tuple | Mapping):
            return len(named)
        return 1 if self.form is None else ROWS.get(self.form)

    @rule
    def _has_the_keys_of_its_kind(self) -> Broken:
        kind = self.kind
        if self.parameters is not None and self.given(TASK_KINDS) and self.class_ is None:
            yield ("parameters",), "needs a class (an equation uses the plant's parameters)"
        if self.unit is not None and self.form is not None:
            yield ("unit",), "does not fit a task on frames (its rows have units: m and rad)"
        allowed = TASK_KINDS.get(kind, ())
        if kind != "posture":
            yield from self._target([word for word in ("xyz", "rpy") if word in allowed])
        for word in ("along", "value"):
            if word in allowed and getattr(self, word) is None:
                yield (word,), f"missing ({MISSING[word]})"

    def _target(self, words: list[str]) -> Broken:
        """Position and rotation come from xyz and rpy, or from a reference."""
        left_out = [word for word in words if getattr(self, word) is None]
        if self.reference is None:
            for word in left_out:
                yield (word,), f"missing ({MISSING[word]})"
        elif words and not left_out:
            yield ("reference",), f"cannot be used with {' and '.join(words)} (leave one of them out)"

    @rule
    def _axes_once(self) -> Broken:
        for axis in dict.fromkeys(self.com or ()):
            if (self.com or ()).count(axis) > 1:
                yield ("com",), f"has {axis} twice (name each coordinate once)"

    @rule
    def _one_value_per_row(self) -> Broken:
        if self.form not in ("com", "distance") or self.value is None:
            return
        rows, count = self.row_count, len(self.value) if isinstance(self.value, tuple) else 1
        if rows and count != rows:
            what = "a distance is one number" if self.form == "distance" else f"give one per coordinate: {rows}"
            yield ("value",), f"{counted(count, 'value')} for {self.form} ({what})"

    @rule
    def _reference_fits_the_posture(self) -> Broken:
        if self.posture is None:
            return
        if self.posture == {}:
            yield ("posture",), "no joint (give initial, reference, or joint -> coordinate)"
        if self.posture == "reference" and self.reference is None:
            yield ("reference",), f"missing ({MISSING['reference']})"
        if self.posture != "reference" and self.reference is not None:
            yield ("reference",), "does not fit this posture (write posture: reference)"

    @rule
    def _low_priority_is_not_required(self) -> Broken:
        if self.required is not None and self.required and self.priority > 1:
            what = f"true, but a task of priority {self.priority} may be missed"
            yield ("required",), f"{what} (leave required out, or use priority 1)"

    @rule
    def _gains_fit_the_rows(self) -> Broken:
        if self.correction is not None:
            yield from below(("correction",), self.correction.wrong_gains(self.row_count))

    @outer_rule
    def _correction_fits_the_law(self, config: Any, at: FieldPath) -> Broken:
        if self.correction is not None:
            yield from below((*at, "correction"), self.correction.unfit_kinds(getattr(config.law, "kind", None)))

    @outer_rule
    def _der_of_positions(self, config: Any, at: FieldPath) -> Broken:
        for rate in wrong_rates(self.holonomic, config.references)[:1]:
            yield (*at, "holonomic"), f"der({rate}) in a holonomic equation (write it under 'nonholonomic')"

    @outer_rule
    def _unknown_reference(self, config: Any, at: FieldPath) -> Broken:
        if self.reference is not None and self.reference not in config.references:
            yield (*at, "reference"), no_such("reference", self.reference, config.references)

    @outer_rule
    def _needs_robot(self, config: Any, at: FieldPath) -> Broken:
        if self.form is not None and not config.plant.is_robot:
            yield (*at, self.form), f"{NEEDS_ROBOT} (for a class, give holonomic or nonholonomic)"


MISSING = {
    "xyz": "position [m], [x, y, z]; or reference: NAME, with columns x, y, z",
    "rpy": "roll, pitch, yaw [rad]; or reference: NAME, with columns qx, qy, qz, qw",
    "along": "direction, [x, y, z]",
    "value": "value [m], a number or an equation",
    "reference": "name of a reference, with columns named as joints",
}
