"""Grammar of a config, field by field, and the rules between its sections.

Design: every field has its unit in its description. Every default is written into the model, so that a dump of a
`Config` is the config as it ran. The models are frozen. Where a section is a class of `laws`, `estimation` or
`simulation`, its fields carry unit and range there; `assembly` takes the object as it is, or what its `ready` gives.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from servoctl.config.bounds import BoundConfig, empty_intervals
from servoctl.config.hil import Hil
from servoctl.config.plant import PlantConfig
from servoctl.config.references import LogConfig, ReferenceConfig
from servoctl.config.robot import NEEDS_ROBOT, Initial
from servoctl.config.tasks import CorrectionConfig, Task, wrong_length
from servoctl.config.tune import Tune
from servoctl.errors import no_such, remedy
from servoctl.estimation.estimator import Estimator
from servoctl.laws.configured import ConstraintFollowing, OnInfeasible
from servoctl.laws.observer import Observer
from servoctl.laws.robust import Adaptive, Robust
from servoctl.laws.secondary import Secondary
from servoctl.mechanics.spatial.loops import LOOP_ROWS
from servoctl.simulation.realism import Realism
from servoctl.simulation.settings import Settings
from servoctl.tree.fields import (
    ByPath,
    ClassParameters,
    ClassPath,
    EquationText,
    LawKind,
    Limit,
    ListOr,
    Name,
    NotNegative,
    NumberField,
    Positive,
    Real,
    ScalarOr,
    Share,
    name_as,
    only,
)
from servoctl.tree.rules import WRONG, Broken, FieldPath, Section, below, outer_rule, right, rule

RelativeEnd = Annotated[float, NumberField("a relative error above -1 (0.3 is 30 % more than the model)", above=-1)]


Ends = Annotated[
    tuple[RelativeEnd, ...],
    AfterValidator(only(lambda e: len(e) == 2 and e[0] <= 0.0 <= e[1], "[lower, upper] with lower <= 0 <= upper")),
]

RelativeRange = ListOr[
    Annotated[float, NumberField("a relative error from 0 to below 1, or [lower, upper]", least=0, below=1)],
    Ends,
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

    @outer_rule
    def _fits_its_loop(self, config: Any, at: FieldPath) -> Broken:
        """What the loop of its name does not transmit."""
        name, loops = str(at[-1]), config.plant.loops or {}
        if not config.plant.is_robot:
            return
        if name not in loops:
            yield at, no_such("loop", name, loops)
            return
        components = self.given(LOOP_ROWS["weld"])
        if not components and not self.misspelt:
            yield at, "no component (give one of x, y, z [N], rx, ry, rz [N m])"
        known = LOOP_ROWS.get(kind := loops[name].kind, components)
        for component in components:
            if component not in known:
                yield (*at, component), f"a {kind} has no such reaction (known: {', '.join(known)})"


class TermConfig(Section):
    """A term of one's own, which adds to what the task asks."""

    class_: ClassPath = Field(
        alias="class",
        description="a servoctl.Term: package.module:ClassName, or file.py:ClassName relative to the config's folder",
    )
    parameters: ClassParameters = None


_FROM_MODEL = ", whose derivatives come from the model (leave it out)"

NOT_INPUT_OUTPUT = dict.fromkeys(("observer", "robust", "adaptive"), _FROM_MODEL) | {
    "preload": " (use constraint_following)"
}
"""Field of a law that does not fit the kind input_output -> why, and what to do."""


