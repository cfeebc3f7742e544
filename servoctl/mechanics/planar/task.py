"""A task for a named point of a planar mechanism."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.parameters import parameter_fields
from servoctl.errors import ExpressionError, TaskError
from servoctl.expression import Expression, check_names, parse
from servoctl.expression.suggest import remedy
from servoctl.mechanics.constraint import Holonomic, Rows, equation_value
from servoctl.mechanics.planar.plant import PlanarLinkage
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State


@dataclass(frozen=True)
class PointFollows(Holonomic):
    """`r(q) - (x, y) = 0`: a named point of a `PlanarLinkage` follows a place, two rows [m].

        - {name: tool, class: "servoctl.mechanics.planar:PointFollows",
           parameters: {point: tool, x: "0.3 + 0.1*cos(t)", y: "0.1*sin(t)"}}

    The point is one that `build` names; x and y are equations of time, the plant's parameters and coordinates.
    """

    point: str
    x: str
    y: str

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        if not isinstance(plant, PlanarLinkage):
            raise TaskError(f"PointFollows: expected a PlanarLinkage, got {type(plant).__name__} (write the equations)")
        linkage: PlanarLinkage = plant
        points = linkage.linkage().points
        if self.point not in points:
            raise TaskError(f"point: there is no point '{self.point}' ({remedy(self.point, points)})")
        places = [self._equation(field, plant) for field in ("x", "y")]

        def missing(q: Array, t: float) -> Array:
            place = [equation_value(equation, linkage, State(t, q, np.zeros(len(q)))) for equation in places]
            gap: Array = linkage.point(self.point, q) - np.array(place)
            return gap

        return Holonomic(missing).rows(plant, t, q, v)

    def _equation(self, field: str, plant: Plant) -> Expression:
        try:
            expression = parse(getattr(self, field))
        except ExpressionError as error:
            raise TaskError(f"{field}: {error}") from error
        problems = check_names(expression, plant.coordinates, parameter_fields(plant))
        if expression.rates:
            problems.append(f"a place holds no velocity, got der({sorted(expression.rates)[0]})")
        if problems:
            raise TaskError("\n".join(f"{field}: {problem}" for problem in problems))
        return expression
