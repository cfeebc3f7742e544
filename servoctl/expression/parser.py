"""Parses the text of an equation, by a tokenizer and precedence climbing.

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

import re
from functools import lru_cache
from typing import NamedTuple, NoReturn

import numpy as np

from servoctl.errors import ExpressionError, counted, suggestion
from servoctl.expression.tree import ARITY, CONSTANTS, NEGATIVE, RESERVED, UNITS, Apply, Expression, Name, Number, Step

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
