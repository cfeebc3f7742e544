"""Bounds `h >= 0` of a bound law: the rows `G u >= g` that keep them.

    degree 2   h'' = A Phi B u + A a_c - b >= least        degree 1   the same of h'        degree 0   lambda(u)

`laws.barrier` gives the least h'' or h'. A reaction is linear in u, so its bound is a row as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from servoctl.engine.linalg import frobenius
from servoctl.engine.symbol import maximum, minimum, where
from servoctl.laws import barrier
from servoctl.laws.law import Acceleration
from servoctl.laws.preload import ReactionRows, multiplier_rows
from servoctl.mechanics.held_commands import HeldCommands
from servoctl.mechanics.terms import Terms
from servoctl.types import Array, State

Kind = Literal["barrier", "decay", "stopping", "speed"]


class BoundRow(NamedTuple):
    """A row of the model's bounds.

    Attributes:
        name: Under which it is reported; the two sides of a limit have one name.
        kind: Function of `laws.barrier`.
    """

    name: str
    kind: Kind


class ReactionRow(NamedTuple):
    """A bound of a reaction of a passive row.

    Attributes:
        name: Under which it is reported.
        row: Index of the passive row.
        most: Whether the value is the largest; else the smallest.
    """

    name: str
    row: int
    most: bool


class Numbers(NamedTuple):
    """What the rows compare with; parameters of the law.

    Attributes:
        rates: p of each row of the model's bounds [1/s].
        braking: A of each of them, for `stopping` rows.
        margins: h of each of them that is kept.
        reactions: Value of each reaction.
    """

    rates: Sequence[Any]
    braking: Sequence[Any]
    margins: Sequence[Any]
    reactions: Sequence[Any]


@dataclass(frozen=True)
class HeldBounds:
    """The bounds of a law; all of it is structure, the numbers are parameters of the law.

    Attributes:
        rows: Of the model's bounds, in order.
        reactions: Bounds of reactions, which follow them.
        period: D [s]; None: the law acts continuously.
        commands: How the actuators follow, if commands act late; None: they act at once.
        ends: Time at which a reference of task or bounds ends [s].
    """

    rows: tuple[BoundRow, ...]
    reactions: tuple[ReactionRow, ...]
    period: float | None
    commands: HeldCommands | None = None
    ends: float | None = None

    @property
    def memory(self) -> dict[str, float]:
        """Name -> initial value: earlier commands, lagging torques, whether it runs; empty if commands act at once."""
        if self.commands is None:
            return {}
        names = [
            f"sent{age + 1}.{actuator}" for age in range(self.commands.late) for actuator in self.commands.actuators
        ]
        names += [f"torque.{actuator}" for actuator in self.commands.actuators if self.commands.lag]
        return dict.fromkeys([*(f"bounds.{name}" for name in names), "bounds.running"], 0.0)

    def foreseen(self, state: State, memory: Array, acceleration: Acceleration) -> State:
        """The state to which the commands already sent lead, at the moment at which the command of this tick acts."""
        commands = self.commands
        assert commands is not None
        sent, torque = self._sent(memory)
        (t, q, v), later = state, state.t
        for time, mean, _ in commands.on_their_way(sent, torque):
            a = acceleration(State(self._time(later), q, v), mean)
            q, v, later = q + time * v + time * time / 2.0 * a, v + time * a, later + time
        if commands.engaged:  # before the first tick the drives hold the pose; the task stands still up to time 0
            running = memory[-1] > 0.5
            q, v, later = where(running, q, state.q), where(running, v, state.v), where(t > 0.0, later, t)
        return State(self._time(later), q, v)

    def last_sent(self, memory: Array) -> Array:
        """The newest command sent, shape (m,)."""
        newest: Array = self._sent(memory)[0][0]
        return newest

    def _time(self, t: Any) -> Any:
        return t if self.ends is None else minimum(t, self.ends)

    def after(self, u: Array, memory: Array) -> Array:
        """The memory at the next tick, after the command u of this one."""
        commands = self.commands
        assert commands is not None
        earlier, torque = self._sent(memory)
        given = commands.limited(u)
        if commands.engaged:
            earlier = where(memory[-1] > 0.5, earlier, np.tile(given, (commands.late, 1)))
        sent = np.vstack([given, earlier])
        _, torque = commands.torque(commands.acting(sent), torque)
        return np.concatenate([sent[: commands.late].ravel(), torque, [1.0]])

    def _sent(self, memory: Array) -> tuple[Array, Array]:
        """Earlier commands, shape (late, m), and the lagging torques."""
        assert self.commands is not None
        late, m = self.commands.late, len(self.commands.actuators)
        return memory[: late * m].reshape(late, m), memory[late * m : -1]

    @property
    def names(self) -> tuple[str, ...]:
        """Names under which the rows are reported, in order."""
        return tuple(dict.fromkeys(self._names))

    @property
    def _names(self) -> list[str]:
        """Name of each row of `inequalities`."""
        return [*(row.name for row in self.rows), *(reaction.name for reaction in self.reactions)]

    def inequalities(self, terms: Terms, numbers: Numbers) -> tuple[Array, Array, Any]:
        """G, shape (k, m), g, shape (k,), and the size that pivots of G are relative to."""
        G, g, scales = [], [], []
        size = frobenius(terms.inputs)
        if terms.bounds is not None:
            G.append(terms.bound_map)
            g.append(self._least(terms, numbers) - terms.bound_free)
            scales.append(frobenius(terms.bounds) * size)
        if self.reactions:
            signs, forces = self._forces(terms)
            G.append(signs[:, None] * forces.T)
            g.append(signs * (np.array(numbers.reactions) + forces.rhs))
            scales.append(forces.size * size)
        scale = scales[0] if len(scales) == 1 else np.sqrt(sum(each * each for each in scales))
        return np.concatenate(G), np.concatenate(g), scale

    def _least(self, terms: Terms, numbers: Numbers) -> Array:
        """Least h'' or h' of each row of the model's bounds."""
        of, found = terms.matrices.bounds, []
        assert of is not None
        for i, row in enumerate(self.rows):
            h, rate, p = of.violation[i] - numbers.margins[i], of.violation_rate[i], numbers.rates[i]
            if row.kind == "barrier":
                found.append(barrier.barrier(h, rate, p, self.period))
            elif row.kind == "stopping":
                found.append(barrier.stopping(h, rate, numbers.braking[i], p, self.period))
            else:
                least = barrier.decay if row.kind == "decay" else barrier.speed
                found.append(least(h, p, self.period))
        return np.array(found)

    def values(self, terms: Terms, u: Array, numbers: Numbers) -> Array:
        """h of each name under the inputs u, shape (names,)."""
        found: dict[str, Any] = {}
        h = list(terms.matrices.bounds.violation) if terms.matrices.bounds is not None else []
        if self.reactions:
            signs, forces = self._forces(terms)
            h += list(signs * (forces.T @ u - forces.rhs - np.array(numbers.reactions)))
        for name, value in zip(self._names, h, strict=True):
            found[name] = minimum(found[name], value) if name in found else value
        return np.array(list(found.values()))

    def of_names(self, rows: Array) -> Array:
        """The largest of the values of the rows of each name, shape (names,)."""
        found: dict[str, Any] = {}
        for name, value in zip(self._names, rows, strict=True):
            found[name] = maximum(found[name], value) if name in found else value
        return np.array(list(found.values()))

    def _forces(self, terms: Terms) -> tuple[Array, ReactionRows]:
        """Per reaction: 1 if its value is the smallest, -1 if the largest; and lambda(u) = T u - rhs."""
        S = np.zeros((len(self.reactions), len(terms.matrices.passive.b)))
        for i, reaction in enumerate(self.reactions):
            S[i, reaction.row] = 1.0
        signs = np.array([-1.0 if reaction.most else 1.0 for reaction in self.reactions])
        return signs, multiplier_rows(terms, S, np.zeros(len(S)))
