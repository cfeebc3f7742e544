"""Loads a file by MuJoCo, where it is installed."""

from pathlib import Path
from typing import Any

from servoctl.errors import ConfigError, MissingPackageError


def load_scene(path: Path) -> tuple[Any, Any]:
    """The module `mujoco` and its model of a file, an MJCF or a URDF.

    Raises:
        ConfigError: MuJoCo cannot read the file.
        MissingPackageError: MuJoCo is not installed.
    """
    try:
        import mujoco
    except ImportError as error:
        raise MissingPackageError(f"{path}: it needs MuJoCo (pip install 'servoctl[mujoco]')") from error
    # else MuJoCo writes its warnings to a file in the user's folder; errors of a run say themselves that it ended
    mujoco.set_mju_user_warning(lambda text: None)
    try:
        return mujoco, mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        raise ConfigError(f"{path}: MuJoCo cannot read it: {' '.join(str(error).split())}") from error
