"""The pose nearest to a given one at which some displacements have given values and the passive constraints hold."""

from collections.abc import Sequence

import numpy as np

from hil.sensing.channels import Displacements
from servoctl.mechanics.model import Model
from servoctl.types import Array

STEPS = 20  # largest number of Newton steps
SOLVED = 1e-13  # [coordinate unit, joint unit] Newton ends below this error
RANK_TOLERANCE = 1e-9  # relative singular value below which rows count as dependent


def pose_at(
    model: Model, displacements: Displacements, t: float, q: Array, channels: Sequence[int], values: Array
) -> tuple[Array, float]:
    """The pose, shape (n,), and the largest error that remains there.

    Args:
        model: The plant; its task is not used.
        displacements: What the channels measure.
        t: Time of the plant [s].
        q: Pose to begin with, shape (n,).
        channels: Indices of the channels whose values are given.
        values: These values, shape (channels,) [joint unit].
    """
    chosen, rest = list(channels), np.zeros(model.n)
    holonomic = np.array([row.kind == "holonomic" for row in model.passive_rows], dtype=bool)
    error = np.inf
    for _ in range(STEPS):
        rows = model.passive_rows_at(t, q, rest, model.parameters)
        H = np.asarray(displacements.jacobian(model.plant, q, t), dtype=float)[chosen]
        missing = np.concatenate([-rows.violation[holonomic], values - displacements(model.plant, q)[chosen]])
        before, error = error, float(np.abs(missing).max(initial=0.0))
        if not error > SOLVED or error > 2.0 * before:
            break
        q = q + np.linalg.lstsq(np.concatenate([rows.A[holonomic], H]), missing, RANK_TOLERANCE)[0]
    return q, error
