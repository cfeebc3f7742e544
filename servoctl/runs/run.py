"""`Run`: everything that a config says, checked and ready."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from servoctl.closed_loop import Loop, System, make_loop
from servoctl.config import dump, load_config
from servoctl.config.load import LoadedConfig
from servoctl.config.schema import Fixed
from servoctl.errors import ConfigError, PlantError, ServoctlError
from servoctl.expression import Expression
from servoctl.integrate import Integrator, unfit
from servoctl.laws.constraint_following import BoundConstraintFollowing
from servoctl.laws.corrections import Correction
from servoctl.laws.gain_limits import longest_spacing
from servoctl.laws.law import Law
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.model import Model, Row
from servoctl.mechanics.passive_levels import PassiveLevel
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.reach import Reach
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
from servoctl.runs.engine import engine_note, take_engine
from servoctl.runs.levels import build_levels, place_of
from servoctl.runs.system import make_system
from servoctl.simulation import Settings, simulate_loop
from servoctl.trajectory import Trajectory
from servoctl.types import State


@dataclass(frozen=True)
class Run:
    """A closed loop, a start and how to run.

    Attributes:
        name: For titles and folders.
        loop: The closed loop, on its engine.
        start: Initial state, projected where that was asked for.
        settings: How to run.
        reach: What the actuators can do for the task; None for an open loop.
        loaded: The config it came from; None for a run made in Python.
        problems: Why it should not run; empty unless `load` was told to let them through.
        levels: The plant's own constraints level by level, for `check`; none: there is no hierarchy.
        engine: What was asked for: `auto`, `c`, `vm` or `numpy`; `loop.engine` is what it got.
    """

    name: str
    loop: Loop
    start: State
    settings: Settings
    reach: Reach | None = None
    loaded: LoadedConfig | None = None
    problems: tuple[str, ...] = ()
    levels: tuple[PassiveLevel, ...] = ()
    engine: str = "auto"

    @property
    def system(self) -> System:
        """Plant, law and constraints."""
        return self.loop.system

    @cached_property
    @np.errstate(all="ignore")
    def warnings(self) -> list[str]:
        """What a person should know before running, one sentence each."""
        engine = [self.loop.note] if self.system.model.opaque is not None else [engine_note(self.loop)]
        return starts.warnings(self.loop, self.start, self.reach) + self._gains() + list(filter(None, engine))

    def _gains(self) -> list[str]:
        """Corrections that are fast for the period or the step."""
        system, settings = self.system, self.settings
        said: list[str] = []
        fixed = settings.integrator.step if settings.integrator.method == "rk4" else None
        groups: list[tuple[str, list[Row], Any, float | None, bool]] = []
        groups.append(("passive", system.model.passive_rows, system.passive, fixed, False))
        if isinstance(system.law, BoundConstraintFollowing):
            held = settings.period is not None
            groups.append(("task", system.model.task_rows, system.law, settings.period or fixed, held))
        for group, rows, gains, spacing, held in groups:
            if spacing is None:
                continue
            for i, row in enumerate(rows):
                damping, stiffness, higher = gains.gains(i)
                limit = longest_spacing(damping, stiffness, row.has_rate, held, higher)
                word = "period" if held else "step"
                if spacing > limit:
                    said.append(
                        f"{group}.{row.name}: unstable: a {word} of {spacing:g} s, these gains bear {limit:.3g} s"
                    )
                elif spacing > limit / 2:
                    said.append(
                        f"{group}.{row.name}: the {word} of {spacing:g} s is over half of what the gains bear, "
                        f"{limit:.3g} s"
                    )
        return said

    @np.errstate(all="ignore")
    def prepare(self) -> None:
        """Takes the engine that the run is worth, which may compile; `simulate` does so where nobody has."""
        take_engine(self.loop, self.start, self.settings, self.engine)

    @np.errstate(all="ignore")  # a term that is not finite stops the run, which says so
    def simulate(self, out: Path | None = None, progress: Callable[[float], None] | None = None) -> Trajectory:
        """Runs.

        Args:
            out: Run folder to write; None: in memory only.
            progress: Called now and then with the fraction that is done, 0 to 1.

        Raises:
            KeyboardInterrupt: After the files are written.
            RunFolderError: The folder cannot be written.
        """
        import servoctl

        self.prepare()
        text = dump(self.loaded.config) if self.loaded is not None else ""
        said = {"config": self.name, "servoctl": servoctl.__version__, "warnings": self.warnings}
        return simulate_loop(self.loop, self.start, self.settings, said, out, text, progress)


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
    )
    problems.check()
    assert found is not None
    start = _project(found.model, State(0.0, q, v), values.initial.project, problems)
    loop = _loop(found, engine, problems)
    problems.check()
    assert loop is not None
    run = values.run
    integrator = Integrator(
        run.integrator.method, run.integrator.step or 0.001, run.integrator.rtol or 1e-10, run.integrator.atol or 1e-12
    )
    wrong = unfit(loop, integrator.method, run.period)
    if wrong is not None:
        problems.add(wrong, "run", "integrator", "method")
    settings = Settings(run.duration, integrator, run.period, run.output_step)
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
) -> System | None:
    try:
        return make_system(plant, task, law, inputs, start, passive, passive_rank_tolerance, projection)
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


def _loop(system: System, engine: str, problems: Problems) -> Loop | None:
    try:
        return make_loop(system, engine)
    except ServoctlError as error:
        problems.add(error)
        return None
