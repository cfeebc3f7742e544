"""Estimates the speed of a displacement from its positions, for nodes that do not measure it."""

import math
from typing import NamedTuple

from hil.loop.clock import SECOND


class Track(NamedTuple):
    """State of the filter for one displacement."""

    time: int  # [ns] time of the last sample
    position: float  # [joint unit] filtered position
    rate: float  # [joint unit/s] estimated speed


class RateFilter:
    """An alpha-beta observer with a double pole at `exp(-2 T / tau)`; T is the actual time between two samples.

    Source: Benedict, Bordner 1962; alpha and beta of critical damping, `alpha = 1 - p^2`, `beta = (1 - p)^2`.
    """

    def __init__(self, tau: float) -> None:
        # time constant [s], positive. The rate lags by tau - T/2
        self.tau = tau

    def gains(self, elapsed: float) -> tuple[float, float]:
        """alpha and beta after a time [s]."""
        p = self._pole(elapsed)
        return 1.0 - p * p, (1.0 - p) * (1.0 - p)

    def update(self, track: Track | None, position: float, time: int) -> Track:
        """State after a sample; the same sample again changes nothing.

        Args:
            track: State before the sample; None: it is the first.
            position: Measured position [joint unit].
            time: When it was measured [ns].
        """
        if track is None:
            return Track(time, position, 0.0)
        elapsed = (time - track.time) / SECOND
        if elapsed <= 0.0:
            return track
        alpha, beta = self.gains(elapsed)
        predicted = track.position + track.rate * elapsed
        innovation = position - predicted
        return Track(time, predicted + alpha * innovation, track.rate + beta / elapsed * innovation)

    def _pole(self, elapsed: float) -> float:
        return math.exp(-2.0 * elapsed / self.tau)
