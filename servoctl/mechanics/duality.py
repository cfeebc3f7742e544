"""B from the displacements of the actuators, by power duality: `u^T rho' = (B u)^T q'`, so `B = (d rho/d q)^T`.

A cylinder, a rope or a belt is then one line of geometry. The derivative is exact and is compiled once for all plants
of the same structure.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from servoctl.engine.kernel import Kernel, inputs, jacobian
from servoctl.engine.parameters import SameStructure, parameter_values, with_parameters
from servoctl.engine.trace import trace
from servoctl.errors import PlantError, TraceError
from servoctl.types import Array


def dual_actuation(plant: Any, q: Array) -> Array:
    """B(q), shape (n, m): the transposed Jacobian of the plant's `motor_positions`, on numbers or symbols.

    Raises:
        PlantError: `motor_positions` cannot be traced, or does not give one displacement per actuator.
    """
    return _kernel(SameStructure(plant))(q, parameter_values(plant))[0]


@lru_cache(maxsize=64)
def _kernel(key: SameStructure) -> Kernel:
    plant = key.thing
    name, m = f"{type(plant).__name__}.motor_positions", len(plant.actuators)
    symbols = inputs({"q": (len(plant.coordinates),), "p": (len(parameter_values(plant)),)})
    try:
        rho = trace(with_parameters(plant, symbols["p"]).motor_positions, symbols["q"])
    except TraceError as error:
        raise PlantError(f"{name}: {error} (write actuation(q, t), the transposed Jacobian of it)") from error
    rho = np.atleast_1d(np.asarray(rho, dtype=object))
    if rho.shape != (m,):
        raise PlantError(f"{name}: expected shape {(m,)}, one displacement per actuator, got {rho.shape}")
    return Kernel.compile("actuation", symbols, {"B": jacobian(rho, symbols["q"]).T})
