"""The rows of a plant's own constraints, a task and bounds: what each one is, and their compiled derivatives.

A plant's own constraints become `Constraint` objects here, one per named group.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.trace import trace
from servoctl.errors import PlantError, TaskError, TraceError
from servoctl.expression import per_second
from servoctl.mechanics.constraint import Constraint, Holonomic, Nonholonomic, Rows
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.plant_values import plant_arrays
from servoctl.mechanics.terms import Matrices
from servoctl.mechanics.traced_plant import Traced, traced
from servoctl.types import Array, State

HINT = " (a constraint must be traceable, because it is differentiated on symbols)"


def passive_constraints(plant: Plant, t: Any, q: Array, v: Array) -> dict[str, tuple[str, Constraint]]:
    """A plant's own constraints at these symbols: group -> the method that gives it, and the constraint.

    Raises:
        TraceError: A method cannot be traced; the message names it.
    """
    groups: dict[str, tuple[str, Constraint]] = {}
    for method, derived in (("passive_constraints", Holonomic), ("passive_rates", Nonholonomic)):
        try:
            values = trace(getattr(plant, method), *((q, t) if derived is Holonomic else (q, v, t)))
        except TraceError as error:
            raise TraceError(f"{method}: {error}") from error
        for name, value in values.items():
            groups[name] = method, value if isinstance(value, Constraint) else derived(partial(_known, value))
    return groups


def _known(value: Any, *at: Any) -> Any:
    """A value that is an expression of the symbols at which it is asked for."""
    return value


def symbolic_plant(plant: Plant, state: State) -> Matrices:
    """A plant's matrices and passive constraints as expressions of symbols, with an empty task.

    Raises:
        TraceError: The plant's code cannot be traced.
    """
    t, q, v = state
    groups = [group for _, group in passive_constraints(plant, t, q, v).values()]
    passive = Rows.stack([group.rows(plant, t, q, v) for group in groups], len(q))
    M, Q, B, c = trace(plant_arrays, plant, t, q, v)
    return Matrices(plant, np.asarray(M), Q, np.asarray(B), c, passive, *2 * (Rows.stack([], len(q)),))


@dataclass(frozen=True)
class Row:
    """One scalar row of a task or of the passive constraints."""

    name: str  # `object_x`, or `mine.0`, `mine.1` where a constraint has several rows
    group: str  # the constraint's name
    kind: str  # `holonomic`, `nonholonomic` or `second_order`
    has_violation: bool  # whether the row has a violation at position or velocity level
    has_rate: bool  # whether the row has a violation rate
    # order of the derivative of the violation that the row prescribes: 2 for holonomic rows, 1 for nonholonomic ones,
    # the relative degree for differentiated rows, 0 without a violation
    degree: int


def compiled_rows(
    key: str | None,
    plant: Plant,
    task: Mapping[str, Constraint],
    bounds: Mapping[str, Constraint],
    symbols: Mapping[str, Array],
) -> tuple[Traced, list[list[Row]]]:
    """The fields of `Rows` of a plant's own constraints, a task and bounds; and what each row is.

    Args:
        key: See `traced`.
        symbols: t (1,), q, v and p.

    Raises:
        PlantError, TaskError, TraceError: See `stacked_rows`.
    """

    def make() -> tuple[dict[str, Any], list[str], list[Any]]:
        groups = {
            "passive": passive_rows(plant, symbols),
            "task": stacked_rows(plant, task, symbols),
            "bounds": stacked_rows(plant, bounds, symbols, last=True),
        }
        outputs = {
            f"{name}_{field.name}": getattr(rows, field.name)
            for name, (rows, _) in groups.items()
            for field in dataclasses.fields(rows)
        }
        facts = [[dataclasses.astuple(row) for row in rows] for _, rows in groups.values()]
        return outputs, [f"{name}_A" for name in groups], facts

    result = traced(key, "rows", symbols, make)
    return result, [[Row(*values) for values in group] for group in result.facts]


def stacked_rows(
    plant: Plant, groups: Mapping[str, Constraint], symbols: Mapping[str, Array], last: bool = False
) -> tuple[Rows, list[Row]]:
    """The rows of some constraints as expressions of the symbols t (1,), q, v and p, and what each row is.

    Args:
        symbols: Their p has the plant's parameters, then those of constraints.
        last: Whether the parameters of these constraints are the last ones; else they follow the plant's.

    Raises:
        PlantError, TaskError, TraceError: The code of a constraint fails, or cannot be traced; the message names it.
    """
    p, t, parts, rows = symbols["p"], symbols["t"][0], [], []
    count = len(parameter_values(plant))
    position = len(p) - sum(len(parameter_values(each)) for each in groups.values()) if last else count
    bound_plant = with_parameters(plant, p[:count])
    for name, constraint in groups.items():
        count = len(parameter_values(constraint))
        bound = with_parameters(constraint, p[position : position + count])
        position += count
        try:
            parts.append(bound.rows(bound_plant, t, symbols["q"], symbols["v"]))
        except (TaskError, TraceError) as error:
            raise type(error)(f"{name}: {error}{HINT if isinstance(error, TraceError) else ''}") from error
        rows += _rows_of(name, constraint, parts[-1])
    return Rows.stack(parts, len(plant.coordinates)), rows


def passive_rows(plant: Plant, symbols: Mapping[str, Array]) -> tuple[Rows, list[Row]]:
    """`stacked_rows` of the plant's own constraints.

    Raises:
        PlantError: The code of a constraint fails, or cannot be traced; the message names it.
    """
    t, q, v, parts, rows = symbols["t"][0], symbols["q"], symbols["v"], list[Rows](), list[Row]()
    bound, where = with_parameters(plant, symbols["p"][: len(parameter_values(plant))]), f"{type(plant).__name__}."
    try:
        for group, (method, constraint) in passive_constraints(bound, t, q, v).items():
            where = f"{type(plant).__name__}.{method}: {group}: "
            parts.append(constraint.rows(bound, t, q, v))
            rows += _rows_of(group, constraint, parts[-1])
    except (TaskError, TraceError) as error:
        raise PlantError(f"{where}{error}{HINT if isinstance(error, TraceError) else ''}") from error
    return Rows.stack(parts, len(plant.coordinates)), rows


def _rows_of(name: str, constraint: Constraint, part: Rows) -> list[Row]:
    """What each row of a constraint is."""
    rows, labels, degrees = [], constraint.row_labels() or range(len(part.b)), constraint.row_degrees()
    for i, row_label in zip(range(len(part.b)), labels, strict=True):
        label = name if len(part.b) == 1 else f"{name}.{row_label}"
        known = [not _is_nan(values[i]) for values in (part.violation, part.violation_rate)]
        degree = sum(known) if degrees is None else degrees[i]
        rows.append(Row(label, name, constraint.kind, known[0], known[1], degree))
    return rows


def units_of_rows(plant: Plant, groups: Mapping[str, Constraint], rows: Sequence[Row]) -> dict[str, str]:
    """Row -> unit of its violation; rows whose unit is not known are left out."""
    units: dict[str, str] = {}
    for name, constraint in groups.items():
        of_group, known = [row.name for row in rows if row.group == name], constraint.row_units(plant)
        units |= dict(zip(of_group, known * len(of_group) if len(known) == 1 else known, strict=False))
    return {name: unit for name, unit in units.items() if unit}


def accelerations(rows: Sequence[Row], units: Mapping[str, str]) -> dict[str, str]:
    """Row -> unit of what it prescribes, its violation's derivative of order `degree`; unknown ones are left out."""
    found = {row.name: units[row.name] for row in rows if row.name in units}
    for row in rows:
        for _ in range(row.degree if row.name in found else 0):
            found[row.name] = per_second(found[row.name])
    return found


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value
