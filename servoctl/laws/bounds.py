"""Bounds as the user gives them, and how a law binds them.

The acceleration to brake with before the limit of a coordinate:

    A = min over poses from the start to the limit of  max a  with  a_c + Phi B u = a e_j,  lower <= u <= upper

e_j points away from the limit: the coordinate brakes, and the others are not accelerated, or as little as possible
where there are fewer inputs than coordinates.

Design: a bound is a constraint whose violation is h; the model evaluates it like one of the task. Only a bound of a
reaction is no such constraint, because no row on accelerations says what a reaction is. Poses are sampled, at rest. One
set of random poses within the limits serves all coordinates: each takes those between its start and its limit. Further
poses lie on its own way while the others stand. The speeds of other coordinates are not part of it, nor that several
coordinates may have to brake with the same inputs; then the row lacks something, and the command says how much.

Source: ours, after the condition of Del Prete 2018 that A is there on the whole way.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from servoctl.engine.decomposition import frobenius
from servoctl.engine.linalg import solve_upper
from servoctl.errors import ServoctlError, TaskError, no_such
from servoctl.laws import barrier
from servoctl.laws.barrier import EstimateErrors, Kind
from servoctl.laws.bounds_term import BoundRow, BoundsTerm, ReactionRow
from servoctl.laws.preload import UNIQUE
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.coordinate_bounds import CoordinateLimits, CoordinateRange
from servoctl.mechanics.initial import nearest
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Terms
from servoctl.mechanics.timing import Timing
from servoctl.reference.curve import end_of
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
    """A of each row of a bound; inf where an input without a limit brakes, at most 0 where the inputs cannot brake."""
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
        away: 1 where the coordinate grows away from the limit, else -1.
        box: Limits of the inputs, shape (m, 2).
    """
    first, others = by_inputs[j : j + 1], np.delete(by_inputs, j, axis=0)
    once = np.linalg.pinv(first)
    rest = others - (others @ once) @ first
    known = np.abs(rest).max(initial=0.0) > 1e-9 * np.abs(others).max(initial=0.0)
    again = np.linalg.pinv(rest, rcond=1e-9) if known else np.zeros(rest.T.shape)

    def inputs(wanted: float, of_others: Array) -> Array:
        u = once[:, 0] * wanted
        return u + again @ (of_others - others @ u)

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
        low[j] = min(start.q[j], lower) if np.isfinite(lower) else low[j]
        high[j] = max(start.q[j], upper) if np.isfinite(upper) else high[j]
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
    terms = model.terms(at, rank_tolerance)
    if not terms.sound:
        return None
    return _RestPose(
        at.q, solve_upper(terms.L, terms.free_acceleration), solve_upper(terms.L, terms.project(terms.inputs))
    )


@dataclass(frozen=True)
class ReactionBound:
    """A limit of the reaction lambda of a mechanism row, in `M q'' = Q + B u + A^T lambda`.

    Attributes:
        row: Name of the mechanism row, such as `cable`, or `cable.0` of a group of several rows.
        value: The limit [N, N m].
        most: Whether it is the largest value; else the smallest.
    """

    row: str
    value: float
    most: bool = True


@dataclass(frozen=True)
class Bound:
    """One bound, h >= 0.

    Attributes:
        of: A constraint whose violation is h, or a limit of a reaction.
        rate: p: how fast h may approach 0 [1/s]; None: min(15, 0.5 / period).
        acceleration: Of a `CoordinateRange`: acceleration to brake with, per coordinate or one for all [unit/s^2];
            None: what the law's limits give.
        margin: h that is kept [unit of h]; `auto`: against the errors of the estimator. Not for reactions.
    """

    of: Constraint | ReactionBound
    rate: float | None = None
    acceleration: float | Mapping[str, float] | None = None
    margin: float | Literal["auto"] = 0.0


