"""An expression: its text, its tree in postfix order, the names it uses, and its value."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

T = TypeVar("T")

UNITS: Mapping[str, float] = MappingProxyType(
    {"deg": math.pi / 180, "rad": 1.0, "ms": 1e-3, "us": 1e-6, "rpm": 2 * math.pi / 60, "mm": 1e-3}
)
"""Unit word -> its value in rad, s, rad/s or m."""

CONSTANTS: Mapping[str, float] = MappingProxyType({"pi": math.pi, **UNITS})  # every word that stands for a number

_WORDS = "sin cos tan asin acos atan atan2 sinh cosh tanh exp log sqrt abs min max"
_OF_NUMPY = {"min": "minimum", "max": "maximum"} | {f"a{word}": f"arc{word}" for word in ("sin", "cos", "tan", "tan2")}

FUNCTIONS: Mapping[str, str] = MappingProxyType({word: _OF_NUMPY.get(word, word) for word in _WORDS.split()})
"""Function word -> name of NumPy's function."""

ARITY: Mapping[str, int] = MappingProxyType({word: 2 if word in {"atan2", "min", "max"} else 1 for word in FUNCTIONS})
"""Function word -> number of arguments."""

KINKED = frozenset({"abs", "min", "max"})  # functions whose derivative jumps

RESERVED = frozenset({"t", "der", *CONSTANTS, *ARITY})
"""Words that cannot be names of coordinates, actuators or parameters."""


class Number(NamedTuple):
    """A literal, `pi` or a unit word."""

    value: float
    word: str = ""  # the unit word; empty for other numbers


class Name(NamedTuple):
    """A coordinate, a parameter or `t`; the rate of a coordinate; one value of a tuple parameter."""

    name: str
    rate: bool = False  # whether it is `der(name)`
    element: int | None = None  # of `name[element]`


class Apply(NamedTuple):
    """An operator or a function of the last `operands` values."""

    word: str
    operands: int


Step = Number | Name | Apply


def _as_numpy(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operation that gives inf or nan on Python numbers, as NumPy does, where Python raises or returns complex."""

    def apply(left: Any, right: Any) -> Any:
        if isinstance(left, float | int) and isinstance(right, float | int):
            with np.errstate(all="ignore"):
                return float(operation(np.float64(left), right))
        return operation(left, right)

    return apply


NEGATIVE = "negative"
OPERATORS: Mapping[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _as_numpy(operator.truediv),
    "**": _as_numpy(operator.pow),
    NEGATIVE: operator.neg,
}


class TimeFunction(Protocol):
    """A function of time that an expression uses by name; hashable, equal by content."""

    def __call__(self, t: Any) -> Any:
        """The value at t [s], a number or a symbol."""

    def rate(self, t: Any) -> Any:
        """The time derivative at t [s]."""

    def beyond(self, t: float) -> str | None:
        """Why there is no value at t, one sentence; None if there is one."""


@dataclass(frozen=True)
class Expression:
    """The result of `parse`; two expressions of the same text and signals are equal."""

    text: str  # the text that was parsed
    # the tree in postfix order: each step takes its arguments from the values before it
    steps: tuple[Step, ...] = field(repr=False, compare=False)
    # (name, function of time) of the names that stand for functions of time, in order of names
    signals: tuple[tuple[str, TimeFunction], ...] = field(default=(), repr=False)

    def with_signals(self, signals: Mapping[str, TimeFunction]) -> "Expression":
        """The same expression, in which these names stand for functions of time."""
        used = tuple((name, signals[name]) for name in sorted(self.names & signals.keys()))
        return replace(self, signals=used) if used else self

    @cached_property
    def names(self) -> frozenset[str]:
        """Every name used, with or without `der` or an index; not `t`, `pi`, units and functions."""
        return self.plain | self.rates | {name for name, _ in self.indexed}

    @cached_property
    def plain(self) -> frozenset[str]:
        """Names used without `der` and without an index."""
        return frozenset(name for name, rate, element in self._leaves if not rate and element is None) - {"t"}

    @cached_property
    def rates(self) -> frozenset[str]:
        """Names of which `der` is used."""
        return frozenset(name for name, rate, _ in self._leaves if rate)

    @cached_property
    def indexed(self) -> frozenset[tuple[str, int]]:
        """(name, index) of each tuple parameter used."""
        return frozenset((name, element) for name, _, element in self._leaves if element is not None)

    @property
    def _leaves(self) -> list[Name]:
        return [step for step in self.steps if isinstance(step, Name)]

    @cached_property
    def velocities(self) -> frozenset[str]:
        """Names of coordinates of which `der` is used."""
        return self.rates - dict(self.signals).keys()

    @cached_property
    def uses_time(self) -> bool:
        """Whether `t` or a function of time occurs."""
        return Name("t") in self.steps or bool(self.signals)

    @cached_property
    def kinked(self) -> tuple[str, ...]:
        """Those of `abs`, `min`, `max` that occur, in order of first use."""
        words = (step.word for step in self.steps if isinstance(step, Apply))
        return tuple(dict.fromkeys(word for word in words if word in KINKED))

    def fold(self, leaf: Callable[[Number | Name], T], apply: Callable[[str, list[T]], T]) -> T:
        """The value of the whole, from `leaf` of numbers and names and `apply` of a word and its operands' values."""
        stack: list[T] = []
        for step in self.steps:
            if isinstance(step, Apply):
                operands = stack[-step.operands :]
                del stack[-step.operands :]
                stack.append(apply(step.word, operands))
            else:
                stack.append(leaf(step))
        return stack.pop()

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Value of the expression.

        Args:
            values: A value for each name used: coordinates and scalar parameters by name, `"der(x)"` for the rate of
                x, `"t"` [s], tuple parameters as sequences. Numbers, arrays or symbols. Names of signals may be left
                out: they are functions of `"t"`.

        Raises:
            KeyError: A name of the expression is missing in `values`.
        """
        if self.signals:
            values = {**self._signal_values(values["t"]), **values}

        def leaf(step: Number | Name) -> Any:
            if isinstance(step, Number):
                return step.value
            value = values[f"der({step.name})" if step.rate else step.name]
            return value if step.element is None else value[step.element]

        def apply(word: str, operands: list[Any]) -> Any:
            # of symbols, those functions that a trace has put in the place of NumPy's
            return (OPERATORS[word] if word in OPERATORS else getattr(np, FUNCTIONS[word]))(*operands)

        return self.fold(leaf, apply)

    def _signal_values(self, t: Any) -> dict[str, Any]:
        known = dict(self.signals)
        values = {name: known[name](t) for name in self.plain & known.keys()}
        return values | {f"der({name})": known[name].rate(t) for name in self.rates & known.keys()}
