"""Run folders, and tables of other programs, as logs: positions and torques at a constant spacing.

Design: a simulated run logs its true state, so noise and resolution of its `realism` are applied again: the estimate
sees what the law saw. Speeds are not used. Of a run on drives the rows in which drives make torque are used.

Design: a table says neither what its columns mean nor how late a torque acts. The section `log` of the config names
columns and units; delays are estimated. Stamps may be uneven: a spline through the positions puts all rows at a
constant spacing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline

from servoctl.assembly import Run, load
from servoctl.assembly.make import make_run
from servoctl.assembly.values import Problems
from servoctl.config import load_config
from servoctl.config.load import LoadedConfig
from servoctl.config.overrides import Override
from servoctl.config.references import UNITS, LogConfig
from servoctl.errors import ConfigError, no_such, remedy
from servoctl.mechanics.actuator_parameters import FIELD, armature_of
from servoctl.mechanics.friction import Friction, friction_of
from servoctl.mechanics.plant import Plant
from servoctl.reference.table import Table, read_table
from servoctl.run_folder import load_run
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.realism import tick_noise
from servoctl.types import Array

CONFIG = "config.yaml"

SHORTEST = 200  # fewest rows of a log
EVEN = 1e-6  # spacings this much alike count as equal, relative to their median; others are interpolated
WORKING = ("ramp", "full")  # stages of a run on drives in which torques act as they are logged


@dataclass(frozen=True)
class Log:
    """An uninterrupted part of a run."""

    name: str  # the folder, for messages
    h: float  # [s] spacing of the rows
    t: Array  # times of the plant's terms [s], shape (rows,)
    q: Array  # positions as measured, shape (rows, n)
    u: Array  # torques, shape (rows, m)
    delay: float  # [s] how much later a logged torque acts than its row, on average
    sure: bool  # whether that delay is known exactly

    def acting(self, delays: Array | float) -> Array:
        """Torques at the times of the rows if each acts so much later than its own row [s], shape (rows, m)."""
        index, late = np.arange(len(self.u), dtype=float), np.broadcast_to(delays, self.u.shape[1:])
        return np.column_stack([np.interp(index - d / self.h, index, x) for d, x in zip(late, self.u.T, strict=True)])


def read_logs(folders: Sequence[str | PathLike[str]], classes: Path | None = None) -> tuple[Run, list[Log]]:
    """The run of the first folder's config, and the logs of all folders.

    Args:
        folders: Run folders of one plant.
        classes: Folder of Python files such as `arm.py:Arm`; None: where they were.

    Raises:
        ConfigError: Everything that is wrong with the logs.
        RunFolderError: A folder cannot be read.
    """
    first: Run | None = None
    logs: list[Log] = []
    problems: list[str] = []
    for folder in map(Path, folders):
        trajectory = load_run(folder)
        if not (folder / CONFIG).is_file() or not (folder / CONFIG).stat().st_size:
            problems.append(f"{folder}: has no {CONFIG}, so its plant is not known (use a folder of `servoctl run`)")
            continue
        loaded = load_config(folder / CONFIG).of_folder(classes)
        run = make_run(loaded, engine="numpy", strict=False, waiting=_on_drives(trajectory))
        run = replace(run, name=str(trajectory.metadata.get("config") or folder.name))
        plant = run.system.model.plant
        found = _problems(folder, trajectory, plant)
        if first is not None and not _same(plant, first.system.model.plant):
            found.append(f"{folder}: is a run of another plant than {folders[0]} (identify each plant by itself)")
        problems += found
        if not found:
            first = first or run
            logs += _logs(folder, trajectory, run, problems)
    if problems or first is None:
        raise ConfigError(problems or "no run folder given")
    return first, logs


def _on_drives(trajectory: Trajectory) -> bool:
    return "lateness" in trajectory.columns


def _same(plant: Plant, other: Plant) -> bool:
    return (
        type(plant).__name__ == type(other).__name__
        and dict(plant.coordinates) == dict(other.coordinates)
        and dict(plant.actuators) == dict(other.actuators)
    )


def _problems(folder: Path, trajectory: Trajectory, plant: Plant) -> list[str]:
    """Why a trajectory is no log of a plant; the messages name the columns."""
    missing = [f"q.{name}" for name in plant.coordinates if f"q.{name}" not in trajectory.columns]
    unknown = [name for name in trajectory.coordinates if name not in plant.coordinates]
    if missing or unknown:
        named = ", ".join(missing or [f"q.{name}" for name in unknown])
        return [f"{folder}: {named}: is a log of another plant than its {CONFIG} (columns and coordinates differ)"]
    torques = [f"u.{name}" for name in plant.actuators]
    if not torques or any(name not in trajectory.columns for name in torques):
        absent = [name for name in torques if name not in trajectory.columns]
        return [f"{folder}: {', '.join(absent) or 'u'}: no torques in the log (log the commands of the drives)"]
    return []


def _logs(folder: Path, trajectory: Trajectory, run: Run, problems: list[str]) -> list[Log]:
    """The parts of a trajectory without gaps; notes why there are none."""
    rows = _working(trajectory)
    t, q, u = trajectory.t[rows], trajectory.q[rows], _acting(trajectory)[rows]
    before = len(problems)
    for prefix, array, names in (("q", q, trajectory.coordinates), ("u", u, trajectory.actuators)):
        for name, column in zip(names, array.T, strict=True):
            wrong = np.flatnonzero(~np.isfinite(column))
            if len(wrong):
                problems.append(
                    f"{folder}: {prefix}.{name}: {len(wrong)} values are not finite, the first at t = "
                    f"{t[wrong[0]]:.6g} s (the run failed there: use another run)"
                )
    if len(t) < SHORTEST:
        problems.append(f"{folder}: too short: {len(t)} rows with torque (at least {SHORTEST} are needed)")
    elif not np.any(u):
        problems.append(f"{folder}: no torques in the log: every u is 0 (log a run with a law)")
    if len(problems) > before:
        return []
    h, period, realism = float(np.median(np.diff(t))), run.settings.period, run.system.realism
    clock = trajectory["task_time"][rows] if "task_time" in trajectory.columns else t
    if _on_drives(trajectory):
        found = parts_without_gaps(str(folder), t, 1.5 * h, clock, q, u, delay=1.5 * h)
    else:  # a simulated run has no gaps, only steps of any length
        even = evenly(t, h, clock, _as_measured(run, t, q, trajectory.v[rows]), u, smooth=period is None)
        delay, sure = (0.0, True) if period is None else (0.5 * h, realism is None or realism.timing.whole)
        found = [Log(str(folder), h, *even, delay, sure)]
    if not found:
        problems.append(f"{folder}: too short: no {SHORTEST} rows without a gap")
    return found


def _working(trajectory: Trajectory) -> Array:
    """The rows to use: of a run on drives those in which torques act as logged."""
    names = trajectory.metadata.get("stages", [])
    if "stage" not in trajectory.columns or not names:
        return np.ones(len(trajectory), dtype=bool)
    codes = [names.index(name) for name in WORKING if name in names]
    return np.isin(np.asarray(trajectory["stage"], dtype=int), codes)


def _acting(trajectory: Trajectory) -> Array:
    """The torques that the drives got, shape (rows, m): on drives those in the frames, rounded to the protocol's steps.

    Some protocols round towards zero: the torques before rounding are too large on average.
    """
    names = [f"sent.{name}" for name in trajectory.actuators]
    if any(name not in trajectory.columns for name in names):
        return trajectory.u
    return np.column_stack([trajectory[name] for name in names])


def _as_measured(run: Run, t: Array, q: Array, v: Array) -> Array:
    """Positions of a simulated run with the noise and the resolution that its law saw."""
    realism = run.system.realism
    if realism is None or run.settings.period is None:
        return q
    ticks = np.rint((t - run.start.t) / realism.timing.h).astype(int)
    noise = np.zeros((len(t), 2 * q.shape[1] + 1))
    if realism.random:
        noise = tick_noise(run.settings.seed, 0, int(ticks[-1]) + 1, q.shape[1])[ticks]
    return realism.measured(np.hstack([q, v]), noise)[:, : q.shape[1]]


def parts_without_gaps(name: str, t: Array, gap: float, clock: Array, q: Array, u: Array, delay: float) -> list[Log]:
    """The parts of a log between rows that are further apart than a gap [s], if they are long enough."""
    cuts = [0, *(np.flatnonzero(np.diff(t) > gap) + 1).tolist(), len(t)]
    h, parts = float(np.median(np.diff(t))), [slice(begin, end) for begin, end in pairwise(cuts)]
    return [
        Log(name, h, *evenly(t[part], h, clock[part], q[part], u[part], smooth=False), delay, sure=False)
        for part in parts
        if len(t[part]) >= SHORTEST
    ]


def evenly(t: Array, h: float, clock: Array, q: Array, u: Array, smooth: bool) -> tuple[Array, Array, Array]:
    """Clock, positions and torques at a constant spacing; the last row is left out if it comes early.

    Args:
        t, clock, q, u: As logged.
        h: The spacing [s].
        smooth: Whether the torques change continuously; else each is held until the next.
    """
    if len(t) > 2 and t[-1] - t[-2] < h * (1.0 - EVEN):
        t, clock, q, u = t[:-1], clock[:-1], q[:-1], u[:-1]
    grid = t[0] + h * np.arange(len(t))
    if np.abs(grid - t).max() <= EVEN * h * max(1.0, len(t) * 1e-3):
        return clock, q, u
    grid = t[0] + h * np.arange(int((t[-1] - t[0]) / h * (1.0 + EVEN)) + 1)
    grid = grid[grid <= t[-1]]
    torques = CubicSpline(t, u)(grid) if smooth else np.column_stack([np.interp(grid, t, column) for column in u.T])
    return np.interp(grid, t, clock), CubicSpline(t, q)(grid), torques


GONE = 1e-12  # a relative error of -1 is not one: of what the machine does not have, this share is left


@dataclass(frozen=True)
class SimulatedMachine:
    """What moved in a simulated log."""

    plant: Plant  # with the parameters of the machine
    friction: Friction | None  # of the machine; None: `realism.friction` or `hil.emulation` states it already
    realism: bool  # whether the config has `realism`, whose errors are relative to the plant
    emulated: tuple[str, ...] | None  # parameters that `hil.emulation` states already; None: there are no drives

    def sections(self, identified: Mapping[str, float | Sequence[float]], rubs: bool) -> dict[str, Any]:
        """Sections of a config that keep this machine.

        Args:
            identified: Parameter -> value that the plant gets.
            rubs: Whether the plant gets friction too.
        """
        found: dict[str, Any] = {}
        if self.realism:
            errors = {name: self._error(name, value) for name, value in identified.items()}
            found["realism"] = {"parameter_error": errors} if errors else {}
            if rubs and self.friction is not None:
                kinds = ("coulomb", "viscous", "speed")
                found["realism"]["friction"] = {kind: list(getattr(self.friction, kind)) for kind in kinds}
        if self.emulated is not None:
            known = {name: getattr(self.plant, name, None) for name in identified}
            if FIELD in identified:
                del known[FIELD]
                rotors = armature_of(self.plant) or (0.0,) * len(self.plant.actuators)
                known |= zip((f"{FIELD}.{name}" for name in self.plant.actuators), rotors, strict=True)
            parameters = {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in known.items()
                if value is not None and name not in self.emulated
            }
            found["hil"] = {"emulation": {"parameters": parameters}} if parameters else {}
        return {name: section for name, section in found.items() if section}

    def _error(self, name: str, identified: float | Sequence[float]) -> float | list[float]:
        """The relative error that gives the machine's value."""
        value: Array = np.asarray(identified, dtype=float)
        true = np.broadcast_to(np.asarray(getattr(self.plant, name, 0.0), dtype=float), value.shape)
        ratio = np.divide(true, value, out=np.ones(value.shape), where=value != 0.0)
        error: float | list[float] = (np.maximum(ratio, GONE) - 1.0).tolist()
        return error


