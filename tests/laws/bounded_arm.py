"""A planar arm of two links whose end draws a circle through a disc that it must not enter."""

from dataclasses import dataclass

import numpy as np

import servoctl as sc
from servoctl.laws.corrections import SecondOrderCorrection
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array

X, Y = "l*cos(a) + l*cos(a + b)", "l*sin(a) + l*sin(a + b)"
DISC = (0.9 + 0.3 * np.cos(2.2) + 0.01, 0.3 + 0.3 * np.sin(2.2))
CLEAR = f"sqrt(({X} - {DISC[0]})**2 + ({Y} - {DISC[1]})**2) - 0.08"
CIRCLE = {
    "x": sc.Holonomic(f"{X} - (0.9 + 0.3*cos(1.5*t))"),
    "y": sc.Holonomic(f"{Y} - (0.3 + 0.3*sin(1.5*t))"),
}
LAW = sc.ConstraintFollowing(correction=SecondOrderCorrection(20.0, 100.0))


@dataclass(frozen=True)
class Arm(sc.LagrangianPlant):
    """Two uniform links, moved in a horizontal plane by a motor in each joint."""

    l: float = 0.7  # noqa: E741 - the length, in metres, as equations name it
    m: float = 1.0  # [kg]
    coordinates = {"a": "rad", "b": "rad"}  # noqa: RUF012
    actuators = {"u1": "N m", "u2": "N m"}  # noqa: RUF012

    def kinetic_energy(self, q: Array, v: Array, t: float) -> float:
        turn, inertia = v[0] + v[1], self.m * self.l**2 / 12
        first = self.l / 2 * v[0]
        x = -self.l * np.sin(q[0]) * v[0] - self.l / 2 * np.sin(q[0] + q[1]) * turn
        y = self.l * np.cos(q[0]) * v[0] + self.l / 2 * np.cos(q[0] + q[1]) * turn
        return 0.5 * (self.m * (first**2 + x**2 + y**2) + inertia * (v[0] ** 2 + turn**2))

    def potential_energy(self, q: Array, t: float) -> float:
        return 0.0

    def actuation(self, q: Array, t: float) -> Array:
        return np.eye(2)


def start() -> dict[str, list[float]]:
    """The state on the circle at t = 0."""
    b = np.arccos((1.2**2 + 0.3**2) / (2 * 0.49) - 1)
    a = np.arctan2(0.3, 1.2) - b / 2
    slope = 0.7 * np.array([[-np.sin(a) - np.sin(a + b), -np.sin(a + b)], [np.cos(a) + np.cos(a + b), np.cos(a + b)]])
    return {"q": [float(a), float(b)], "v": np.linalg.solve(slope, [0.0, 0.45]).tolist()}


def error(run: Trajectory) -> Array:
    """Distance from the end to its place on the circle [m]."""
    return np.hypot(run["violation.x"], run["violation.y"])


@dataclass(frozen=True)
class LongArm(sc.LagrangianPlant):
    """Three uniform links in a horizontal plane: one joint more than the place of the end needs."""

    l: float = 0.6  # noqa: E741 - the length, in metres, as equations name it
    m: float = 1.0  # [kg]
    coordinates = {"a": "rad", "b": "rad", "c": "rad"}  # noqa: RUF012
    actuators = {"u1": "N m", "u2": "N m", "u3": "N m"}  # noqa: RUF012

    def kinetic_energy(self, q: Array, v: Array, t: float) -> float:
        x = y = energy = angle = turn = 0.0
        for i in range(3):
            angle, turn = angle + q[i], turn + v[i]
            dx, dy = -self.l / 2 * np.sin(angle) * turn, self.l / 2 * np.cos(angle) * turn
            energy = energy + 0.5 * self.m * ((x + dx) ** 2 + (y + dy) ** 2 + self.l**2 / 12 * turn**2)
            x, y = x + 2 * dx, y + 2 * dy
        return energy

    def potential_energy(self, q: Array, t: float) -> float:
        return 0.0

    def actuation(self, q: Array, t: float) -> Array:
        return np.eye(3)


LONG_CIRCLE = {
    "x": sc.Holonomic("l*cos(a) + l*cos(a + b) + l*cos(a + b + c) - (0.9 + 0.25*cos(1.5*t))"),
    "y": sc.Holonomic("l*sin(a) + l*sin(a + b) + l*sin(a + b + c) - (0.2 + 0.25*sin(1.5*t))"),
}
