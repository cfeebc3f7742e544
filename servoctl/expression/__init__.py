"""Reads equations as text into expression trees; text is never evaluated as Python.

    phi = parse("l*cos(theta) - r*(1 - cos(t))")
    phi.evaluate({"theta": 0.5, "l": 1.0, "r": 0.2, "t": 0.0})

Design: the tree is stored in postfix order, so evaluation is a loop over a stack, with no recursion and no limit on the
number of terms. Only the parser recurses, over nested parentheses, up to a limit. Values may be of any type with
Python's operators, and functions are those of NumPy by their names, which take symbols while a function is traced. A
constant part that is not finite, such as `1/0`, is refused when the text is read.
"""

from servoctl.expression.checks import check_names, constant, foreign_word, per_second, unit_of
from servoctl.expression.equation import ARITY, RESERVED, UNITS, Expression, TimeFunction, parse

__all__ = [
    "ARITY",
    "RESERVED",
    "UNITS",
    "Expression",
    "TimeFunction",
    "check_names",
    "constant",
    "foreign_word",
    "parse",
    "per_second",
    "unit_of",
]
