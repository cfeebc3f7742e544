"""The hierarchy of passive constraints of a config, checked against the plant's groups."""

from collections.abc import Mapping

from servoctl.assembly.values import Problems
from servoctl.config.load import LoadedConfig
from servoctl.config.plant import PassiveLevelConfig
from servoctl.config.rules import in_order
from servoctl.engine.symbol import symbols
from servoctl.errors import PlantError
from servoctl.expression.suggest import remedy
from servoctl.mechanics import plant_values
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.hierarchy import PassiveLevel, declared_levels
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State

PATH = ("plant", "passive", "levels")


def build_levels(loaded: LoadedConfig, plant: Plant, start: State, problems: Problems) -> tuple[PassiveLevel, ...]:
    """The levels of the config in order; if it names none, those that the plant declares."""
    values = loaded.config.plant.passive.levels
    size = _group_sizes(plant, start)
    if size is None:
        return ()
    if values is None:
        declared = declared_levels(plant)
        return declared if size.keys() == {group for level in declared for group in level.groups} else ()
    if not size:
        problems.add(f"{type(plant).__name__} has no mechanism constraints (leave levels out)", *PATH)
        return ()
    for name, level in values.items():
        _check_level(name, level, size, problems)
    listed = [group for level in values.values() for group in level.groups]
    missing = [group for group in size if group not in listed]
    if missing:
        problems.add(f"no level has {', '.join(missing)} (every mechanism group belongs to one level)", *PATH)
    order = in_order({name: level.after for name, level in values.items()})
    return tuple(PassiveLevel(name, values[name].groups, values[name].clearance) for name in order)


def place_of(loaded: LoadedConfig, level: str) -> tuple[str, ...]:
    """The config field of a level: its own, or the class of the plant if the plant declares it."""
    return ("plant", "class") if loaded.config.plant.passive.levels is None else (*PATH, level)


def _group_sizes(plant: Plant, start: State) -> dict[str, int] | None:
    """Passive group -> number of rows; None if the plant fails, which is reported when the system is built."""
    try:
        groups = plant_values.passive_groups(plant, "passive_constraints", start, True)
        groups |= plant_values.passive_groups(plant, "passive_rates", start, True)
    except PlantError:
        return None
    return {name: _row_count(rows, plant) for name, rows in groups.items()}


def _row_count(rows: Array | Constraint, plant: Plant) -> int:
    """Number of rows of a passive group."""
    if not isinstance(rows, Constraint):
        return rows.size
    q, v, t = (symbols(name, count) for name, count in zip("qvt", (*2 * [len(plant.coordinates)], 1), strict=True))
    return len(rows.rows(plant, t[0], q, v).b)


def _check_level(name: str, level: PassiveLevelConfig, size: Mapping[str, int], problems: Problems) -> None:
    for i, group in enumerate(level.groups):
        if group not in size:
            problems.add(f"there is no mechanism group {group!r} ({remedy(group, size)})", *PATH, name, "groups", i)
    known = [group for group in level.groups if group in size]
    rows = sum(size[group] for group in known)
    if isinstance(level.clearance, tuple) and len(level.clearance) != rows and len(known) == len(level.groups):
        given = f"{len(level.clearance)} values for {rows} {'row' if rows == 1 else 'rows'}"
        shown = ", ".join(f"{group} {size[group]}" for group in known)
        problems.add(f"{given} (give one number for all, or one per row: {shown})", *PATH, name, "clearance")
