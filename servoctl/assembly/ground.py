"""What a law is built on: plant, start, references, task and the levels of the plant's own constraints."""

from collections.abc import Mapping
from dataclasses import dataclass

from servoctl.assembly.build import build_plant, build_start, build_task, check_task_classes
from servoctl.assembly.levels import build_levels
from servoctl.assembly.problems import Problems
from servoctl.assembly.references import Signals, build_references
from servoctl.assembly.run import Run
from servoctl.config.load import LoadedConfig
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.passive_levels import PassiveLevel
from servoctl.mechanics.plant import Plant
from servoctl.types import State


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
    if like is None or like.loaded is None or like.problems:
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
