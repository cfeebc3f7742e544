"""Files that a config names: classes, robots and references. Their paths are relative to the config's folder."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from servoctl.config.realism import MachineConfig
from servoctl.config.robot import RobotConfig
from servoctl.config.schema import Config

ModelFile = TypeVar("ModelFile", RobotConfig, MachineConfig)


def class_paths(config: Config) -> list[str]:
    """Class paths of plant and task, each once, in order."""
    paths = [config.plant.class_, *(entry.class_ for entry in config.task)]
    return list(dict.fromkeys(path for path in paths if path is not None))


def class_files(config: Config) -> list[str]:
    """The Python files among them, as the config names them."""
    modules = [path.rpartition(":")[0] for path in class_paths(config)]
    return list(dict.fromkeys(module for module in modules if module.endswith(".py")))


def data_files(config: Config) -> list[str]:
    """Files of robots and of references, each once, as the config names them."""
    files = [robot.urdf or robot.mjcf for robot in config.plant.every_robot.values()]
    files += [reference.file for reference in config.references.values()]
    if config.realism is not None and config.realism.machine is not None:
        files += [config.realism.machine.file]
    return list(dict.fromkeys(file for file in files if file is not None))


def with_absolute_files(config: Config, folder: Path) -> Config:
    """The config with absolute paths of its files, for a run folder, which may be anywhere.

    Args:
        config: The config.
        folder: The folder that its paths are relative to.
    """
    return _with_files(config, lambda file: str((folder / file).absolute()))


def moved(config: Config, home: Path, folder: Path) -> Config:
    """A config in folder `home` as a config in another folder: all paths lead to the same files."""

    def relative(file: str) -> str:
        if Path(file).is_absolute():
            return file
        return os.path.relpath((home / file).resolve(), folder.resolve())

    return _with_files(config, relative)


def _with_files(config: Config, change: Callable[[str], str]) -> Config:
    def class_path(path: str | None) -> str | None:
        module, _, name = (path or "").rpartition(":")
        return f"{change(module)}:{name}" if module.endswith(".py") else path

    plant = config.plant.model_copy(update={"class_": class_path(config.plant.class_)})
    task = tuple(entry.model_copy(update={"class_": class_path(entry.class_)}) for entry in config.task)
    return _with_data(config.model_copy(update={"plant": plant, "task": task}), change)


def _with_data(config: Config, change: Callable[[str], str]) -> Config:
    def changed(model: ModelFile) -> ModelFile:
        named = [key for key in ("urdf", "mjcf") if getattr(model, key) is not None]
        return model.model_copy(update={key: change(getattr(model, key)) for key in named})

    plant = config.plant
    robots = plant.robots and {name: changed(robot) for name, robot in plant.robots.items()}
    references = {
        name: reference if reference.file is None else reference.model_copy(update={"file": change(reference.file)})
        for name, reference in config.references.items()
    }
    plant = plant.model_copy(update={"robot": plant.robot and changed(plant.robot), "robots": robots})
    realism = config.realism
    if realism is not None and realism.machine is not None:
        realism = realism.model_copy(update={"machine": changed(realism.machine)})
    return config.model_copy(update={"plant": plant, "references": references, "realism": realism})
