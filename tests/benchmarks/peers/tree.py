"""Planar bars on hinges, closed by loops: one description from which every peer builds its model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from servoctl.types import Array

GROUND = -1


@dataclass(frozen=True)
class Bar:
    """A uniform bar that turns about its first end.

    Attributes:
        parent: Bar that carries the hinge; `GROUND`: none.
        at: Where the hinge is, along the parent or along the ground's x axis [m].
        length: [m].
        mass: [kg].
        inertia: About the centre [kg m^2].
    """

    parent: int
    at: float
    length: float = 1.0
    mass: float = 1.0
    inertia: float = 1.0


@dataclass(frozen=True)
class LoopClosure:
    """A point of one bar that coincides with a point of another, or of the ground's x axis.

    Attributes:
        bar: The one.
        at: Along it [m].
        other: The other; `GROUND`: none.
        other_at: Along that [m].
    """

    bar: int
    at: float
    other: int
    other_at: float


@dataclass(frozen=True)
class Tree:
    """Bars, loops and gravity g [m/s^2] along -y."""

    bars: Sequence[Bar]
    loops: Sequence[LoopClosure]
    g: float

    @property
    def sums(self) -> Array:
        """S, shape (n, n): absolute angles are S times joint angles."""
        S = np.eye(len(self.bars))
        for i, bar in enumerate(self.bars):
            if bar.parent != GROUND:
                S[i] += S[bar.parent]
        return S

    def joint_angles(self, theta: Array) -> Array:
        """Joint angles of absolute ones, along the last axis."""
        angles: Array = np.linalg.solve(self.sums, np.asarray(theta, dtype=float)[..., None])[..., 0]
        return angles

    def angles(self, q: Array) -> Array:
        """Absolute angles of joint angles, along the last axis."""
        theta: Array = np.asarray(q) @ self.sums.T
        return theta

    def joint_forces(self, force: Array) -> Array:
        """Generalized forces on joint angles, of those on absolute angles, along the first axis."""
        joint: Array = self.sums.T @ force
        return joint


ROBOTS = Tree([Bar(i - 1, 0.0 if i == 0 else 1.0) for i in range(5)], [LoopClosure(4, 1.0, GROUND, 3.0)], 9.8)
"""Two arms and an object, as `plants.coordinated_robots`: five bars in a row between two bases."""

LINK = {"length": 1.0, "mass": 1.0, "inertia": 0.1}
PARALLELOGRAM = Tree(
    [Bar(GROUND, 0.0, **LINK), Bar(0, 1.0, 2.0, 2.0, 0.2), Bar(GROUND, 1.0, **LINK), Bar(GROUND, 2.0, **LINK)],
    [LoopClosure(2, 1.0, 1, 1.0), LoopClosure(3, 1.0, 1, 2.0)],
    9.81,
)
"""Three links and a coupler, as `plants.parallelogram`: four joint angles where that has twelve coordinates."""


def parallelogram_angles(theta: float) -> Array:
    """Absolute angles of `PARALLELOGRAM` whose links stand at theta [rad]."""
    return np.array([theta, 0.0, theta, theta])
