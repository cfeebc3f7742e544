"""`realism.machine` -> a machine that MuJoCo moves."""

import math
from pathlib import Path

from servoctl.assembly.values import Collector
from servoctl.config.realism import MachineConfig
from servoctl.errors import ConfigError, ServoctlError
from servoctl.mechanics.plant import Plant
from servoctl.simulation.mujoco_machine import MujocoMachine


def build_machine(
    values: MachineConfig, folder: Path, step: float | None, plant: Plant, problems: Collector
) -> MujocoMachine | None:
    """The machine; None if it does not fit the plant.

    Args:
        values: The section.
        folder: The folder that its file is relative to.
        step: Step of rk4 [s]; None: another method.
        plant: The law's plant.
        problems: Collects the problems.
    """
    try:
        return MujocoMachine(folder / str(values.file), plant, math.inf if step is None else step)
    except ServoctlError as error:
        kind = "urdf" if values.mjcf is None else "mjcf"
        for problem in error.problems if isinstance(error, ConfigError) else [str(error)]:
            problems.add(problem, "realism", "machine", kind)
        return None
