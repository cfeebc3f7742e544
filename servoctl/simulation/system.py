"""The parts of a closed loop, and the two stages that every executor evaluates: command, then motion.

Design: a machine is a pure function of its state, so that a run can be repeated from any row. What it carries besides q
and v of our plant (loads that lie about, contacts, currents of its motors) is `rest`, a part of the run's state.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from servoctl.engine.linalg import solve_upper
from servoctl.engine.symbol import where
from servoctl.estimation.attached import AttachedEstimator
from servoctl.expression import Expression
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.laws.corrections import CorrectionTerm
from servoctl.laws.law import AttachedLaw, OpenLoop
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.friction import Friction
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Matrices, Terms, assemble
from servoctl.mechanics.timing import CommandMemory
from servoctl.simulation.realism import Channels
from servoctl.types import Array, State


class Machine(Protocol):
    """A machine with the plant's coordinates and actuators."""

    size: int  # length of its state besides q and v

    def start(self, t: float, x: Array) -> Array:
        """State besides q and v at a start, shape (size,).

        Args:
            x: q and v, shape (2n,).
        """
        ...

    def after(self, t: float, x: Array, rest: Array, u: Array, h: float) -> tuple[Array, Array]:
        """q and v, and the rest, after h [s] under a held input; not finite where the machine's program gives up.

        Args:
            x: q and v there, shape (2n,).
            rest: State besides, shape (size,).
            u: Input, shape (m,) [actuator units].
            h: Length of the hold [s].
        """
        ...


@dataclass(frozen=True)
class PassiveStabilisation:
    """Baumgarte stabilisation of the passive constraints, in simulation only."""

    correction: CorrectionTerm  # of the passive rows
    rank_tolerance: float  # a passive direction counts when its pivot exceeds this times |Ahat L^-T|_F
    projection: bool = False  # whether each step of a simulated run ends on the passive constraints
    # largest passive rank that the constraints' geometry allows; a run with a larger rank is wrong
    allowed: int = sys.maxsize
    # R of each row, by which it yields; empty: all rows are exact. With gains of its correction such a row acts as a
    # spring of `stiffness / R` with a damper of `damping / R`
    clearance: tuple[float, ...] = ()

    @property
    def dependent(self) -> bool:
        """Whether rows depend on each other in every pose, not in singular poses alone."""
        return self.allowed < len(self.correction.rows)

    def closing(self, terms: Terms, velocity: bool) -> Array:
        """The smallest mass-weighted change of q, or of v, that closes the passive constraints to first order.

        Args:
            terms: Terms of motion at the state.
            velocity: Whether v changes; else q.
        """
        passive, error = terms.matrices.passive, list[Any]()
        for row, violation, rate in zip(self.correction.rows, passive.violation, passive.violation_rate, strict=True):
            of_velocity = rate if row.has_rate else violation if row.has_violation else 0.0
            error.append(of_velocity if velocity else violation if row.has_rate else 0.0)
        return -solve_upper(terms.L, terms.passive.solve(np.array(error)))


@dataclass(frozen=True)
class System:
    """Plant, law and realism of a closed loop."""

    model: Model  # plant and constraints
    law: AttachedLaw | None  # the law; None: an open loop, with the inputs below
    inputs: Mapping[str, Expression]  # actuator -> equation, for an open loop; an input without equation is zero
    passive: PassiveStabilisation  # stabilisation of the passive constraints
    friction: Friction | None = None  # at the actuators, unknown to the law; None: there is none
    realism: Channels | None = None  # measurement, delay and actuators of a sampled run; None: ideal
    # the simulated plant, if its parameters differ from those that the law knows; None: they do not
    simulated: Model | None = None
    machine: Machine | None = None  # moves in place of the simulated plant; None: nothing does
    estimator: AttachedEstimator | None = None  # gives the law its state; None: the law gets the measured one

    @property
    def following(self) -> AttachedConstraintFollowing | None:
        """The law that makes the inputs from the task; None where the task is only measured."""
        return self.law if isinstance(self.law, AttachedConstraintFollowing) else None

    @property
    def acting(self) -> AttachedLaw:
        """What makes the inputs: the law, or the open loop."""
        return OpenLoop(self.passive.rank_tolerance, self.inputs) if self.law is None else self.law

    @property
    def commands(self) -> CommandMemory | None:
        """The memory of the commands under way; None: neither law nor estimator reads one."""
        return CommandMemory.together(*(part.commands for part in (self.estimator, self.acting) if part is not None))

    def by_bound(self, of_rows: Mapping[str, str]) -> dict[str, str]:
        """Values of rows of the model's bounds, by the names of the bounds: the two sides of a limit have one name."""
        bounds = self.acting.bounds
        pairs = () if bounds is None else zip(self.model.bound_rows, bounds.rows, strict=True)
        return {bound.name: of_rows[row.name] for row, bound in pairs if row.name in of_rows}

    def beyond(self, t: float) -> list[str]:
        """Sentences about references that have no value at t [s]."""
        known = [signal for constraint in self.model.task.values() for signal in constraint.signals.values()]
        known += [signal for equation in self.inputs.values() for _, signal in equation.signals]
        sentences = (signal.beyond(t) for signal in known)
        return list(dict.fromkeys(sentence for sentence in sentences if sentence is not None))

    def terms(self, state: State, matrices: Matrices) -> Terms:
        """Terms of motion, used by law and plant.

        In an open loop the task is only observed: it has no part in the motion, and may have no finite rows.
        """
        used = matrices if self.law is not None else replace(matrices, task=Rows.stack([], self.model.n))
        terms = assemble(state, used, self.passive.rank_tolerance, self.passive.clearance)
        return terms if used is matrices else replace(terms, matrices=matrices)

    def motion(self, terms: Terms, u: Array) -> dict[str, Array]:
        """Acceleration under u, and the logged part of a row: name -> values."""
        m = terms.matrices
        acting = u if self.friction is None else u - self.friction.resistance(m.B.T @ terms.state.v)
        acceleration = where(terms.sound, terms.acceleration(acting, self.passive.correction.of(m.passive)), np.nan)
        passive_force = terms.passive_force(acceleration, acting)
        return {
            "acceleration": acceleration,
            "violation": m.task.violation,
            "violation_rate": m.task.violation_rate,
            "passive": m.passive.violation,
            "passive_rank": np.array([terms.passive.rank][: len(self.model.passive_rows)]),
            "passive_force": passive_force,
            "servo_force": m.B @ u,
            "bound": self.acting.bound_values(terms, acting),
        }