def simulated_machine(run: Run) -> SimulatedMachine | None:
    """The machine of a run's config; None where the law's own plant moves, or another program moves it."""
    if run.loaded is None:
        return None
    values = run.loaded.config
    if values.realism is None and values.hil is None:
        return None
    if values.realism is not None and values.realism.machine is not None:
        return None
    plant = run.system.model.plant
    friction = friction_of(plant) or Friction().ready(plant, Problems(run.loaded))
    stated = values.realism is not None and values.realism.friction is not None
    moved = plant if run.system.simulated is None else run.system.simulated.plant
    emulated = None if values.hil is None else tuple(values.hil.emulation.parameters)
    return SimulatedMachine(moved, None if stated else friction, values.realism is not None, emulated)


GAP = 10.0  # rows further apart than so many usual spacings are a gap

SECTION = "log: {time: time, q: [q1, q2], u: [tau1, tau2], scale: {q1: deg}}"


def read_tables(
    paths: Sequence[Path], config: str | Path, overrides: Sequence[Override] = ()
) -> tuple[Run, list[Log], dict[str, str]]:
    """The run of a config, the logs of all tables, and the column of each coordinate, each actuator and `time`.

    Args:
        paths: CSV or Parquet files of one machine; a file that does not exist is looked for in the config's folder.
        config: Its config, with a section `log`.
        overrides: As after `--set`.

    Raises:
        ConfigError: Everything that is wrong with the config and the tables.
    """
    run = load(config, overrides, engine="numpy", strict=False)
    assert run.loaded is not None
    values, plant = run.loaded.config.log, run.system.model.plant
    if values is None:
        raise ConfigError(f"{run.loaded.path}: log: missing (say what the columns of a table are, such as {SECTION})")
    columns = _columns(run.loaded, values, plant)
    logs: list[Log] = []
    problems: list[str] = []
    for given in paths:
        in_folder = run.loaded.folder / given
        path = in_folder if in_folder.is_file() and not given.exists() else given
        try:
            logs += _of_table(path, values, columns)
        except ConfigError as error:
            named = str(error).splitlines()
            problems += [one if one.startswith(f"{path}: ") else f"{path}: {one}" for one in named]
    if problems:
        raise ConfigError(problems)
    names = {"q": plant.coordinates, "u": plant.actuators, "time": ["time"]}
    return run, logs, {name: column for key in columns for name, column in zip(names[key], columns[key], strict=True)}


