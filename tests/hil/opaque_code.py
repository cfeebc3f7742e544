"""Users' code: a plant and a term that symbols cannot follow, and a motor that acts by the pose."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import servoctl as sc
from plants.two_mass_spring import TwoMassSpring
from servoctl.types import Array


def fail(kind: "type[Awkward] | type[Grumpy]") -> None:
    """Raises the next failure of a class, if there is one; None lets a call pass."""
    if kind.failures and (failure := kind.failures.pop()) is not None:
        raise failure


@dataclass(frozen=True)
class Awkward(TwoMassSpring):
    """A plant that symbols cannot follow, whose code fails once on command where it is the host's."""

    host: float = 1.0  # [-] 0 in the emulated plant, which does not
    failures: ClassVar[list[BaseException | None]] = []

    def force(self, q: Array, v: Array, t: float) -> Array:
        if float(self.host):
            fail(Awkward)
        return super().force(q, v, t)


@dataclass(frozen=True)
class Crank(TwoMassSpring):
    """A motor whose lever is the longer the further the first mass is."""

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[1.0 + 0.2 * q[0]], [0.0 * q[0]]])

    def motor_positions(self, q: Array) -> Array:
        return np.array([q[0] + 0.1 * q[0] ** 2])


class Grumpy(sc.Term):
    """A term of the law that symbols cannot follow, whose code fails once on command."""

    failures: ClassVar[list[BaseException | None]] = []

    def acceleration(self, at: Any, memory: Array) -> Array:
        fail(Grumpy)
        return np.array([0.0 * float(at.task.violation[0])])


PLANT = "plant.class=tests.hil.opaque_code:Awkward"
CRANK = "plant.class=tests.hil.opaque_code:Crank"
TERM = "law.terms={grumpy: {class: 'tests.hil.opaque_code:Grumpy'}}"
"""Overrides that put them into a config."""
