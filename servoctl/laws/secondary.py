"""Objectives of the inputs where the task leaves them free:  s = centre + preload + null_space - damping B^T v."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import StrictBool

from servoctl.expression import Expression
from servoctl.laws.term import AttachedTerm
from servoctl.laws.user_code import UserFunction, user_function
from servoctl.mechanics.constraint import equation_value
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Terms
from servoctl.tree.fields import NotNegative, Real, described, wrong_numbers
from servoctl.types import Array, State

Equations = Mapping[str, str | Expression]  # actuator -> equation


@dataclass(frozen=True)
class Secondary:
    """Goals for the free inputs: used in the null space of the task."""

    centre: StrictBool = described(False, "seek the middle of law.limits")
    preload: dict[str, Real] | None = described(
        None, "actuator -> desired input [actuator units], such as an internal force"
    )
    damping: NotNegative = described(0.0, "D of -D B^T v on the free motion [actuator unit per its speed]")

    def problems(self, limits: Mapping[str, tuple[float, float]]) -> list[str]:
        """One sentence for each field that does not fit these limits of actuators."""
        sentences = [f"law.secondary.{sentence}" for sentence in wrong_numbers(self)]
        if self.centre and not any(np.isfinite(limit).all() for limit in limits.values()):
            sentences.append("law.secondary.centre: there are no limits to be in the middle of (give law.limits)")
        return sentences

    def aim(self, actuators: list[str], limits: Mapping[str, tuple[float, float]]) -> tuple[float, ...]:
        """The constant part of s, per actuator."""
        aims = []
        for name in actuators:
            lower, upper = limits.get(name, (-np.inf, np.inf))
            middle = (lower + upper) / 2 if self.centre and np.isfinite([lower, upper]).all() else 0.0
            aims.append(float(middle + (self.preload or {}).get(name, 0.0)))
        return tuple(aims)


@dataclass(frozen=True)
class SecondaryTerm(AttachedTerm):
    """The objectives of an attached law."""

    null_space: Equations | UserFunction | None
    aim: tuple[float, ...]  # value of an input where the task leaves it free
    damping: float  # damping of the motion that the task leaves free

    label = "secondary"

    @property
    def opaque(self) -> str | None:
        return self.null_space.opaque if isinstance(self.null_space, UserFunction) else None

    def preferred(self, at: Terms) -> Array:
        plant, state, of = at.matrices.plant, at.state, self.null_space
        s: Array = np.array(self.aim) - self.damping * (at.matrices.B.T @ state.v)
        if isinstance(of, Mapping):
            s = s + np.array([equation_value(of[a], plant, state) if a in of else 0.0 for a in plant.actuators])
        elif of is not None:
            s = s + of(np.array([state.t]), *state[1:])
        return s


def null_space_of(s: Equations | Callable[[State], Any] | None, model: Model) -> Equations | UserFunction | None:
    """The user's part of s, for the loop: a function that cannot be traced becomes an operation that calls it."""
    if s is None or isinstance(s, Mapping):
        return s
    shapes = [(1,), (model.n,), (model.n,)]

    def made() -> UserFunction:
        return user_function(lambda t, q, v: s(State(t[0], q, v)), "law: null_space", shapes, model.m)

    kept: UserFunction = model.once("null_space", s, made)
    return kept
