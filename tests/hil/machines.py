"""Poses of machines in closed form, written without the plants' own constraints."""

from collections.abc import Callable

import numpy as np

from servoctl.types import Array

Pose = Callable[[float], Array]


def elbow(start: Array, end: Array, first: float, second: float, side: float) -> Array:
    """Where two links of these lengths meet, to the left (1) or right (-1) of the way from start to end."""
    way = end - start
    d = float(np.hypot(*way))
    along = (first**2 - second**2 + d**2) / (2 * d)
    across = side * np.sqrt(first**2 - along**2)
    e = way / d
    return np.asarray(start + along * e + across * np.array([-e[1], e[0]]))


def angle(start: Array, end: Array) -> float:
    return float(np.arctan2(end[1] - start[1], end[0] - start[0]))


def direction(phi: float) -> Array:
    return np.array([np.cos(phi), np.sin(phi)])


def robots(t: float, speed: float = 3.0) -> Array:
    """Two robots carry their object on a Lissajous curve, elbows up: theta1 ... theta5."""
    centre = np.array([1.5 + 0.2 * np.sin(speed * t), 0.3 + 0.15 * np.sin(1.3 * speed * t)])
    phi = 0.2 * np.sin(0.7 * speed * t)
    left, right, base = centre - direction(phi) / 2, centre + direction(phi) / 2, np.array([3.0, 0.0])
    first, second = elbow(np.zeros(2), left, 1.0, 1.0, 1.0), elbow(right, base, 1.0, 1.0, 1.0)
    return np.array([angle(np.zeros(2), first), angle(first, left), phi, angle(right, second), angle(second, base)])


def parallelogram(theta: float) -> Array:
    """The three links at an angle: x, y, phi of each body."""
    half, pose = direction(theta) / 2, []
    for i in range(3):
        pose += [i + half[0], half[1], theta]
    return np.array([*pose, 1 + 2 * half[0], 2 * half[1], 0.0])


def three_rrr(t: float, side: float = -1.0, speed: float = 3.0) -> Array:
    """The platform of the 3RRR robot on a circle, turning to and fro; one side for all three elbows."""
    centre, phi = 0.1 * direction(speed * t), 0.2 * np.sin(1.5 * speed * t)
    pose: list[float] = []
    for i in range(3):
        out = np.pi / 2 + i * 2 * np.pi / 3
        foot, corner = direction(out), centre + 0.25 * direction(out + phi)
        joint = elbow(foot, corner, 0.6, 0.7, side)
        arm = angle(foot, joint)
        pose += [arm, arm, *((joint + corner) / 2), angle(joint, corner)]
    return np.array([*pose, *centre, phi])


def rate(pose: Pose, t: float) -> Array:
    """Its derivative by a central difference of fourth order, to about 1e-10."""
    h = 3e-4
    value = (8 * (pose(t + h) - pose(t - h)) - (pose(t + 2 * h) - pose(t - 2 * h))) / (12 * h)
    return np.asarray(value)
