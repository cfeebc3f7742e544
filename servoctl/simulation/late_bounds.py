"""Bounds of a law whose commands act late: their rows at the state that the commands already sent lead to.

    G(now) u >= g(then) - (G(then) - G(now)) u_last

Design: the rows at that state are a function that is called, on symbols as on numbers, so that generated C holds it
once. The task is not looked at there: bounds that do not hold leave the command as it was. A bound of what a task moves
has the direction of the task's row, which G(then) would miss by a little; inputs that meet both would be enormous. So
the rows keep the direction that they have now, and are exact for the newest command sent.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from servoctl.engine.kernel import inputs
from servoctl.engine.trace import trace
from servoctl.laws.law import BoundLaw
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
    return _with_rows(terms, system.law, memory, *system.law.bound_inequalities(at)[:2])


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
    G, g, _ = trace(law.bound_inequalities, at)
    kernel = called_kernel("bounds", given, {"G": G, "g": g})
    G, g = kernel(np.array([then.t]), then.q, then.v, p)
    found: Terms = trace(lambda memory: _with_rows(terms, law, memory, G, g), memory)
    return found


def _with_rows(terms: Terms, law: BoundLaw, memory: Array, G: Array, g: Array) -> Terms:
    """The terms with G and g of the later state, in the directions of now."""
    now, _, scale = law.bound_inequalities(terms)
    return replace(terms, held_rows=(now, g - (G - now) @ law.last_sent(memory), scale))
