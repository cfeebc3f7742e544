"""Computes the machine's coordinates from samples of drives and encoders; independent of protocols and buses."""

from hil.sensing.channels import Channel, Displacements
from hil.sensing.coordinates import Coordinates, Estimate
from hil.sensing.gravity import (
    GravityCompensation,
    Hold,
    StaticBalance,
    accelerations,
    falls_without_torque,
    task_errors,
)
from hil.sensing.prediction import Prediction
from hil.sensing.sensing import Measurement, Sensing
from hil.sensing.tracking import DisturbanceObserver, TrackingMonitor

__all__ = [
    "Channel",
    "Coordinates",
    "Displacements",
    "DisturbanceObserver",
    "Estimate",
    "GravityCompensation",
    "Hold",
    "Measurement",
    "Prediction",
    "Sensing",
    "StaticBalance",
    "TrackingMonitor",
    "accelerations",
    "falls_without_torque",
    "task_errors",
]
