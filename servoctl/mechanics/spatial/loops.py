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
from typing import Any, ClassVar

import numpy as np

from servoctl.engine.symbol import where
from servoctl.engine.trace import trace
from servoctl.mechanics.constraint import Constraint, Rows
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.kinematics import FrameMotion, PointMotion
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
        parts = [motion.chosen(["xyz".index(row) for row in LOOP_ROWS[self.loop.kind] if row in "xyz"]).rows]
        if self.loop.kind == "hinge":
            parts.append(tilt(motion).rows)
        elif self.loop.kind != "point":
            w, drift = motion.angular_velocity, motion.angular_drift
            parts.append(chord(motion.rotation, motion.rotation.T, motion.angular, w, drift).rows)
        return Rows.stack(parts, len(q))


def reaction_map(kind: str, violation: Array) -> Array:
    """The wrench on the second frame per unit of each multiplier, shape (6, rows): force [N], moment [N m].

    It acts at the origin of the second frame and is given in the axes of the first.

    Args:
        kind: Kind of the loop.
        violation: Of its rows, shape (rows,).
    """
    rows = LOOP_ROWS[kind]
    K = np.zeros((6, len(rows)))
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


def tilt(motion: FrameMotion) -> PointMotion:
    """`2 sin(tilt/2)` along x and y, from the motion of a frame in the axes of another.

    With u the frame's z axis: e = sqrt(2/(1 + u_z)) (-u_y, u_x), and u' = w x u.
    """
    u, w = motion.rotation[:, 2], motion.angular_velocity
    rate, drift = np.cross(w, u), np.cross(motion.angular_drift, u) + np.cross(w, np.cross(w, u))
    known = np.array([where(1.0 + u[2] > 2.0 * HALF_TURN**2, part, np.nan) for part in u])
    axis = PointMotion(known, -skew(u) @ motion.angular, rate, drift)
    return axis.mapped(lambda u: np.array([-u[1], u[0]]) * np.sqrt(2.0 / (1.0 + u[2])))
