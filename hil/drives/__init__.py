"""How the loop uses a drive: samples in, torques out, and a handshake for everything else."""

from hil.drives.base import Condition, Drive, DriveError, Feedback, HandshakeStep, Node, Sample, Steps
from hil.drives.settings import DriveSettings, SensorSettings

__all__ = [
    "Condition", "Drive", "DriveError", "DriveSettings", "Feedback", "HandshakeStep", "Node", "Sample",
    "SensorSettings", "Steps",
]  # fmt: skip
