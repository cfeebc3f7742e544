"""What the encoders said while a hand moved the machine."""

from collections.abc import Sequence

import numpy as np

from hil.drives.base import Feedback, Node
from hil.drives.settings import SensorSettings
from hil.loop import SECOND
from servoctl.types import Array

STILL_STEPS = 2.0  # encoders count as still while they stay within so many steps of their first value
LONGEST_STILL = 200  # largest number of samples of which the start is the mean


class HandMotion:
    """Collects one sample of every node per tick.

    Args:
        nodes: Drives in the order of the actuators, then encoder nodes.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = list(nodes)
        self.settings: list[SensorSettings] = [node.settings for node in nodes]  # settings of the nodes
        # [joint unit] smallest visible step of each node, shape (nodes,)
        self.steps = np.array([node.visible() for node in nodes])
        # whether all nodes sample at the same instant
        self.synced = all(node.feedback is Feedback.SYNC for node in nodes)
        self._rows: list[list[float]] = []

    def add(self, now: int) -> None:
        """Takes the newest sample of every node, moved on to now [ns] at its own speed; nothing before all have one."""
        row = []
        for node in self._nodes:
            sample = node.sample
            if sample is None:
                return
            moving = sample.velocity == sample.velocity and node.feedback is not Feedback.SYNC
            age = (now - sample.time) / SECOND
            row.append(sample.position + (sample.velocity * age if moving else 0.0))
        self._rows.append([now / SECOND, *row])

    @property
    def t(self) -> Array:
        """Times, shape (samples,) [s]."""
        return np.array([row[0] for row in self._rows])

    @property
    def motors(self) -> Array:
        """Motor angles divided by the gear, shape (samples, nodes): displacement = sign * motor + offset."""
        shown = np.array([row[1:] for row in self._rows]).reshape(-1, len(self.settings))
        signs, offsets = (np.array([getattr(each, name) for each in self.settings]) for name in ("sign", "offset"))
        motors: Array = signs * (shown - offsets)
        return motors

    def at_start(self) -> Array:
        """Mean of the samples before the first motion, shape (nodes,), as in `motors`."""
        motors = self.motors[:LONGEST_STILL]
        moved = np.flatnonzero((np.abs(motors - motors[0]) > STILL_STEPS * self.steps).any(axis=1))
        mean: Array = motors[: int(moved[0]) if len(moved) else len(motors)].mean(axis=0)
        return mean
