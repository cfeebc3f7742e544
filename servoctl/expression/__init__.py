"""Equations as text: read into an expression tree, never evaluated as Python.

    phi = parse("l*cos(theta) - r*(1 - cos(t))")
    phi.evaluate({"theta": 0.5, "l": 1.0, "r": 0.2, "t": 0.0})

Design: the tree is stored in postfix order, so evaluating it is a loop over a stack, with no recursion and no limit on
the number of terms; only the parser recurses, over nested parentheses, and there a limit stands. Values may be
anything that has Python's operators, and functions come in a mapping, so the same expression serves numbers, arrays
and symbols. A constant part that is not finite, such as `1/0`, is an error of the text, found when it is read.
"""

from servoctl.expression.checks import check_names, constant
from servoctl.expression.parser import parse
from servoctl.expression.tree import Expression
from servoctl.expression.words import ARITY, NUMPY_FUNCTIONS, RESERVED, UNITS

__all__ = ["ARITY", "NUMPY_FUNCTIONS", "RESERVED", "UNITS", "Expression", "check_names", "constant", "parse"]
