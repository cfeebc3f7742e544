"""The acceleration with which inputs within their limits can always brake a coordinate before its limit.

    A = min over poses from the start to the limit of  max over u of  e_j (a_c + Phi B u)     away from the limit

Design: poses are sampled, at rest: the coordinate goes to its limit in steps, the others stand at the start and at
random places within their own limits. The speeds of other coordinates are not part of it, nor that several coordinates
may have to brake with the same inputs; then the row lacks something, and the command says how much.

Source: ours, after the condition of Del Prete 2018 that A is there on the whole way.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from servoctl.engine.linalg import solve_upper
from servoctl.errors import ServoctlError
from servoctl.mechanics.coordinate_bounds import CoordinateRange
from servoctl.mechanics.initial import nearest
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import assemble
from servoctl.types import Array, State

STEPS, OTHERS = 5, 5
"""Places of the coordinate on its way to a limit; random places of the others."""

CLOSED = 1e-6
"""Poses whose passive constraints are violated by more do not exist [units of the rows]."""

NEARBY = 0.3
"""A coordinate without limits is looked at this far from its start [its unit]."""


def braking(
    model: Model,
    start: State,
    of: CoordinateRange,
    limits: Mapping[str, tuple[float, float]],
    rank_tolerance: float,
) -> list[float]:
    """A of each row of a bound; inf where an input without a limit brakes, at most 0 where the inputs cannot brake.

    Args:
        model: Plant and passive constraints.
        start: The start of the run.
        of: The limits of the coordinates.
        limits: Actuator -> (lower, upper).
        rank_tolerance: Of the passive rows.
    """
    names = list(model.plant.coordinates)
    box = np.array([limits.get(name, (-np.inf, np.inf)) for name in model.plant.actuators]).reshape(-1, 2)
    found = []
    for name, limit, upper in of.limits:
        j, away = names.index(name), -1.0 if upper else 1.0
        least = np.inf
        for state in _poses(model, start, of, j, limit):
            terms = assemble(state, model.matrices(state), rank_tolerance)
            if terms.finite and terms.positive:
                free = solve_upper(terms.L, terms.free_acceleration)[j]
                by_inputs = solve_upper(terms.L, terms.project(terms.inputs))[j]
                least = min(least, away * free + _most(away * by_inputs, box))
        found.append(float(least))
    return found


def _most(slopes: Array, box: Array) -> float:
    """The largest value of `slopes u` within the limits; inf if an input without a limit takes part."""
    size = np.abs(slopes).max(initial=0.0)
    counts = np.abs(slopes) > 1e-9 * size
    pairs = zip(slopes[counts], box[counts], strict=True)
    return float(sum(max(slope * low, slope * high) for slope, (low, high) in pairs))


def _poses(model: Model, start: State, of: CoordinateRange, j: int, limit: float) -> Iterator[State]:
    """States at rest with coordinate j between its start and its limit."""
    random, names = np.random.default_rng(0), list(model.plant.coordinates)
    low, high = start.q - NEARBY, start.q + NEARBY
    for name, lower, upper in zip(of.coordinates, of.lower, of.upper, strict=True):
        if np.isfinite([lower, upper]).all():
            low[names.index(name)], high[names.index(name)] = lower, upper
    others = [start.q, *(random.uniform(low, high) for _ in range(OTHERS))]
    for place in np.linspace(start.q[j], limit, STEPS):
        for q in others:
            pose = State(start.t, np.where(np.arange(len(q)) == j, place, q), np.zeros(len(q)))
            if model.passive_rows:
                try:
                    pose, left = nearest(model, pose, fix=[names[j]], among=[])
                except ServoctlError:
                    continue
                worst = left.worst(model.passive_rows, "holonomic")
                if worst is not None and not abs(worst[1]) < CLOSED:
                    continue
            yield pose._replace(v=np.zeros(len(q)))