class LawConfig(Section):
    """The control law: that of constraint following, or a class of one's own."""

    class_: ClassPath | None = Field(
        default=None,
        alias="class",
        description="a law of your own, a servoctl.Feedback: package.module:ClassName, or file.py:ClassName relative "
        "to the config's folder; all other keys but parameters are then left out",
    )
    parameters: ClassParameters = None
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
    uncertainty: ByPath[RelativeRange] | None = Field(
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
    rank_tolerance: Share = Field(
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

    @rule
    def _own_class(self) -> Broken:
        if self.parameters is not None and self.class_ is None:
            yield ("parameters",), "needs law.class (gains of constraint following are law.correction)"

    @rule
    def _damping_of_damp(self) -> Broken:
        given = self.model_fields_set
        if "damping" in given and "on_infeasible" not in given and self.damping is not WRONG:
            yield ("damping",), "has no effect without on_infeasible: damp (that of task errors is law.correction)"

    @rule
    def _fits_its_kind(self) -> Broken:
        for field, reason in NOT_INPUT_OUTPUT.items() if self.kind == "input_output" else ():
            if getattr(self, field) is not None:
                yield (field,), f"does not fit law.kind input_output{reason}"

    @rule
    def _robust_or_adaptive(self) -> Broken:
        if self.robust is not None and self.adaptive is not None:
            yield ("adaptive",), "cannot be used with robust (leave one out)"

    @rule
    def _correction_fits(self) -> Broken:
        if self.correction is not None:
            yield from below(("correction",), self.correction.unfit_kinds(self.kind))

    @outer_rule
    def _parts_of_robots(self, config: Any, at: FieldPath) -> Broken:
        """What only robots have: limits in a file, and loops with a preload."""
        if self.preload is not None and not config.plant.is_robot:
            yield (*at, "preload"), f"{NEEDS_ROBOT}, with plant.loops"
        if self.limits == "robot" and not config.plant.is_robot:
            yield (*at, "limits"), f"{NEEDS_ROBOT} (for a class, give actuator -> limit)"

    @outer_rule
    def _task_and_inputs(self, config: Any, at: FieldPath) -> Broken:
        if config.inputs is not None:
            what = "cannot be used with a law (the law computes the inputs; an open-loop run has 'law: none')"
            yield ("inputs",), what
        if self.class_ is None and not config.task:
            yield ("task",), "no entry (a law follows at least one task; 'law: none' is an open-loop run)"

    @outer_rule
    def _own_class_makes_the_inputs(self, config: Any, at: FieldPath) -> Broken:
        """What a law of one's own would not see, because it makes the inputs alone; a default says nothing."""
        if self.class_ is None:
            return
        own = "does not go with law.class (the class makes the inputs alone: take one of the two out)"
        for key, field in type(self).model_fields.items():
            if key not in ("class_", "parameters") and getattr(self, key) != field.default:
                yield (*at, key), own
        if config.bounds:
            yield ("bounds",), own
        for i, entry in right(config.task):
            for key, default in {"correction": None, "priority": 1, "required": True}.items():
                if getattr(entry, key) not in (None, default):
                    yield ("task", i, key), own

    @outer_rule
    def _terms_fit(self, config: Any, at: FieldPath) -> Broken:
        """Terms that need a period, or constant decay rates of every task."""
        if self.observer is not None and config.hil is None and config.run.period is None:
            yield (*at, "observer"), "needs a sampled law (give run.period)"
        for field in self.given(("robust", "adaptive")):
            corrections = [self.correction, *(entry.correction for _, entry in right(config.task))]
            if any(correction is not None and correction.funnel is not None for correction in corrections):
                what = "cannot be used with a funnel, which has no constant decay rate (leave one out)"
                yield (*at, field), what

    @outer_rule
    def _gains_fit(self, config: Any, at: FieldPath) -> Broken:
        """Lists and mappings of the common correction have a value for every row, or task, without its own."""
        for path, gain in () if self.correction is None else self.correction.gains:
            place = (*at, "correction", *path)
            if isinstance(gain, Mapping):
                yield from below(place, _by_name(gain, config.task))
            elif isinstance(gain, tuple):
                yield from below(place, _by_row(gain, config.task, each_has_several=path == ("poles",)))


class Config(Section):
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

    @rule
    def _names_once(self) -> Broken:
        for section, entries in (("task", self.task), ("bounds", self.bounds)):
            yield from below((section,), _repeated_names(entries))

    @rule
    def _bounds_leave_room(self) -> Broken:
        if self.bounds and self.law == "none":
            yield ("bounds",), "need a law that keeps them (an open-loop run has 'law: none'; leave them out)"
        yield from below(("bounds",), empty_intervals(self.bounds))


def _repeated_names(entries: Sequence[Task | BoundConfig]) -> Broken:
    """Entries of a list that have the name of an earlier one."""
    first_with: dict[str, int] = {}
    for index, entry in right(entries):
        if entry.name is not WRONG and first_with.setdefault(entry.name, index) != index:
            first = first_with[entry.name] + 1
            yield (index, "name"), f"{entry.name!r} is the name of entry {first} already (rename entry {index + 1})"


def _by_name(gains: Mapping[str, Any], task: tuple[Task, ...]) -> Broken:
    """Names without a task, and tasks without a gain."""
    named = {entry.name: entry for _, entry in right(task) if entry.name is not WRONG}
    for name in gains:
        if name not in named:
            yield (name,), f"no task has this name ({remedy(name, named)})"
    for name, entry in named.items():
        if name not in gains and entry.correction is None and entry.kind not in ("", "class"):
            yield (), f"no value for task {name!r} (name every task that has no correction of its own)"


def _by_row(gains: tuple[Any, ...], task: tuple[Task, ...], each_has_several: bool) -> Broken:
    """Gains that are not one for each row of the tasks without their own, where these are known."""
    common = [entry.row_count if entry is not WRONG else None for entry in task if entry.correction is None]
    counts = [count for count in common if count is not None]
    if len(counts) == len(common) and not (each_has_several and common == [1]):
        which = "" if len(common) == len(task) else " that has no correction of its own"
        yield from wrong_length((), gains, sum(counts), which)
