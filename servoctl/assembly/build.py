"""A config's values -> plant, task and law. Problems are collected with their lines, then reported at once."""

import keyword
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from servoctl.assembly.classes import fields_of, instantiate, load_class
from servoctl.assembly.context import Context
from servoctl.assembly.entries import FrameTask, build_bounds, of_equation
from servoctl.assembly.robot import build_robot, effort_limits, friction_of_file
from servoctl.assembly.values import Problems, build_equations
from servoctl.config.load import LoadedConfig
from servoctl.config.plant import PassiveLevelConfig, in_order
from servoctl.config.robot import PoseConfig
from servoctl.config.schema import LawConfig, TermConfig
from servoctl.config.tasks import Task
from servoctl.engine.parameters import annotated, parameter_fields
from servoctl.engine.symbol import symbols
from servoctl.errors import ConfigError, PlantError, ServoctlError, counted, in_one_line, no_such, suggestion
from servoctl.expression import RESERVED
from servoctl.laws.configured import ConstraintFollowing
from servoctl.laws.input_output import InputOutput
from servoctl.laws.law import Law
from servoctl.laws.observer import Observer
from servoctl.laws.user_code import Feedback
from servoctl.laws.user_code import Term as OwnTerm
from servoctl.mechanics import plant_values
from servoctl.mechanics.actuator_parameters import armature_of, with_armature
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.coordinate_bounds import limit_pair
from servoctl.mechanics.friction import with_friction
from servoctl.mechanics.hierarchy import PassiveLevel, declared_levels
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.pose_solver import joint_limits, solve_poses
from servoctl.mechanics.spatial.task import Orientation, Pose, Position
from servoctl.tree.fields import one_per_name
from servoctl.types import Array, State


def solved_start(plant: Robot, start: State, solve: Mapping[str, PoseConfig], problems: Problems, right: bool) -> State:
    """The state nearest to the start at which frames have their poses and loops are closed.

    It is the start if there is none, or if the start is not `right`.
    """
    poses = {frame: _pose(frame, pose) for frame, pose in solve.items() if pose.xyz or pose.rpy}
    wrong = {frame: constraint.problems(plant) for frame, constraint in poses.items()}
    for frame, sentences in wrong.items():
        for sentence in sentences:
            problems.add(sentence, "initial", "solve", frame)
    if any(wrong.values()) or not right:
        return start
    try:
        return solve_poses(plant, start, poses)
    except ServoctlError as error:
        problems.add(error, *(("plant",) if isinstance(error, PlantError) else ("initial", "solve")))
        return start


def _pose(frame: str, pose: PoseConfig) -> Constraint:
    if pose.xyz is None:
        return Orientation(frame, rpy=pose.rpy)
    return Position(frame, pose.xyz) if pose.rpy is None else Pose(frame, pose.xyz, rpy=pose.rpy)


def build_plant(loaded: LoadedConfig, problems: Problems) -> Plant | None:
    """The plant, without parameters that are wrong; None if there is none to check names against."""
    values = loaded.config.plant
    plant = build_robot(loaded, problems) if values.every_robot else _plant_of_class(loaded, problems)
    if plant is None:
        return None
    try:
        if values.armature is not None:
            plant = with_armature(plant, _armature(values.armature, plant, problems))
    except PlantError as error:
        problems.add(error, "plant", "armature")
    try:
        if values.friction is None:
            return plant
        friction = friction_of_file(plant, problems) if isinstance(values.friction, str) else values.friction
        return with_friction(plant, friction.ready(plant, problems, "plant"))
    except PlantError as error:
        problems.add(error, "plant", "friction")
        return plant


def _armature(given: Any, plant: Plant, problems: Problems) -> list[float]:
    """The inertia of each rotor: as given, by name in place of that of the file."""
    if isinstance(given, Mapping):
        given = dict(zip(plant.actuators, armature_of(plant) or (), strict=False)) | dict(given)
    return list(one_per_name(given, plant.actuators, "actuator", problems, "plant", "armature").tolist())


