"""Bounds `h >= 0` of an attached law: the rows `G u >= g` that keep them.

    degree 2   h'' = A Phi B u + A a_c - b >= least        degree 1   the same of h'        degree 0   lambda(u)

`laws.barrier` gives the least h'' or h'. A reaction is linear in u, so its bound is a row as it is.

Design: a command is held for a period D, in which h'' drifts. The law asks for the mean of h'' over the period, so that
the next sample meets its condition up to D^4 instead of D^3, as long as commands change little from tick to tick:

    mean = h'' + theta D dh''/dt,    theta = (1/2 + p D / 6) / (1 + p D / 2)

theta weights the drift by what it adds to `h' + p h` of the next sample. The drift is the difference between the rows
now and half a period after the command begins to act, at the state that the last command leads to.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from servoctl.engine.decomposition import frobenius
from servoctl.engine.parameters import Part
from servoctl.engine.symbol import above, maximum, minimum, where
from servoctl.laws.barrier import CONDITIONS, Kind
from servoctl.laws.limits import Start, greatest
from servoctl.laws.preload import multiplier_rows
from servoctl.laws.term import AttachedTerm
from servoctl.mechanics.constraint import InputRows, Rows
from servoctl.mechanics.terms import Terms
from servoctl.mechanics.timing import CommandMemory, UnderWay
from servoctl.types import Array, Command, State

Acceleration = Callable[[State, Array], Array]  # (state, inputs) -> q'' of the model, shape (n,)

FAR = 1e12  # distance to a bound that is out of reach [unit of h]; its square is far from the largest number


@dataclass(frozen=True)
class BoundRow(Part):
    """A row of the model's bounds."""

    label: str  # type: ignore[misc]  # name of the row
    name: str  # under which it is reported; the two sides of a limit have one name
    kind: Kind  # key of `barrier.CONDITIONS`
    rate: float  # [1/s] how fast h may approach 0
    braking: float = np.inf  # [unit / s^2] acceleration to brake with before a limit of a coordinate
    margin: float = 0.0  # h that is kept [unit of h]

    @property
    def degree(self) -> int:
        """2: h'' is held at or above a least value; 1: h'."""
        return CONDITIONS[self.kind].degree


@dataclass(frozen=True)
class ReactionRow(Part):
    """A bound of a reaction of a passive row."""

    label: str  # type: ignore[misc]  # name under which it is reported
    row: int  # index of the passive row
    most: bool  # whether the value is the largest; else the smallest
    value: float  # [N, N m] limit of the reaction


