"""Spheres and capsules around links and in the world, and the clearance between two of them."""

from servoctl.mechanics.shapes.clearance import Clearance
from servoctl.mechanics.shapes.swept_sphere import SweptSphere

__all__ = ["Clearance", "SweptSphere"]
