"""A config's values -> a `Run`, checked and ready; what an earlier run has traced and compiled serves again."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from servoctl.closed_loop import Loop, System, make_loop
from servoctl.config import load_config
from servoctl.config.load import LoadedConfig
from servoctl.config.schema import Fixed
from servoctl.errors import ConfigError, PlantError, ServoctlError
from servoctl.expression import Expression
from servoctl.integrate import Integrator, held_steps, unfit
from servoctl.laws.corrections import Correction
from servoctl.laws.law import Law
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.runs import start as starts
from servoctl.runs.arguments import ENGINES
from servoctl.runs.build import (
    Problems,
    build_correction,
    build_equations,
    build_law,
    build_plant,
    build_task,
    build_vector,
)
from servoctl.runs.levels import build_levels, place_of
from servoctl.runs.run import Run
from servoctl.runs.system import make_system
from servoctl.simulation import Settings
from servoctl.types import State


@np.errstate(all="ignore")  # numbers that are not finite are found, and said by name
def load(config: str | Path, overrides: Sequence[str] = (), engine: str = "auto", strict: bool = True) -> Run:
    """Reads a config and makes it ready.

    Args:
        config: A path, or the bare name of a shipped config.
        overrides: `PATH=VALUE`, as after `--set`.
        engine: `auto`, `c`, `vm` or `numpy`; where C cannot be had, the run says so and takes the next.
        strict: Whether a start or a task that cannot work is an error; else it is noted in `Run.problems`.

    Raises:
        ConfigError: The config is wrong; every problem at once.
    """
    loaded = load_config(config, [overrides] if isinstance(overrides, str) else overrides)
    if engine not in ENGINES:
        raise ConfigError(f"--engine {engine}: no such engine (auto, c, vm or numpy)")
    return make_run(loaded, engine, strict)


@np.errstate(all="ignore")
def make_run(loaded: LoadedConfig, engine: str = "auto", strict: bool = True, like: Run | None = None) -> Run:
    """Makes a config ready.

    Args:
        loaded: The config.
        engine: `auto`, `c`, `vm` or `numpy`.
        strict: As of `load`.
        like: An earlier run, whose compiled functions serve again where only parameters or the start differ.

    Raises:
        ConfigError: The config is wrong; every problem at once.
    """
    problems = Problems(loaded)
    plant = build_plant(loaded, problems)
    problems.check()
    assert plant is not None
    values = loaded.config
    q = build_vector(values.initial.q, plant, problems, "q")
    v = build_vector(values.initial.v, plant, problems, "v")
    task = build_task(loaded, plant, problems)
    law = build_law(loaded, plant, problems)
    inputs = build_equations(values.inputs, plant, problems, "inputs")
    levels = build_levels(loaded, plant, State(0.0, q, v), problems)
    problems.check()
    passive = values.plant.passive
    found = _bind(
        plant,
        task,
        law,
        inputs,
        State(0.0, q, v),
        build_correction(passive.correction),
        passive.rank_tolerance,
        passive.projection,
        problems,
        None if like is None else like.system,
    )
    problems.check()
    assert found is not None
    start = _project(found.model, State(0.0, q, v), values.initial.project, problems)
    run = values.run
    integrator = Integrator(
        run.integrator.method, run.integrator.step or 0.001, run.integrator.rtol or 1e-10, run.integrator.atol or 1e-12
    )
    settings = Settings(run.duration, integrator, run.period, run.output_step)
    loop = _loop(found, engine, problems, like if like is not None and _alike(settings, like.settings) else None)
    problems.check()
    assert loop is not None
    wrong = unfit(loop, integrator.method, run.period)
    if wrong is not None:
        problems.add(wrong, "run", "integrator", "method")
    reach = None if found.law is None else starts.look_at_reach(found, start)
    for sentence in starts.check_start(found.model, start, values.initial.max_violation, loop):
        problems.add(sentence, "initial")
    for contradiction in starts.contradicting_levels(found.model, start, levels):
        problems.add(contradiction, *place_of(loaded, contradiction.level))
    for sentence in starts.unreachable(reach) if reach is not None else []:
        problems.add(sentence, "law")
    for sentence in starts.unstabilised(found, start):
        problems.add(sentence, "plant", "passive")
    if strict:
        problems.check()
    ready = Run(loaded.name, loop, start, settings, reach, loaded, tuple(problems.found), levels, engine)
    if engine == "c" and not ready.problems:
        ready.prepare()
    return ready


def _bind(
    plant: Plant,
    task: Mapping[str, Constraint],
    law: Law | None,
    inputs: Mapping[str, Expression],
    start: State,
    passive: Correction | None,
    passive_rank_tolerance: float,
    projection: bool,
    problems: Problems,
    like: System | None,
) -> System | None:
    try:
        return make_system(plant, task, law, inputs, start, passive, passive_rank_tolerance, projection, like)
    except ServoctlError as error:
        place = "plant" if isinstance(error, PlantError) else "task"
        for line in str(error).splitlines():
            field, _, what = line.partition(": ")
            known = field.startswith(("law.", "plant.", "task."))
            problems.add(*((what, *field.split(".")) if known else (line, place)))
        return None


def _project(model: Model, start: State, wanted: bool | Fixed, problems: Problems) -> State:
    if wanted is False:
        return start
    try:
        return starts.project(model, start, wanted.fix if isinstance(wanted, Fixed) else ())
    except ServoctlError as error:
        problems.add(error, "initial", "project")
        return start


def _alike(settings: Settings, other: Settings) -> bool:
    """Whether two runs evaluate the same compiled steps."""
    steps = [
        (one.integrator.method, None if one.period is None else held_steps(one.integrator, one.period))
        for one in (settings, other)
    ]
    return steps[0] == steps[1]


def _loop(system: System, engine: str, problems: Problems, like: Run | None) -> Loop | None:
    try:
        return (None if like is None else like.loop.retuned(system)) or make_loop(system, engine)
    except ServoctlError as error:
        problems.add(error)
        return None
