"""A feedback of one's own as a law: `u = f(t, q, v)`.

Design: the function is traced like a plant, so that it runs compiled, side by side in sweeps, and in the tick of a run
on drives. Tasks are only measured against it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.linalg import is_finite
from servoctl.engine.products import product
from servoctl.engine.symbol import where
from servoctl.engine.trace import trace
from servoctl.errors import TaskError
from servoctl.laws.law import BoundLaw, Law
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Terms
from servoctl.types import Array, Command, Status

Function = Callable[[Any, Array, Array], Any]  # (t [s], q, v) -> inputs, shape (m,)


@dataclass(frozen=True)
class Feedback(Law):
    """`u = function(t, q, v)`."""

    function: Function  # plain NumPy, with `servoctl.where` for branches; q and v have shape (n,), what it returns (m,)

    def bind(self, model: Model) -> "BoundFeedback":
        if not callable(self.function):
            raise TaskError(f"law: expected a function (t, q, v) -> inputs, got {self.function!r}")
        return BoundFeedback(1e-6, self.function, len(model.plant.actuators))


@dataclass(frozen=True)
class BoundFeedback(BoundLaw):
    """A feedback for a plant."""

    function: Function  # as of `Feedback`
    count: int  # number of inputs m

    def command(self, terms: Terms, memory: Array) -> Command:
        t, q, v = terms.state
        u = np.atleast_1d(np.asarray(trace(self.function, t, q, v), dtype=object))
        if u.shape != (self.count,):
            raise TaskError(f"law: the function returns shape {u.shape}, the plant has {self.count} inputs")
        missed = terms.rhs - product(terms.task_map, u)
        known = is_finite(u)
        status = where(known, Status.OK.code, Status.NON_FINITE.code)
        return Command(where(known, u, np.nan), 0, missed, 0.0, status)


def law(function: Function) -> Feedback:
    """A function `(t, q, v) -> inputs` as a law, for `simulate`, `batch` and runs on drives.

        sc.simulate(plant, {}, sc.law(lambda t, q, v: -K @ np.concatenate([q, v])), q=..., duration=5)

    Args:
        function: As of `Feedback`.
    """
    return Feedback(function)
