"""A config's `realism.machine` -> a machine that MuJoCo moves."""

import math

from servoctl.assembly.problems import Problems
from servoctl.config.load import LoadedConfig
from servoctl.errors import ConfigError, ServoctlError
from servoctl.mechanics.plant import Plant
from servoctl.simulation.mujoco_machine import MujocoMachine


def build_machine(loaded: LoadedConfig, plant: Plant, problems: Problems) -> MujocoMachine | None:
    """The machine of `realism.machine`; None if it does not fit the plant.

    Args:
        loaded: A config with this section.
        plant: The law's plant.
        problems: Collects the problems.
    """
    realism, how = loaded.config.realism, loaded.config.run.integrator
    assert realism is not None and realism.machine is not None
    step = math.inf if how.step is None or how.method != "rk4" else how.step
    try:
        return MujocoMachine(loaded.folder / str(realism.machine.file), plant, step)
    except ServoctlError as error:
        kind = "urdf" if realism.machine.mjcf is None else "mjcf"
        for problem in error.problems if isinstance(error, ConfigError) else [str(error)]:
            problems.add(problem, "realism", "machine", kind)
        return None
