"""A plant's own constraints as `Constraint` objects, and its matrices, on numbers or on symbols."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from servoctl.engine.structured import Sparse
from servoctl.engine.trace import trace
from servoctl.mechanics import plant_values
from servoctl.mechanics.constraint import Constraint, Holonomic, Nonholonomic
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.terms import Matrices
from servoctl.types import Array, State


class PassiveGroup(Constraint):
    """One named group of a plant's own constraints."""

    def __init__(self, group: str, method: str, value: Any, written: "_Written") -> None:
        """Names a group.

        Args:
            group: Name of the group.
            method: The method of the plant that returns it.
            value: What it returns: values, or a `Constraint`.
            written: What the method returned last on symbols, for all groups.
        """
        # group: name of the group
        # method: `passive_constraints` or `passive_rates`
        self.group, self.method, self._written = group, method, written
        derived = "nonholonomic" if method == "passive_rates" else "holonomic"
        self._units = value.row_units if isinstance(value, Constraint) else super().row_units
        self.kind = value.kind if isinstance(value, Constraint) else derived  # type: ignore[misc]

    def row_units(self, plant: Plant) -> tuple[str, ...]:
        return self._units(plant)

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        if self.method == "passive_rates":
            written = self._written.traced(plant, plant.passive_rates, q, v, t)[self.group]
            inner: Constraint = Nonholonomic(lambda q, v, t: written)
        else:
            written = self._written.traced(plant, plant.passive_constraints, q, t)[self.group]
            inner = Holonomic(lambda q, t: written)
        return (written if isinstance(written, Constraint) else inner).rows(plant, t, q, v)


class _Written:
    """What a method of a plant returned last on symbols: tracing it once serves all groups."""

    def __init__(self) -> None:
        self._last: tuple[tuple[Any, ...], Mapping[str, Any]] = (), {}  # one value: threads see both or neither

    def traced(self, plant: Plant, method: Callable[..., Any], *arguments: Any) -> Mapping[str, Any]:
        """Name -> values of a method at these arguments, which may be those of the last call."""
        now, (last, groups) = (plant, *arguments), self._last
        if len(now) != len(last) or any(a is not b for a, b in zip(now, last, strict=True)):
            groups = trace(method, *arguments)
            self._last = now, groups
        return groups


def passive_groups(constraints: Mapping[str, Any], rates: Mapping[str, Any]) -> dict[str, PassiveGroup]:
    """The groups of a plant, from the results of its `passive_constraints` and `passive_rates`."""
    groups: dict[str, PassiveGroup] = {}
    for method, values in (("passive_constraints", constraints), ("passive_rates", rates)):
        written = _Written()
        groups |= {name: PassiveGroup(name, method, value, written) for name, value in values.items()}
    return groups


def plant_arrays(plant: Plant, t: Any, q: Array, v: Array) -> tuple[Array | Sparse, Array, Array | Sparse, Array]:
    """M, Q, B and c with the right number of dimensions, on symbols; for numbers use `plant_values.terms`."""
    M, B, c = plant.mass_matrix(q, t), plant.actuation(q, t), plant.nonideal_force(q, v, t)
    B = plant_values.identity(plant) if B is None else B
    return (
        M if isinstance(M, Sparse) else np.atleast_2d(M),
        np.atleast_1d(plant.right_hand_side(q, v, t)),
        B if isinstance(B, Sparse) else np.atleast_2d(B),
        np.zeros(len(q)) if c is None else np.atleast_1d(c),
    )


def symbolic_plant(plant: Plant, state: State) -> Matrices:
    """A plant's matrices and passive constraints as expressions of symbols, with an empty task.

    Raises:
        TraceError: The plant's code cannot be traced.
    """
    t, q, v = state
    holonomic, rates = trace(plant.passive_constraints, q, t), trace(plant.passive_rates, q, v, t)
    groups = passive_groups(holonomic, rates)
    passive = Rows.stack([group.rows(plant, t, q, v) for group in groups.values()], len(q))
    M, Q, B, c = trace(plant_arrays, plant, t, q, v)
    return Matrices(plant, np.asarray(M), Q, np.asarray(B), c, passive, Rows.stack([], len(q)))
