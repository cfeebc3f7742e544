"""How wrong a sample can be by quantisation and, on emulated drives, by noise."""

from collections.abc import Sequence

import numpy as np

from hil.drives import Node
from servoctl.config.hil import Hil
from servoctl.types import Array


def sample_errors(values: Hil, nodes: Sequence[Node]) -> tuple[Array, Array]:
    """Largest errors of displacements [joint unit] and rates [joint unit/s] of nodes, shape (nodes,) each."""
    noise = np.array([3.0 * values.emulation.encoder_noise / node.settings.gear for node in nodes])
    steps = np.array([node.quantum()[:2] for node in nodes])
    positions = steps[:, 0] / 2 + noise
    differences = 2.0 * positions / values.period
    given = steps[:, 1] / 2 + noise / values.period
    return positions, differences if values.velocity == "filter" else np.where(np.isnan(given), differences, given)
