"""A task for a named point of a planar mechanism."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.parameters import parameter_fields
from servoctl.errors import ExpressionError, TaskError
from servoctl.expression import Expression, check_names, parse
from servoctl.expression.suggest import remedy
from servoctl.mechanics.constraint import Holonomic, equation_value
from servoctl.mechanics.planar.plant import PlanarLinkage
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.rows import Rows
from servoctl.types import Array, State


@dataclass(frozen=True)
class PointFollows(Holonomic):
    """`r(q) - (x, y) = 0`: a named point of a `PlanarLinkage` follows a position, two rows [m].

        - {name: tool, class: "servoctl.mechanics.planar:PointFollows",
           parameters: {point: tool, x: "0.3 + 0.1*cos(t)", y: "0.1*sin(t)"}}

    Attributes:
        point: A point that `build` names.
        x: Equation of the wanted position [m], of time, parameters and coordinates of the plant.
        y: See x.
    """

    point: str
    x: str
    y: str

    def row_units(self, plant: Plant) -> tuple[str, ...]:
        return ("m",)

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        if not isinstance(plant, PlanarLinkage):
            raise TaskError(f"PointFollows: expected a PlanarLinkage, got {type(plant).__name__} (write the equations)")
        points = plant.linkage().points
        if self.point not in points:
            raise TaskError(f"point: there is no point '{self.point}' ({remedy(self.point, points)})")
        equations = [self._equation(field, plant) for field in ("x", "y")]

        def gap(q: Array, t: float) -> Array:
            wanted = [equation_value(equation, plant, State(t, q, np.zeros(len(q)))) for equation in equations]
            difference: Array = plant.point(self.point, q) - np.array(wanted)
            return difference

        return Holonomic(gap).rows(plant, t, q, v)

    def _equation(self, field: str, plant: Plant) -> Expression:
        try:
            expression = parse(getattr(self, field))
        except ExpressionError as error:
            raise TaskError(f"{field}: {error}") from error
        problems = check_names(expression, plant.coordinates, parameter_fields(plant), self.signals)
        expression = expression.with_signals(self.signals)
        if expression.velocities:
            problems.append(f"a position cannot contain a velocity, got der({sorted(expression.velocities)[0]})")
        if problems:
            raise TaskError("\n".join(f"{field}: {problem}" for problem in problems))
        return expression
