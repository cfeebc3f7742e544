"""A disturbance observer without a model, for tests of what is concluded from a disturbance."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from hil.sensing.tracking import DisturbanceObserver
from servoctl.engine.ccode import BoundCall
from servoctl.types import Array


class Fixed(DisturbanceObserver):
    """An observer whose disturbance torques are the accelerations, and the shares constants."""

    def __init__(self, shares: Sequence[float]) -> None:
        self.n, self.shares = len(shares), np.array(shares)

    def __call__(self, t: float, q: Array, acceleration: Array) -> Array:
        return acceleration.copy()

    def with_shares(self, t: float, q: Array, acceleration: Array) -> tuple[Array, Array]:
        return acceleration.copy(), self.shares

    def buffered(self) -> Any:
        n = self.n
        *arguments, acceleration = (np.zeros(size) for size in (1, n, n, 1, n))
        d, shares = np.zeros(n), self.shares.copy()

        def evaluate() -> None:
            d[:] = acceleration

        return SimpleNamespace(bound=BoundCall(evaluate, [*arguments, acceleration], [d, shares]))
