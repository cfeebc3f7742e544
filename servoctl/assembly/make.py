"""Plant, task and law -> `System`; a config -> a checked `Run`, with what can be used again of an earlier one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from servoctl.assembly import start as starts
from servoctl.assembly.build import (
    build_law,
    build_levels,
    build_plant,
    build_start,
    build_task,
    check_task_classes,
    place_of,
)
from servoctl.assembly.estimation import estimating
from servoctl.assembly.frame_tasks import held_at
from servoctl.assembly.gains import all_gains, passive_gains, passive_spacing
from servoctl.assembly.realism import check_realism, machine_of, realistic
from servoctl.assembly.references import Signals, build_references, check_smoothness
from servoctl.assembly.run import ENGINES, Run
from servoctl.assembly.uncertainty import check_start_error, check_uncertainty
from servoctl.assembly.values import Problems, build_equations
from servoctl.config import load_config
from servoctl.config.load import LoadedConfig
from servoctl.config.overrides import Override
from servoctl.config.plant import Passive
from servoctl.config.robot import Fixed
from servoctl.config.schema import RunConfig
from servoctl.errors import ConfigError, PlantError, ServoctlError
from servoctl.expression import Expression
from servoctl.expression.suggest import remedy
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.laws.corrections import Baumgarte, Correction, for_passive, resolve
from servoctl.laws.law import AttachedLaw, Law
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.hierarchy import PassiveLevel
from servoctl.mechanics.model import Model
from servoctl.mechanics.passive_rank import allowed_rank
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.task_map import TaskMap
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.integrate import too_long
from servoctl.simulation.rows import Integrator, Settings
from servoctl.simulation.system import PassiveStabilisation, System
from servoctl.types import State

PASSIVE_CORRECTION = Baumgarte(10.0, 10.0)
"""Default stabilisation of a plant's own constraints in simulation.

