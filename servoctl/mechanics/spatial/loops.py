"""Passive constraints of robots in closed form: loops between frames, and the unit quaternions of free bases.

A loop's rows are what the second frame may not do in the axes of the first:

    x, y, z      d = R1^T (p2 - p1)
    rx, ry, rz   chord of E = R1^T R2
    rx, ry       2 sin(tilt/2) along x and y, where the tilt turns z of the first to z of the second

Near zero each rate is a velocity or an angular velocity, so a row's multiplier is a component of the force or moment on
the second frame, at its origin, in the axes of the first.

Design: the chord costs half as much as the rotation vector, and a loop's error is small. It is not finite where the
frames are half a turn apart, so a loop is never closed the wrong way round.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from servoctl.engine.symbol import is_symbolic, where
from servoctl.engine.trace import trace
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.spatial.kinematics import FrameMotion
from servoctl.mechanics.spatial.model import LoopJoint
from servoctl.mechanics.spatial.rotation import HALF_TURN, chord, relative_motion, skew
from servoctl.types import Array

LOOP_ROWS = {
    "weld": ("x", "y", "z", "rx", "ry", "rz"),
    "hinge": ("x", "y", "z", "rx", "ry"),
    "slide": ("x", "y", "rx", "ry", "rz"),
    "point": ("x", "y", "z"),
}
"""Kind of a loop -> its rows, in order."""


class LoopError(NamedTuple):
    """A vector that the loop keeps at zero."""

    value: Array  # shape (k,)
    slope: Array  # shape (k, n): `value' = slope v`
    drift: Array  # shape (k,): `value'' = slope q'' + drift`


@dataclass(frozen=True)
class ClosedLoop(Constraint):
    """The rows of a loop between two frames of a robot."""

    loop: LoopJoint

    kind: ClassVar[str] = "holonomic"

    def row_units(self, plant: Plant) -> tuple[str, ...]:
        return tuple("rad" if row.startswith("r") else "m" for row in LOOP_ROWS[self.loop.kind])

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        first, second = self.loop.first, self.loop.second
        motions = trace(plant.frame_motions, (first, second), q, v)  # type: ignore[attr-defined]
        motion = relative_motion(motions[second], motions[first])
        place = LoopError(motion.position, motion.linear, motion.drift)
        turn = tilt(motion) if self.loop.kind == "hinge" else turning(motion)
        known = {"x": (place, 0), "y": (place, 1), "z": (place, 2), "rx": (turn, 0), "ry": (turn, 1), "rz": (turn, 2)}
        chosen = [known[row] for row in LOOP_ROWS[self.loop.kind]]
        A = np.array([error.slope[i] for error, i in chosen])
        return Rows(
            A, np.array([-error.drift[i] for error, i in chosen]), np.array([error.value[i] for error, i in chosen]),
            A @ v,
        )  # fmt: skip


def reaction_map(kind: str, violation: Array) -> Array:
    """The wrench on the second frame per unit of each multiplier, shape (6, rows): force [N], moment [N m].

    It acts at the origin of the second frame and is given in the axes of the first.

    Args:
        kind: Kind of the loop.
        violation: Of its rows, shape (rows,).
    """
    rows = LOOP_ROWS[kind]
    K = np.zeros((6, len(rows)), dtype=object if is_symbolic(violation) else float)
    turns = [j for j, row in enumerate(rows) if row.startswith("r")]
    for j, row in enumerate(rows):
        if j not in turns:
            K["xyz".index(row), j] = 1.0
    if turns:
        K[3:, turns] = _tilt_rate(violation[turns]).T if kind == "hinge" else _chord_rate(violation[turns]).T
    return K


def _chord_rate(e: Array) -> Array:
    """H of `e' = H w` with w in the axes of the first frame, shape (3, 3).

    With w in the second frame's axes it is G = c I + [e]x/2; E = G^2 + e e^T/4 makes H = G E^T = G^T.
    """
    c = np.sqrt(1.0 - e @ e / 4.0)
    H: Array = c * np.eye(3) - skew(e) / 2.0
    return H


def _tilt_rate(e: Array) -> Array:
    """H of `e' = H w` for the two rows of a hinge, shape (2, 3); see `tilt`."""
    square = e @ e
    f = 1.0 / np.sqrt(1.0 - square / 4.0)
    u = np.array([e[1] / f, -e[0] / f, 1.0 - square / 2.0])
    U, f1 = -skew(u), -(f**3) / 4.0
    H: Array = f * np.array([-U[1], U[0]]) + f1 * np.outer(e / f, U[2])
    return H


@dataclass(frozen=True)
class UnitLength(Constraint):
    """`(|p|^2 - 1)/2 = 0` of some coordinates: one row."""

    columns: tuple[int, ...]  # indices of the coordinates

    kind: ClassVar[str] = "holonomic"

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        p, rate = q[list(self.columns)], v[list(self.columns)]
        A = np.zeros((1, len(q)), dtype=object)
        A[0, list(self.columns)] = p
        return Rows(A, np.array([-(rate @ rate)]), np.array([(p @ p - 1.0) / 2.0]), np.array([p @ rate]))


def turning(motion: FrameMotion) -> LoopError:
    """The chord of a rotation, from the motion of a frame in the axes of another."""
    Et = motion.rotation.T
    e, G, drift = chord(motion.rotation, Et @ motion.angular_velocity)
    return LoopError(e, G @ Et @ motion.angular, G @ Et @ motion.angular_drift + drift)


def tilt(motion: FrameMotion) -> LoopError:
    """`2 sin(tilt/2)` along x and y, from the motion of a frame in the axes of another.

    With u the frame's z axis and f(u_z) = sqrt(2/(1 + u_z)): e = f (-u_y, u_x), and u' = w x u.
    """
    u, w = motion.rotation[:, 2], motion.angular_velocity
    U = -skew(u) @ motion.angular
    rate, drift = np.cross(w, u), np.cross(motion.angular_drift, u) + np.cross(w, np.cross(w, u))
    k = where(1.0 + u[2] > 2.0 * HALF_TURN**2, (1.0 + u[2]) / 2.0, np.nan)
    f = 1.0 / np.sqrt(k)
    f1, f2 = -f / (4.0 * k), 3.0 * f / (16.0 * k * k)
    y, y_rate, y_drift = (np.array([-x[1], x[0]]) for x in (u, rate, drift))
    slope = f * np.array([-U[1], U[0]]) + f1 * np.outer(y, U[2])
    bend = (f2 * rate[2] * rate[2] + f1 * drift[2]) * y
    return LoopError(f * y, slope, f * y_drift + 2.0 * f1 * rate[2] * y_rate + bend)
