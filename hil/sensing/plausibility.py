"""Whether a sample can be true: jumps, wraps, encoders that are stuck, numbers that are none.

Design: pure functions of what an axis remembers and of what it is shown. One implausible sample is rejected, and the
last good one serves on; two in a row are a finding, which stops the machine. A sign that flips and a zero that drifts
move no faster than the machine may: those show where displacements are measured twice (`Redundancy`).
"""

import math
from typing import Final

import numpy as np

from hil.drives.sample import Sample
from hil.loop.clock import SECOND
from hil.loop.rig import Finding
from hil.sensing.channels import Channel, Displacements
from hil.sensing.coordinates import Estimate

MARGIN = 1.5
"""Times the speed limit: how fast a displacement may move between two samples."""

STEPS = 3
"""Resolutions that it may move beside."""

STUCK_TRAVEL = 10.0
"""Smallest visible motions: how far the model must have moved a joint, against friction, while its encoder stood."""

STUCK_TIME = 0.02
"""Shortest time that this must have lasted [s]."""

STUCK_WINDOW = 0.1
"""Longest time within which it must happen [s]: static friction holds a joint that the model creeps away with."""

IN_A_ROW = 2
"""Implausible samples that are a finding."""


class AxisMemory:
    """What an axis remembers.

    Attributes:
        accepted: The last sample that was taken; None before there was one.
        seen: When the last sample came, taken or not [ns].
        rejected: Samples in a row that were not taken.
        travel: How far the joint should have moved since its encoder last did [joint unit].
        moved: When the encoder last moved [ns].
    """

    def __init__(
        self,
        accepted: Sample | None = None,
        seen: int = -1,
        rejected: int = 0,
        travel: float = 0.0,
        moved: int = 0,
    ) -> None:
        """Takes the attributes."""
        self.accepted: Final = accepted
        self.seen: Final = seen
        self.rejected: Final = rejected
        self.travel: Final = travel
        self.moved: Final = moved


def judge(
    channel: Channel, unit: str, memory: AxisMemory, sample: Sample | None, rate: float, expected: float
) -> tuple[AxisMemory, Finding | None]:
    """Takes a sample, or rejects it.

    Args:
        channel: Which one.
        unit: Of its displacement.
        memory: What it remembers.
        sample: The newest there is; the same as last time where none has come.
        rate: Speed of the joint at the sample before [joint unit/s]; how it is known does not matter.
        expected: Speed that the model expects of the joint now [joint unit/s]; NaN: whether the encoder is stuck is
            not watched.

    Returns:
        What it remembers now, and what is wrong.
    """
    if sample is None or sample.time == memory.seen:
        return memory, None
    last = memory.accepted
    reason = _implausible(channel, unit, last, sample, rate, expected)
    if reason:
        rejected = memory.rejected + 1
        memory = AxisMemory(memory.accepted, sample.time, rejected, memory.travel, memory.moved)
        return memory, Finding(channel.name, reason, rejected >= IN_A_ROW)
    if last is None or sample.position != last.position or not math.isfinite(expected):
        return AxisMemory(sample, sample.time, 0, 0.0, sample.time), None
    elapsed = (sample.time - last.time) / SECOND
    travel = memory.travel + _against(expected, channel.held * elapsed) * elapsed
    still = (sample.time - memory.moved) / SECOND
    if abs(travel) > STUCK_TRAVEL * (channel.visible or channel.resolution) and still >= STUCK_TIME:
        where = f"stands at {sample.position:.6g} {unit} for {still:.3g} s"
        reason = f"encoder {where}, the model moves it by {travel:.3g} {unit}"
        return AxisMemory(sample, sample.time, 0, travel, memory.moved), Finding(channel.name, reason, True)
    if still >= STUCK_WINDOW:
        return AxisMemory(sample, sample.time, 0, 0.0, sample.time), None
    return AxisMemory(sample, sample.time, 0, travel, memory.moved), None


def _against(speed: float, friction: float) -> float:
    """What is left of a speed that friction may have taken so much from: a joint that it holds is not stuck."""
    return math.copysign(max(0.0, abs(speed) - friction), speed)


def _possible(channel: Channel, interval: float, speeds: tuple[float, ...]) -> float:
    """How far a joint may move in a time [s] by its limit or, where it has none, by any speed that is said of it."""
    possible = STEPS * channel.resolution
    if math.isfinite(channel.speed_limit):
        return possible + MARGIN * channel.speed_limit * interval
    fastest = max((abs(speed) for speed in speeds if math.isfinite(speed)), default=0.0)
    return possible + MARGIN * fastest * interval + channel.leap


def _implausible(channel: Channel, unit: str, last: Sample | None, sample: Sample, rate: float, model: float) -> str:
    """Why a sample cannot be true; empty where it can."""
    position, velocity, time = sample.position, sample.velocity, sample.time
    if not -math.inf < position < math.inf:
        return f"position is not a finite number ({position})"
    if velocity in (math.inf, -math.inf):
        return f"velocity is not a finite number ({velocity})"
    if last is None:
        return ""
    elapsed = (time - last.time) / SECOND
    ordinary = elapsed if elapsed < channel.interval else channel.interval
    # beyond the ordinary interval the joint goes on at its speed, so that a gap does not widen what may jump
    expected = last.position + rate * (elapsed - ordinary)
    step = position - expected
    allowed = _possible(channel, ordinary, (rate, velocity, model))
    if abs(step) <= allowed:
        return ""
    moved = f"{step:+.4g} {unit} in {elapsed * 1e3:.3g} ms, at most {allowed:.3g} {unit} are possible"
    turns = round(step / channel.turn) if math.isfinite(channel.turn) else 0
    if turns and abs(step - turns * channel.turn) <= allowed:
        return f"encoder wrapped by {turns:+d} turn: {moved}"
    return f"encoder jumped: {moved}"


class Redundancy:
    """Watches displacements that are measured more than once.

    While every sample is within its error the residual stays below the bound that comes with it, whatever the machine
    does: beyond it a sample, a zero or a sign is wrong, or the machine is not the one that is modelled.
    """

    def __init__(self, displacements: Displacements, tolerance: float | None = None) -> None:
        """Takes what is measured.

        Args:
            displacements: Of the channels.
            tolerance: Largest residual [joint unit]; None: the bound.
        """
        self._channels, self._units, self._tolerance = displacements.channels, displacements.units, tolerance
        self._weights, self._floor = displacements.weights, (1e-3 * displacements.errors).tolist()
        self._row = 0

    def judge(self, estimate: Estimate) -> Finding | None:
        """What a tick's residual says; two ticks in a row stop the machine.

        The channel that is named is the one whose error alone explains the residual best: that with the largest
        residual relative to the root of its redundancy.
        """
        residuals, tolerance = estimate.residual.tolist(), self._tolerance
        if tolerance is None:
            bounds = zip(residuals, estimate.bound.tolist(), self._floor, strict=True)
            explained = all([abs(residual) <= bound + floor for residual, bound, floor in bounds])
        else:
            explained = all([abs(residual) <= tolerance for residual in residuals])
        if explained:
            self._row = 0
            return None
        self._row += 1
        checked = np.maximum(estimate.redundancy, 1e-12)
        worst = int(np.argmax(np.abs(estimate.residual) * self._weights / np.sqrt(checked)))
        name, unit = self._channels[worst].name, self._units[worst]
        most = self._tolerance if self._tolerance is not None else float(estimate.bound[worst])
        reason = (
            f"encoders contradict each other: {estimate.residual[worst]:+.3g} {unit} here, at most {most:.3g} can be"
        )
        return Finding(name, reason, self._row >= IN_A_ROW)
