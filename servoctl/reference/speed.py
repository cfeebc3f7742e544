"""How fast a reference is: its largest rate, the limits that it exceeds, its velocity at the ends."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from servoctl.reference.curve import Signal

SAMPLES = 16  # times in each piece of a curve at which its rate is taken
STILL = 1e-3  # rates below this share of the largest one count as rest


class PeakRate(NamedTuple):
    """The largest rate of a signal."""

    rate: float  # [unit/s] its magnitude
    t: float  # [s] when


def peak_rate(signal: Signal) -> PeakRate:
    """The largest rate between the first and the last knot, from samples of each piece."""
    knots = signal.curve.knots
    times = np.append((knots[:-1, None] + np.diff(knots)[:, None] * np.arange(SAMPLES) / SAMPLES).ravel(), knots[-1])
    rates = np.abs(signal.rate(times))
    fastest = int(np.argmax(rates))
    return PeakRate(float(rates[fastest]), float(times[fastest]))


def too_fast(signals: Mapping[str, Signal], limits: Mapping[str, float]) -> list[str]:
    """Sentences about signals that are faster than their limits.

    Args:
        signals: Name of a joint -> the signal that it follows.
        limits: Name of a joint -> its speed limit [unit/s]; joints without one are skipped.
    """
    sentences = []
    for joint, signal in signals.items():
        peak = peak_rate(signal)
        if joint in limits and peak.rate > limits[joint]:
            asked = f"reference '{signal.reference}' asks for {peak.rate:.4g} of {joint} at t = {peak.t:.4g} s"
            sentences.append(f"{asked}, its speed limit is {limits[joint]:.4g} (slow the reference down)")
    return sentences


def jumps(signal: Signal, start: float) -> list[str]:
    """Sentences about a velocity that begins or ends at once because the signal holds its end values.

    Args:
        signal: The signal.
        start: Time at which the run starts [s].
    """
    curve, still = signal.curve, STILL * peak_rate(signal).rate
    if curve.extrapolate != "hold":
        return []
    sentences = []
    for t, what in ((curve.start, "starts"), (curve.end, "ends")):
        rate = float(signal.rate(t))
        if abs(rate) > still and t > start:
            then = "it holds its value before" if what == "starts" else "it holds its value from then on"
            sentences.append(f"{signal.name} {what} at t = {t:.6g} s with the rate {rate:.4g}, but {then}")
    return sentences
