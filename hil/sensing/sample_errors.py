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
