"""Derivatives and low-pass filters for logs at a constant spacing.

Design: positions alone are differentiated, by central differences of eighth order, and filtered forwards and backwards,
so that nothing is delayed. The bandwidth comes from the log itself: it ends where the spectrum of the positions sinks
into its own noise. Regressor and torques are then filtered by the same filter and thinned to its bandwidth, so that the
rows of the fit are nearly independent and the standard deviations hold.

Source: Gautier 1997 (parallel filtering and decimation); Gautier, Khalil 1992.
"""

import numpy as np
from scipy import signal

from servoctl.types import Array

ORDER = 6  # order of the Butterworth filter; passing twice doubles it

_FIRST = np.array([1 / 280, -4 / 105, 1 / 5, -4 / 5, 0.0, 4 / 5, -1 / 5, 4 / 105, -1 / 280])
_SECOND = np.array([-1 / 560, 8 / 315, -1 / 5, 8 / 5, -205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560])
"""Central differences of eighth order of the first and of the second derivative."""

HALF = len(_FIRST) // 2

ABOVE_NOISE = 10.0  # the spectrum counts as motion where it is this many times its noise
SHARE = 0.4  # highest cut-off frequency, relative to half the sampling rate
CYCLES = 24.0  # shortest log [periods of the cut-off frequency]; the lowest cut-off frequency makes it this long


def derivatives(q: Array, h: float) -> tuple[Array, Array]:
    """First and second derivative of samples, shape (rows - 8, n): four rows are lost at each end.

    Args:
        q: Samples, shape (rows, n).
        h: Spacing [s].
    """
    first, second = (
        signal.convolve(q, weights[::-1, None], mode="valid", method="direct") for weights in (_FIRST, _SECOND)
    )
    return first / h, second / h**2


def low_pass(x: Array, cutoff: float, h: float) -> Array:
    """Samples filtered forwards and backwards along the first axis.

    Args:
        x: Shape (rows, ...).
        cutoff: Cut-off frequency [Hz].
        h: Spacing [s].
    """
    sections = signal.butter(ORDER, 2.0 * h * cutoff, output="sos")
    pad = min(len(x) - 1, round(2.0 / (cutoff * h)))
    # mirrored ends: an odd continuation would turn the noise of the last sample into an offset of all that follows
    filtered: Array = signal.sosfiltfilt(sections, x, axis=0, padtype="even", padlen=pad)
    return filtered


def bandwidth(q: Array, h: float) -> float:
    """The cut-off frequency up to which positions are motion and not noise [Hz].

    Args:
        q: Samples, shape (rows, n).
        h: Spacing [s].
    """
    rows, longest = len(q), 0.0
    ramp = np.linspace(0.0, 1.0, rows)[:, None]
    flat = q - q[0] - ramp * (q[-1] - q[0])
    window = signal.windows.nuttall(rows)[:, None]
    power = np.abs(np.fft.rfft(flat * window, axis=0)) ** 2
    frequency = np.fft.rfftfreq(rows, h)
    width = max(3, rows // 500) | 1
    for one in power.T:
        smooth = signal.convolve(one, np.ones(width) / width, mode="same")
        noise = float(np.median(one[len(one) // 2 :])) / np.log(
            2.0
        )  # the median of a chi-square of two is its mean ln 2
        over = np.flatnonzero(smooth > ABOVE_NOISE * noise)
        if noise > 0.0 and len(over):
            longest = max(longest, float(frequency[over[-1]]))
        elif len(over):
            longest = float(frequency[-1])
    lowest, highest = CYCLES / (rows * h), SHARE * 0.5 / h
    return float(np.clip(longest, min(lowest, highest), highest))