def _columns(loaded: LoadedConfig, values: LogConfig, plant: Plant) -> dict[str, dict[str, float]]:
    """`time`, `q` and `u` -> columns in the plant's order, each with the factor to the plant's unit."""
    problems = Problems(loaded)
    used = {
        "q": _named(values.q, plant.coordinates, "coordinate", problems, "q"),
        "u": _named(values.u, plant.actuators, "actuator", problems, "u"),
    }
    if values.time is not None:
        used["time"] = {values.time: "s"}
    units = {column: unit for columns in used.values() for column, unit in columns.items()}
    for wrong in [column for column in values.scale if column not in units]:
        problems.add(f"no such column is used ({remedy(wrong, units)})", "log", "scale", wrong)
    for column, unit in units.items():
        word = values.scale.get(column, 1.0)
        if isinstance(word, str) and UNITS[word][0] != unit:
            fitting = ", ".join(name for name, (to, _) in UNITS.items() if to == unit) or "a factor"
            problems.add(f"{word!r} is no unit of a column in {unit} (use {fitting})", "log", "scale", column)
    problems.check()
    factors = {column: values.scale.get(column, 1.0) for column in units}
    numbers = {column: UNITS[word][1] if isinstance(word, str) else word for column, word in factors.items()}
    return {key: {column: numbers[column] for column in columns} for key, columns in used.items()}