def _class(name: str, base: type, loaded: LoadedConfig, problems: Problems, *path: str | int) -> type[Any] | None:
    """The class that a section names; None, and problems noted, if it cannot be loaded."""
    try:
        return load_class(name, loaded.folder, base)
    except ConfigError as error:
        problems.add(error, *path, "class")
        return None


def _plant_of_class(loaded: LoadedConfig, problems: Problems) -> Plant | None:
    values = loaded.config.plant
    kind = _class(str(values.class_), Plant, loaded, problems, "plant")
    if kind is None:
        return None
    plant = instantiate(kind, values.parameters, problems, "plant")
    if plant is None:
        plant = _without_wrong_parameters(kind, loaded)
    right = len(problems)
    if plant is not None:
        _check_words(plant, problems)
    return plant if isinstance(plant, Plant) and len(problems) == right else None


def _without_wrong_parameters(kind: type[Plant], loaded: LoadedConfig) -> Plant | None:
    """A plant to check names against; None if they may depend on what is wrong: names follow from structure alone."""
    given, unsaid = loaded.config.plant.parameters, Problems(loaded)
    right = fields_of(kind, given, unsaid, "plant")
    numbers = {name: 1.0 for name, of in annotated(kind).items() if not of.many}
    known: list[str] = [field.name for field in fields(kind)] if is_dataclass(kind) else []
    structure = [name for name in known if name not in numbers]
    for name in given.keys() - right.keys() - numbers.keys():
        if name in structure or suggestion(name, structure):
            return None
    needed = {name: number for name, number in numbers.items() if not hasattr(kind, name)}
    fixed = {name: value for name, value in right.items() if name in structure}
    plants = (instantiate(kind, needed | parameters, unsaid, "plant") for parameters in (right, fixed))
    return next((plant for plant in plants if isinstance(plant, Plant)), None)


def _check_words(plant: Plant, problems: Problems) -> None:
    """Checks that coordinates, actuators and parameters are distinct identifiers and not reserved words."""
    name = type(plant).__name__
    try:
        named = {"coordinates": plant.coordinates, "actuators": plant.actuators}
    except (Exception, SystemExit) as error:
        problems.add(f"{name}: coordinates or actuators: {in_one_line(error)}", "plant", "class")
        return
    wrong = [field for field, units in named.items() if not isinstance(units, Mapping)]
    for field in wrong:
        what = f"{name}.{field}: expected a mapping of names to units, got {named[field]!r}"
        problems.add(what, "plant", "class")
    if wrong:
        return
    if not plant.coordinates:
        problems.add(f"{name}.coordinates: there are none (give name -> unit)", "plant", "class")
    groups = {"coordinate": plant.coordinates, "actuator": plant.actuators, "parameter": parameter_fields(plant)}
    seen: dict[str, str] = {}
    for kind, words in groups.items():
        for word in words:
            if not isinstance(word, str) or not word.isidentifier() or keyword.iskeyword(word):
                problems.add(f"{name}: {kind} {word!r} is not an identifier (rename it)", "plant", "class")
            elif word in RESERVED:
                problems.add(f"{name}: {kind} '{word}' is a reserved word of equations (rename it)", "plant", "class")
            elif word in seen:
                problems.add(f"{name}: '{word}' is both {seen[word]} and {kind} (rename one)", "plant", "class")
            seen.setdefault(word, kind)


def build_coordinates(given: Any, plant: Plant, problems: Problems, *path: str) -> Array:
    """Initial coordinates, shape (n,), from one number for all, a list or a mapping.

    A mapping may leave out coordinates of a robot from a file: 0 inside the joint's limits, or 1 for qw of a free base.
    """
    names = plant.coordinates
    if isinstance(plant, Robot) and isinstance(given, Mapping):
        left_out = {name: 1.0 if name.endswith("_qw") else 0.0 for name in names}
        limits = joint_limits(plant.tree).items()
        given = {name: max(lower, min(upper, left_out[name])) for name, (lower, upper) in limits} | dict(given)
    return one_per_name(given, names, "coordinate", problems, *path, default=None)


