"""A law of your own: a frozen dataclass with one method, or a function `u = f(t, q, v)`.

Design: the method is traced like a plant, so that the law runs compiled, side by side in sweeps, and in the tick of a
run on drives; what symbols cannot follow is called in NumPy. Its `float` fields are inputs of the compiled code. Tasks
are only measured against it.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np

from servoctl.engine.linalg import is_finite, product
from servoctl.engine.parameters import SameStructure, makes_values, parameter_names, parameter_values, with_parameters
from servoctl.engine.symbol import where
from servoctl.errors import TaskError
from servoctl.laws.law import INPUTS, AttachedLaw, Law, UserFunction, judged, user_function
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Terms
from servoctl.types import Array, Command, Status

Function = Callable[[Any, Array, Array], Any]  # (t [s], q, v) -> inputs, shape (m,)


@dataclass(frozen=True)
class At:
    """What a law knows at an instant, `M q'' = Q + B u` with `A q'' = b` of the task."""

    t: Any  # time [s]
    q: Array  # positions, shape (n,)
    v: Array  # velocities, shape (n,)
    M: Array  # mass matrix, shape (n, n)
    Q: Array  # forces that are given, shape (n,)
    B: Array  # actuation matrix, shape (n, m)
    task: Rows  # rows of the task: A, b, violation, violation_rate


class Feedback(Law):
    """A law of your own: derive a frozen dataclass from it; its `float` fields are gains.

    Example:

        @dataclass(frozen=True)
        class Spring(sc.Feedback):
            k: float = 4.0  # [N/m]

            def inputs(self, at):
                return [-self.k * at.q[0]]
    """

    @property
    def has_made_values(self) -> bool:
        """Whether its fields are no gains: see `makes_values`."""
        return makes_values(self)

    @abstractmethod
    def inputs(self, at: At) -> Any:
        """The inputs at an instant, shape (m,) [actuator units]; plain NumPy, with `servoctl.where` for branches."""

    def attach(self, model: Model) -> "AttachedFeedback":
        gains = tuple(parameter_values(self).tolist())
        name = "the function" if isinstance(self, FunctionLaw) else type(self).__name__
        made = model.once(
            "feedback", SameStructure(self), lambda: user_method(self, "inputs", f"law: {name}", model, [], model.m)
        )
        measured = tuple(range(len(model.task_rows)))
        names = tuple(parameter_names(self))
        return AttachedFeedback(1e-6, gains, names, made, low_priority_rows=measured, optional_rows=measured)


@dataclass(frozen=True)
class FunctionLaw(Feedback):
    """`u = function(t, q, v)`."""

    function: Function  # plain NumPy, with `servoctl.where` for branches; q and v have shape (n,), what it returns (m,)

    def inputs(self, at: At) -> Any:
        return self.function(at.t, at.q, at.v)


@dataclass(frozen=True)
class AttachedFeedback(AttachedLaw):
    """A feedback for a plant."""

    gains: tuple[float, ...]  # the parameters of the user's law
    gain_names: tuple[str, ...]
    inputs: UserFunction  # (t, q, v, M, Q, B, the task's A, b, violation and its rate, gains) -> inputs

    @property
    def opaque(self) -> str | None:
        return self.inputs.opaque

    def command(self, at: Terms, memory: Array) -> Command:
        u = self.inputs(*arrays_of(at), np.array(self.gains))
        missed = at.rhs - product(at.task_map, u)
        status = judged(at, is_finite(u), Status.OK.code)
        return Command(where(status >= Status.NOT_POSITIVE.code, np.nan, u), 0, missed, 0.0, status)


def arrays_of(at: Terms) -> list[Array]:
    """t, q, v, M, Q, B, and A, b, violation and violation rate of the task: what `At` is made of."""
    m, task = at.matrices, at.task
    return [np.array([at.state.t]), *at.state[1:], m.M, m.Q, m.B, task.A, task.b, task.violation, task.violation_rate]


def user_method(
    owner: Any, method: str, name: str, model: Model, more: Sequence[tuple[int, ...]], length: int, what: str = INPUTS
) -> UserFunction:
    """A method (at, ...) of a user's dataclass as a function of `arrays_of`, its parameters, and arrays for the rest.

    Args:
        name: Of the class, in messages.
        more: Shape of each array for the rest.
        length: Of what it returns; `what` has it, in messages.
    """
    n, m, r = model.n, model.m, len(model.task_rows)
    instant = [(1,), (n,), (n,), (n, n), (n,), (n, m), (r, n), (r,), (r,), (r,)]

    def function(*arrays: Array) -> Any:
        (t, q, v, M, Q, B, A, b, violation, rate, values), rest = arrays[: len(instant) + 1], arrays[len(instant) + 1 :]
        own = with_parameters(owner, values.tolist())
        return getattr(own, method)(At(t[0], q, v, M, Q, B, Rows(A, b, violation, rate)), *rest)

    return user_function(function, name, [*instant, (len(parameter_values(owner)),), *more], length, what)


def law(function: Function) -> Feedback:
    """A function `(t, q, v) -> inputs` as a law, for `simulate` and `batch`.

        sc.simulate(plant, {}, sc.law(lambda t, q, v: -K @ np.concatenate([q, v])), q=..., duration=5)

    A law with gains that a config names, and that runs on drives, is a class: `Feedback`.

    Args:
        function: Plain NumPy, with `servoctl.where` for branches; q and v have shape (n,), what it returns (m,).

    Raises:
        TaskError: It is no such function.
    """
    if not callable(function):
        raise TaskError(f"law: expected a function (t, q, v) -> inputs, got {function!r}")
    try:
        signature(function).bind(0.0, 0.0, 0.0)
    except TypeError as error:
        raise TaskError(f"law: the function takes other arguments than (t, q, v): {error}") from error
    return FunctionLaw(function)
