"""An open loop: the inputs follow equations of time and state, and no row of the task counts."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from servoctl.engine.linalg import is_finite
from servoctl.engine.symbol import where
from servoctl.expression import Expression
from servoctl.laws.law import AttachedLaw, judged
from servoctl.mechanics.constraint import equation_value
from servoctl.mechanics.terms import Terms
from servoctl.types import Array, Command, Status


@dataclass(frozen=True)
class OpenLoop(AttachedLaw):
    """An open loop: every input follows its equation of time and state."""

    inputs: Mapping[str, Expression]  # actuator -> equation; an input without equation is zero

    def command(self, at: Terms, memory: Array) -> Command:
        """The inputs; not finite where the motion is not."""
        plant = at.matrices.plant
        values = [equation_value(self.inputs[a], plant, at.state) if a in self.inputs else 0.0 for a in plant.actuators]
        u, nothing = np.array(values), np.zeros(0)
        status = judged(at, is_finite(u), Status.OK.code)
        return Command(where(status >= Status.NOT_POSITIVE.code, np.nan, u), 0.0, nothing, 0.0, status)
