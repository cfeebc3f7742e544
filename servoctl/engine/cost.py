"""How many operations a function takes: in C in the worst case, and on CasADi's virtual machine."""

from dataclasses import dataclass
from typing import Any

import casadi as ca

from servoctl.engine.lookup import TABLES, is_lookup_derivative
from servoctl.engine.mapped import MAPPED
from servoctl.engine.repeat import REPEATED


@dataclass(frozen=True)
class Cost:
    """Operations on numbers, in the worst case.

    Attributes:
        operations: All: arithmetic, comparisons, choices.
        divisions: Of these, divisions and square roots.
        functions: Of these, sines, exponentials and the like.
    """

    operations: int = 0
    divisions: int = 0
    functions: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.operations + other.operations, self.divisions + other.divisions, self.functions + other.functions
        )

    def __mul__(self, times: int) -> "Cost":
        return Cost(times * self.operations, times * self.divisions, times * self.functions)


def decomposition_cost(rows: int, n: int) -> Cost:
    """Cost of `c/decompose.h` for one run, loop by loop in its order, where rank is lost: the worst case."""
    k = min(rows, n)
    pivot = 2 * n * rows + (rows - 1) + 2 * n  # squares of the rows, choice of the largest, its length
    pivot += 8 + n + 2 * n * rows + 2 * rows + 4 * n * rows  # the new direction, and the rows without it
    again = 2 * n * k + 1  # products with the directions before, and one more condition
    total = 1 + k * pivot + (k - 1) * again + (k * (k - 1) // 2) * (2 * n + 2 * rows)
    column = 2 * rows + 6 + 2 * rows
    columns = k * column + 2 * (k - 1) * 2 * rows * k + k * (k - 1) * (2 * rows + 1) + k * k
    return Cost(total + columns + k * n + 1, 4 * k)


def decomposition_numbers(rows: int, n: int) -> int:
    """Numbers and conditions that the two functions of `c/decompose.h` keep on the stack."""
    k = min(rows, n)
    rank = 2 * n * rows + 2 * k * n + 2 * k * rows + 2 * rows + 2 * k + n
    return rank + rows * k + k * k + k + 48  # the last: the second call, pointers and counters


def lookup_cost(breaks: int) -> Cost:
    """Cost of `c/lookup.h`: comparisons of a search by halves, with their choices and sums."""
    return Cost(3 * breaks.bit_length())


def operations(function: Any) -> int:
    """Operations of a CasADi function of scalars on the virtual machine, the same figure on every machine.

    The operations of the functions that it calls are included; a function that repeats another counts as one step.
    """
    known: dict[str, int] = {}

    def count(one: Any) -> int:
        name = one.name()
        if name in TABLES:
            return lookup_cost(len(TABLES[name].breaks)).operations
        if is_lookup_derivative(name):
            return 0
        if name in REPEATED:
            return count(REPEATED[name].step)
        if name in MAPPED:
            return MAPPED[name].count * count(MAPPED[name].one)
        if name not in known:
            total = one.n_instructions()
            calls = [i for i in range(total) if one.instruction_id(i) == ca.OP_CALL]
            expressions = one.instructions_sx() if calls else []
            known[name] = total + sum(count(expressions[i].which_function()) for i in calls)
        return known[name]

    return count(function)
