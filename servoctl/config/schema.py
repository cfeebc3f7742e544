"""Grammar of a config, field by field, and the rules between its sections.

Design: every field has its unit in its description. Every default is written into the model, so that a dump of a
`Config` is the config as it ran. The models are frozen. Where a section is a class of `laws`, `estimation` or
`simulation`, its fields carry unit and range there; `assembly` takes the object as it is, or what its `ready` gives.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from servoctl.config.bounds import BoundConfig, bound_problems
from servoctl.config.corrections import CorrectionConfig
from servoctl.config.document import FieldPath, Problem, given, mapping, task_entries
from servoctl.config.hil import Hil
from servoctl.config.log import LogConfig
from servoctl.config.plant import PlantConfig
from servoctl.config.realism import estimation_problems, realism_problems
from servoctl.config.references import ReferenceConfig
from servoctl.config.robot import Initial, robot_problems
from servoctl.config.tasks import EQUATION_KINDS, FRAME_FORMS, Task, row_count, task_problems
from servoctl.config.tune import Tune
from servoctl.errors import remedy
from servoctl.estimation.estimator import Estimator
from servoctl.laws.configured import ConstraintFollowing, OnInfeasible
from servoctl.laws.observer import Observer
from servoctl.laws.robust_design import Adaptive, Robust
from servoctl.laws.secondary import Secondary
from servoctl.simulation.realism import Realism
from servoctl.simulation.settings import Settings
from servoctl.tree.fields import (
    LIST,
    SCALAR,
    Broken,
    ClassPath,
    EquationText,
    Fraction,
    LawKind,
    Limit,
    Name,
    NotNegative,
    NumberField,
    Parameter,
    Positive,
    Real,
    Root,
    Ruled,
    ScalarOr,
    Section,
    fault,
    in_words,
    list_or_not,
    name_as,
)

RelativeEnd = Annotated[float, NumberField("a relative error above -1 (0.3 is 30 % more than the model)", above=-1)]


def _width(ends: tuple[float, ...]) -> tuple[float, ...]:
    if len(ends) != 2 or not ends[0] <= 0.0 <= ends[1]:
        raise fault(f"expected [lower, upper] with lower <= 0 <= upper, got {in_words(list(ends))}")
    return ends


RelativeRange = Annotated[
    Annotated[
        float, NumberField("a relative error from 0 to below 1, or [lower, upper]", least=0, below=1), Tag(SCALAR)
    ]
    | Annotated[tuple[RelativeEnd, ...], AfterValidator(_width), Tag(LIST)],
    Discriminator(list_or_not),
]


class Weighted(Section):
    """The smallest weighted sum of squared inputs."""

    weighted: dict[str, Positive] = Field(description="weight of each actuator's squared input [-]; 1 where left out")


class ReactionConfig(Section):
    """Prescribed components of a loop's reaction: the wrench on the second frame, in axes of the first."""

    x: Real | None = Field(default=None, description="force along x [N]; left out: free")
    y: Real | None = Field(default=None, description="force along y [N]")
    z: Real | None = Field(default=None, description="force along z [N]")
    rx: Real | None = Field(default=None, description="torque about x [N m]")
    ry: Real | None = Field(default=None, description="torque about y [N m]")
    rz: Real | None = Field(default=None, description="torque about z [N m]")


class TermConfig(Section):
    """A term of one's own, which adds to what the task asks."""

    class_: ClassPath = Field(
        alias="class",
        description="a servoctl.Term: package.module:ClassName, or file.py:ClassName relative to the config's folder",
    )
    parameters: dict[str, Parameter] | None = Field(
        default=None, description="fields of the class, in their own units; the rest keep their defaults"
    )


_FROM_MODEL = ", whose derivatives come from the model (leave it out)"

NOT_INPUT_OUTPUT = dict.fromkeys(("observer", "robust", "adaptive"), _FROM_MODEL) | {
    "preload": " (use constraint_following)"
}
"""Field of a law that does not fit the kind input_output -> why, and what to do."""


