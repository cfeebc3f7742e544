"""A plant's own constraints in levels: which groups are enforced together, in which order, and what each level does.

Design: the motion does not depend on the order, because the recursion of `mechanics.hierarchy` ends at the motion under
all constraints. A run therefore takes only the clearances of levels (`mechanics.terms.assemble`); the levels show what
each group of constraints adds and how much a clearance yields.

Source: Orsino 2017, figure 4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from servoctl.errors import PlantError
from servoctl.mechanics.hierarchy import Contradiction, Enforced, Level, free_motion, solve_levels
from servoctl.mechanics.model import Model
from servoctl.mechanics.planar import PlanarLinkage
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.projection import RANK_TOLERANCE
from servoctl.types import Array, State

SHOWN = 8  # number of skipped rows that a message lists


@dataclass(frozen=True)
class PassiveLevel:
    """Groups of passive constraints that are enforced together."""

    name: str  # name of the level
    groups: tuple[str, ...]  # names of the groups; the rows of the level are in this order
    clearance: float | tuple[float, ...] = 0.0  # the clearance of `Level`, for all rows or one per row


@dataclass(frozen=True)
class LevelReport:
    """The effect of one level on the motion."""

    name: str  # name of the level
    rows: tuple[str, ...]  # names of its rows
    rank: int  # number of directions that its exact rows add to those of earlier levels
    skipped: tuple[str, ...]  # rows for which earlier levels leave no room
    trace: float  # trace of P after the level: the remaining degrees of freedom; a fraction if there are clearances
    acceleration: Array  # q'' after the level, shape (n,)
    change: Array  # difference of q'' made by the level, shape (n,)
    yields: dict[str, float]  # row with a clearance -> `b - A q''` once all levels are enforced
    coordinates: Mapping[str, str]  # name -> unit, in order

    def __str__(self) -> str:
        """The report in one line."""
        rows, loose = len(self.rows), len(self.yields)
        kind = f" of rank {self.rank}"
        if loose:
            kind = ", all with clearance" if loose == rows else f", {loose} with clearance, the others{kind}"
        line = f"{self.name}: {rows} {'row' if rows == 1 else 'rows'}{kind}"
        if self.skipped:
            more = f", and {len(self.skipped) - SHOWN} more" if len(self.skipped) > SHOWN else ""
            line += f"; skipped, since they depend on earlier levels: {', '.join(self.skipped[:SHOWN])}{more}"
        line += f"; trace of P {self.trace:.7g}; accelerations change by up to {largest(self.change, self.coordinates)}"
        if loose:
            row, left = max(self.yields.items(), key=lambda item: abs(item[1]))
            line += f"; under all levels {row} yields most, by {left:.3g}"
        return line

    def to_dict(self) -> dict[str, Any]:
        """The values for JSON; `change` is the largest component."""
        acceleration = dict(zip(self.coordinates, self.acceleration, strict=True))
        return {
            "rows": self.rows, "rank": self.rank, "skipped": self.skipped, "trace": self.trace,
            "change": np.abs(self.change).max(), "yields": self.yields, "acceleration": acceleration,
        }  # fmt: skip


def largest(change: Array, coordinates: Mapping[str, str]) -> str:
    """The largest component of an acceleration, with its unit and coordinate."""
    i = int(np.argmax(np.abs(change)))
    name, unit = list(coordinates.items())[i]
    return f"{abs(change[i]):.3g} {unit}/s^2 ({name})"


def declared_levels(plant: Plant) -> tuple[PassiveLevel, ...]:
    """The levels that a `PlanarLinkage` declares, if there are several; else none."""
    level_of = plant.levels if isinstance(plant, PlanarLinkage) else {}
    numbers = sorted(set(level_of.values()))
    if len(numbers) < 2:
        return ()
    return tuple(
        PassiveLevel(f"level {number}", tuple(name for name, level in level_of.items() if level == number))
        for number in numbers
    )


def levels_at(model: Model, state: State, levels: Sequence[PassiveLevel]) -> list[Level]:
    """The constraints of each level at a state, for `solve_levels`."""
    passive, rows = model.matrices(state).passive, model.passive_rows
    result = []
    for level in levels:
        index = [i for group in level.groups for i, row in enumerate(rows) if row.group == group]
        clearance, names = np.array(level.clearance), tuple(rows[i].name for i in index)
        result.append(Level(level.name, passive.A[index], passive.b[index], clearance, names))
    return result


def motions(
    model: Model,
    state: State,
    levels: Sequence[PassiveLevel],
    u: Array | None = None,
    rank_tolerance: float = RANK_TOLERANCE,
) -> list[Enforced]:
    """The motion before any level, then after each level.

    Args:
        model: Plant and constraints.
        state: The state.
        levels: In the order in which they are enforced.
        u: Inputs, shape (m,); None: no input acts.
        rank_tolerance: The rank tolerance of `enforce`.

    Raises:
        PlantError: A number is not finite, or the mass matrix is singular without the constraints.
    """
    m = model.matrices(state)
    if m.singular:
        raise PlantError(
            "mass matrix: singular without the passive constraints, so only all levels together have one motion "
            "(give every body mass and inertia to see level by level)"
        )
    Q = m.Q + m.c if u is None else m.Q + m.c + m.B @ u
    return [free_motion(m.M, Q), *solve_levels(m.M, Q, levels_at(model, state, levels), rank_tolerance)]


def level_reports(coordinates: Mapping[str, str], enforced: Sequence[Enforced]) -> list[LevelReport]:
    """One report per level.

    Args:
        coordinates: The plant's coordinates, name -> unit.
        enforced: The motions, as `motions` returns them.
    """
    reports = []
    for before, motion in pairwise(enforced):
        level, left = motion.levels[-1], enforced[-1].residuals[motion.levels[-1].name]
        rows, change = level.rows or (), motion.acceleration - before.acceleration
        skipped = tuple(rows[i] for i in motion.skipped)
        yields = {rows[i]: float(left[i]) for i in np.flatnonzero(level.clearance)}
        rank, trace = motion.rank - before.rank, float(motion.trace)
        reports.append(
            LevelReport(level.name, rows, rank, skipped, trace, motion.acceleration, change, yields, coordinates)
        )
    return reports


def contradictions(
    model: Model, state: State, levels: Sequence[PassiveLevel], rank_tolerance: float, tolerance: float
) -> list[Contradiction]:
    """Levels with rows that no acceleration can meet together with the earlier levels.

    This does not depend on masses and forces, so it is computed with the unit mass matrix and no force.

    Args:
        model: Plant and constraints.
        state: The state.
        levels: In the order in which they are enforced.
        rank_tolerance: The rank tolerance of `enforce`.
        tolerance: The tolerance of `Enforced.contradiction`.

    Raises:
        PlantError: A number is not finite.
    """
    enforced = solve_levels(np.eye(model.n), np.zeros(model.n), levels_at(model, state, levels), rank_tolerance)
    return [found for motion in enforced if (found := motion.contradiction(tolerance)) is not None]
