"""Repeats a compiled function until it reports that it is done."""

from dataclasses import dataclass
from typing import Any

import casadi as ca


@dataclass(frozen=True)
class Repeated:
    """What the C code needs to write the repetition as a loop."""

    step: Any  # CasADi function (state, ...) -> state after a step
    most: int  # most steps
    done: int  # index of the entry of the state that is 1 when done, 0 before


REPEATED: dict[str, Repeated] = {}  # name of a CasADi function that repeats another -> what it repeats


def repeat(name: str, step: Any, most: int, done: int) -> Any:
    """CasADi function (state, ...) -> state when done, or after the most steps.

    The virtual machine has no loops. There the steps are nested in pairs, each pair behind a branch, so that steps
    after the end are not run. This rounds the number of steps up to a power of two, for C too.
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
