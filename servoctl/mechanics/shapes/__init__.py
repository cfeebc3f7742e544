"""Spheres and capsules around links and in the world, and the clearance between two of them."""

from servoctl.mechanics.shapes.clearance import Clearance, SweptSphere

__all__ = ["Clearance", "SweptSphere"]