def build_start(loaded: LoadedConfig, plant: Plant, problems: Problems) -> State:
    """The initial state as the config gives it, before any projection."""
    names, initial = plant.coordinates, loaded.config.initial
    count = len(problems)
    q = build_coordinates(initial.q, plant, problems, "initial", "q")
    right = len(problems) == count
    start = State(0.0, q, one_per_name(initial.v, names, "coordinate", problems, "initial", "v"))
    for wrong in [name for name in getattr(initial.project, "fix", ()) if name not in names]:
        problems.add(no_such("coordinate", wrong, names), "initial", "project", "fix")
    if isinstance(plant, Robot) and initial.solve:
        return solved_start(plant, start, initial.solve, problems, right)
    return start


def build_task(loaded: LoadedConfig, context: Context, start: State) -> dict[str, Constraint]:
    """Name -> constraint, in order, without those that are wrong; `start` is what a posture may keep."""
    task: dict[str, Constraint] = {}
    for index, entry in enumerate(loaded.config.task):
        constraint: Constraint | None
        if entry.form is not None and isinstance(context.plant, Robot):
            constraint = FrameTask(entry, ("task", index), context.plant, start, context).build()
        elif entry.class_ is None:
            constraint = of_equation(entry, ("task", index), context)
        else:
            constraint = _of_class(entry, Constraint, loaded, context.problems, "task", index)
            if constraint is not None and context.signals:
                constraint = constraint.with_signals(context.signals)
        if constraint is not None:
            task[entry.name] = constraint if entry.unit is None else constraint.with_unit(entry.unit)
    return task


def check_classes(loaded: LoadedConfig, problems: Problems) -> None:
    """Notes classes of tasks and of the law that cannot be loaded, where there is no plant to build them for."""
    for index, entry in enumerate(loaded.config.task):
        if entry.class_ is not None:
            _class(entry.class_, Constraint, loaded, problems, "task", index)
    law = loaded.config.law
    if isinstance(law, LawConfig):
        if law.class_ is not None:
            _class(law.class_, Feedback, loaded, problems, "law")
        for name, term in (law.terms or {}).items():
            _class(term.class_, OwnTerm, loaded, problems, "law", "terms", name)


def _of_class(
    values: Task | LawConfig | TermConfig, base: type, loaded: LoadedConfig, problems: Problems, *path: str | int
) -> Any:
    """An instance of the class that a section names; None, and problems noted, if it cannot be made."""
    kind = _class(str(values.class_), base, loaded, problems, *path)
    made = None if kind is None else instantiate(kind, values.parameters or {}, problems, *path)
    return made if isinstance(made, base) else None


def build_law(loaded: LoadedConfig, context: Context) -> Law | None:
    """The law of a config; None for an open loop, or a class of one's own with problems."""
    plant, problems, signals = context.plant, context.problems, context.signals
    values = loaded.config.law
    if not isinstance(values, LawConfig):
        return None
    if values.class_ is not None:
        law: Feedback | None = _of_class(values, Feedback, loaded, problems, "law")
        return law
    task = loaded.config.task
    weighted = None if isinstance(values.allocation, str) else dict(values.allocation.weighted)
    terms = (values.terms or {}).items()
    own = {name: _of_class(term, OwnTerm, loaded, problems, "law", "terms", name) for name, term in terms}
    kind = InputOutput if values.kind == "input_output" else ConstraintFollowing
    law_of_task = kind(
        correction=None if values.correction is None else values.correction.chosen,
        corrections={entry.name: entry.correction.chosen for entry in task if entry.correction is not None},
        priorities={entry.name: entry.priority for entry in task},
        optional=tuple(entry.name for entry in task if entry.required is False),
        allocation=values.allocation if isinstance(values.allocation, str) else "weighted",
        weights=weighted,
        feedback_allocation=values.feedback_allocation,
        secondary=values.secondary,
        limits=law_limits(values, plant, problems) or None,
        preload={loop: wanted.model_dump(exclude_none=True) for loop, wanted in (values.preload or {}).items()} or None,
        rank_tolerance=values.rank_tolerance,
        passive_rank_tolerance=loaded.config.plant.passive.rank_tolerance,
        residual_tolerance=values.residual_tolerance,
        on_infeasible=values.on_infeasible,
        input_damping=values.damping,
        observer=Observer() if values.observer == "auto" else values.observer,
        robust=values.robust or values.adaptive,
        bounds=build_bounds(loaded, context),
        terms={name: term for name, term in own.items() if term is not None},
        timings=context.terms,
    )
    for sentence in law_of_task.unknown_actuators(list(plant.actuators)):
        problems.add_named(sentence)
    equations = build_equations(values.null_space, plant, problems, "law", "null_space", signals=signals)
    return replace(law_of_task, null_space=equations or None)