def _named(
    given: Sequence[str] | Mapping[str, str], units: Mapping[str, str], kind: str, problems: Problems, key: str
) -> dict[str, str]:
    """Column -> unit, in the plant's order."""
    if isinstance(given, Mapping):
        for wrong in [name for name in given if name not in units]:
            problems.add(no_such(kind, wrong, units), "log", key, wrong)
        missing = [name for name in units if name not in given]
        if missing:
            problems.add(f"no column for {', '.join(missing)} (give every {kind})", "log", key)
        columns = [given[name] for name in units if name in given]
    else:
        columns = list(given)
        if len(columns) != len(units):
            what = f"{len(columns)} columns for {len(units)} {kind}s"
            problems.add(f"{what} (in this order: {', '.join(units)})", "log", key)
    if len(set(columns)) < len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        problems.add(f"column {twice!r} is used twice (each {kind} has a column of its own)", "log", key)
    return dict(zip(columns, units.values(), strict=False))


def _of_table(path: Path, values: LogConfig, columns: Mapping[str, Mapping[str, float]]) -> list[Log]:
    """The parts of a table without gaps; raises ConfigError with everything that is wrong."""
    table = read_table(path, foreign=True)
    missing = [column for used in columns.values() for column in used if column not in table.columns]
    if missing:
        known = ", ".join(table.columns)
        raise ConfigError([
            f"no column {column!r} (there are: {known[:200]}; name the columns under `log` of the config)"
            for column in missing
        ])  # fmt: skip
    if len(table.rows) < SHORTEST:
        raise ConfigError(f"too short: {len(table.rows)} rows (at least {SHORTEST} are needed)")
    numbers: dict[str, Array] = {}
    problems: list[str] = []
    for column in dict.fromkeys(column for used in columns.values() for column in used):
        try:
            numbers[column] = table.numbers(column)
        except ConfigError as error:
            problems += str(error).splitlines()
    if problems:
        raise ConfigError(problems)
    q, u = (np.column_stack([factor * numbers[name] for name, factor in columns[key].items()]) for key in ("q", "u"))
    if not np.any(u):
        raise ConfigError(f"no torques in the log: {', '.join(columns['u'])} are 0 in every row (log the torques)")
    if values.rate is not None:
        t = np.arange(len(q)) / values.rate
    else:
        [(column, factor)] = columns["time"].items()
        t = factor * (numbers[column] - numbers[column][0])
        _check_order(table, column, t)
    h = float(np.median(np.diff(t)))
    logs = parts_without_gaps(str(path), t, GAP * h, t, q, u, delay=0.0)
    if not logs:
        raise ConfigError(f"too short: no {SHORTEST} rows without a gap of more than {GAP * h:.3g} s")
    return logs


def _check_order(table: Table, column: str, t: Array) -> None:
    """Raises ConfigError if times do not increase."""
    wrong = np.flatnonzero(np.diff(t) <= 0.0)
    if len(wrong):
        first, cells = wrong[0], table.columns[column]
        raise ConfigError(
            f"{table.word} {table.rows[first + 1]}, column {column!r}: {cells[first + 1]} follows {cells[first]} "
            f"({len(wrong)} times do not increase: sort the rows, and leave out those with equal times)"
        )
