"""Code of your own: a law is a frozen dataclass with one method, or a function `u = f(t, q, v)`; a term is a class.

A term adds to b of the task, with states of its own where it needs them. Tasks are only measured against a law of your
own.

Design: the methods are traced like a plant, so that they run compiled, side by side in sweeps, and in the tick of a run
on drives; what symbols cannot follow is called in NumPy. Their `float` fields are inputs of the compiled code.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.linalg import called, is_finite, product
from servoctl.engine.numpy_call import NumpyCall
from servoctl.engine.parameters import SameStructure, makes_values, parameter_names, parameter_values, with_parameters
from servoctl.engine.symbol import Symbol, plain, where
from servoctl.engine.trace import mismatch, read_only, trace
from servoctl.errors import ServoctlError, TaskError, TraceError, in_one_line
from servoctl.laws.law import AttachedLaw, Law, judged
from servoctl.laws.term import AttachedTerm
from servoctl.mechanics.audit import AGREEMENT, DEPENDS, JUST_BEFORE
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Terms
from servoctl.mechanics.timing import Timing
from servoctl.types import Array, Command, Status

INPUTS = "the plant has {} inputs"
COPY = "it may not change its arguments: work on a copy, as in q = at.q.copy()"
SAMPLES = 8  # random arguments at which a traced function must equal its NumPy self


class UserFunction(NamedTuple):
    """A function of arrays that symbols can follow."""

    function: Callable[..., Array]  # the arrays -> inputs, shape (m,)
    opaque: str | None  # why it is called in NumPy; None: it is traced

    def __call__(self, *arrays: Array) -> Array:
        """The inputs, shape (m,)."""
        return self.function(*arrays)


def user_function(
    function: Callable[..., Any],
    name: str,
    shapes: Sequence[tuple[int, ...]],
    m: int,
    what: str = INPUTS,
) -> UserFunction:
    """The function itself if it can be traced, else an operation that calls it.

    Args:
        function: Plain NumPy; its first array has the time alone.
        name: In messages.
        shapes: Shape of each array.
        m: Length of what it returns.
        what: What has that length, in messages.

    Raises:
        TaskError: It returns another shape, or two answers to the same arguments.
    """

    def checked(*arrays: Array) -> Array:
        return _values(function(*arrays), name, m, what)

    def traced(*arrays: Array) -> Array:
        return plain(trace(checked, *arrays))

    def work(*arrays: Array) -> list[Array]:
        try:
            return [checked(*(read_only(array.copy()) for array in arrays)).astype(float)]
        except (KeyboardInterrupt, ServoctlError):
            raise
        except BaseException as error:  # user code may raise anything
            if isinstance(error, ValueError) and "read-only" in str(error):
                raise TaskError(f"{name}: {in_one_line(error)} ({COPY})") from None
            raise TaskError(f"{name} failed at t = {arrays[0][0]:.6g} s: {in_one_line(error)}") from error

    answers = _answers(work, shapes, name)
    try:
        symbols = inputs({f"x{i}": shape for i, shape in enumerate(shapes)})
        _require_equal(Kernel.compile("user", symbols, {"values": traced(*symbols.values())}), answers, name)
    except TraceError as error:
        call = NumpyCall("law", work, shapes, [(m,)])
        return UserFunction(lambda *arrays: called(call, arrays, (m,))[0], str(error))
    return UserFunction(traced, None)


def _values(values: Any, name: str, m: int, what: str) -> Array:
    """What a function returned, as m numbers or symbols."""
    array: Array = np.atleast_1d(np.asarray(values))
    if array.dtype.kind not in "biuf" and not all(isinstance(value, Symbol | Real) for value in array.flat):
        raise TaskError(f"{name} returns {values!r} (expected numbers)")
    if array.shape != (m,):
        raise TaskError(f"{name} returns shape {array.shape}, {what.format(m)}")
    return array


def _answers(
    work: Callable[..., list[Array]], shapes: Sequence[tuple[int, ...]], name: str
) -> list[tuple[list[Array], Array]]:
    """Random arguments and what a function makes of them, as far as it takes them.

    Raises:
        TaskError: It gives two answers to the same arguments.
    """
    random, answers = np.random.default_rng(0), list[tuple[list[Array], Array]]()
    for i in range(SAMPLES):
        arrays = [np.array([i + random.random()]), *(random.standard_normal(shape) for shape in shapes[1:])]
        # square matrices such as the mass matrix are regular, symmetric and positive definite
        arrays = [a @ a.T + np.eye(len(a)) if a.ndim == 2 and len(set(a.shape)) == 1 else a for a in arrays]
        before = [arrays[0] - JUST_BEFORE, *(answers[-1][0] if answers else arrays)[1:]]
        try:
            with np.errstate(all="ignore"):
                _, [one] = work(*before), work(*arrays)
        except TaskError as error:
            if error.__cause__ is None:  # not the user's code failed: what it returns is wrong
                raise
            continue
        answers.append((arrays, one))
    for arrays, one in answers:
        with np.errstate(all="ignore"):
            [other] = work(*arrays)
        if not np.array_equal(one, other, equal_nan=True):
            raise TaskError(f"{name}: two answers at one state, {one} and {other} {DEPENDS}")
    return answers


def _require_equal(kernel: Kernel, answers: Iterable[tuple[list[Array], Array]], name: str) -> None:
    """Raises TraceError unless a traced function gives these answers."""
    for arrays, expected in answers:
        finite = np.abs(expected[np.isfinite(expected)])
        difference = mismatch(expected, kernel(*arrays)[0], finite.max(initial=1.0), AGREEMENT)
        if difference is not None:
            raise TraceError(f"{name}: symbols and NumPy differ by {difference:.1e} relative (a branch on the state?)")


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


class _UserClass:
    """What a user derives a frozen dataclass from; its `float` fields are gains."""

    @property
    def has_made_values(self) -> bool:
        """Whether its fields are no gains: see `makes_values`."""
        return makes_values(self)


class Feedback(_UserClass, Law):
    """A law of your own: derive a frozen dataclass from it; its `float` fields are gains.

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


