"""How long a C compiler will take, without writing the C: that takes seconds for a large law."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import casadi as ca

from servoctl.engine.emit import MANY, called_by
from servoctl.engine.instructions import Instructions
from servoctl.engine.lookup import TABLES
from servoctl.engine.repeat import REPEATED
from servoctl.engine.templates import loops_of

START, STATEMENT, LONG_STATEMENT, COPY, ENTRY = 0.35, 2.5e-4, 1.7e-4, 4e-4, 1.1e-3
"""Processor time of the compiler to start, for a statement of a short and of a long function, for a number or a result
copied into an argument of a call, and for an entry of a decomposed matrix, whose loops are unrolled [s].

Near what gcc 12.2 takes for swarms, chains, trees and the shipped configs; swarms of 32 to 64 bodies take 2 s, because
gcc writes their loops out. `servoctl run CONFIG --engine c` prints what it really took.
"""


def expected_time(functions: Sequence[Any], leading: Mapping[str, Any] = MappingProxyType({})) -> float:
    """About how long the compiler takes for functions [s]; the arguments are those of `emit`."""
    total, known, waiting = START, set[str](), list(functions)
    while waiting:
        function = waiting.pop()
        name = function.name()
        if name in known:
            continue
        known.add(name)
        if name in leading:
            waiting.append(leading[name])
            continue
        waiting += called_by(function)
        found = loops_of(name)
        if found is not None and "decompose" in name:
            total += ENTRY * math.prod(found[1])
        if name not in TABLES and name not in REPEATED and found is None and function.is_a("SXFunction"):
            statements, copied = _statements(Instructions(function))
            total += statements * (LONG_STATEMENT if statements > MANY else STATEMENT) + COPY * copied
    return total


def _statements(instructions: Instructions) -> tuple[int, int]:
    """How many statements a function has, and how many numbers it copies into arguments of calls."""
    plain = (ca.OP_INPUT, ca.OP_OUTPUT, ca.OP_CONST)
    statements = sum(step[0] not in plain for step in instructions.steps)
    return statements, 0
