"""The acceleration with which inputs within their limits can always brake a coordinate before its limit.

    A = min over poses from the start to the limit of  max a  with  a_c + Phi B u = a e_j,  lower <= u <= upper

e_j points away from the limit: the coordinate brakes, and the others are not accelerated, or as little as possible
where there are fewer inputs than coordinates.

Design: poses are sampled, at rest. One set of random poses within the limits serves all coordinates: each takes those
between its start and its limit. Further poses lie on its own way while the others stand. The speeds of other
coordinates are not part of it, nor that several coordinates may have to brake with the same inputs; then the row lacks
something, and the command says how much.

Source: ours, after the condition of Del Prete 2018 that A is there on the whole way.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from servoctl.engine.linalg import solve_upper
from servoctl.errors import ServoctlError
from servoctl.mechanics.coordinate_bounds import CoordinateRange
from servoctl.mechanics.initial import nearest
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import assemble
from servoctl.types import Array, State

STEPS, COMMON = 3, 40
"""Places of a coordinate on its way to a limit, its start included; random poses for all coordinates."""

CLOSED = 1e-6  # [units of the rows] poses whose passive constraints are violated by more do not exist
NEARBY = 0.3  # [its unit] a coordinate without limits is looked at this far from its start


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
    common = [pose for pose in _random(model, start, of, rank_tolerance) if pose is not None]
    found = []
    for name, limit, upper in of.limits:
        j, away = names.index(name), -1.0 if upper else 1.0
        low, high = sorted((float(start.q[j]), limit))
        poses = [pose for pose in common if low <= pose.q[j] <= high]
        for place in np.linspace(start.q[j], limit, STEPS)[1:]:
            q = np.where(np.arange(model.n) == j, place, start.q)
            pose = _pose(model, State(start.t, q, np.zeros(model.n)), [name], rank_tolerance)
            poses += [] if pose is None else [pose]
        found.append(min((_most(pose.free, pose.by_inputs, j, away, box) for pose in poses), default=np.inf))
    return [float(least) for least in found]


class _RestPose(NamedTuple):
    """A machine at rest."""

    q: Array  # shape (n,)
    free: Array  # accelerations at u = 0, shape (n,)
    by_inputs: Array  # accelerations per unit of input, shape (n, m)


def _most(free: Array, by_inputs: Array, j: int, away: float, box: Array) -> float:
    """The largest acceleration of coordinate j away from its limit; inf if only inputs without a limit take part.

    Args:
        free: Accelerations at u = 0, shape (n,).
        by_inputs: Accelerations per unit of input, shape (n, m).
        j: The coordinate.
        away: 1 where the coordinate grows away from the limit, else -1.
        box: Limits of the inputs, shape (m, 2).
    """
    first, others = by_inputs[j : j + 1], np.delete(by_inputs, j, axis=0)
    once = np.linalg.pinv(first)
    rest = others - (others @ once) @ first
    again = (
        np.linalg.pinv(rest, rcond=1e-9)
        if np.abs(rest).max(initial=0.0) > 1e-9 * np.abs(others).max(initial=0.0)
        else 0.0
    )

    def inputs(wanted: float, of_others: Array) -> Array:
        u = once[:, 0] * wanted
        return u if isinstance(again, float) else u + again @ (of_others - others @ u)

    still, push = inputs(-free[j], -np.delete(free, j)), inputs(away, np.zeros(len(others)))
    counts = np.abs(push) > 1e-9 * np.abs(push).max(initial=0.0)
    room = np.where(push > 0.0, box[:, 1] - still, box[:, 0] - still)[counts]
    return float((room / push[counts]).min(initial=np.inf))


def _random(model: Model, start: State, of: CoordinateRange, rank_tolerance: float) -> Iterator[_RestPose | None]:
    """The start, and random poses within the limits."""
    random, names = np.random.default_rng(0), list(model.plant.coordinates)
    low, high = start.q - NEARBY, start.q + NEARBY
    for name, lower, upper in zip(of.coordinates, of.lower, of.upper, strict=True):
        j = names.index(name)
        low[j], high[j] = (
            min(start.q[j], lower) if np.isfinite(lower) else low[j],
            max(start.q[j], upper) if np.isfinite(upper) else high[j],
        )
    for q in [start.q, *(random.uniform(low, high) for _ in range(COMMON))]:
        yield _pose(model, State(start.t, q, np.zeros(model.n)), [], rank_tolerance)


def _pose(model: Model, pose: State, fix: list[str], rank_tolerance: float) -> _RestPose | None:
    """The nearest pose that exists; None if there is none, or if the plant has no finite terms there."""
    if model.passive_rows:
        try:
            pose, left = nearest(model, pose, fix=fix, among=[])
        except ServoctlError:
            return None
        worst = left.worst(model.passive_rows, "holonomic")
        if worst is not None and not abs(worst[1]) < CLOSED:
            return None
    at = pose._replace(v=np.zeros(model.n))
    terms = assemble(at, model.matrices(at), rank_tolerance)
    if not (terms.finite and terms.positive):
        return None
    return _RestPose(
        at.q, solve_upper(terms.L, terms.free_acceleration), solve_upper(terms.L, terms.project(terms.inputs))
    )
