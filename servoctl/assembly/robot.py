"""Robots of a config: files, bodies, frames and loops -> the plant; and the limits of its files."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from servoctl.assembly.classes import replaced_parameters, stamps
from servoctl.assembly.values import Problems
from servoctl.config.load import LoadedConfig
from servoctl.config.plant import GRAVITY, PARTS, PlantConfig
from servoctl.config.robot import RobotConfig
from servoctl.errors import ConfigError, MissingPackageError, PlantError
from servoctl.input_file import Stamp
from servoctl.mechanics.actuator_parameters import FIELD as ROTORS
from servoctl.mechanics.friction import Friction
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.description import Description
from servoctl.mechanics.spatial.model import LoopKind
from servoctl.mechanics.spatial.plant import Robot, RobotBuilder
from servoctl.tree.rules import FieldPath


def build_robot(loaded: LoadedConfig, problems: Problems) -> Robot | None:
    """The plant of `robot` or `robots`; None if names are not known because a file or a part is wrong.

    A wrong loop is left out, so that the rest of the config is checked against the names of all joints and frames.
    """
    values, before = loaded.config.plant, len(problems)
    descriptions: dict[str, Description] = {}
    for prefix, robot in values.every_robot.items():
        path: FieldPath = ("plant", "robots", prefix) if prefix else ("plant", "robot")
        if (description := _description(robot, loaded.folder, problems, path)) is not None:
            descriptions[prefix] = description
    if len(problems) > before:
        return None
    try:
        plant = _robot(values, descriptions)
    except PlantError as error:
        lines = str(error).splitlines()
        for line in lines:
            problems.add(*_placed(line, values))
        if not all(line.startswith("loops: ") for line in lines):
            return None
        plant = _robot(values.model_copy(update={"loops": None}), descriptions)
    if not plant.coordinates:
        problems.add("no joint moves (check the types of its joints, or give `base: free`)", "plant", values.kind)
        return None
    parameters = dict(values.parameters)
    if parameters.pop(ROTORS, None) is not None:
        remedy = f"give plant.armature: {{{next(iter(plant.actuators), 'joint')}: 0.02}} [kg m^2]"
        problems.add(f"rotors are given by actuator ({remedy})", "plant", "parameters", ROTORS)
    return replaced_parameters(plant, parameters, problems, "plant")


def effort_limits(plant: Robot, problems: Problems) -> dict[str, tuple[float, float]]:
    """Actuator -> limits, from the efforts in the files; an actuator without an effort is a problem."""
    efforts = {name: plant.tree.joint(name).effort for name in plant.actuators}
    missing = [name for name, effort in efforts.items() if effort is None]
    if missing:
        what = f"the file gives no effort for {', '.join(missing)}"
        problems.add(f"robot: {what} (give it there, or write law.limits by actuator)", "law", "limits")
    return {name: effort for name, effort in efforts.items() if effort is not None}


def friction_of_file(plant: Plant, problems: Problems) -> Friction:
    """The dry friction that the files of a robot give."""
    if not isinstance(plant, Robot):
        problems.add("robot: the plant is no robot from a file (write it by actuator)", "plant", "friction")
        return Friction()
    return Friction(coulomb=tuple(plant.tree.friction(name) for name in plant.actuators))


def _robot(values: PlantConfig, descriptions: Mapping[str, Description]) -> Robot:
    """The robots of a config and their parts; raises PlantError if they do not fit each other."""
    builder = RobotBuilder()
    for prefix, robot in values.every_robot.items():
        motors = None if robot.motors == "all" else robot.motors
        builder.add(descriptions[prefix], prefix, robot.at.placement, robot.base, motors)
    for name, body in (values.bodies or {}).items():
        builder.body(name, body.on, body.at.placement, body.m, body.size, body.com, body.inertia)
    for name, frame in (values.frames or {}).items():
        builder.frame(name, frame.on, frame.at.placement)
    for name, loop in (values.loops or {}).items():
        builder.loop(name, cast(LoopKind, loop.kind), *getattr(loop, loop.kind))
    return builder.plant(values.gravity or GRAVITY)


def _placed(line: str, values: PlantConfig) -> tuple[Any, ...]:
    """A problem of the builder, and the field that it is about."""
    part, _, rest = line.partition(": ")
    name, _, what = rest.partition(": ")
    if part in PARTS and what:
        return what, "plant", part, name
    if part in values.every_robot:
        return rest, "plant", "robots", part
    return line, "plant", values.kind


def _description(robot: RobotConfig, folder: Path, problems: Problems, path: FieldPath) -> Description | None:
    """What the robot's file says; None if it is wrong."""
    kind, name = robot.kind, str(robot.urdf or robot.mjcf)
    file = folder / name
    try:
        return _read(kind, file, stamps([file]))
    except (ConfigError, MissingPackageError) as error:
        problems.add(str(error).replace(str(file), name), *path, kind)
    return None


@lru_cache(maxsize=16)  # sweeps and searches build the same robot many times
def _read(kind: str, file: Path, _: tuple[Stamp, ...]) -> Description:
    """Reads a file; its stamps make a changed file another entry of the cache."""
    if kind == "mjcf":
        from servoctl.mechanics.spatial.mjcf import read_mjcf

        return read_mjcf(file)
    from servoctl.mechanics.spatial.urdf import read_urdf

    return read_urdf(file)
