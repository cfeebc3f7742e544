"""A law of one's own: a frozen dataclass with one method, or a function `u = f(t, q, v)`.

Design: the method is traced like a plant, so that the law runs compiled, side by side in sweeps, and in the tick of a
run on drives. Its `float` fields are inputs of the compiled code. Tasks are only measured against it.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.linalg import is_finite
from servoctl.engine.parameters import SameStructure, parameter_values, with_parameters
from servoctl.engine.products import product
from servoctl.engine.symbol import where
from servoctl.engine.trace import trace
from servoctl.errors import TaskError
from servoctl.laws.law import BoundLaw, Law
from servoctl.mechanics.model import Model
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.terms import Terms
from servoctl.types import Array, Command, Status

Function = Callable[[Any, Array, Array], Any]  # (t [s], q, v) -> inputs, shape (m,)


class At:
    """What a law knows at an instant, `M q'' = Q + B u` with `A q'' = b` of the task.

    Attributes:
        t: Time [s].
        q, v: Positions and velocities, shape (n,).
        M: Mass matrix, shape (n, n).
        Q: Forces that are given, shape (n,).
        B: Actuation matrix, shape (n, m).
        task: Rows of the task: A, b, violation, violation_rate.
    """

    def __init__(self, terms: Terms) -> None:
        self.t, self.q, self.v = terms.state
        self.M, self.Q, self.B = np.asarray(terms.matrices.M), terms.matrices.Q, np.asarray(terms.matrices.B)
        self.task: Rows = terms.matrices.task.dense()


class Feedback(Law):
    """A law of one's own: derive a frozen dataclass from it; its `float` fields are gains.

    Example:

        @dataclass(frozen=True)
        class Spring(sc.Feedback):
            k: float = 4.0  # [N/m]

            def inputs(self, at):
                return [-self.k * at.q[0]]
    """

    @abstractmethod
    def inputs(self, at: At) -> Any:
        """The inputs at an instant, shape (m,) [actuator units]; plain NumPy, with `servoctl.where` for branches."""

    def bind(self, model: Model) -> "BoundFeedback":
        gains, inputs = tuple(parameter_values(self).tolist()), len(model.plant.actuators)
        return BoundFeedback(1e-6, gains, SameStructure(self), inputs, len(model.task_rows))


@dataclass(frozen=True)
class FunctionLaw(Feedback):
    """`u = function(t, q, v)`."""

    function: Function  # plain NumPy, with `servoctl.where` for branches; q and v have shape (n,), what it returns (m,)

    def inputs(self, at: At) -> Any:
        return self.function(at.t, at.q, at.v)


@dataclass(frozen=True)
class BoundFeedback(BoundLaw):
    """A feedback for a plant."""

    gains: tuple[float, ...]  # the parameters of `own`
    own: SameStructure  # a `Feedback`
    count: int  # number of inputs m
    task_rows: int  # number of rows r that are measured against it

    @property
    def follows_task(self) -> bool:
        return False

    @property
    def wishes(self) -> tuple[int, ...]:
        return tuple(range(self.task_rows))

    @property
    def concedes(self) -> tuple[int, ...]:
        return ()

    def command(self, terms: Terms, memory: Array) -> Command:
        law = with_parameters(self.own.thing, self.gains)
        u = np.atleast_1d(np.asarray(trace(law.inputs, At(terms)), dtype=object))
        if u.shape != (self.count,):
            raise TaskError(f"law: {_name(law)} returns shape {u.shape}, the plant has {self.count} inputs")
        missed = terms.rhs - product(terms.task_map, u)
        known = is_finite(u)
        status = where(known, Status.OK.code, Status.NON_FINITE.code)
        return Command(where(known, u, np.nan), 0, missed, 0.0, status)


def _name(law: Feedback) -> str:
    return "the function" if isinstance(law, FunctionLaw) else type(law).__name__


def law(function: Function) -> Feedback:
    """A function `(t, q, v) -> inputs` as a law, for `simulate` and `batch`.

        sc.simulate(plant, {}, sc.law(lambda t, q, v: -K @ np.concatenate([q, v])), q=..., duration=5)

    A law with gains that a config names, and that runs on drives, is a class: `Feedback`.

    Args:
        function: Plain NumPy, with `servoctl.where` for branches; q and v have shape (n,), what it returns (m,).

    Raises:
        TaskError: It is no function.
    """
    if not callable(function):
        raise TaskError(f"law: expected a function (t, q, v) -> inputs, got {function!r}")
    return FunctionLaw(function)
