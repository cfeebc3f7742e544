"""An equation: its text, which a tokenizer and precedence climbing parse; its tree, the names it uses, and its value.

Design: Python's own parser would replace the two functions of precedence alone. The tokenizer would stay, because the
messages quote the word that is wrong and its place, which Python's syntax errors do not; and forms that Python accepts,
such as `1_0`, `0x1F`, `1j` and comments, would need checks of their own.

Grammar, loosest first; `**` binds from right to left and tighter than the sign before it:

    sum      product  (("+" | "-") product)*
    product  signed   (("*" | "/") signed)*
    signed   ("+" | "-") signed | power
    power    operand  ["**" signed]
    operand  NUMBER | NAME | NAME "[" INTEGER "]" | "der" "(" NAME ")" | FUNCTION "(" sum ("," sum)* ")" | "(" sum ")"
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

import numpy as np

from servoctl.errors import ExpressionError, counted, suggestion

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


MAX_LENGTH = 10_000  # [characters] longest text
MAX_DEPTH = 80  # deepest nesting of parentheses, signs and exponents; the parser takes three Python frames per level

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<word>[^\W\d]\w*)
    | (?P<symbol>//|[=!<>:]=|\*\*|[-+*/()\[\],])
    | (?P<end>\Z)
    | (?P<other>.)
    )""",
    re.VERBOSE | re.DOTALL,
)

_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2, "**": 4}
_SIGN_BINDING = 3

_HINTS = {
    **dict.fromkeys(("=", "=="), "(an equation is written as its left-hand side minus its right-hand side)"),
    **dict.fromkeys(("<", ">", "<=", ">=", "!="), "(an equation has no comparison)"),
    ".": "(there are no attributes, and a number has one decimal point)",
    "[": "(an index follows the name of a tuple parameter: m[0])",
    ",": "(it separates the values of a function: atan2(y, x))",
}
_HINTS = {symbol: f"{symbol!r} does not belong here {hint}" for symbol, hint in _HINTS.items()} | {
    **{quote: f"quotation mark {quote} does not belong here (an equation has no text)" for quote in '"`'},
    "'": "quotation mark ' does not belong here (an equation has no text, and the rate of x is der(x))",
    "°": "'°' is no unit (60 degrees are 60*deg)",
    "^": "'^' is not an operator (use ** for powers)",
    "%": "'%' is not an operator (there is no remainder)",
    "//": "'//' is not an operator (use / to divide)",
    ")": "')' closes nothing",
}


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def _is_name(word: str) -> bool:
    return word.isidentifier() and not word.startswith("__")


