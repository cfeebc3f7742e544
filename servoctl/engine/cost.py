"""What an evaluation costs on CasADi's virtual machine, from its operations: the same figure on every machine."""

from typing import Any

import casadi as ca

from servoctl.engine.repeat import REPEATED


def operations(function: Any) -> int:
    """Operations of a CasADi function of scalars, those of what it calls included; what repeats counts once."""
    known: dict[str, int] = {}

    def count(own: Any) -> int:
        name = own.name()
        if name in REPEATED:
            return count(REPEATED[name].step)
        if name not in known:
            total = own.n_instructions()
            calls = [i for i in range(total) if own.instruction_id(i) == ca.OP_CALL]
            expressions = own.instructions_sx() if calls else []
            known[name] = total + sum(count(expressions[i].which_function()) for i in calls)
        return known[name]

    return count(function)
