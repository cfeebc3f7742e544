"""CasADi's operations on scalars: their C and what they cost."""

import casadi as ca

from servoctl.engine.cost import Cost

_UNARY = {
    ca.OP_NEG: "-{0}",
    ca.OP_SQ: "{0} * {0}",
    ca.OP_TWICE: "number(2.0) * {0}",
    ca.OP_INV: "number(1.0) / {0}",
    ca.OP_ASSIGN: "{0}",
}
_BINARY = {
    ca.OP_ADD: "{0} + {1}",
    ca.OP_SUB: "{0} - {1}",
    ca.OP_MUL: "{0} * {1}",
    ca.OP_DIV: "{0} / {1}",
    ca.OP_CONSTPOW: "v_pow({0}, {1})",
}
CHEAP_OF_ONE, CHEAP_OF_TWO = ("floor", "ceil", "fabs", "sign"), ("copysign", "fmin", "fmax", "fmod")
SLOW_OF_ONE = (
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "log",
    "expm1", "log1p", "erf",
)  # fmt: skip
SLOW_OF_TWO = ("atan2", "hypot", "pow")
FUNCTIONS = ("sqrt", *CHEAP_OF_ONE, *CHEAP_OF_TWO, *SLOW_OF_ONE, *SLOW_OF_TWO)
"""Functions of V, each written `v_<name>` in C."""

_UNARY |= {getattr(ca, f"OP_{name.upper()}"): f"v_{name}({{0}})" for name in ("sqrt", *CHEAP_OF_ONE, *SLOW_OF_ONE)}
_BINARY |= {getattr(ca, f"OP_{name.upper()}"): f"v_{name}({{0}}, {{1}})" for name in (*CHEAP_OF_TWO, *SLOW_OF_TWO)}
TEXT = _UNARY | _BINARY  # C of an operation on numbers, `{0}` and `{1}` for its operands

COMPARE = {ca.OP_LT: "{0} < {1}", ca.OP_LE: "{0} <= {1}", ca.OP_EQ: "{0} == {1}", ca.OP_NE: "{0} != {1}"}
_DIVISIONS = {ca.OP_DIV, ca.OP_INV, ca.OP_SQRT}
_SLOW = {getattr(ca, f"OP_{name.upper()}") for name in (*SLOW_OF_ONE, *SLOW_OF_TWO)} | {ca.OP_CONSTPOW}


def cost_of(operation: int) -> Cost:
    """Cost of an operation on numbers."""
    return Cost(1, int(operation in _DIVISIONS), int(operation in _SLOW))


def operation_name(operation: int) -> str:
    """What CasADi calls an operation: `erfinv`."""
    return next(word[3:].lower() for word in dir(ca) if word.startswith("OP_") and getattr(ca, word) == operation)
