"""How the loop uses a drive: samples in, torques out, and a handshake for everything else."""

from hil.drives.base import Condition, Drive, DriveError, Exchange, Feedback, HandshakeStep, Node, Steps
from hil.drives.sample import Sample
from hil.drives.settings import DriveSettings, SensorSettings

__all__ = [
    "Condition", "Drive", "DriveError", "DriveSettings", "Exchange", "Feedback", "HandshakeStep", "Node", "Sample",
    "SensorSettings", "Steps",
]  # fmt: skip
