"""The largest error of a sample by quantisation and, on emulated drives, by noise."""

from collections.abc import Sequence

import numpy as np

from hil.drives import Node
from servoctl.config.hil import Hil
from servoctl.types import Array


def sample_errors(values: Hil, nodes: Sequence[Node]) -> tuple[Array, Array]:
    """Largest errors of displacements [joint unit] and rates [joint unit/s] of nodes, shape (nodes,) each."""
    # three standard deviations at the motor, divided by the gear for the joint
    noise = np.array([3.0 * values.emulation.encoder_noise / node.settings.gear for node in nodes])
    steps = np.array([node.quantum()[:2] for node in nodes])
    positions = steps[:, 0] / 2 + noise
    differenced = 2.0 * positions / values.period
    measured = steps[:, 1] / 2 + noise / values.period  # NaN: the node sends no velocity
    if values.velocity == "filter":
        return positions, differenced
    return positions, np.where(np.isnan(measured), differenced, measured)


def position_noise(values: Hil, nodes: Sequence[Node], inverse: Array) -> Array:
    """Standard deviation of each coordinate by the quantisation and noise of all nodes, shape (n,).

    Args:
        values: Section `hil` of the config.
        nodes: Drives, then encoder nodes.
        inverse: Coordinates per displacement, shape (n, nodes).
    """
    spread = sample_errors(values, nodes)[0] / np.sqrt(3.0)  # of a rounding error, which is uniform
    noise: Array = np.sqrt((inverse**2) @ spread**2)
    return noise
