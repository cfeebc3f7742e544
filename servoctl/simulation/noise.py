"""The random numbers of a run, for any tick directly.

Design: Philox is a counter-based generator. The seed is its key and the tick its counter, and Box-Muller turns raw
words into normals here. So the numbers depend neither on the engine, nor on the number of workers, nor on NumPy's
method for normals.

Source: Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011); Box, Muller (1958).
"""

import numpy as np

from servoctl.types import Array

_WORDS = 4  # numbers per count of Philox 4x64


def tick_noise(seed: int, first: int, count: int, coordinates: int) -> Array:
    """Random numbers of some ticks.

    Args:
        seed: Seed of the run, an integer >= 0; taken modulo 2^128.
        first: First tick.
        count: Number of ticks.
        coordinates: Number of the plant's coordinates.

    Returns:
        Per tick a standard normal for each coordinate, one for each velocity, and one uniform number in (0, 1), shape
        (count, 2 coordinates + 1).
    """
    blocks = -(-(2 * coordinates + 1) // _WORDS)
    source = np.random.Philox(key=seed % 2**128)
    source.advance(first * blocks)
    raw = source.random_raw(count * blocks * _WORDS).reshape(count, blocks * _WORDS)
    uniform = ((raw[:, : 2 * coordinates + 1] >> np.uint64(11)) + 0.5) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(uniform[:, :coordinates]))
    angle = 2.0 * np.pi * uniform[:, coordinates:-1]
    return np.hstack([radius * np.cos(angle), radius * np.sin(angle), uniform[:, -1:]])
