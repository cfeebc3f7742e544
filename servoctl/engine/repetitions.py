"""Expressions without repeated operations.

Design: CasADi has this as `cse`, which takes 10 ms for each call of another function in the expressions; a law calls
dozens. Here each operation of the expressions is made once again, unless the same operation on the same operands was
made before, and so is each call.
"""

from collections.abc import Sequence
from typing import Any

import casadi as ca

_COMMUTATIVE = {ca.OP_ADD, ca.OP_MUL, ca.OP_EQ, ca.OP_NE, ca.OP_AND, ca.OP_OR}


def without_repetitions(expressions: Sequence[Any]) -> list[Any]:
    """The same expressions, in which each operation on the same operands appears once.

    Args:
        expressions: CasADi SX or DM.
    """
    expressions = [ca.SX(each) for each in expressions]
    free = ca.symvar(ca.veccat(*expressions))
    function = ca.Function("expressions", [ca.vertcat(ca.SX(0, 1), *free)], expressions)
    if not function.find_functions(0):
        return list(ca.cse(expressions))
    remade = _Remade(function, free)
    for i in range(function.n_instructions()):
        remade.add(i, function.instruction_id(i))
    pairs = zip(expressions, remade.results, strict=True)
    return [_matrix(each.sparsity(), values) if values else each for each, values in pairs]


def _matrix(sparsity: Any, entries: Sequence[Any]) -> Any:
    return ca.SX(sparsity, ca.vertcat(*entries))


class _Remade:
    """The operations of a function, made again."""

    def __init__(self, function: Any, free: Sequence[Any]) -> None:
        # the entries of each result
        self.results: list[list[Any]] = [[None] * function.nnz_out(k) for k in range(function.n_out())]
        self._function, self._free = function, free
        self._calls: Any = None
        self._held: dict[int, int] = {}  # place in CasADi's work vector -> number of its value
        self._values: list[Any] = []
        self._numbers: dict[tuple[Any, ...], Any] = {}  # operation and numbers of its operands -> number of its value

    def add(self, i: int, code: int) -> None:
        """Makes instruction i, unless it repeats one."""
        function = self._function
        inputs, outputs = function.instruction_input(i), function.instruction_output(i)
        if code == ca.OP_OUTPUT:
            self.results[outputs[0]][outputs[1]] = self._values[self._held[inputs[0]]]
        elif code == ca.OP_CALL:
            self._call(i, [self._held[place] for place in inputs], outputs)
        else:
            operands: tuple[Any, ...]
            if code == ca.OP_INPUT:
                operands = tuple(inputs)
            elif code == ca.OP_CONST:
                operands = (function.instruction_constant(i).hex(),)  # tells -0.0 from 0.0
            else:
                operands = tuple(self._held[place] for place in inputs)
                operands = tuple(sorted(operands)) if code in _COMMUTATIVE else operands
            number = self._numbers.get((code, *operands))
            if number is None:
                number = self._numbers[code, *operands] = self._kept(self._made(i, code, inputs))
            self._held[outputs[0]] = number

    def _made(self, i: int, code: int, inputs: Sequence[int]) -> Any:
        if code == ca.OP_INPUT:
            return self._free[inputs[1]]
        if code == ca.OP_CONST:
            return ca.SX(self._function.instruction_constant(i))
        operands = [self._values[self._held[place]] for place in inputs]
        return ca.SX.unary(code, *operands) if len(operands) == 1 else ca.SX.binary(code, *operands)

    def _kept(self, value: Any) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def _call(self, i: int, operands: list[int], outputs: Sequence[int]) -> None:
        if self._calls is None:
            self._calls = self._function.instructions_sx()
        called = self._calls[i].which_function()
        key = called.__hash__(), *operands
        if key not in self._numbers:
            given, first = [], 0
            for k in range(called.n_in()):
                entries = [self._values[number] for number in operands[first : first + called.nnz_in(k)]]
                given.append(_matrix(called.sparsity_in(k), entries))
                first += len(entries)
            entries = [entry for result in called.call(given) for entry in result.nonzeros()]
            self._numbers[key] = [self._kept(entry) for entry in entries]
        self._held |= {place: number for place, number in zip(outputs, self._numbers[key], strict=True) if place >= 0}
