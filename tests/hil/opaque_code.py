"""A user's plant and term that symbols cannot follow, and that raise what a test asks for."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import servoctl as sc
from plants.two_mass_spring import TwoMassSpring
from servoctl.types import Array


def fail(kind: "type[Awkward] | type[Grumpy]") -> None:
    """Raises the next failure of a class, if there is one."""
    if kind.failures:
        raise kind.failures.pop()


@dataclass(frozen=True)
class Awkward(TwoMassSpring):
    """A plant that symbols cannot follow, whose code fails once on command where it is the host's."""

    host: float = 1.0  # [-] 0 in the emulated plant, which does not
    failures: ClassVar[list[BaseException]] = []

    def force(self, q: Array, v: Array, t: float) -> Array:
        if float(self.host):
            fail(Awkward)
        return super().force(q, v, t)


class Grumpy(sc.Term):
    """A term of the law that symbols cannot follow, whose code fails once on command."""

    failures: ClassVar[list[BaseException]] = []

    def acceleration(self, at: Any, memory: Array) -> Array:
        fail(Grumpy)
        return np.array([0.0 * float(at.task.violation[0])])


PLANT = "plant.class=tests.hil.opaque_code:Awkward"
TERM = "law.terms={grumpy: {class: 'tests.hil.opaque_code:Grumpy'}}"
"""Overrides that put them into a config."""