@dataclass(frozen=True)
class Bounds:
    """The bounds of a law."""

    entries: Mapping[str, Bound]  # name -> bound
    timing: Timing  # of the loop, from the state that the law gets
    errors: EstimateErrors | None = None  # those of the estimator, for margins; None: not known

    @property
    def constraints(self) -> dict[str, Constraint]:
        """Name -> constraint, of the bounds that are one; the model refuses what is none."""
        return {name: bound.of for name, bound in self.entries.items() if not isinstance(bound.of, ReactionBound)}

    def attach(
        self,
        model: Model,
        terms: Sequence[Terms],
        limits: Mapping[str, tuple[float, float]],
        rank_tolerance: float,
        passive_rank_tolerance: float,
    ) -> BoundsTerm:
        """The bounds for a model without `problems`.

        Args:
            terms: The terms of motion at the start, then at states near it; only finite ones.

        Raises:
            TaskError: A bound cannot be kept; the message has a line for each.
        """
        problems = [*self._unreachable(model, terms, rank_tolerance), *self._not_unique(model, terms)]
        rows: list[BoundRow] = []
        for name, bound in self.entries.items():
            own = self._rows_of(name, bound, model)
            if isinstance(bound.of, CoordinateRange) and terms:
                derived = braking(model, terms[0].state, bound.of, limits, passive_rank_tolerance)
                numbers, sentences = _braking(name, bound, derived)
                own = [replace(row, braking=number) for row, number in zip(own, numbers, strict=True)]
                problems += sentences
            rows += own
        if problems:
            raise TaskError("\n".join(problems))
        passive = [row.name for row in model.passive_rows]
        reactions = {name: bound.of for name, bound in self.entries.items() if isinstance(bound.of, ReactionBound)}
        forces = [ReactionRow(name, passive.index(of.row), of.most, float(of.value)) for name, of in reactions.items()]
        ends = end_of(constraint.signals for constraint in (*model.plain.task.values(), *model.bounds.values()))
        # rows that made up for the lag within a period would ask for torques that alternate
        known = ends if np.isfinite(ends) and self.timing.period else None
        margins = self._margins(model, terms, rows)
        held = tuple(replace(row, margin=margin) for row, margin in zip(rows, margins, strict=True))
        return BoundsTerm(held, tuple(forces), known, timing=self.timing.folded)

    def _rows_of(self, name: str, bound: Bound, model: Model) -> list[BoundRow]:
        """The rows of a bound in the model, without what depends on states; none of a bound on a reaction."""
        of, found = bound.of, list[BoundRow]()
        rate = barrier.default_rate(self.timing.period) if bound.rate is None else float(bound.rate)
        for i, row in enumerate(row for row in model.bound_rows if row.group == name):
            if isinstance(of, CoordinateLimits):
                kind: Kind = "stopping" if isinstance(of, CoordinateRange) else "speed"
                found.append(BoundRow(row.name, of.reported(name, i), kind, rate))
            else:
                found.append(BoundRow(row.name, row.name, "barrier" if row.degree == 2 else "decay", rate))
        return found

    def _margins(self, model: Model, terms: Sequence[Terms], rows: Sequence[BoundRow]) -> list[float]:
        """The margin of each row; one that is `auto` is the largest over these states."""
        given = [self.entries[row.group].margin for row in model.bound_rows]
        margins = [0.0 if margin == "auto" else float(margin) for margin in given]
        if self.errors is not None and "auto" in given and terms:
            A = np.array([model.rows_of_bounds(at.state).A for at in terms])
            for i in [i for i, margin in enumerate(given) if margin == "auto"]:
                margins[i] = self.errors.margin(rows[i].kind, rows[i].rate, A[:, i])
        return margins

    def problems(self, model: Model) -> list[str]:
        """One sentence for each name or number that does not fit the model or the period."""
        found = []
        for name, bound in self.entries.items():
            if wrong := None if bound.rate is None else self._wrong_rate(bound.rate):
                found.append(f"bounds.{name}.rate: {wrong}")
            if bound.margin == "auto":
                if self.errors is None:
                    found.append(f"bounds.{name}.margin: auto needs an estimator with a model (give it, or a number)")
            elif not (isinstance(bound.margin, int | float | np.number) and 0.0 <= bound.margin < np.inf):
                found.append(f"bounds.{name}.margin: expected a margin >= 0 [unit of h], or auto, got {bound.margin!r}")
            if bound.margin != 0.0 and isinstance(bound.of, ReactionBound):
                found.append(f"bounds.{name}.margin: does not fit reaction (move its limit)")
            if bound.acceleration is not None and not isinstance(bound.of, CoordinateRange):
                found.append(f"bounds.{name}.acceleration: only a CoordinateRange brakes with it (leave it out)")
            known = [row.name for row in model.passive_rows]
            if isinstance(bound.of, ReactionBound) and bound.of.row not in known:
                found.append(f"bounds.{name}.reaction: {no_such('mechanism row', bound.of.row, known)}")
        for row in model.bound_rows:
            if row.degree not in (1, 2):
                found.append(f"bounds.{row.group}: a constraint without a violation is no bound (give h >= 0)")
        return found

    def _wrong_rate(self, rate: float) -> str | None:
        if not 0.0 < rate < np.inf:
            return f"expected a positive number [1/s], got {rate:g}"
        return barrier.too_fast(rate, self.timing.period, "the period")

    def _unreachable(self, model: Model, terms: Sequence[Terms], rank_tolerance: float) -> list[str]:
        """One sentence for each bound whose h'' or h' no input changes at any of the states."""
        found = {}
        for i, row in enumerate(model.bound_rows if terms else []):
            sizes = [frobenius(at.bounds[i : i + 1]) * frobenius(at.inputs) for at in terms]
            reached = [frobenius(at.bound_map[i : i + 1]) for at in terms]
            if all(x <= rank_tolerance * size for x, size in zip(reached, sizes, strict=True)):
                order = "second" if row.degree == 2 else "first"
                found[row.group] = (
                    f"bounds.{row.group}: no input changes the {order} derivative of {row.name}: its degree is above "
                    f"{row.degree} or no actuator reaches it (bound a coordinate that an actuator moves)"
                )
        return list(found.values())

    def _not_unique(self, model: Model, terms: Sequence[Terms]) -> list[str]:
        """One sentence for each reaction that the equations of motion do not determine."""
        found, names = [], [row.name for row in model.passive_rows]
        for name, bound in self.entries.items() if terms else ():
            if not isinstance(bound.of, ReactionBound) or bound.of.row not in names:
                continue
            S = np.eye(len(names))[names.index(bound.of.row)]
            if np.linalg.norm(terms[0].passive.residual(S)) > UNIQUE:
                found.append(
                    f"bounds.{name}.reaction: the reaction of {bound.of.row} is not unique, because mechanism rows "
                    f"depend on each other (rank {terms[0].passive.rank} of {len(names)}: leave the bound or a row out)"
                )
        return found


