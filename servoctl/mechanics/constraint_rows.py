"""The rows of a plant's own constraints, a task and bounds: what each one is, and their compiled derivatives."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.errors import PlantError, TaskError, TraceError
from servoctl.expression import per_second
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.passive import PassiveGroup
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.traced_plant import Traced, traced
from servoctl.types import Array


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
    passive: Mapping[str, Constraint],
    task: Mapping[str, Constraint],
    bounds: Mapping[str, Constraint],
    symbols: Mapping[str, Array],
) -> tuple[Traced, list[list[Row]]]:
    """The fields of `Rows` of a plant's own constraints, a task and bounds, if there are any; and what each row is.

    Args:
        key: See `traced`.
        passive: Name -> the plant's own constraint.
        symbols: t (1,), q, v and p.

    Raises:
        PlantError, TaskError, TraceError: See `stacked_rows`.
    """

    def make() -> tuple[dict[str, Any], list[Any], list[Any]]:
        groups = {"passive": stacked_rows(plant, passive, symbols), "task": stacked_rows(plant, task, symbols)}
        if bounds:
            groups["bounds"] = stacked_rows(plant, bounds, symbols, last=True)
        outputs = {
            f"{name}_{field.name}": getattr(rows, field.name)
            for name, (rows, _) in groups.items()
            for field in dataclasses.fields(rows)
        }
        facts = [[dataclasses.astuple(row) for row in rows] for _, rows in groups.values()]
        return outputs, [rows.A for rows, _ in groups.values()], facts

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
            part = bound.rows(bound_plant, t, symbols["q"], symbols["v"])
        except (TaskError, TraceError) as error:
            hint = " (a constraint must be traceable, because it is differentiated on symbols)"
            sentence = f"{error}{hint if isinstance(error, TraceError) else ''}"
            if isinstance(constraint, PassiveGroup):
                raise PlantError(f"{type(plant).__name__}.{constraint.method}: {name}: {sentence}") from error
            raise type(error)(f"{name}: {sentence}") from error
        parts.append(part)
        labels = constraint.row_labels() or range(len(part.b))
        for i, row_label in zip(range(len(part.b)), labels, strict=True):
            label = name if len(part.b) == 1 else f"{name}.{row_label}"
            known = [not _is_nan(values[i]) for values in (part.violation, part.violation_rate)]
            higher = 0 if part.higher is None else part.higher.shape[1]
            rows.append(Row(label, name, constraint.kind, known[0], known[1], sum(known) + higher))
    return Rows.stack(parts, len(plant.coordinates)), rows


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
