"""A compiled function that is repeated until it says that it is done."""

from dataclasses import dataclass
from typing import Any

import casadi as ca


@dataclass(frozen=True)
class Repeated:
    """What C needs to repeat it in a loop.

    Attributes:
        step: CasADi function (state, ...) -> state a step on.
        most: Most steps that are taken.
        done: Where in the state it says 1 when it is done, 0 before.
    """

    step: Any
    most: int
    done: int


REPEATED: dict[str, Repeated] = {}
"""Name of the CasADi function -> what it repeats."""


def repeat(name: str, step: Any, most: int, done: int) -> Any:
    """CasADi function (state, ...) -> state when it is done, or after `most` steps and up to as many again.

    On the virtual machine these are steps in pairs, pairs of pairs, each behind a branch, so that what is not needed is
    not run; the number of steps is a power of two.
    """
    inputs = [ca.MX.sym(step.name_in(i), *step.size_in(i)) for i in range(step.n_in())]
    state, rest = inputs[0], inputs[1:]
    stay = ca.Function(f"{name}_rest", inputs, [state], {"never_inline": True})
    run, steps = step, 1
    while True:
        unless_done = ca.Function.if_else(f"{name}_branch_{steps}", stay, run)
        if steps >= most:
            REPEATED[name] = Repeated(step, steps, done)
            return ca.Function(name, inputs, [unless_done(state[done], state, *rest)], {"never_inline": True})
        half = run(state, *rest)
        pair = unless_done(half[done], half, *rest)
        run, steps = ca.Function(f"{name}_{2 * steps}", inputs, [pair], {"never_inline": True}), 2 * steps