def _braking(name: str, bound: Bound, derived: Sequence[float]) -> tuple[list[float], list[str]]:
    """A of each row of a `CoordinateRange`, and a sentence for each coordinate that has none."""
    assert isinstance(bound.of, CoordinateRange)
    found, problems = [], {}
    for (coordinate, _, upper), most in zip(bound.of.limits, derived, strict=True):
        given = bound.acceleration
        wanted = given.get(coordinate) if isinstance(given, Mapping) else given
        # what is asked for holds where inputs cannot brake at every pose: the run may stay away from these
        asked = np.inf if wanted is None else float(wanted)
        found.append(asked if wanted is not None and most <= 0.0 else min(most, asked))
        if wanted is not None and not wanted > 0.0:
            problems[coordinate] = f"expected a positive acceleration [unit/s^2], got {wanted:g}"
        elif wanted is None and not most > 0.0:
            side = "upper" if upper else "lower"
            problems[coordinate] = (
                f"gravity takes more than the drive gives: before its {side} limit {coordinate} can brake with at most "
                f"{most:.3g} (raise law.limits, move the limit, or give acceleration if the run stays away from there)"
            )
        elif not np.isfinite(found[-1]):
            problems[coordinate] = f"no acceleration to brake {coordinate} with (give acceleration, or law.limits)"
    return found, [f"bounds.{name}.{key}: {what}" for key, what in problems.items()]
