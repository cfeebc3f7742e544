"""Identifies the constant parameters of a plant from logs of positions and torques."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from servoctl.errors import ConfigError, ServoctlError
from servoctl.identification.equations import Equations
from servoctl.identification.fit import fit
from servoctl.identification.log import read_logs
from servoctl.identification.machine import simulated_machine
from servoctl.identification.result import Identification
from servoctl.identification.rows import Raw, cutoff_of, raw_rows
from servoctl.identification.selection import select
from servoctl.types import Array


@np.errstate(all="ignore")  # numbers that are not finite are reported by name
def identify(
    runs: str | PathLike[str] | Sequence[str | PathLike[str]],
    parameters: Sequence[str] | None = None,
    bandwidth: float | None = None,
    classes: str | PathLike[str] | None = None,
) -> Identification:
    """Identifies parameters and friction from runs, simulated or on drives.

    Args:
        runs: A run folder, or several of one plant.
        parameters: Names such as `m1`, `tool_m`, `friction`, `friction.viscous.u1`; None: all parameters in which the
            equations of motion are linear, and the friction that the logs show.
        bandwidth: Cut-off frequency of the positions [Hz]; None: eight times the bandwidth of the motion.
        classes: Folder of Python files such as `arm.py:Arm` in the config of a run; None: where they were.

    Raises:
        ConfigError: A log has no torques, no excitation, a value that is not finite, or is too short, or belongs to
            another plant; a name of a parameter is wrong.
        RunFolderError: A folder cannot be read.
        PlantError: The plant's code cannot be differentiated.
    """
    folders = [runs] if isinstance(runs, str | PathLike) else list(runs)
    run, logs = read_logs(folders, None if classes is None else Path(classes))
    unknowns, left_out = select(run.system.model.plant, parameters)
    plant = unknowns.plant
    if not unknowns.names:
        raise ConfigError(f"{type(plant).__name__} has no parameter that a log can identify")
    if bandwidth is not None and not 0.0 < bandwidth < 0.5 / logs[0].h:
        raise ConfigError(f"--bandwidth {bandwidth:g}: expected a frequency from 0 to {0.5 / logs[0].h:g} Hz")
    cutoff = cutoff_of(logs) if bandwidth is None else bandwidth
    equations = Equations(unknowns)

    def evaluate(x: Array, delays: Array, cutoff: float) -> Sequence[Raw]:
        return raw_rows(equations, logs, x, cutoff, delays.tolist())

    try:
        found = fit(
            unknowns, evaluate, lambda: equations.freedom, cutoff, np.array([log.delay for log in logs]),
            np.array([not log.sure for log in logs]), parameters is None,
        )  # fmt: skip
    except np.linalg.LinAlgError as error:
        raise ServoctlError(f"{folders[0]}: the fit failed: {error}") from error
    shown = set(found.unknowns.names)
    missing = tuple(name for name in unknowns.names if name not in shown)
    return Identification(
        run.name, tuple(map(str, folders)), plant, found, left_out, missing, cutoff, simulated_machine(run)
    )
