"""From samples of drives and encoders to the machine's coordinates; knows no bytes and no bus."""

from hil.sensing.channels import Channel, Displacements
from hil.sensing.coordinates import Coordinates, Estimate
from hil.sensing.plausibility import Finding
from hil.sensing.prediction import Prediction
from hil.sensing.sensing import Sensing, Sight
from hil.sensing.statics import Fall, Hold, Holding, accelerations, falls_without_torque, not_ready, task_errors
from hil.sensing.tracking import Tracking, Unexplained

__all__ = [
    "Channel",
    "Coordinates",
    "Displacements",
    "Estimate",
    "Fall",
    "Finding",
    "Hold",
    "Holding",
    "Prediction",
    "Sensing",
    "Sight",
    "Tracking",
    "Unexplained",
    "accelerations",
    "falls_without_torque",
    "not_ready",
    "task_errors",
]
