"""The base classes of all laws: `Law` is attached to a model, `AttachedLaw` maps a state to a command.

Design: a law implements `command(at, memory)`. The equations of motion are assembled once, for the law and for the
simulated plant. The code runs once, on symbols, so it is plain NumPy with `servoctl.where` for branches. What a law
remembers are the states of its terms.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, NamedTuple, TypeVar

import numpy as np

from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.linalg import called
from servoctl.engine.numpy_call import NumpyCall
from servoctl.engine.symbol import Symbol, plain, where
from servoctl.engine.trace import mismatch, read_only, trace
from servoctl.errors import ServoctlError, TaskError, TraceError, in_one_line
from servoctl.laws.bounds_term import BoundsTerm
from servoctl.laws.funnel import FunnelTerm
from servoctl.laws.observer import RowObserver
from servoctl.laws.term import AttachedTerm
from servoctl.mechanics.audit import AGREEMENT, DEPENDS, JUST_BEFORE
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Terms
from servoctl.mechanics.timing import CommandMemory
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


class Law(ABC):
    """A law as the user configures it."""

    def prepare(self, model: Model) -> Model:
        """The model that the law works on: this one, unless the law needs another form of the task.

        Args:
            model: Plant and task; a law may evaluate it near `model.around`, the start.

        Raises:
            TaskError: The task has no such form; the message names every row.
        """
        return model

    @property
    def bound_constraints(self) -> Mapping[str, Constraint]:
        """Name -> constraint of each bound that the model evaluates for the law; empty unless overridden."""
        return {}

    @abstractmethod
    def attach(self, model: Model) -> "AttachedLaw":
        """The law for this plant and task.

        Raises:
            TaskError: The law does not fit; the message names every row and field that is wrong.
        """


def judged(at: Terms, known: Any, status: Any) -> Any:
    """The status, or the most severe cause why there are no inputs.

    Args:
        known: Whether the inputs are finite.
        status: That of finite inputs.
    """
    status = where(known, status, Status.NON_FINITE.code)
    status = where(at.positive, status, Status.NOT_POSITIVE.code)
    return where(at.finite, status, Status.NON_FINITE.code)


T = TypeVar("T", bound=AttachedTerm)


@dataclass(frozen=True)
class AttachedLaw(ABC):
    """A law with its gains: `float` and `tuple[float, ...]` fields, its terms' too, are inputs of the compiled code."""

    passive_rank_tolerance: float  # [-] a mechanism direction counts when its pivot exceeds this times |Ahat L^-T|_F
    terms: tuple[AttachedTerm, ...] = field(default=(), kw_only=True)
    # indices of task rows: of priority 2 and below, which are reported and never a failure; those that a run may miss
    # and still end `done`; those of which it logs what they are given up
    low_priority_rows: tuple[int, ...] = field(default=(), kw_only=True)
    optional_rows: tuple[int, ...] = field(default=(), kw_only=True)
    relaxed_rows: tuple[int, ...] = field(default=(), kw_only=True)

    @abstractmethod
    def command(self, at: Terms, memory: Array) -> Command:
        """The command at a state; pure and traceable.

        Args:
            at: The equations of motion at the state, with the commands under way if its terms read them.
            memory: The law's states, in the order of `memory`.
        """

    def term(self, kind: type[T]) -> T | None:
        """The term of a class; None: there is none."""
        return next((term for term in self.terms if isinstance(term, kind)), None)

    @property
    def memory(self) -> Mapping[str, float]:
        """Name -> initial value of each state that the law keeps: those of its terms, one after the other."""
        return {name: value for term in self.terms for name, value in term.memory.items()}

    @property
    def commands(self) -> CommandMemory | None:
        """The memory of earlier commands that its terms read; None: they read none."""
        return CommandMemory.together(*(term.commands for term in self.terms))

    def with_memory(self, memory: Array) -> Iterator[tuple[AttachedTerm, Array]]:
        """Each term with its part of the memory."""
        first = 0
        for term in self.terms:
            end = first + len(term.memory)
            yield term, memory[first:end]
            first = end

    def of(self, wanted: AttachedTerm, memory: Array) -> Array:
        """The states of a term."""
        return next(kept for term, kept in self.with_memory(memory) if term is wanted)

    @property
    def memory_period(self) -> float | None:
        """Period in which the memory changes once [s]: it changes by this times its rate; None: it is integrated."""
        return next((term.timing.period for term in self.terms if term.memory), None)

    def memory_rate(self, at: Terms, memory: Array, command: Command) -> Array:
        """Time derivative of the memory under a command, in the shape of the memory."""
        rates = [term.memory_rate(at, kept, command) for term, kept in self.with_memory(memory)]
        return np.concatenate([np.zeros(0), *rates])

    @property
    def opaque(self) -> str | None:
        """Why a function of the user's runs in NumPy, because it cannot be traced; None: all of the law is traced."""
        return next((term.opaque for term in self.terms if term.opaque is not None), None)

    @property
    def bounds(self) -> BoundsTerm | None:
        """The bounds that the law keeps."""
        return self.term(BoundsTerm)

    @property
    def bounded(self) -> tuple[str, ...]:
        """Names of these bounds."""
        return () if self.bounds is None else self.bounds.names

    def bound_values(self, at: Terms, u: Array) -> Array:
        """h of each bound under the inputs u, shape (bounded,)."""
        return np.zeros(0) if self.bounds is None else self.bounds.reported(at, u)

    @property
    def funnel(self) -> FunnelTerm | None:
        """The funnels of rows."""
        return self.term(FunnelTerm)

    @property
    def observer(self) -> RowObserver | None:
        """The disturbance observer of the rows."""
        return self.term(RowObserver)

    @property
    def observed(self) -> tuple[str, ...]:
        """Names of the task rows whose disturbance the law observes."""
        return () if self.observer is None else self.observer.rows

    def disturbance(self, at: Terms, memory: Array) -> Array:
        """The disturbance of each observed row [acceleration of the row], shape (observed,)."""
        observer = self.observer
        return np.zeros(0) if observer is None else observer.disturbance(at.task, self.of(observer, memory))

    @property
    def stops_on(self) -> frozenset[int]:
        """Codes of the statuses at which a run must stop, in addition to those without a command."""
        return frozenset()

    @property
    def searches(self) -> bool:
        """Whether the law searches for what limits of inputs and bounds hold."""
        return False

    @property
    def limits(self) -> tuple[tuple[float, float], ...]:
        """Lower and upper limit of each input; empty: it knows none."""
        return ()

    def at_limit(self, u: Array) -> list[int]:
        """Indices of the inputs at a limit of the law."""
        pairs = zip(u, self.limits, strict=False)
        return [i for i, (value, (lower, upper)) in enumerate(pairs) if value <= lower or value >= upper]