@dataclass(frozen=True)
class BoundsTerm(AttachedTerm):
    """The bounds of an attached law."""

    rows: tuple[BoundRow, ...]  # of the model's bounds, in order
    reactions: tuple[ReactionRow, ...]  # bounds of reactions, which follow them
    ends: float | None  # [s] time at which a reference of task or bounds ends

    label = "bounds"

    @property
    def sampled(self) -> bool:
        """Whether commands are held; else the law acts continuously."""
        return self.timing.period is not None

    @property
    def memory(self) -> dict[str, float]:
        """Name -> initial value: what the last answer had active: inputs, then rows; empty without a period."""
        active = (*self.timing.actuators, *(f"row{i + 1}" for i in range(len(self._names)))) if self.sampled else ()
        return dict.fromkeys([f"bounds.held.{name}" for name in active], 0.0)

    @property
    def commands(self) -> CommandMemory | None:
        return CommandMemory(self.timing, max(self.timing.late, 1)) if self.sampled else None

    def start(self, at: Terms, memory: Array) -> Start | None:
        """Where the search for the inputs begins: at the answer of the last tick, if anything was active.

        None: nothing is kept of the last tick.
        """
        if at.under_way is None:
            return None
        last = at.under_way.sent[0]
        finite = where(greatest(np.abs(last)) < np.inf, 1.0, 0.0)
        return Start(last, memory, where(greatest(np.abs(memory)) > 0.5, finite, 0.0))

    def predicted(self, terms: Terms, under_way: UnderWay, acceleration: Acceleration) -> tuple[State, State]:
        """The state at which the command of this tick acts, and that half a period later under the last command.

        Args:
            acceleration: (state, inputs) -> q'' of the model.
        """
        timing, state = self.timing, terms.state
        sent, _, running = under_way
        (t, q, v), later = state, state.t
        a = None
        for time, mean, _ in timing.on_their_way(sent[: timing.late], np.zeros(0)):
            a = terms.acceleration(mean) if a is None else a
            half = time / 2.0
            middle = acceleration(State(self._time(later + half), *_after(half, q, v, a)), mean)
            q, v = q + time * v + time * time / 6.0 * (a + 2.0 * middle), v + time * middle
            a, later = 2.0 * middle - a, later + time
        half = timing.h / 2.0
        ahead = later + half
        if timing.on_drives:  # before the first tick the drives hold the pose; the task stands still up to time 0
            q, v = where(running > 0.5, q, state.q), where(running > 0.5, v, state.v)
            later, ahead = where(t > 0.0, later, t), where(t > 0.0, ahead, t)
        a = terms.acceleration(sent[0]) if a is None else a
        then = State(self._time(later), q, v) if timing.late else state
        return then, State(self._time(ahead), *_after(half, q, v, a))

    def _time(self, t: Any) -> Any:
        return t if self.ends is None else minimum(t, self.ends)

    def memory_rate(self, at: Terms, memory: Array, command: Command) -> Array:
        return (command.active - memory) / self.timing.h if self.sampled else memory

    @property
    def out_of_reach(self) -> "BoundsTerm":
        """The same bounds where they never bind."""
        reactions = tuple(replace(each, value=FAR if each.most else -FAR) for each in self.reactions)
        return replace(self, rows=tuple(replace(row, margin=-FAR) for row in self.rows), reactions=reactions)

    @property
    def names(self) -> tuple[str, ...]:
        """Names under which the rows are reported, in order."""
        return tuple(dict.fromkeys(self._names))

    @property
    def _names(self) -> list[str]:
        """Name of each row of `bounding`."""
        return [*(row.name for row in self.rows), *(reaction.label for reaction in self.reactions)]

    def bounding(self, at: Terms) -> InputRows:
        """`G u >= g`, as means over the period, or if the command acts at once and in this state alone."""
        if at.mean_bounds is not None:
            return at.mean_bounds
        rows = self.effect(at)
        return rows._replace(rhs=self.least(at.matrices.bounds) - rows.rhs)

    def effect(self, terms: Terms) -> InputRows:
        """What the inputs do: `T u + rhs` is h'', h' or the reaction of each row."""
        G, free, size = terms.bound_map, terms.bound_free, frobenius(terms.bounds)
        if not self.reactions:
            return InputRows(G, free, size)
        signs, forces = self._forces(terms)
        G = np.concatenate([G, signs[:, None] * forces.T])
        return InputRows(G, np.concatenate([free, -signs * forces.rhs]), np.sqrt(size * size + forces.size**2))

    def least(self, of: Rows) -> Array:
        """The least value of each row.

        Args:
            of: h and h' of the model's bounds.
        """
        found: list[Any] = []
        for i, row in enumerate(self.rows):
            h, rate = of.violation[i] - row.margin, of.violation_rate[i]
            found.append(CONDITIONS[row.kind].least(h, rate, row.braking, row.rate, self.timing.period))
        return np.array([*found, *(-each.value if each.most else each.value for each in self.reactions)])

    def mean_change(self, change: Array, running: Any) -> Array:
        """By how much the mean of each row over its period differs from its value now, shape (k,).

        A rise within the period is not counted on: then samples end inside by a little. Nothing is known of the period
        before the first command: the mean is the value now.

        Args:
            change: Of each row, from now to the middle of the period, shape (k,).
            running: 1 after the first command, 0 before.
        """
        D, delay, later = self.timing.h, self.timing.mean_delay, []
        for row in self.rows:
            of_second = (0.5 + row.rate * D / 6.0) / (1.0 + row.rate * D / 2.0)
            later.append(of_second if row.degree == 2 else 0.5)
        later += [0.0] * len(self.reactions)  # a reaction holds from the first moment on
        theta = where(above(change, 0.0), 0.0, np.array(later))
        mean: Array = change * running * (delay + theta * D) / (delay + D / 2.0)
        return mean

    def reported(self, terms: Terms, u: Array) -> Array:
        """h of each name under the inputs u, shape (names,)."""
        h = list(terms.matrices.bounds.violation)
        if self.reactions:
            signs, forces = self._forces(terms)
            h += list(signs * (forces.T @ u - forces.rhs - np.array([each.value for each in self.reactions])))
        return self._by_name(h, minimum)

    def of_names(self, rows: Array) -> Array:
        """The largest of the values of the rows of each name, shape (names,)."""
        return self._by_name(rows, maximum)

    def _by_name(self, values: Iterable[Any], join: Callable[[Any, Any], Any]) -> Array:
        found: dict[str, Any] = {}
        for name, value in zip(self._names, values, strict=True):
            found[name] = join(found[name], value) if name in found else value
        return np.array(list(found.values()))

    def _forces(self, terms: Terms) -> tuple[Array, InputRows]:
        """Per reaction: 1 if its value is the smallest, -1 if the largest; and lambda(u) = T u - rhs."""
        S = np.zeros((len(self.reactions), len(terms.matrices.passive.b)))
        for i, reaction in enumerate(self.reactions):
            S[i, reaction.row] = 1.0
        signs = np.array([-1.0 if reaction.most else 1.0 for reaction in self.reactions])
        return signs, multiplier_rows(terms, S, np.zeros(len(S)))


def _after(time: float, q: Array, v: Array, a: Array) -> tuple[Array, Array]:
    """q and v after a time with the acceleration a."""
    return q + time * v + time * time / 2.0 * a, v + time * a
