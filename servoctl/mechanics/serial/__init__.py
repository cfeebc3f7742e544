"""Equations of motion of serial chains, ready for a plant's `mass_matrix` and `force`.

`PlanarChain` takes absolute angles in a plane, `ScrewChain` joint screws in space. Both are built in a line or two
inside a plant's method, from its parameters, and follow symbols as well as numbers.
"""

from servoctl.mechanics.serial.planar import PlanarChain
from servoctl.mechanics.serial.screw import (
    ScrewChain,
    adjoint,
    adjoint_inverse,
    christoffel,
    exp_twist,
    prismatic,
    revolute,
    translation,
)

__all__ = [
    "PlanarChain",
    "ScrewChain",
    "adjoint",
    "adjoint_inverse",
    "christoffel",
    "exp_twist",
    "prismatic",
    "revolute",
    "translation",
]
