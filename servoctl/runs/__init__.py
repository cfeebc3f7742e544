"""A config's values -> objects, ready to run; and the same from Python without any config."""

from servoctl.runs.run import Run, load, simulate

__all__ = ["Run", "load", "simulate"]
