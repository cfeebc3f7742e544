"""How does a config become a run? Values -> plant, task, law and closed loop; also from Python without a config."""

from servoctl.assembly.direct import simulate
from servoctl.assembly.make import load
from servoctl.assembly.run import Run

__all__ = ["Run", "load", "simulate"]
