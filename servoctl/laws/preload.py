"""Prescribed components of loop reactions, as rows on the inputs.

    lambda(u) = (P^+)^T (w_0 - L^-1 (Q + c + B u)),   P = Ahat L^-T,  w_0 = N L^-1 (Q + c) + P^+ bhat
    S lambda(u) = f   <=>   R L^-1 B u = f + R (w_0 - L^-1 (Q + c)),   R = -(P^+ S^T)^T

S takes the multipliers of a loop's rows to components of the wrench on its second frame, at that frame's origin, in the
axes of the first. The rows form a level of their own below the tasks of priority 1, so limits take the preload first.

Source: the multipliers of M q'' = Q + c + B u + Ahat^T lambda, Ahat q'' = bhat.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.decomposition import frobenius
from servoctl.engine.linalg import product, solve_lower
from servoctl.engine.parameters import Part
from servoctl.errors import no_such
from servoctl.laws.priorities import Levels
from servoctl.laws.term import AttachedTerm
from servoctl.mechanics.constraint import InputRows
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.loops import LOOP_ROWS, reaction_map
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.terms import Terms
from servoctl.types import Array

COMPONENTS = ("x", "y", "z", "rx", "ry", "rz")
"""Force [N] and moment [N m] on the second frame of a loop, in the axes of the first."""

UNIQUE = 1e-8  # a component is unique if the dependent part of the passive rows holds less than this share of it
Preload = Mapping[str, Mapping[str, float]]  # loop -> component -> its value


@dataclass(frozen=True)
class ReactionComponent(Part):
    """A prescribed component of a loop's reaction."""

    label: str  # type: ignore[misc]  # name of the loop and the component, as `grip.y`
    name: str  # one of `COMPONENTS`
    kind: str  # kind of the loop
    rows: tuple[int, int]  # index of the loop's first passive row, and that of the row after its last
    value: float  # [N], of a moment [N m]

    def of_multipliers(self, violation: Array) -> Array:
        """The component per unit of each passive multiplier, shape (passive rows,).

        Args:
            violation: Of all passive rows.
        """
        first, end = self.rows
        row = np.zeros(len(violation))
        row[first:end] = reaction_map(self.kind, violation[first:end])[COMPONENTS.index(self.name)]
        return row


@dataclass(frozen=True)
class PreloadTerm(AttachedTerm):
    """The prescribed components of an attached law."""

    components: tuple[ReactionComponent, ...]

    label = "preload"

    def prescribed(self, at: Terms) -> InputRows:
        violation = at.matrices.passive.violation
        S = np.array([component.of_multipliers(violation) for component in self.components])
        return multiplier_rows(at, S, [component.value for component in self.components])


def preload_term(preload: Preload, passive_rows: Sequence[Row], plant: Plant) -> PreloadTerm:
    """The term of a preload without `problems`."""
    assert isinstance(plant, Robot)
    kinds = {loop.name: loop.kind for loop in plant.tree.loops}
    found = []
    for loop, values in preload.items():
        rows = [i for i, row in enumerate(passive_rows) if row.group == loop]
        for name, value in values.items():
            place = rows[0], rows[-1] + 1
            found.append(ReactionComponent(f"{loop}.{name}", name, kinds[loop], place, float(value)))
    return PreloadTerm(tuple(found))


def problems(preload: Preload, plant: Plant) -> list[str]:
    """One sentence for each name or value that does not fit the plant."""
    if not isinstance(plant, Robot):
        return [f"law.preload: {type(plant).__name__} has no loops (only those of a robot have a preload)"]
    kinds = {loop.name: loop.kind for loop in plant.tree.loops}
    found = []
    for loop, values in preload.items():
        if loop not in kinds:
            found.append(f"law.preload: {no_such('loop', loop, kinds)}")
            continue
        known = LOOP_ROWS[kinds[loop]]
        for name, value in values.items():
            if name not in COMPONENTS:
                found.append(f"law.preload.{loop}: {no_such('component', name, known)}")
            elif name not in known:
                found.append(f"law.preload.{loop}.{name}: a {kinds[loop]} transmits none (it has {', '.join(known)})")
            elif not np.isfinite(value):
                found.append(f"law.preload.{loop}.{name}: expected a finite number, got {value}")
    return found


def multiplier_rows(terms: Terms, S: Array, values: Sequence[Any] | Array) -> InputRows:
    """The rows on u that prescribe `S lambda(u) = values`; on numbers or symbols.

    Args:
        S: From the multipliers of the passive rows, shape (k, passive rows).
        values: Shape (k,).
    """
    m = terms.matrices
    R = -terms.passive.solve(S.T).T
    pushed = terms.free_acceleration - solve_lower(terms.L, m.Q + m.c)
    return InputRows(product(R, terms.inputs), np.array(values) + R @ pushed, frobenius(R))


def out_of_reach(
    model: Model,
    terms: Sequence[Terms],
    wanted: PreloadTerm,
    required: Sequence[int],
    rank_tolerance: float,
) -> list[str]:
    """Why components cannot be prescribed, one sentence each; on numbers.

    Args:
        terms: The terms of motion at the start, then at states near it; empty if they are not finite.
        required: Indices of the task rows of priority 1, which come first.
    """
    components = wanted.components
    found = _not_unique(model, terms[0], components) if terms else []
    if found or not terms:
        return found
    rank = max(_directions(at, wanted, required, rank_tolerance) for at in terms)
    if rank == len(components):
        return []
    names = ", ".join(component.label for component in components)
    return [
        f"law.preload: {names}: the actuators can prescribe {rank} of {len(components)} beside the tasks of priority 1 "
        "(prescribe fewer, or give tasks a lower priority)"
    ]


def _not_unique(model: Model, terms: Terms, wanted: Sequence[ReactionComponent]) -> list[str]:
    """One sentence for each component that the equations of motion do not determine."""
    violation, rank, rows = terms.matrices.passive.violation, terms.passive.rank, len(model.passive_rows)
    found = []
    for component in wanted:
        S = component.of_multipliers(violation)
        if np.linalg.norm(terms.passive.residual(S)) > UNIQUE * np.linalg.norm(S):
            found.append(
                f"law.preload.{component.label}: this reaction is not unique, because mechanism rows "
                f"depend on each other (rank {rank} of {rows}: open a loop, or close it with fewer rows)"
            )
    return found


def _directions(terms: Terms, wanted: PreloadTerm, required: Sequence[int], tolerance: float) -> int:
    """How many directions of the components the actuators can prescribe beside the required task rows."""
    rows = wanted.prescribed(terms)
    inputs, chosen = frobenius(terms.inputs), list(required)
    maps, scales = [rows.T], [rows.size * inputs]
    if chosen:
        maps.insert(0, terms.task_map[chosen])
        scales.insert(0, frobenius(terms.rows[chosen]) * inputs)
    return int(Levels.of(maps, tolerance, scales).ranks[-1])
