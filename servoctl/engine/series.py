"""Operations that repeat along arrays: one loop in C instead of a statement for each entry.

Design: an instruction whose operands are entries of arrays continues the series of its operation and arrays, if its
operands stand as far behind those of the instruction before as these behind their own. The results of a series are an
array again, so that series follow on series. Each loop stands where the last array that it reads is complete, before
all that needs its results; every result is the same to the bit.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

import casadi as ca

from servoctl.engine.instructions import Instructions
from servoctl.engine.lookup import is_lookup_derivative

SHORTEST = 64
"""Operations from which a loop takes their place."""

START = -1
"""Stands for an instruction before the first."""


@dataclass(eq=False)
class Series:
    """Operations on entries of arrays at even distances.

    Attributes:
        operation: CasADi's code.
        arrays: What each operand is an entry of: an array in C, another series, or a number in C.
        first: Index of each operand of the first operation; None for a number.
        after: Instruction behind which all arrays are complete.
        members: The instructions.
        steps: Distance of each operand from that of the operation before.
    """

    operation: int
    arrays: tuple[Union[str, "Series"], ...]
    first: tuple[int | None, ...]
    after: int
    members: list[int] = field(default_factory=list)
    steps: tuple[int, ...] = ()

    def take(self, i: int, places: tuple[int | None, ...]) -> bool:
        """Adds an instruction with operands at these indices, if it continues the series."""
        steps = tuple((place or 0) - (first or 0) for place, first in zip(places, self.first, strict=True))
        count = len(self.members)
        if count == 1:
            self.steps = steps
        if steps != tuple(count * step for step in self.steps):
            return False
        self.members.append(i)
        return True

    def loop(self, name: str, template: str, names: Mapping["Series", str]) -> str:
        """The loop in C.

        Args:
            name: Of the array of results.
            template: C of the operation, `{0}` and `{1}` for its operands.
            names: Of the arrays of other series.
        """
        operands = []
        for array, first, step in zip(self.arrays, self.first, self.steps, strict=True):
            array = array if isinstance(array, str) else names[array]
            operands.append(array if first is None else f"{array}[{first} + {step} * k]")
        return f"for (int k = 0; k < {len(self.members)}; ++k) {name}[k] = {template.format(*operands)};"


def all_series(
    instructions: Instructions, operations: Collection[int], apart: Collection[int], constant: Callable[[float], str]
) -> Sequence[Series]:
    """The series among instructions, each behind those that it reads.

    Args:
        instructions: Of a function.
        operations: Operations that loops can do.
        apart: Instructions that stay on their own.
        constant: Number -> its C.
    """
    held: dict[int, tuple[str | Series, int | None, int] | None] = {}  # place -> array, index, what completes it
    found: list[Series] = []
    growing: dict[tuple[object, ...], Series] = {}
    for i, (operation, inputs, outputs) in enumerate(instructions.steps):
        if operation == ca.OP_INPUT:
            held[outputs[0]] = f"x{inputs[0]}", inputs[1], START
        elif operation == ca.OP_CONST:
            held[outputs[0]] = constant(instructions.constant(i)), None, START
        elif operation == ca.OP_CALL:
            held |= _results(instructions.called(i), i, outputs)
        elif operation != ca.OP_OUTPUT:
            operands = [operand for place in inputs if (operand := held[place]) is not None]
            held[outputs[0]] = None
            if operation not in operations or i in apart or len(operands) < len(inputs):
                continue
            arrays, places, ends = zip(*operands, strict=True)
            if places == len(places) * (None,):
                continue
            key = operation, *arrays
            series = growing.get(key)
            if series is None or not series.take(i, places):
                series = growing[key] = Series(operation, arrays, places, max(ends), [i], (0,) * len(places))
                found.append(series)
            held[outputs[0]] = series, len(series.members) - 1, series.after
    return _long(found)


def _results(called: Any, i: int, outputs: Sequence[int]) -> dict[int, tuple[str, int, int] | None]:
    """Place -> entry of an array that instruction i fills by a call."""
    sizes = [called.nnz_out(k) for k in range(called.n_out())]
    entries = [(f"d{i}_{k}", j, i) for k, size in enumerate(sizes) for j in range(size)]
    none = is_lookup_derivative(called.name())
    return {place: None if none else entry for place, entry in zip(outputs, entries, strict=True)}


def _long(found: Sequence[Series]) -> list[Series]:
    """The series that are loops: long ones whose operands are entries of arrays in C."""
    kept: dict[Series, None] = {}
    for series in found:
        of_loops = all(isinstance(array, str) or array in kept for array in series.arrays)
        if len(series.members) >= SHORTEST and of_loops:
            kept[series] = None
    return list(kept)
