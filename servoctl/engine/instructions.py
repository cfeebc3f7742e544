"""The instructions of a CasADi function of scalars."""

from typing import Any

import casadi as ca


class Instructions:
    """The instructions of one function."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._expressions: Any = None
        # operation, inputs and outputs of each; inputs and outputs are mostly places in CasADi's work vector
        self.steps: list[tuple[int, list[int], list[int]]] = [
            (function.instruction_id(i), function.instruction_input(i), function.instruction_output(i))
            for i in range(function.n_instructions())
        ]
        self.sources = self._made_by()  # for each instruction, those that made what it reads

    def constant(self, i: int) -> float:
        """The number that an instruction is."""
        return float(self._function.instruction_constant(i))

    def called(self, i: int) -> Any:
        """The function that an instruction calls."""
        if self._expressions is None:
            self._expressions = self._function.instructions_sx()
        return self._expressions[i].which_function()

    def _made_by(self) -> list[list[int]]:
        made: dict[int, int] = {}
        sources: list[list[int]] = []
        for i, (operation, inputs, outputs) in enumerate(self.steps):
            sources.append([] if operation in (ca.OP_INPUT, ca.OP_CONST) else [made[place] for place in inputs])
            if operation != ca.OP_OUTPUT:
                made |= dict.fromkeys(outputs, i)
        return sources
