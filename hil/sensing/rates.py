"""Speeds of displacements, and samples of different age brought to one instant."""

import math
from typing import NamedTuple

import numpy as np

from hil.loop.clock import SECOND


class Track(NamedTuple):
    """What a filter knows of one displacement.

    Attributes:
        time: Of the last sample [ns].
        position: [joint unit].
        rate: [joint unit/s].
    """

    time: int
    position: float
    rate: float


class RateFilter:
    """An alpha-beta observer with a double pole at `exp(-2 T / tau)`, T the time that really went by.

    Attributes:
        tau: Time constant [s]: by this, less half a T, the rate lags behind.

    Source: Benedict, Bordner 1962; alpha and beta of critical damping, `alpha = 1 - p^2`, `beta = (1 - p)^2`.
    """

    def __init__(self, tau: float) -> None:
        """Takes the time constant [s], positive."""
        self.tau = tau

    def gains(self, elapsed: float) -> tuple[float, float]:
        """alpha and beta after a time [s]."""
        p = self._pole(elapsed)
        return 1.0 - p * p, (1.0 - p) * (1.0 - p)

    def update(self, track: Track | None, position: float, time: int) -> Track:
        """Takes a sample in; the same sample again changes nothing.

        Args:
            track: So far; None before the first sample.
            position: [joint unit].
            time: When it was measured [ns].
        """
        if track is None:
            return Track(time, position, 0.0)
        elapsed = (time - track.time) / SECOND
        if elapsed <= 0.0:
            return track
        alpha, beta = self.gains(elapsed)
        expected = track.position + track.rate * elapsed
        surprise = position - expected
        return Track(time, expected + alpha * surprise, track.rate + beta / elapsed * surprise)

    def rate_bound(self, resolution: float, interval: float) -> float:
        """Largest error of the rate that position errors up to `resolution` can cause [joint unit/s].

        The sum of the absolute impulse response of `beta / T z (z - 1) / (z - p)^2`.
        """
        _, beta = self.gains(interval)
        p = self._pole(interval)
        # impulse response k -> p^k (1 - k (1 - p) / p): one change of sign, at k = p / (1 - p)
        k = np.arange(int(40.0 * self.tau / interval) + 60)
        response = p**k * (1.0 - k * (1.0 - p) / p)
        return beta / interval * float(np.abs(response).sum()) * resolution

    def lag(self, interval: float) -> float:
        """How far the rate lags behind under constant acceleration [s], exact."""
        alpha, beta = self.gains(interval)
        return interval * (2.0 * alpha - beta) / (2.0 * beta)

    def _pole(self, elapsed: float) -> float:
        return math.exp(-2.0 * elapsed / self.tau)
