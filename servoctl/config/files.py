"""Files that a config names: classes and robots. Their paths are relative to the config's folder."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from servoctl.config.robot import RobotConfig
from servoctl.config.schema import Config


def class_paths(config: Config) -> list[str]:
    """Class paths of plant and task, each once, in order."""
    paths = [config.plant.class_, *(entry.class_ for entry in config.task)]
    return list(dict.fromkeys(path for path in paths if path is not None))


def class_files(config: Config) -> list[str]:
    """The Python files among them, as the config names them."""
    modules = [path.rpartition(":")[0] for path in class_paths(config)]
    return list(dict.fromkeys(module for module in modules if module.endswith(".py")))


def robot_files(config: Config) -> list[str]:
    """URDF and MJCF files, each once, as the config names them."""
    files = [robot.urdf or robot.mjcf for robot in config.plant.every_robot.values()]
    return list(dict.fromkeys(file for file in files if file is not None))


def with_absolute_robots(config: Config, folder: Path) -> Config:
    """The config with absolute paths of robot files, for a run folder, which may be anywhere.

    Args:
        config: The config.
        folder: The folder that its paths are relative to.
    """
    return _with_robots(config, lambda file: str((folder / file).absolute()))


def moved(config: Config, home: Path, folder: Path) -> Config:
    """A config in folder `home` as a config in another folder: all paths lead to the same files."""

    def relative(file: str) -> str:
        if Path(file).is_absolute():
            return file
        return os.path.relpath((home / file).resolve(), folder.resolve())

    def class_path(path: str | None) -> str | None:
        module, _, name = (path or "").rpartition(":")
        return f"{relative(module)}:{name}" if module.endswith(".py") else path

    plant = config.plant.model_copy(update={"class_": class_path(config.plant.class_)})
    task = tuple(entry.model_copy(update={"class_": class_path(entry.class_)}) for entry in config.task)
    return _with_robots(config.model_copy(update={"plant": plant, "task": task}), relative)


def _with_robots(config: Config, change: Callable[[str], str]) -> Config:
    def changed(robot: RobotConfig) -> RobotConfig:
        return robot.model_copy(update={key: change(getattr(robot, key)) for key in _named(robot)})

    plant = config.plant
    if not plant.every_robot:
        return config
    update: dict[str, Any] = {"robot": None if plant.robot is None else changed(plant.robot)}
    if plant.robots is not None:
        update["robots"] = {name: changed(robot) for name, robot in plant.robots.items()}
    return config.model_copy(update={"plant": plant.model_copy(update=update)})


def _named(robot: RobotConfig) -> list[str]:
    """Keys of the files that a robot names."""
    return [key for key in ("urdf", "mjcf") if getattr(robot, key) is not None]
