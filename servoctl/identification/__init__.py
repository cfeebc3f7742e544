"""Finds the constant parameters of a plant from logs, and motions that tell them apart."""

from servoctl.identification.fit import identify
from servoctl.identification.result import Identification

__all__ = ["Identification", "identify"]
