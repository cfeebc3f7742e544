"""Bounds of a law whose commands act late: their rows at the state that the commands already sent lead to.

Design: the rows at that state are a function that is called, on symbols as on numbers, so that generated C holds it
once. The task is not looked at there: bounds that do not hold leave the command as it was.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from servoctl.engine.kernel import inputs
from servoctl.engine.trace import trace
from servoctl.mechanics.terms import Matrices, Terms
from servoctl.simulation.estimated import NumericPlant, TracedPlant, called_kernel
from servoctl.simulation.system import System
from servoctl.types import Array, State


def foreseeing(system: System) -> bool:
    """Whether the law evaluates its bounds at a later state."""
    return system.law is not None and system.law.foresees


def with_late_bounds(terms: Terms, memory: Array, system: System, matrices: Callable[[State], Matrices]) -> Terms:
    """The terms with the rows of the bounds at the later state, on numbers.

    Args:
        terms: The terms now.
        memory: Of the law.
        system: Plant and law.
        matrices: Evaluates the plant.
    """
    assert system.law is not None
    then = system.law.foreseen(terms.state, memory, NumericPlant(system, matrices).acceleration)
    at = system.terms(then, matrices(then))
    if at.finite is False or at.positive is False:
        return replace(terms, finite=False)
    return replace(terms, held_rows=system.law.bound_inequalities(at))


def with_traced_late_bounds(
    terms: Terms,
    memory: Array,
    system: System,
    p: Array,
    matrices: Callable[[Mapping[str, Array]], Matrices],
) -> Terms:
    """The same on symbols.

    Args:
        terms: The terms now.
        memory: Of the law.
        system: With symbols as parameters.
        p: Those symbols.
        matrices: The matrices at t, q and v from such symbols.
    """
    law, n = system.law, system.model.n
    assert law is not None
    plant = TracedPlant(system, p, matrices)
    then: State = trace(lambda memory: law.foreseen(terms.state, memory, plant.acceleration), memory)
    given = {**inputs({"t": (1,), "q": (n,), "v": (n,)}), "p": p}
    at = trace(system.terms, State(given["t"][0], given["q"], given["v"]), matrices(given))
    G, g, scale = trace(law.bound_inequalities, at)
    kernel = called_kernel("bounds", given, {"G": G, "g": g, "scale": np.array([scale])})
    G, g, scale = kernel(np.array([then.t]), then.q, then.v, p)
    return replace(terms, held_rows=(G, g, scale[0]))
