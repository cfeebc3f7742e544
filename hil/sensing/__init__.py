"""From samples of drives and encoders to the machine's coordinates; knows no bytes and no bus."""

from hil.sensing.channels import Channel, Displacements
from hil.sensing.coordinates import Coordinates, Estimate
from hil.sensing.gravity import (
    GravityCompensation,
    Hold,
    StaticBalance,
    accelerations,
    falls_without_torque,
    not_ready,
    task_errors,
)
from hil.sensing.plausibility import Finding
from hil.sensing.prediction import Prediction
from hil.sensing.sensing import Sensing, Sight
from hil.sensing.tracking import DisturbanceObserver, TrackingMonitor

__all__ = [
    "Channel",
    "Coordinates",
    "Displacements",
    "DisturbanceObserver",
    "Estimate",
    "Finding",
    "GravityCompensation",
    "Hold",
    "Prediction",
    "Sensing",
    "Sight",
    "StaticBalance",
    "TrackingMonitor",
    "accelerations",
    "falls_without_torque",
    "not_ready",
    "task_errors",
]
