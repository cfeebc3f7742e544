"""Motions by hand: what the operator does for a calibration, its file, and the motion of stage float as a reference."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from hil.assembly.setup import RigSetup
from hil.drives.base import Node, listed
from hil.safety.plan import Phase
from hil.session.calibration import CalibratedAxis
from servoctl.errors import ConfigError, RunFolderError, WriteError
from servoctl.run_folder.files import write_files
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array

FILE = "calibration.yaml"

DURATION = 20.0  # [s] default time for the motion by hand


def refuse_unreadable(setup: RigSetup) -> None:
    """Refuses drives that answer only to commands of torque; ConfigError if there is one; names all."""
    silent: dict[str, list[Node]] = {}
    for node in setup.nodes:
        if not node.readable:
            silent.setdefault(node.settings.protocol, []).append(node)
    problems = [
        f"--calibrate: {protocol}: {listed(nodes)}: answers only to commands of torque, so its encoder cannot be read "
        "without one (set sign and offset in the config by the drive maker's tool, and check them with --stage zero)"
        for protocol, nodes in silent.items()
    ]
    if problems:
        raise ConfigError(problems)


def instructions(setup: RigSetup, duration: float, emulated: bool) -> list[str]:
    """What the operator does, one line each."""
    units = setup.plant.coordinates.items()
    pose = ", ".join(f"{name} {x:.4g} {unit}" for (name, unit), x in zip(units, setup.start.q, strict=True))
    names = listed(setup.drives)
    every, stops = all(drive.settings.has_stops for drive in setup.drives), _stops(setup)
    lines = [
        f"calibrate: nodes are asked for samples for {duration:g} s; no drive is enabled, none makes torque",
        "1. put the machine anywhere between its stops and leave it there for the first second"
        if every
        else f"1. put the machine at initial.q and leave it there for the first second: {pose}",
        "2. release the brakes by hand where there are any, and carry a machine that falls",
        f"3. move {names} one after another: each first in its positive direction, then through all that it may use",
    ]
    if stops:
        lines.append(
            f"4. push each of these firmly against its stops on the way, twice where only one is known: {stops}"
        )
    return [*lines, "the drives are emulated: an emulated hand does all this"] if emulated else lines


def _stops(setup: RigSetup) -> str:
    """The stops of the drives, in words; empty if there are none."""
    words = []
    for drive, unit in zip(setup.drives, setup.units, strict=False):
        known = [f"{stop:.4g} {unit}" for stop in drive.settings.stops if np.isfinite(stop)]
        words += [f"{drive.settings.name} at {' and '.join(known)}"] if known else []
    return ", ".join(words)


def write_calibration(folder: Path | None, setup: RigSetup, axes: Sequence[CalibratedAxis]) -> Path | None:
    """Writes what was found into `calibration.yaml`, to lay over the config; returns its path.

    None if anything of it is refused, or there is no folder. Raises RunFolderError if it cannot be written.
    """
    if folder is None or not axes or any(axis.problem for axis in axes):
        return None
    name = setup.run.name
    lines = [
        f"# signs, zeros and ranges of {name}, found by hand: servoctl hil {name} --set-file {FILE}",
        "hil:",
        "  drives:",
    ]
    for axis, unit in zip(axes, setup.units, strict=False):
        entry: Mapping[str, Any] = {
            "actuator": axis.name, "sign": axis.sign, "offset": axis.offset,
            "position_limits": list(axis.position_limits),
        }  # fmt: skip
        text = yaml.safe_dump(entry, default_flow_style=True, sort_keys=False, width=10_000).strip()
        checked = f"residual {axis.residual:.2g} steps" if np.isfinite(axis.residual) else "no other encoder checks it"
        found = f"sign from {axis.evidence}; zero from {axis.zero_from}; {checked}; limits: range seen"
        lines.append(f"    - {text}  # [{unit}] {found}")
    write_files(folder, [(FILE, ("\n".join(lines) + "\n").encode())])
    return folder / FILE


SPACING = 0.02
"""Time between two rows [s]. Each one is the mean over as much time around it: a spline through every sample of an
encoder would ask for the acceleration of its steps."""

LEAST_ROWS = 3  # a spline needs so many rows


def check_recording(path: Path) -> None:
    """Refuses a file that cannot be written after the run; ConfigError: it is no CSV file, or its folder is missing."""
    if path.suffix.lower() != ".csv":
        raise ConfigError(f"--record: expected a name that ends in .csv, got {path}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--record: {path.absolute().parent}: no such folder (make it first)")


def guided_motion(run: Trajectory) -> tuple[Array, Array]:
    """Times from 0, shape (rows,) [s], and smoothed coordinates, shape (rows, n), of the part in stage float."""
    guided = run.columns["stage"] == Phase.FLOAT.number
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

    Raises RunFolderError if the file cannot be written, or the run ended before a hand could guide the machine.
    """
    times, q = guided_motion(run)
    if len(times) < LEAST_ROWS:
        raise RunFolderError(f"--record: {path}: not written, the run ended before stage float (see its events)")
    lines = [",".join(["t", *coordinates])]
    lines += [",".join(f"{x:.9g}" for x in (t, *row)) for t, row in zip(times, q, strict=True)]
    try:
        write_files(path.parent, [(path.name, ("\n".join(lines) + "\n").encode())])
    except WriteError as error:
        raise WriteError(f"--record: {error}") from error
    moved = ", ".join(
        f"{name} {span:.3g} {run.units[f'q.{name}']}" for name, span in zip(coordinates, np.ptp(q, axis=0), strict=True)
    )
    use = f"references: {{guided: {{file: {path.name}}}}}"
    return f"guided motion of {times[-1]:.2f} s written to {path} (moved: {moved}); a task can follow it: {use}"
