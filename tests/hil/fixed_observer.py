"""A disturbance observer without a model, for tests of what is concluded import math
from a disturbance, and a tick of that."""

from collections.abc import Sequence

import numpy as np

from hil.loop import Implausibility
from hil.sensing.sensing import implausibility
from hil.sensing.tracking import DisturbanceObserver, TrackingMonitor
from servoctl.engine.ccode import BoundCall
from servoctl.types import Array


class Fixed(DisturbanceObserver):
    """An observer whose disturbance torques are the accelerations, and the shares constants."""

    def __init__(self, shares: Sequence[float]) -> None:
        self.n, self.shares = len(shares), np.array(shares)

    def __call__(self, t: float, q: Array, acceleration: Array) -> tuple[Array, Array]:
        return acceleration.copy(), self.shares

    def bound(self) -> BoundCall:
        n = self.n
        *arguments, acceleration = (np.zeros(size) for size in (1, n, n, 1, n))
        d, shares = np.zeros(n), self.shares.copy()

        def evaluate() -> None:
            d[:] = acceleration

        return BoundCall(evaluate, [*arguments, acceleration], [d, shares])


def judge(monitor: TrackingMonitor, t: float, elapsed: float, *arrays: Sequence[float] | None) -> Implausibility | None:
    """A tick of `track_judge` in `hil/core/c/tick.h`; arrays that are missing are not known."""
    struct, unknown = monitor.struct, [np.nan] * len(monitor.limits)
    q, innovation, u, *others = arrays
    others += [None] * (3 - len(others))
    given = [
        struct.ffi.NULL if each is None else struct.ffi.new("double[]", np.asarray(each, dtype=float).tolist())
        for each in (q, innovation, u, *(unknown if each is None else each for each in others))
    ]
    found = struct.functions.track_judge(struct.c, t, elapsed, *given)
    struct.raise_failure()
    names = [str(number) for number in range(len(monitor.limits))]
    return implausibility(struct.c.verdict, names, names, dict.fromkeys(names, "N m")) if found else None