class LawConfig(Ruled):
    """The control law: that of constraint following, or a class of one's own."""

    class_: ClassPath | None = Field(
        default=None,
        alias="class",
        description="a law of your own, a servoctl.Feedback: package.module:ClassName, or file.py:ClassName relative "
        "to the config's folder; all other keys but parameters are then left out",
    )
    parameters: dict[str, Parameter] | None = Field(
        default=None, description="fields of the class, in their own units; the rest keep their defaults"
    )
    kind: LawKind = Field(
        default="constraint_following",
        description="constraint_following, or input_output for rows of higher relative degree",
    )
    correction: CorrectionConfig | None = Field(
        default=None, description="feedback that drives task errors back to zero; left out: no feedback"
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
    secondary: Secondary | None = Field(default=None, description="goals for the free inputs, added to null_space")
    limits: ScalarOr[Literal["robot"], dict[str, Limit]] | None = Field(
        default=None,
        description="actuator -> symmetric limit, or [lower, upper] [actuator units]; robot: the efforts of its file",
    )
    preload: dict[str, ReactionConfig] | None = Field(
        default=None,
        description="loop of a robot -> components of its reaction that the inputs hold, given up before the task "
        "where limits bind",
    )
    observer: ScalarOr[Literal["auto"], Observer] | None = Field(
        default=None,
        description="estimates, per task row, the acceleration that the model does not explain, and cancels it; needs "
        "run.period; auto: {rate: auto}; left out: no observer",
    )
    uncertainty: dict[str, RelativeRange] | None = Field(
        default=None,
        description="plant parameter -> largest relative error e [-], or [lower, upper]: the machine may have (1 + e) "
        "times the model's value; `servoctl check` prints bounds and margins for the worst machine",
    )
    robust: Robust | None = Field(
        default=None, description="bounded force against disturbances of known size; left out: none"
    )
    adaptive: Adaptive | None = Field(
        default=None, description="the same with an estimated size; not together with robust; left out: none"
    )
    terms: dict[Name, TermConfig] | None = Field(
        default=None, description="name -> a term of your own, added to b of the task, such as an integral of its error"
    )
    rank_tolerance: Fraction = Field(
        default=ConstraintFollowing.rank_tolerance,
        description="smallest pivot that counts, relative to |A L^-T|_F |L^-1 B|_F [-]",
    )
    on_infeasible: OnInfeasible = Field(
        default=ConstraintFollowing.on_infeasible,
        description="if the task cannot be met: warn uses least squares, damp uses u = -D B^T v, fault stops",
    )
    damping: NotNegative = Field(
        default=ConstraintFollowing.input_damping, description="D of damp [actuator unit per its speed]"
    )
    residual_tolerance: Positive = Field(
        default=ConstraintFollowing.residual_tolerance, description="infeasible above this times 1 + |bbar|_inf [-]"
    )

    @classmethod
    def rules(cls, given: Mapping[str, Any]) -> Broken:
        if given.get("parameters") is not None and given.get("class") is None:
            yield ("parameters",), "needs law.class (gains of constraint following are law.correction)"
        for field, reason in NOT_INPUT_OUTPUT.items() if given.get("kind") == "input_output" else ():
            if given.get(field) is not None:
                yield (field,), f"does not fit law.kind input_output{reason}"
        if given.get("robust") is not None and given.get("adaptive") is not None:
            yield ("adaptive",), "cannot be used with robust (leave one out)"


class Config(Root):
    """A complete run: plant, initial state, task, law, and how to run."""

    plant: PlantConfig = Field(description="the physics: a class and its parameters, or robots from files")
    initial: Initial = Field(description="state at t = 0")
    references: dict[Annotated[str, name_as("path")], ReferenceConfig] = Field(
        default={}, description="name -> a file or waypoints, whose columns equations use as <name>_<column>"
    )
    task: tuple[Task, ...] = Field(default=(), description="servo constraints, in order")
    bounds: tuple[BoundConfig, ...] = Field(
        default=(), description="bounds h >= 0 that the law keeps before every task, within the limits of the inputs"
    )
    law: ScalarOr[Literal["none"], LawConfig] = Field(
        description="the control law, or none: then `inputs` says what the actuators do"
    )
    inputs: dict[str, EquationText] | None = Field(
        default=None,
        description="with `law: none`: actuator -> equation of time and state [actuator units], der(x): the rate of x; "
        "zero where left out",
    )
    run: Settings = Field(description="duration, sampling and integration")
    realism: Realism | None = Field(
        default=None, description="noise, delay, actuator dynamics and model errors of a simulated run"
    )
    estimation: Estimator | None = Field(
        default=None,
        description="estimates state and disturbance from positions; left out: the law gets what is measured",
    )
    tune: Tune | None = Field(default=None, description="search for the best numbers of this config")
    hil: Hil | None = Field(default=None, description="the real-time loop on drives")
    log: LogConfig | None = Field(default=None, description="columns of tables for `servoctl identify`")

    @classmethod
    def rules(cls, given: Mapping[str, Any]) -> Broken:
        for rule in (
            task_problems, bound_problems, robot_problems, _law, _terms, _poles, _corrections, realism_problems,
            estimation_problems,
        ):  # fmt: skip
            yield from rule(given)


CORRECTION_KINDS = tuple(CorrectionConfig.model_fields)


def _law(values: Mapping[str, Any]) -> Iterator[Problem]:
    law, task, inputs = values.get("law"), values.get("task", []), values.get("inputs")
    if isinstance(law, Mapping) and law.get("class") is not None:
        yield from _own_law(values, law)
    if isinstance(law, Mapping) and task == [] and law.get("class") is None:
        yield Problem(("task",), "no entry (a law follows at least one task; 'law: none' is an open-loop run)")
    if isinstance(law, Mapping) and inputs is not None:
        yield Problem(
            ("inputs",), "cannot be used with a law (the law computes the inputs; an open-loop run has 'law: none')"
        )


def _own_law(values: Mapping[str, Any], law: Mapping[str, Any]) -> Iterator[Problem]:
    """What a law of one's own would not see, because it makes the inputs alone; a default says nothing."""
    own = "does not go with law.class (the class makes the inputs alone: take one of the two out)"
    for key in given(law, LawConfig.model_fields):
        if key not in ("class", "parameters") and law[key] != LawConfig.model_fields[key].default:
            yield Problem(("law", key), own)
    if values.get("bounds"):
        yield Problem(("bounds",), own)
    for i, entry in task_entries(values):
        for key, default in {"correction": None, "priority": 1, "required": True}.items():
            if entry.get(key, default) not in (None, default):
                yield Problem(("task", i, key), own)


def _terms(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Terms of a law that need a period, or constant decay rates of every task."""
    law = mapping(values, "law")
    if law.get("observer") is not None and mapping(values, "run").get("period") is None and "hil" not in values:
        yield Problem(("law", "observer"), "needs a sampled law (give run.period)")
    kinds = [law.get("correction"), *(entry.get("correction") for _, entry in task_entries(values))]
    for field in given(law, ("robust", "adaptive")):
        if any(mapping(kind).get("funnel") is not None for kind in kinds):
            what = "cannot be used with a funnel, which has no constant decay rate (leave one out)"
            yield Problem(("law", field), what)


def _poles(values: Mapping[str, Any]) -> Iterator[Problem]:
    """`poles` is the one correction of law.kind input_output, and of no other law."""
    input_output = mapping(values, "law").get("kind") == "input_output"
    corrections: list[tuple[FieldPath, Any]] = [(("law", "correction"), mapping(values, "law").get("correction"))]
    corrections += [(("task", index, "correction"), entry.get("correction")) for index, entry in task_entries(values)]
    for path, correction in corrections:
        for kind in given(mapping(correction), CORRECTION_KINDS):
            if input_output and kind != "poles":
                yield Problem((*path, kind), "does not fit law.kind input_output (use poles)")
            if not input_output and kind == "poles":
                other = "baumgarte, second_order, p_feedback or funnel"
                yield Problem((*path, kind), f"needs law.kind input_output (or use {other})")


def _corrections(values: Mapping[str, Any]) -> Iterator[Problem]:
    passive: FieldPath = ("plant", "passive", "correction")
    own = mapping(values, "plant", "passive").get("correction")
    yield from _entry_correction(own, passive, rows=None)
    if mapping(own).get("funnel") is not None:
        yield Problem((*passive, "funnel"), "does not fit mechanism constraints (use baumgarte)")
    for index, entry in task_entries(values):
        yield from _entry_correction(entry.get("correction"), ("task", index, "correction"), row_count(entry))
    path: FieldPath = ("law", "correction")
    correction = mapping(values, "law").get("correction")
    entries = task_entries(values)
    common = [row_count(entry) for _, entry in entries if entry.get("correction") is None]
    rows = [count for count in common if count is not None]
    for field, gain in _gains(correction, path):
        if isinstance(gain, Mapping):
            yield from _by_name(gain, field, entries)
        elif isinstance(gain, list) and len(rows) == len(common) and not (field[-1] == "poles" and common == [1]):
            which = "" if len(common) == len(entries) else " that has no correction of its own"
            yield from _length(gain, field, sum(rows), which)


def _entry_correction(correction: Any, path: FieldPath, rows: int | None) -> Iterator[Problem]:
    """Problems of the correction of a task entry, or of the plant; rows is None if only a class knows their number."""
    for field, gain in _gains(correction, path):
        if isinstance(gain, Mapping):
            yield Problem(field, "a mapping by task name (only law.correction has one; here a number, or one per row)")
        elif isinstance(gain, list) and rows is not None and field[-1] != "poles":  # a row has several poles
            yield from _length(gain, field, rows)


def _gains(correction: Any, path: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    for kind in given(mapping(correction), CORRECTION_KINDS):
        if kind == "poles":
            yield (*path, kind), correction[kind]
            continue
        for word, gain in mapping(correction, kind).items():
            if word == "slope" and isinstance(gain, Mapping | list):
                continue  # the type of the field refuses it
            yield (*path, kind, word), gain


def _length(gains: list[Any], path: FieldPath, rows: int, which: str = "") -> Iterator[Problem]:
    if len(gains) != rows and gains:
        many = f"{len(gains)} value{'s' * (len(gains) != 1)} for {rows} row{'s' * (rows != 1)}"
        yield Problem(path, f"{many} (give one per row{which})")


def _by_name(
    gains: Mapping[str, Any], path: FieldPath, entries: list[tuple[int, Mapping[str, Any]]]
) -> Iterator[Problem]:
    names = [entry["name"] for _, entry in entries if isinstance(entry.get("name"), str)]
    for name in gains:
        if name not in names:
            yield Problem((*path, name), f"no task has this name ({remedy(name, names)})")
    for _, entry in entries:
        uncorrected = entry.get("correction") is None and given(entry, (*EQUATION_KINDS, *FRAME_FORMS))
        if uncorrected and isinstance(entry.get("name"), str) and entry["name"] not in gains:
            what = f"no value for task {entry['name']!r} (name every task that has no correction of its own)"
            yield Problem(path, what)
