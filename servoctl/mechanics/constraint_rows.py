"""The rows of a plant's own constraints, a task and bounds: what each one is, and their compiled derivatives."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from servoctl.engine import stored
from servoctl.engine.kernel import Kernel
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.structured import Sparse, entries_of
from servoctl.errors import PlantError, TaskError, TraceError
from servoctl.expression import per_second
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.passive import PassiveGroup
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.rows import Rows
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


@dataclass(frozen=True)
class CompiledRows:
    """The derivatives of all constraints: passive ones, those of the task, then bounds, if there are any."""

    kernel: Kernel  # (t, q, v, p) -> the fields of `Rows`, group by group
    rows: list[list[Row]]  # the rows of each group; empty for bounds that are not there
    forms: list[Sparse]  # a of each group as `Sparse`: the places where an entry may not be zero
    structures: tuple[Any, ...]  # in which structure `kernel` gives A of each group; anything but a `Sparse`: an array


def compiled_rows(
    key: str | None,
    plant: Plant,
    passive: Mapping[str, Constraint],
    task: Mapping[str, Constraint],
    bounds: Mapping[str, Constraint],
    symbols: Mapping[str, Array],
) -> CompiledRows:
    """The rows of a plant's own constraints, a task and bounds, from the cache or traced now.

    Args:
        key: Under which they are kept in the cache; None: they are not.
        passive: Name -> the plant's own constraint.
        symbols: t (1,), q, v and p.

    Raises:
        PlantError, TaskError, TraceError: See `stacked_rows`.
    """
    found = stored.find_with_facts(key, "rows")
    if found is not None:
        kernel, (facts, places) = found
        kept = [[Row(*values) for values in group] for group in facts]
        return CompiledRows(kernel, kept, [Sparse.at(*each) for each in places], (None,) * len(places))
    groups = {"passive": stacked_rows(plant, passive, symbols), "task": stacked_rows(plant, task, symbols)}
    if bounds:
        groups["bounds"] = stacked_rows(plant, bounds, symbols, last=True)
    outputs: dict[str, Array] = {}
    for name, (rows, _) in groups.items():
        outputs |= _fields(name, rows)
    kernel = Kernel.compile("rows", symbols, outputs)
    forms = [Sparse.of(rows.A) for rows, _ in groups.values()]
    if key is not None:
        facts = [[dataclasses.astuple(row) for row in rows] for _, rows in groups.values()]
        stored.keep_kernel(key, "rows", kernel, [facts, [form.places() for form in forms]])
    found_rows = [rows for _, rows in groups.values()]
    return CompiledRows(kernel, found_rows, forms, tuple(rows.A for rows, _ in groups.values()))


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


def _fields(prefix: str, rows: Rows) -> dict[str, Array]:
    return {f"{prefix}_{field.name}": entries_of(getattr(rows, field.name)) for field in dataclasses.fields(rows)}