class _Parser:
    """Parses one text. `steps` grows in postfix order; `constants` is a stack: value of a constant part, else None."""

    def __init__(self, text: str) -> None:
        self.text = text
        kinds = ((match, match.lastgroup or "other") for match in _TOKEN.finditer(text))
        self.tokens = [_Token(kind, match[kind], match.start(kind), match.end(kind)) for match, kind in kinds]
        self.steps: list[Step] = []
        self.constants: list[float | None] = []
        self.depth = 0
        self.last, self.token = _Token("start", "", 0, 0), self.tokens.pop(0)

    def advance(self) -> _Token:
        self.last, self.token = self.token, self.tokens.pop(0) if self.tokens else self.token
        return self.last

    def fail(self, message: str, token: _Token | None = None) -> NoReturn:
        raise ExpressionError(message, (token or self.token).start)

    def unexpected(self) -> NoReturn:
        """Raises the error for a token that cannot follow the one before it."""
        kind, text, before = self.token.kind, self.token.text, self.last.text
        if kind == "end":
            ends = f"the equation ends after {before!r} (a value is expected)"
            self.fail(ends if before else "empty (an equation is expected)")
        if text in _HINTS:
            self.fail(_HINTS[text])
        if kind in {"number", "word"} or text == "(":
            self.fail(f"no operator between {before!r} and {text!r} (to multiply, write {before}*{text})")
        if text in _BINDING:
            self.fail(f"{text!r} has no value before it")
        self.fail(f"{text!r} does not belong in an equation")

    def expect(self, symbol: str) -> None:
        if self.token.kind == "end":
            self.fail(f"{symbol!r} is missing after {self.last.text!r} (a parenthesis or an index is not closed)")
        if self.token.text != symbol:
            self.unexpected()
        self.advance()

    def push(self, step: Step, value: float | None = None) -> None:
        self.steps.append(step)
        self.constants.append(value)

    def apply(self, word: str, operands: int, start: int) -> None:
        """Adds an operator or function; refuses a constant part that is not finite."""
        numbers = [Number(value) for value in self.constants[-operands:] if value is not None]
        del self.constants[-operands:]
        self.push(Apply(word, operands))
        if len(numbers) < operands:
            return
        with np.errstate(all="ignore"):
            value = float(Expression("", (*numbers, Apply(word, operands))).evaluate({}))
        if not np.isfinite(value):
            part = self.text[start : self.last.end]
            raise ExpressionError(f"'{part}' is not a finite number (check divisors, roots, logarithms, powers)", start)
        self.constants[-1] = value

    def operation(self, minimum: int = 1) -> None:
        """Reads an operand and all operators that bind at least as tightly as `minimum`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"nested deeper than {MAX_DEPTH} levels (split the equation)")
        start = self.token.start
        self.operand()
        while (binding := _BINDING.get(self.token.text, 0)) >= minimum:
            symbol = self.advance().text
            self.operation(binding if symbol == "**" else binding + 1)
            self.apply(symbol, 2, start)
        self.depth -= 1

    def operand(self) -> None:
        kind, text, start, _ = self.token
        if kind == "number":
            value = float(self.advance().text)
            if re.fullmatch("0[0-9]+", text):
                raise ExpressionError(f"{text!r} starts with a zero (write it without)", start)
            if not np.isfinite(value):
                raise ExpressionError(f"{text!r} is not a finite number (the largest is about 1.8e308)", start)
            self.push(Number(value), value)
        elif kind == "word":
            self.word()
        elif text in {"+", "-"}:
            self.advance()
            self.operation(_SIGN_BINDING)
            if text == "-":
                self.apply(NEGATIVE, 1, start)
        elif text == "(":
            self.advance()
            self.operation()
            self.expect(")")
        elif text == ")":
            self.fail("')' follows nothing (a value is expected before it)")
        else:
            self.unexpected()

    def word(self) -> None:
        token = self.advance()
        word, after = token.text, self.token.text
        if word == "der":
            self.rate(token)
        elif word in ARITY:
            self.function(token)
        elif after == "(" and word not in RESERVED and word.isidentifier():
            hint = suggestion(word, ARITY) or f"known: {', '.join(ARITY)}; to multiply, write {word}*(...)"
            self.fail(f"unknown function {word!r} ({hint})", token)
        elif not _is_name(word):
            self.fail(f"{word!r} is not a name (letters, digits and _, as in theta_1; powers are written **)", token)
        elif after == "[" and word not in RESERVED:
            self.advance()
            if not re.fullmatch("[0-9]{1,6}", self.token.text):
                hint = f"a whole number, counted from 0: {word}[0]"
                self.fail(f"{self.token.text!r} is no index of {word!r} ({hint})")
            self.push(Name(word, element=int(self.advance().text)))
            self.expect("]")
        elif word in CONSTANTS:
            self.push(Number(CONSTANTS[word], word if word in UNITS else ""), CONSTANTS[word])
        else:
            self.push(Name(word))

    def rate(self, token: _Token) -> None:
        if self.token.text != "(":
            self.fail("'der' without parentheses (write der(x) for the rate of x)", token)
        self.advance()
        name = self.advance()
        if name.text == "der":
            hint = "second derivatives are not part of an equation: give the position- or velocity-level equation"
            self.fail(f"'der' inside 'der' ({hint})", name)
        is_name = name.kind == "word" and name.text not in RESERVED and _is_name(name.text)
        if not is_name or self.token.text not in {")", ""}:
            self.fail("'der' takes the name of one coordinate (write der(x) for the rate of x)", token)
        self.expect(")")
        self.push(Name(name.text, rate=True))

    def function(self, token: _Token) -> None:
        word, count = token.text, 0
        if self.token.text != "(":
            self.fail(f"{word!r} is a function (write {word}(...))", token)
        self.advance()
        while self.token.text == "," if count else self.token.text != ")":
            if count:
                self.advance()
            self.operation()
            count += 1
        self.expect(")")
        if count != ARITY[word]:
            self.fail(f"{word!r} takes {counted(ARITY[word], 'value')}, got {count}", token)
        self.apply(word, count, token.start)


@lru_cache(maxsize=512)  # a sweep reads the same config for every run
def parse(text: str) -> Expression:
    """Parses an equation, written as its left-hand side minus its right-hand side.

    Args:
        text: At most 10 000 characters, in the grammar of this module.

    Raises:
        ExpressionError: The text is not an equation; the message names the word that is wrong.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"{len(text)} characters (an equation has at most {MAX_LENGTH})", MAX_LENGTH)
    parser = _Parser(text)
    parser.operation()
    if parser.token.kind != "end":
        parser.unexpected()
    return Expression(text, tuple(parser.steps))
