"""The state of a machine from samples of a test, as a rig computes it from those of its nodes."""

from collections.abc import Sequence
from typing import NamedTuple

from hil.core.constants import NEVER
from hil.drives.base import Sample
from hil.loop.tick import Implausibility
from hil.sensing.coordinates import CoordinateEstimate
from hil.sensing.sensing import NO_SAMPLE, SAMPLE, Sensing
from servoctl.types import Array


class Measurement(NamedTuple):
    """State of the machine by the samples of one tick."""

    estimate: CoordinateEstimate  # coordinates and velocities
    ages: Array  # age of each channel's last good sample, shape (m,) [s]; infinite before the first
    findings: Sequence[Implausibility]  # implausible samples and motions
    positions: Sequence[float]  # [joint unit] displacement of each channel at the present instant
    rates: Sequence[float]  # [joint unit/s] speed of each channel
    residual: float  # [joint unit] largest disagreement of redundant measurements
    # state for the law, shape (n,): that of now, a period ahead, or with the positions at the moment when it was due
    q: Array
    v: Array
    valid: bool  # whether every channel has sent a sample, all directions are measured and all numbers are finite


def sense(
    sensing: Sensing,
    t: float,
    now: int,
    samples: Sequence[Sample | None],
    u: Array | None = None,
    sync: int | None = None,
    command: int | None = None,
    due: int | None = None,
) -> Measurement:
    """State of the machine now.

    Args:
        t: Time of the plant [s].
        samples: Newest sample of each channel.
        u: Inputs since the last tick, shape (actuators,) [actuator units]; None: not known.
        sync: When the last SYNC was sent [ns].
        command: When the last commands were sent, the first of them [ns].
        due: When the tick was due [ns]; None: now.
    """
    arrays, columns = sensing.struct.arrays, zip(*[sample or NO_SAMPLE for sample in samples], strict=True)
    for name, values in zip(SAMPLE, columns, strict=True):
        arrays[name][:] = values
    if u is not None:
        arrays["command"][:] = u
    asked = [NEVER if moment is None else moment for moment in (sync, command)]
    sensing.struct.functions.sense_read(sensing.struct.c, t, now, now if due is None else due, u is not None, *asked)
    sensing.struct.raise_failure()
    return measured(sensing)


def measured(sensing: Sensing) -> Measurement:
    """State of the machine by the last samples."""
    c, x = sensing.struct.c, sensing.struct.arrays
    estimate = sensing.coordinates.estimate._replace(q=x["estimate_q"].copy(), v=x["estimate_v"].copy())
    positions, rates = x["displacements"].tolist(), x["speeds"].tolist()
    law = x["law_q"].copy(), x["law_v"].copy()
    return Measurement(estimate, x["ages"].copy(), sensing.findings, positions, rates, c.residual, *law, bool(c.valid))