@dataclass(frozen=True)
class Term(_UserClass, ABC):
    """A term of your own: derive a frozen dataclass from it; its `float` fields are gains.

    Example:

        @dataclass(frozen=True)
        class Integral(sc.Term):
            k: float = 100.0  # [1/s^3]

            def memory(self, rows):
                return dict.fromkeys(rows, 0.0)

            def acceleration(self, at, memory):
                return -self.k * memory

            def memory_rate(self, at, memory, u):
                return at.task.violation
    """

    def memory(self, rows: Sequence[str]) -> Mapping[str, float]:
        """Name -> initial value of each state that the term keeps; none unless overridden.

        Args:
            rows: Names of the task rows.
        """
        return {}

    @abstractmethod
    def acceleration(self, at: At, memory: Array) -> Any:
        """What it adds to b of the task, shape (r,); plain NumPy, with `servoctl.where` for branches.

        Args:
            at: The machine and the task at an instant.
            memory: Its states, in the order of `memory`.
        """

    def memory_rate(self, at: At, memory: Array, u: Array) -> Any:
        """Time derivative of its states under the inputs u; a law with a period adds it times the period, once a tick.

        Zero unless overridden.
        """
        return np.zeros(len(memory))

    def attach(self, name: str, model: Model, timing: Timing) -> "AttachedOwnTerm":
        """The term for a plant and task.

        Args:
            name: Under which a config names it.
            timing: Of the loop.

        Raises:
            TaskError: A method fails, or returns another shape.
        """
        try:
            memory = self.memory([row.name for row in model.task_rows])
            memory = {key: float(value) for key, value in dict(memory).items()}
        except Exception as error:  # user code may raise anything
            problem = f"law.terms.{name}: memory: expected a mapping of names to numbers"
            raise TaskError(f"{problem}: {in_one_line(error)}") from error
        wrong = [key for key, value in memory.items() if not np.isfinite(value)]
        if wrong:
            raise TaskError(f"law.terms.{name}: memory: {wrong[0]}: expected a finite number, got {memory[wrong[0]]}")
        start = tuple((f"terms.{name}.{key}", value) for key, value in memory.items())
        acceleration, rate = model.once(
            f"term {name}", SameStructure(self), lambda: _called(self, name, model, len(memory))
        )
        gains, names = tuple(parameter_values(self).tolist()), tuple(parameter_names(self))
        return AttachedOwnTerm(name, start, gains, names, acceleration, rate, timing=timing)


@dataclass(frozen=True)
class AttachedOwnTerm(AttachedTerm):
    """A term of one's own for a plant and task."""

    name: str  # its key in `law.terms`
    start: tuple[tuple[str, float], ...]  # name and initial value of each state
    gains: tuple[float, ...]  # the parameters of the user's class
    gain_names: tuple[str, ...]
    acceleration_of: UserFunction  # (t, q, v, M, Q, B, the task's A, b, violation and its rate, gains, memory)
    rate_of: UserFunction  # the same and u

    @property
    def label(self) -> str:  # type: ignore[override]
        return f"terms.{self.name}"

    @property
    def memory(self) -> Mapping[str, float]:
        return dict(self.start)

    @property
    def opaque(self) -> str | None:
        return self.acceleration_of.opaque or self.rate_of.opaque

    def acceleration(self, at: Terms, memory: Array) -> Array:
        return self.acceleration_of(*arrays_of(at), np.array(self.gains), memory)

    def memory_rate(self, at: Terms, memory: Array, command: Command) -> Array:
        return self.rate_of(*arrays_of(at), np.array(self.gains), memory, command.u)


def _called(term: Term, name: str, model: Model, states: int) -> tuple[UserFunction, UserFunction]:
    def called(method: str, more: Sequence[tuple[int, ...]], length: int, what: str) -> UserFunction:
        where = f"law.terms.{name}: {type(term).__name__}.{method}"
        return user_method(term, method, where, model, [(states,), *more], length, what)

    acceleration = called("acceleration", [], len(model.task_rows), "the task has {} rows")
    return acceleration, called("memory_rate", [(model.m,)], states, "it has {} states")
