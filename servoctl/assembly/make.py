"""Plant, task and law -> `System`; a config -> a checked `Run`, with what can be used again of an earlier one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from servoctl.assembly import start as starts
from servoctl.assembly.build import (
    build_law,
    build_levels,
    build_plant,
    build_start,
    build_task,
    check_classes,
    place_of,
)
from servoctl.assembly.classes import stamps
from servoctl.assembly.context import Context
from servoctl.assembly.entries import Signals, build_references, check_smoothness, check_spans, held_at
from servoctl.assembly.gains import all_gains, passive_gains
from servoctl.assembly.realism import check_loop, effects_of, machine_of
from servoctl.assembly.run import ENGINES, Run
from servoctl.assembly.uncertainty import check_start_error, check_uncertainty
from servoctl.assembly.values import Once, Problems, Results, build_equations
from servoctl.config import load_config
from servoctl.config.load import LoadedConfig
from servoctl.config.overrides import Override
from servoctl.config.plant import Passive
from servoctl.config.robot import Fixed
from servoctl.engine.parameters import forget_derived
from servoctl.errors import ConfigError, PlantError, ServoctlError
from servoctl.expression import Expression
from servoctl.laws.corrections import Correction, CorrectionTerm, corrections_of, for_passive
from servoctl.laws.law import Law
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.hierarchy import PassiveLevel
from servoctl.mechanics.model import Model, structure_of
from servoctl.mechanics.passive_rank import allowed_rank
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.task_map import TaskMap
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.integrate import too_long
from servoctl.simulation.settings import Settings
from servoctl.simulation.system import PassiveStabilisation, System
from servoctl.simulation.traced_loop import functions_key
from servoctl.types import State

Reach = Callable[[], TaskMap | None]  # what the actuators can do, evaluated when it is asked for


def make_system(
    plant: Plant,
    task: Mapping[str, Constraint],
    law: Law | None,
    inputs: Mapping[str, Expression],
    start: State,
    passive: Correction | None,
    passive_rank_tolerance: float,
    projection: bool | Literal["auto"] = False,
) -> System:
    """Binds a plant, a task and a law; parameters as of `simulate` and:

    Args:
        projection: `auto`: true if passive rows are dependent, instead of `passive`.

    Raises:
        PlantError, TaskError, TraceError: The parts do not fit each other.
    """
    model = Model(plant, task, start, bounds={} if law is None else law.bound_constraints)
    stabilisation = _stabilisation(model, start, passive, passive_rank_tolerance, projection)
    return _system(model, law, inputs, stabilisation)


def _system(model: Model, law: Law | None, inputs: Mapping[str, Expression], passive: PassiveStabilisation) -> System:
    if law is not None and model.task_rows and model.m:
        model = law.prepare(model)
    return System(model, None if law is None else law.attach(model), inputs, passive)


def _stabilisation(
    model: Model,
    start: State,
    correction: Correction | None,
    rank_tolerance: float,
    projection: bool | Literal["auto"],
    levels: Sequence[PassiveLevel] = (),
) -> PassiveStabilisation:
    """What keeps the passive constraints closed; only the clearances of the levels count."""
    clearance = row_clearances(model, levels)
    if clearance:
        allowed, projection = len(model.passive_rows), False  # rows that yield are never dependent
    else:
        allowed = allowed_rank(model, start)
    if projection == "auto":
        projection = allowed < len(model.passive_rows)  # true if rows depend on each other
        correction = None if projection else correction
    rows, field = model.passive_rows, "plant.passive.correction"
    term = CorrectionTerm(tuple(rows), tuple(corrections_of(rows, for_passive(correction), {}, field)))
    return PassiveStabilisation(term, rank_tolerance, projection, allowed, clearance)


def row_clearances(model: Model, levels: Sequence[PassiveLevel]) -> tuple[float, ...]:
    """R of each passive row; empty if no level has a clearance."""
    found = dict.fromkeys(range(len(model.passive_rows)), 0.0)
    for level in levels:
        index = [i for group in level.groups for i, row in enumerate(model.passive_rows) if row.group == group]
        found |= zip(index, np.broadcast_to(np.asarray(level.clearance, dtype=float), len(index)).tolist(), strict=True)
    return tuple(found.values()) if any(found.values()) else ()


@dataclass(frozen=True, eq=False)
class Ground:
    """The parts of a run that its law is built on."""

    plant: Plant
    task: Mapping[str, Constraint]  # name -> constraint
    start: State  # initial state
    levels: tuple[PassiveLevel, ...]  # levels of the plant's own constraints
    signals: Signals  # columns of references, by name


def _ground(loaded: LoadedConfig, problems: Problems, waiting: bool) -> Ground:
    """Builds plant, start and task; raises ConfigError if there is no plant to check names against."""
    plant = build_plant(loaded, problems)
    if plant is None:
        check_classes(loaded, problems)
        build_references(loaded, None, problems)
        problems.check()
    assert plant is not None
    start = build_start(loaded, plant, problems)
    levels = build_levels(loaded, plant, start, problems)
    signals = build_references(loaded, plant, problems)
    task = build_task(loaded, Context(plant, loaded.config, problems, signals), start)
    if waiting:
        task = {name: constraint.standing() for name, constraint in task.items()}
    return Ground(plant, task, start, levels, signals)


def _ground_key(loaded: LoadedConfig, waiting: bool) -> tuple[Any, ...]:
    """Everything in a config that its ground depends on, with its files as they are now.

    The correction of passive constraints is no part of it.
    """
    config = loaded.config
    classes = [config.plant.class_, *(entry.class_ for entry in config.task)]
    files = [path.rpartition(":")[0] for path in classes if path is not None and ".py:" in path]
    files += [reference.file for reference in config.references.values() if reference.file]
    files += [str(robot.urdf or robot.mjcf) for robot in config.plant.every_robot.values()]
    return (
        "ground", config.plant.model_copy(update={"passive": config.plant.passive.levels}), config.task, config.bounds,
        config.initial, config.references, waiting,
        stamps(loaded.folder / file for file in files),
    )  # fmt: skip


@np.errstate(all="ignore")  # numbers that are not finite are reported by name
def load(config: str | Path, overrides: Sequence[Override] = (), engine: str = "auto", strict: bool = True) -> Run:
    """Reads a config and builds its run.

    Args:
        config: A path, or the bare name of a shipped config.
        overrides: `PATH=VALUE`, as after `--set`, and paths of files, as after `--set-file`; the last one wins.
        engine: `auto`, `c`, `vm` or `numpy`; without a C compiler, `c` falls back to `vm` with a note.
        strict: Whether a start or a task that cannot work is an error; else it is noted in `Run.problems`.

    Raises:
        ConfigError: The config is wrong; lists all problems.
    """
    loaded = load_config(config, [overrides] if isinstance(overrides, str) else overrides)
    if engine not in ENGINES:
        raise ConfigError(f"--engine {engine}: no such engine (auto, c, vm or numpy)")
    return make_run(loaded, engine, strict)


@np.errstate(all="ignore")
def make_run(
    loaded: LoadedConfig,
    engine: str = "auto",
    strict: bool = True,
    results: Results | None = None,
    waiting: bool = False,
    problems: Problems | None = None,
) -> Run:
    """Builds the run of a config.

    Args:
        strict: As of `load`.
        results: Those of earlier runs, such as their compiled functions; None: nothing is known.
        waiting: Whether the task stands still at t <= 0, as on drives during bring-up.
        problems: Collects the problems, if the caller adds problems of its own.

    Raises:
        ConfigError: The config is wrong; lists all problems.
    """
    problems = Problems(loaded) if problems is None else problems
    if results is None:
        forget_derived()
        results = Results()
    values, settings = loaded.config, loaded.config.run
    once: Once = partial(results.once, problems)
    built = once(_ground_key(loaded, waiting), lambda: _ground(loaded, problems, waiting))
    check_spans(loaded, built.signals.values(), problems)
    context = Context(built.plant, values, problems, built.signals, waiting)
    law = build_law(loaded, context)
    inputs = build_equations(values.inputs, built.plant, problems, "inputs", signals=built.signals)
    check_loop(context)
    check_uncertainty(loaded, built.plant, problems)
    if problems.found:
        machine_of(context, loaded.folder)  # its problems belong to the list
        problems.check()

    def bound(ground: Ground) -> System:
        system = _bind(ground, law, inputs, values.plant.passive, problems, once)
        check_smoothness(loaded, ground.task, system.model.task_rows, problems)
        problems.check()
        return system

    ground = built
    if project := values.initial.project:
        ground = once(("start", built, law is None), lambda: _projected(built, bound(built), project, problems))
    system, start = bound(ground), ground.start
    scene = None if values.realism is None else values.realism.machine
    seen = () if scene is None else stamps([loaded.folder / scene.file])
    effects = once(
        ("effects", ground, system.model.rows_kernel, values.realism, settings.period, settings.integrator, seen),
        lambda: effects_of(system, context, loaded.folder, start),
    )
    system = replace(system, **effects)
    if system.machine is not None and settings.period is None and not waiting:
        problems.add("needs run.period (a machine takes the commands of a sampled law: give run.period [s])", "realism")
    system = context.estimating(system, start)
    problems.check()
    loop = _loop(system, settings, engine, problems, once)
    check_settings(loop, settings, problems, waiting)
    key = ("start of a law", ground, *_judged_by(system))
    reach = once(key, lambda: _checked_start(loaded, loop, ground, problems))
    for sentence in once(("loose rows", ground, values.plant.passive), lambda: starts.unstabilised(system, start)):
        problems.add(sentence, "plant", "passive")
    check_start_error(loaded, system, start, problems)
    if strict:
        problems.check()
    refused = tuple(problems.found)
    signals = ground.signals
    ready = Run(loaded.name, loop, start, settings, reach, loaded, refused, ground.levels, engine, signals, results)
    if engine == "c" and not ready.refused:
        ready.prepare()
    return ready


def _judged_by(system: System) -> tuple[Any, ...]:
    """What the check of a start depends on, apart from the ground and the correction of passive constraints."""
    law = system.following
    if law is None:
        return (type(system.law), system.passive.rank_tolerance)
    return (law.allocation.levels, law.allocation.rank_tolerance, law.passive_rank_tolerance, law.funnel)


def check_settings(loop: Loop, settings: Settings, problems: Problems, on_drives: bool) -> None:
    """Notes a duration and gains that do not fit the loop.

    Gains of a law for drives are judged at their period, where the drives are prepared.
    """
    wrong = too_long(loop, settings)
    if wrong is not None:
        problems.add(wrong, "run", "duration")
    for gain in (passive_gains if on_drives else all_gains)(loop.system, settings):
        if gain.problem is not None:
            problems.add(gain.problem, *gain.spacing.field.split("."))


def _checked_start(loaded: LoadedConfig, loop: Loop, ground: Ground, problems: Problems) -> Reach:
    """`Run.reach`; notes why the start is impossible or the task out of reach."""
    system, start = loop.system, ground.start

    @cache
    def reach() -> TaskMap | None:
        return None if system.law is None else starts.look_at_reach(system, start)

    for sentence in starts.check_start(loop, start, loaded.config.initial.max_violation):
        problems.add(sentence, "initial")
    for contradiction in starts.contradicting_levels(system.model, start, ground.levels):
        problems.add(contradiction, *place_of(loaded, contradiction.level))
    if system.law is not None and starts.look_at_reach(system, start, 1).unreachable:
        task_map = reach()  # rows out of reach at the start may be within reach nearby
        for sentence in starts.unreachable(task_map, system.acting) if task_map is not None else []:
            problems.add(sentence, "law")
    return reach


def _bind(
    ground: Ground, law: Law | None, inputs: Mapping[str, Expression], passive: Passive, problems: Problems, once: Once
) -> System:
    bounds = {} if law is None else law.bound_constraints
    try:
        model = once(("model", ground, tuple(bounds)), lambda: _model(ground, bounds, once))
        how = passive.correction.chosen, passive.rank_tolerance, passive.projection, ground.levels
        stabilisation = once(("passive", ground, passive), lambda: _stabilisation(model, ground.start, *how))
        return _system(model, law, inputs, stabilisation)
    except ServoctlError as error:
        place = "plant" if isinstance(error, PlantError) else "task"
        for line in str(error).splitlines():
            field = line.partition(": ")[0]
            if place == "task" and law is not None and field in law.bound_constraints and field not in ground.task:
                problems.add_named(f"bounds.{line}")
            elif field.startswith(("law.", "plant.", "task.", "bounds.")):
                problems.add_named(line)
            else:
                problems.add(line, place)
        problems.check()
        raise


def _model(ground: Ground, bounds: Mapping[str, Constraint], once: Once) -> Model:
    """The model of a ground; it is traced only if more than parameters is new."""
    new = ground.plant, ground.task, ground.start, bounds
    key = ("traced", structure_of(ground.plant, ground.task, bounds))
    traced: Model = once(key, lambda: Model(ground.plant, ground.task, ground.start, bounds=bounds))
    same = traced.plant is ground.plant and traced.around is ground.start
    return traced if same else traced.of(*new)


def _projected(ground: Ground, system: System, wanted: Literal[True] | Fixed, problems: Problems) -> Ground:
    """The ground with the start on the constraints, and tasks that hold it there."""
    try:
        fix = wanted.fix if isinstance(wanted, Fixed) else ()
        start = starts.project(system.model, ground.start, fix, system.law)
    except ServoctlError as error:
        problems.add(error, "initial", "project")
        return ground
    plant = ground.plant
    task = held_at(ground.task, plant, start) if isinstance(plant, Robot) else ground.task
    return replace(ground, start=start, task=task)


def _loop(system: System, settings: Settings, engine: str, problems: Problems, once: Once) -> Loop:
    """The loop of a system; it is traced only if more than parameters is new. Its engine depends on the steps too."""
    try:
        traced, steps = (engine == "numpy", functions_key(system)), (settings.integrator.method, settings.substeps)
        loop: Loop = once(
            ("loop", *traced, steps), lambda: once(("traced", *traced), lambda: make_loop(system, engine)).apart()
        )
        return loop.of(system)
    except ServoctlError as error:
        problems.add(error)
        problems.check()
        raise
