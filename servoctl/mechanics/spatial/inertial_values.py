"""Checks and formulas of inertias as numbers."""

from collections.abc import Sequence

import numpy as np

from servoctl.mechanics.spatial.placement import Inertial

TOLERANCE = 1e-6  # share of the largest principal moment by which a rounded inertia may break the triangle inequality


IMPOSSIBLE = "no rigid body has this inertia"  # words of every note about such an inertia


def is_massive(inertial: Inertial | None) -> bool:
    """Whether a link has mass or inertia."""
    return inertial is not None and (inertial.m != 0.0 or any(inertial.I))


def box_gyration(x: float, y: float, z: float) -> tuple[float, ...]:
    """Inertia per mass of a uniform box about its centre, (xx, yy, zz, xy, xz, yz) [m^2]."""
    return (y * y + z * z) / 12, (x * x + z * z) / 12, (x * x + y * y) / 12, 0.0, 0.0, 0.0


def inertia_note(inertia: Sequence[float]) -> str | None:
    """Why no rigid body has this inertia, (xx, yy, zz, xy, xz, yz); None if one has."""
    xx, yy, zz, xy, xz, yz = inertia
    moments = np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    shown = ", ".join(f"{value:.3g}" for value in moments)
    if moments[0] < -TOLERANCE * abs(moments).max():
        return f"{IMPOSSIBLE}: its principal moments are {shown} kg m^2 (none may be negative)"
    if moments[2] > (moments[0] + moments[1]) * (1.0 + TOLERANCE):
        return (
            f"{IMPOSSIBLE}: its principal moments are {shown} kg m^2 (the largest may be at most the sum of the others)"
        )
    return None
