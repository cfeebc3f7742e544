"""Writes the motion of stage float as a reference file, which a task can follow."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hil.recorder.columns import STAGES
from hil.safety.plan import Phase
from servoctl.errors import ConfigError, RunFolderError, WriteError
from servoctl.run_folder.files import replace
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array

SPACING = 0.02
"""Time between two rows [s]. Each one is the mean over as much time around it: a spline through every sample of an
encoder would ask for the acceleration of its steps."""

LEAST_ROWS = 3  # a spline needs so many rows


def check_recording(path: Path) -> None:
    """Refuses a file that cannot be written after the run.

    Raises:
        ConfigError: It is no CSV file, or its folder is missing.
    """
    if path.suffix.lower() != ".csv":
        raise ConfigError(f"--record: expected a name that ends in .csv, got {path}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--record: {path.absolute().parent}: no such folder (make it first)")


def guided_motion(run: Trajectory) -> tuple[Array, Array]:
    """Times from 0, shape (rows,) [s], and smoothed coordinates, shape (rows, n), of the part in stage float."""
    guided = run.columns["stage"] == STAGES.index(Phase.FLOAT.value)
    t, q = run.t[guided], run.q[guided]
    if not len(t):
        return t, q
    t = t - t[0]
    times = np.linspace(0.0, t[-1], max(2, round(t[-1] / SPACING) + 1))
    # the window narrows towards the ends, so that the first and the last row are the poses there
    width = np.minimum(SPACING / 2, np.minimum(times, t[-1] - times)) + 1e-9
    rows = [q[np.abs(t - centre) <= half].mean(axis=0) if (np.abs(t - centre) <= half).any() else
            q[np.argmin(np.abs(t - centre))] for centre, half in zip(times, width, strict=True)]  # fmt: skip
    return times, np.array(rows)


def write_guided_motion(path: Path, run: Trajectory, coordinates: Sequence[str]) -> str:
    """Writes `t` and the coordinates; returns a sentence on what was written.

    Raises:
        RunFolderError: The file cannot be written, or the run ended before a hand could guide the machine.
    """
    times, q = guided_motion(run)
    if len(times) < LEAST_ROWS:
        raise RunFolderError(f"--record: {path}: not written, the run ended before stage float (see its events)")
    lines = [",".join(["t", *coordinates])]
    lines += [",".join(f"{x:.9g}" for x in (t, *row)) for t, row in zip(times, q, strict=True)]
    text = "\n".join(lines) + "\n"
    try:
        replace(path, lambda file: file.write(text.encode()))
    except OSError as error:
        raise WriteError(f"--record: {path}: cannot be written: {error.strerror or error}") from error
    moved = ", ".join(
        f"{name} {span:.3g} {run.units[f'q.{name}']}" for name, span in zip(coordinates, np.ptp(q, axis=0), strict=True)
    )
    use = f"references: {{guided: {{file: {path.name}}}}}"
    return f"guided motion of {times[-1]:.2f} s written to {path} (moved: {moved}); a task can follow it: {use}"