Slow enough to keep the accuracy of a fixed step: gains proportional to 1/h cost Runge-Kutta two orders. If rows are
dependent, no gains work from every start, because drift makes the rows look independent. Such plants are projected
after each step instead (`tests/reference/test_dependent_rows.py`).
"""


def make_system(
    plant: Plant,
    task: Mapping[str, Constraint],
    law: Law | None,
    inputs: Mapping[str, Expression],
    start: State,
    passive: Correction | None,
    passive_rank_tolerance: float,
    projection: bool | Literal["auto"] = False,
    like: System | None = None,
    same_ground: bool = False,
    levels: Sequence[PassiveLevel] = (),
) -> System:
    """Binds a plant, a task and a law; parameters as of `simulate` and:

    Args:
        like: An earlier system; its traced model is used again if only parameters differ.
        same_ground: Whether plant, task and start are those of `like`.
        projection: `auto`: true if passive rows are dependent, instead of `passive`.
        levels: Levels of the passive constraints; only their clearances count here.

    Raises:
        PlantError, TaskError, TraceError: The parts do not fit each other.
    """
    if like is not None and same_ground:
        model = like.model.plain
    else:
        bounds = {} if law is None else law.bound_constraints
        retuned = None if like is None else like.model.plain.retuned(plant, task, start, bounds)
        model = retuned or Model(plant, task, start, bounds=bounds)
    if law is not None and model.task_rows and model.m:
        model = law.prepare(model, start)
        law = law.fitted(model, start)
    clearance = row_clearances(model, levels)
    if clearance:
        allowed, projection = len(model.passive_rows), False  # rows that yield are never dependent
    elif like is not None and same_ground:
        allowed = like.passive.allowed
    else:
        allowed = allowed_rank(model, start)
    if projection == "auto":
        projection = allowed < len(model.passive_rows)  # true if rows depend on each other
        passive = None if projection else passive
    damping, stiffness = resolve(model.passive_rows, for_passive(passive), None, "plant.passive.correction")
    stabilisation = PassiveStabilisation(
        tuple(damping), tuple(stiffness), passive_rank_tolerance, projection, allowed, clearance
    )
    return System(model, None if law is None else law.attach(model), inputs, stabilisation)


def row_clearances(model: Model, levels: Sequence[PassiveLevel]) -> tuple[float, ...]:
    """R of each passive row; empty if no level has a clearance."""
    found = dict.fromkeys(range(len(model.passive_rows)), 0.0)
    for level in levels:
        index = [i for group in level.groups for i, row in enumerate(model.passive_rows) if row.group == group]
        found |= zip(index, np.broadcast_to(np.asarray(level.clearance, dtype=float), len(index)).tolist(), strict=True)
    return tuple(found.values()) if any(found.values()) else ()


@dataclass(frozen=True)
class Ground:
    """The parts of a run that its law is built on."""

    plant: Plant
    task: Mapping[str, Constraint]  # name -> constraint
    start: State  # initial state
    levels: tuple[PassiveLevel, ...]  # levels of the plant's own constraints
    signals: Signals  # columns of references, by name
    passed: bool  # whether they are those of an earlier run, whose start was projected and checked


def build_ground(loaded: LoadedConfig, problems: Problems, waiting: bool) -> Ground:
    """Builds plant, start and task; raises ConfigError if there is no plant to check names against."""
    plant = build_plant(loaded, problems)
    if plant is None:
        check_task_classes(loaded, problems)
        problems.check()
    assert plant is not None
    start = build_start(loaded, plant, problems)
    levels = build_levels(loaded, plant, start, problems)
    signals = build_references(loaded, plant, problems)
    task = build_task(loaded, plant, start, problems, signals)
    if waiting:
        task = {name: constraint.standing() for name, constraint in task.items()}
    return Ground(plant, task, start, levels, signals, passed=False)


def same_ground(loaded: LoadedConfig, like: Run | None) -> Ground | None:
    """Plant, task and start of an earlier run without problems; None if the config changes one of them."""
    if like is None or like.loaded is None or like.refused:
        return None
    new, old = loaded.config, like.loaded.config
    if (new.plant, new.task, new.bounds, new.initial) != (old.plant, old.task, old.bounds, old.initial):
        return None
    model = like.system.model.plain
    references = Problems(loaded)  # those of a wrong reference are reported by `build_ground`
    signals = build_references(loaded, model.plant, references)
    if references.found or signals != like.signals:
        return None
    return Ground(model.plant, model.task, like.start, like.levels, signals, passed=True)


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
    like: Run | None = None,
    waiting: bool = False,
    problems: Problems | None = None,
) -> Run:
    """Builds the run of a config.

    Args:
        strict: As of `load`.
        like: An earlier run; its compiled functions are used again if only parameters or the start differ.
        waiting: Whether the task stands still at t <= 0, as on drives during bring-up.
        problems: Collects the problems, if the caller adds problems of its own.

    Raises:
        ConfigError: The config is wrong; lists all problems.
    """
    problems = Problems(loaded) if problems is None else problems
    values, settings = loaded.config, settings_of(loaded.config.run)
    ground = same_ground(loaded, like) or build_ground(loaded, problems, waiting)
    law = build_law(loaded, ground.plant, problems, ground.signals, waiting)
    inputs = build_equations(values.inputs, ground.plant, problems, "inputs", signals=ground.signals)
    if isinstance(values.initial.project, Fixed):
        for wrong in [name for name in values.initial.project.fix if name not in ground.plant.coordinates]:
            what = f"there is no coordinate '{wrong}' ({remedy(wrong, ground.plant.coordinates)})"
            problems.add(what, "initial", "project", "fix")
    check_realism(loaded, ground.plant, problems)
    check_uncertainty(loaded, ground.plant, problems)
    if problems.found:
        machine_of(values.realism, settings, loaded.folder, ground.plant, problems)  # its problems belong to the list
        problems.check()
    found = _bind(ground, law, inputs, values.plant.passive, problems, None if like is None else like.system)
    if found is not None:
        check_smoothness(loaded, ground.task, found.model.task_rows, problems)
    problems.check()
    assert found is not None
    start = ground.start if ground.passed else _project(found, ground.start, values.initial.project, problems)
    if isinstance(ground.plant, Robot) and start is not ground.start:
        ground = replace(ground, start=start, task=held_at(ground.task, ground.plant, start))
        found = _bind(ground, law, inputs, values.plant.passive, problems, found) or found
    same = like if ground.passed and like is not None and _as_real(loaded, like) else None
    like_it = None if same is None else same.system
    found = realistic(found, values.realism, settings, loaded.folder, start, problems, like_it)
    if found.machine is not None and settings.period is None and not waiting:
        problems.add("needs run.period (a machine takes the commands of a sampled law: give run.period [s])", "realism")
    found = estimating(found, loaded, start, problems, waiting)
    problems.check()
    loop = _loop(found, engine, problems, like if like is not None and _alike(settings, like.settings) else None)
    if loop is None:
        problems.check()
    assert loop is not None
    check_settings(loop, settings, problems, waiting)
    if like is not None and ground.passed and _judged_alike(found.law, like.system.law):
        task_map = like.task_map
    else:
        task_map = None if found.law is None else _reach(found, start, brief=like is not None)
        _check_start(loaded, loop, start, task_map, ground.levels, problems)
    check_start_error(loaded, found.law, found.model, start, problems)
    if strict:
        problems.check()
    refused = tuple(problems.found)
    ready = Run(loaded.name, loop, start, settings, task_map, loaded, refused, ground.levels, engine, ground.signals)
    if engine == "c" and not ready.refused:
        ready.prepare()
    return ready


def _as_real(loaded: LoadedConfig, like: Run) -> bool:
    """Whether a config has the same realism and period as the config of an earlier run."""
    assert like.loaded is not None
    new, old = loaded.config, like.loaded.config
    return (new.realism, new.run.period) == (old.realism, old.run.period)


def _judged_alike(law: AttachedLaw | None, other: AttachedLaw | None) -> bool:
    """Whether the check of a start has the same result for both laws: it uses only levels, tolerances and funnels."""
    if not isinstance(law, AttachedConstraintFollowing) or not isinstance(other, AttachedConstraintFollowing):
        return type(law) is type(other)
    return (law.allocation.levels, law.allocation.rank_tolerance, law.passive_rank_tolerance, law.funnel) == (
        other.allocation.levels, other.allocation.rank_tolerance, other.passive_rank_tolerance, other.funnel
    )  # fmt: skip


def _reach(system: System, start: State, brief: bool) -> TaskMap:
    """What the actuators can do; `brief`: only at the start, if they reach all rows there."""
    found = starts.look_at_reach(system, start, 1) if brief else None
    return found if found is not None and not found.unreachable else starts.look_at_reach(system, start)


def settings_of(run: RunConfig) -> Settings:
    """The settings of a run from its config."""
    integrator = Integrator(**run.integrator.model_dump(exclude_none=True))
    return Settings(run.duration, integrator, run.period, run.output_step, run.seed, run.settling_band)


def check_settings(loop: Loop, settings: Settings, problems: Problems, on_drives: bool) -> None:
    """Notes a duration and gains that do not fit the loop.

    Gains of a law for drives are judged at their period, where the drives are prepared.
    """
    wrong = too_long(loop, settings.duration, settings.integrator, settings.period, settings.output_step)
    if wrong is not None:
        problems.add(wrong, "run", "duration")
    passive = passive_gains(loop.system, passive_spacing(settings))
    for gain in passive if on_drives else all_gains(loop.system, settings):
        if gain.problem is not None:
            problems.add(gain.problem, *gain.spacing.field.split("."))


def _check_start(
    loaded: LoadedConfig,
    loop: Loop,
    start: State,
    task_map: TaskMap | None,
    levels: tuple[PassiveLevel, ...],
    problems: Problems,
) -> None:
    """Notes why the start is impossible or the task out of reach."""
    system = loop.system
    for sentence in starts.check_start(system.model, start, loaded.config.initial.max_violation, loop):
        problems.add(sentence, "initial")
    for contradiction in starts.contradicting_levels(system.model, start, levels):
        problems.add(contradiction, *place_of(loaded, contradiction.level))
    for sentence in starts.unreachable(task_map, system.law) if task_map is not None else []:
        problems.add(sentence, "law")
    for sentence in starts.unstabilised(system, start):
        problems.add(sentence, "plant", "passive")


def _bind(
    ground: Ground,
    law: Law | None,
    inputs: Mapping[str, Expression],
    passive: Passive,
    problems: Problems,
    like: System | None,
) -> System | None:
    try:
        return make_system(
            ground.plant,
            ground.task,
            law,
            inputs,
            ground.start,
            passive.correction.chosen,
            passive.rank_tolerance,
            passive.projection,
            like,
            ground.passed,
            ground.levels,
        )
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
        return None


def _project(system: System, start: State, wanted: bool | Fixed, problems: Problems) -> State:
    if wanted is False:
        return start
    try:
        return starts.project(system.model, start, wanted.fix if isinstance(wanted, Fixed) else (), system.law)
    except ServoctlError as error:
        problems.add(error, "initial", "project")
        return start


def _alike(settings: Settings, other: Settings) -> bool:
    """Whether two runs use the same compiled steps: the same method and number of steps per hold."""
    steps = [(one.integrator.method, one.substeps) for one in (settings, other)]
    return steps[0] == steps[1]


def _loop(system: System, engine: str, problems: Problems, like: Run | None) -> Loop | None:
    try:
        return (None if like is None else like.loop.retuned(system)) or make_loop(system, engine)
    except ServoctlError as error:
        problems.add(error)
        return None
