"""A config's values -> objects, ready to run; and the same from Python without any config."""

from servoctl.assembly.direct import simulate
from servoctl.assembly.make import load
from servoctl.assembly.run import Run

__all__ = ["Run", "load", "simulate"]
