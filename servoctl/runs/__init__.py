"""A config's values -> objects, ready to run; and the same from Python without any config."""

from servoctl.runs.direct import simulate
from servoctl.runs.make import load
from servoctl.runs.run import Run

__all__ = ["Run", "load", "simulate"]
