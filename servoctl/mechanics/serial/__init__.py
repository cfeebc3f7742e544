"""Equations of motion of serial chains, for a plant's `mass_matrix` and `force`.

`PlanarChain` uses absolute angles in a plane, `ScrewChain` joint screws in space. A plant's method builds either from
the plant's parameters, on numbers or symbols.
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
