"""Whether a sample is plausible: detects jumps, wraps, stuck encoders and non-finite values.

Design: pure functions of the axis's memory and the new sample. One implausible sample is rejected, and the last good
one is used; two in a row stop the machine. A flipped sign or a drifting zero moves no faster than the machine can.
Only redundant measurements show these (`Redundancy`).
"""

import math
from typing import NamedTuple

import numpy as np

from hil.drives.base import Sample
from hil.loop.clock import SECOND
from hil.loop.tick import Implausibility
from hil.sensing.channels import Channel, Displacements
from hil.sensing.coordinates import CoordinateEstimate

MARGIN = 1.5  # largest plausible speed between two samples, in terms of the speed limit
STEPS = 3  # further plausible motion between two samples, in resolutions

STUCK_TRAVEL = 10.0
"""An encoder that stands still is stuck if the model, less friction, moves by so many smallest visible motions."""

STUCK_TIME = 0.02  # [s] shortest standstill of a stuck encoder

STUCK_WINDOW = 0.1
"""Longest time in which the travel is counted [s]: the model may creep while static friction holds the real joint."""

FLOOR = 1e-3  # residual that is always allowed, in errors of a sample at standstill: rounding
IN_A_ROW = 2  # consecutive implausible samples that stop the machine


class AxisMemory(NamedTuple):
    """State of an axis between two samples."""

    accepted: Sample | None = None  # last accepted sample; None before the first
    seen: int = -1  # [ns] time of the last sample, accepted or not
    rejected: int = 0  # number of consecutive rejected samples
    travel: float = 0.0  # [joint unit] motion that the model predicts since the encoder last moved
    moved: int = 0  # [ns] when the encoder last moved


def judge(
    channel: Channel, unit: str, memory: AxisMemory, sample: Sample | None, rate: float, expected: float
) -> tuple[AxisMemory, Implausibility | None]:
    """Accepts a sample, or rejects it.

    Args:
        unit: Unit of its displacement.
        memory: Its state before the sample.
        sample: Newest sample; the same as last time if none has come.
        rate: Speed of the joint at the previous sample [joint unit/s], measured or estimated.
        expected: Speed of the joint now by the model [joint unit/s]; NaN: a stuck encoder is not detected.

    Returns:
        The new state, and what is wrong (None: nothing).
    """
    if sample is None or sample.time == memory.seen:
        return memory, None
    last = memory.accepted
    reason = _implausible(channel, unit, last, sample, rate, expected)
    if reason:
        memory = memory._replace(seen=sample.time, rejected=memory.rejected + 1)
        return memory, Implausibility(channel.name, reason, memory.rejected >= IN_A_ROW)
    if last is None or sample.position != last.position or not math.isfinite(expected):
        return AxisMemory(sample, sample.time, 0, 0.0, sample.time), None
    elapsed = (sample.time - last.time) / SECOND
    travel = memory.travel + _against(expected, channel.held * elapsed) * elapsed
    still = (sample.time - memory.moved) / SECOND
    if abs(travel) > STUCK_TRAVEL * (channel.visible or channel.resolution) and still >= STUCK_TIME:
        reason = (
            f"encoder stands still at {sample.position:.6g} {unit} for {still:.3g} s while the model moves by "
            f"{travel:.3g} {unit} (the encoder is stuck, or the joint is blocked)"
        )
        return AxisMemory(sample, sample.time, 0, travel, memory.moved), Implausibility(channel.name, reason, True)
    if still >= STUCK_WINDOW:
        return AxisMemory(sample, sample.time, 0, 0.0, sample.time), None
    return AxisMemory(sample, sample.time, 0, travel, memory.moved), None


def _against(speed: float, friction: float) -> float:
    """Speed that is certain in spite of friction: a joint that friction may hold is not stuck."""
    return math.copysign(max(0.0, abs(speed) - friction), speed)


def _possible(channel: Channel, interval: float, speeds: tuple[float, ...]) -> float:
    """Largest plausible motion in a time [s], by the speed limit or, without one, by the fastest of these speeds."""
    possible = STEPS * channel.resolution
    if math.isfinite(channel.speed_limit):
        return possible + MARGIN * channel.speed_limit * interval
    fastest = max((abs(speed) for speed in speeds if math.isfinite(speed)), default=0.0)
    return possible + MARGIN * fastest * interval + channel.leap


def _implausible(channel: Channel, unit: str, last: Sample | None, sample: Sample, rate: float, model: float) -> str:
    """Why a sample is not plausible; empty if it is."""
    position, velocity, time = sample.position, sample.velocity, sample.time
    if not -math.inf < position < math.inf:
        return f"position is not a finite number ({position})"
    if velocity in (math.inf, -math.inf):
        return f"velocity is not a finite number ({velocity})"
    if last is None:
        return ""
    elapsed = (time - last.time) / SECOND
    ordinary = elapsed if elapsed < channel.interval else channel.interval
    # after the ordinary interval the joint continues at its speed: a gap does not allow a larger jump
    expected = last.position + rate * (elapsed - ordinary)
    step = position - expected
    allowed = _possible(channel, ordinary, (rate, velocity, model))
    if abs(step) <= allowed:
        return ""
    jump = f"{step:+.4g} {unit} in {elapsed * 1e3:.3g} ms, at most {allowed:.3g} {unit} are possible"
    turns = round(step / channel.turn) if math.isfinite(channel.turn) and math.isfinite(step / channel.turn) else 0
    if turns and abs(step - turns * channel.turn) <= allowed:
        return f"encoder wrapped by {turns:+d} turn: {jump}"
    return f"encoder jumped: {jump}"


class Redundancy:
    """Checks displacements that are measured more than once.

    While every sample is within its error, the residual stays below its bound for every motion of the machine. A
    larger residual means that a sample, a zero, a sign or the model is wrong.

    Args:
        displacements: What the channels measure.
        tolerance: Largest residual [joint unit]; None: the bound of the estimate.
    """

    def __init__(self, displacements: Displacements, tolerance: float | None = None) -> None:
        self._channels, self._units, self._tolerance = displacements.channels, displacements.units, tolerance
        self._weights, self._floor = displacements.weights, (FLOOR * displacements.errors).tolist()
        self._row = 0

    @property
    def agrees(self) -> bool:
        """Whether the residual was within its bound at the last tick."""
        return self._row == 0

    def judge(self, estimate: CoordinateEstimate) -> Implausibility | None:
        """Checks the residual of one tick; two ticks in a row stop the machine.

        The finding names the channel whose error alone explains the residual best: it has the largest residual
        relative to the square root of its redundancy.
        """
        residuals, tolerance = estimate.residual.tolist(), self._tolerance
        if tolerance is None:
            bounds = zip(residuals, estimate.bound.tolist(), self._floor, strict=True)
            within = all([abs(residual) <= bound + floor for residual, bound, floor in bounds])
        else:
            within = all([abs(residual) <= tolerance for residual in residuals])
        if within:
            self._row = 0
            return None
        self._row += 1
        checked = np.maximum(estimate.redundancy, 1e-12)
        worst = int(np.argmax(np.abs(estimate.residual) * self._weights / np.sqrt(checked)))
        name, unit = self._channels[worst].name, self._units[worst]
        most = float(estimate.bound[worst]) if tolerance is None else tolerance
        reason = (
            f"encoders contradict each other: residual {estimate.residual[worst]:+.3g} {unit}, at most {most:.3g} "
            "is possible"
        )
        return Implausibility(name, reason, self._row >= IN_A_ROW)
