"""Checks and formulas of inertias as numbers."""

from collections.abc import Sequence

import numpy as np

from servoctl.mechanics.spatial.description import Findings
from servoctl.mechanics.spatial.placement import Inertial, Placement
from servoctl.types import Array

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


def inertial_in_link(m: float, inertia: Array, placement: Placement, name: str, findings: Findings) -> Inertial | None:
    """The inertial of a link, None if it has neither mass nor inertia; a note if no rigid body has this inertia.

    Args:
        m: Mass [kg].
        inertia: Inertia about the centre of mass [kg m^2], shape (3, 3), in axes of the inertial.
        placement: The axes of the inertial in those of the link; their origin is the centre of mass.
        name: The link's name.
        findings: Where the note goes.
    """
    if m == 0 and not inertia.any():
        return None
    T = placement.R @ inertia @ placement.R.T
    moments = (T[0, 0], T[1, 1], T[2, 2], T[0, 1], T[0, 2], T[1, 2])
    note = "inertia without mass (give it a mass)" if m == 0 else inertia_note(moments)
    if note:
        findings.note(name, note)
    return Inertial(m, placement.xyz, tuple(float(x) for x in moments))  # type: ignore[arg-type]