def law_limits(law: LawConfig, plant: Plant, problems: Problems) -> dict[str, tuple[float, float]]:
    """Actuator -> (lower, upper)."""
    if law.limits == "robot" and isinstance(plant, Robot):
        return effort_limits(plant, problems)
    given = law.limits if isinstance(law.limits, Mapping) else {}
    return {name: limit_pair(limit) for name, limit in given.items()}


PATH = ("plant", "passive", "levels")


def build_levels(loaded: LoadedConfig, plant: Plant, start: State, problems: Problems) -> tuple[PassiveLevel, ...]:
    """The levels of the config in order; if it names none, those that the plant declares."""
    values = loaded.config.plant.passive.levels
    size = _group_sizes(plant, start)
    if size is None:
        return ()
    if values is None:
        declared = declared_levels(plant)
        return declared if size.keys() == {group for level in declared for group in level.groups} else ()
    if not size:
        problems.add(f"{type(plant).__name__} has no mechanism constraints (leave levels out)", *PATH)
        return ()
    for name, level in values.items():
        _check_level(name, level, size, problems)
    listed = [group for level in values.values() for group in level.groups]
    missing = [group for group in size if group not in listed]
    if missing:
        problems.add(f"no level has {', '.join(missing)} (every mechanism group belongs to one level)", *PATH)
    order = in_order({name: level.after for name, level in values.items()})
    return tuple(PassiveLevel(name, values[name].groups, values[name].clearance) for name in order)


def place_of(loaded: LoadedConfig, level: str) -> tuple[str, ...]:
    """The config field of a level: its own, or the class of the plant if the plant declares it."""
    return ("plant", "class") if loaded.config.plant.passive.levels is None else (*PATH, level)


def _group_sizes(plant: Plant, start: State) -> dict[str, int] | None:
    """Passive group -> number of rows; None if the plant fails, which is reported when the system is built."""
    try:
        groups = plant_values.passive_groups(plant, "passive_constraints", start, True)
        groups |= plant_values.passive_groups(plant, "passive_rates", start, True)
    except PlantError:
        return None
    return {name: _row_count(rows, plant) for name, rows in groups.items()}


def _row_count(rows: Array | Constraint, plant: Plant) -> int:
    if not isinstance(rows, Constraint):
        return rows.size
    q, v, t = (symbols(name, count) for name, count in zip("qvt", (*2 * [len(plant.coordinates)], 1), strict=True))
    return len(rows.rows(plant, t[0], q, v).b)


def _check_level(name: str, level: PassiveLevelConfig, size: Mapping[str, int], problems: Problems) -> None:
    for i, group in enumerate(level.groups):
        if group not in size:
            problems.add(no_such("mechanism group", group, size), *PATH, name, "groups", i)
    known = [group for group in level.groups if group in size]
    rows = sum(size[group] for group in known)
    if isinstance(level.clearance, tuple) and len(level.clearance) != rows and len(known) == len(level.groups):
        given = f"{len(level.clearance)} values for {counted(rows, 'row')}"
        shown = ", ".join(f"{group} {size[group]}" for group in known)
        problems.add(f"{given} (give one number for all, or one per row: {shown})", *PATH, name, "clearance")
