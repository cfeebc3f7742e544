"""Tables of a machine that another program moved, as logs of the plant of a config.

Design: a table says neither what its columns mean nor how late a torque acts. The section `log` of the config names
columns and units; delays are estimated. Stamps may be uneven: a spline through the positions puts all rows at a
constant spacing, as `servoctl.identification.log` needs them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from servoctl.assembly import Run, load
from servoctl.assembly.values import Problems
from servoctl.config.load import LoadedConfig
from servoctl.config.log import UNITS, LogConfig
from servoctl.config.overrides import Override
from servoctl.errors import ConfigError, no_such, remedy
from servoctl.identification.log import SHORTEST, Log, evenly, parts_without_gaps
from servoctl.mechanics.plant import Plant
from servoctl.reference.table import Table, read_table
from servoctl.types import Array

GAP = 10.0  # rows further apart than so many usual spacings are a gap

SECTION = "log: {time: time, q: [q1, q2], u: [tau1, tau2], scale: {q1: deg}}"


def read_tables(
    paths: Sequence[Path], config: str | Path, overrides: Sequence[Override] = ()
) -> tuple[Run, list[Log], dict[str, str]]:
    """The run of a config, the logs of all tables, and the column of each coordinate, each actuator and `time`.

    Args:
        paths: CSV or Parquet files of one machine; those that are not there are looked for beside the config.
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
        beside = run.loaded.folder / given
        path = beside if beside.is_file() and not given.exists() else given
        try:
            logs += _logs(path, values, columns)
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


def _logs(path: Path, values: LogConfig, columns: Mapping[str, Mapping[str, float]]) -> list[Log]:
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
    logs = [
        Log(str(path), h, *evenly(t[part], h, t[part], q[part], u[part], smooth=False), delay=0.0, sure=False)
        for part in parts_without_gaps(t, GAP * h)
        if len(t[part]) >= SHORTEST
    ]
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
