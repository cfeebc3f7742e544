"""Joints keep the coordinates of the start."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.rows import Rows
from servoctl.types import Array


@dataclass(frozen=True)
class HeldPosture(Constraint):
    """Coordinates keep their values: one row for each [units of the coordinates].

    Design: the values are parameters, so runs from many starts share their compiled code.
    """

    joints: tuple[str, ...]  # names of coordinates
    values: tuple[float, ...]  # their values, in the same order

    kind = "holonomic"

    def row_units(self, plant: Plant) -> tuple[str, ...]:
        return tuple(plant.coordinates[name] for name in self.joints)

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        names = list(plant.coordinates)
        chosen = [names.index(name) for name in self.joints]
        wanted = np.array(self.values, dtype=object)
        return Rows(np.eye(len(names))[chosen], np.zeros(len(chosen)), q[chosen] - wanted, v[chosen])
