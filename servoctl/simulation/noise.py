"""The random numbers of a run: any tick's at once, the same whatever computes them.

Design: Philox, a counter-based generator, is keyed by the seed and counted by the tick, and raw words become normals
by Box-Muller here, so neither the engine, nor the number of workers, nor NumPy's own choice of method changes them.

Source: Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011); Box, Muller (1958).
"""

import numpy as np

from servoctl.types import Array

_WORDS = 4
"""Numbers that one count of Philox 4x64 gives."""


def tick_noise(seed: int, first: int, count: int, coordinates: int) -> Array:
    """Random numbers of some ticks, shape (count, 2 coordinates + 1).

    Args:
        seed: Of the run, an integer >= 0, taken modulo 2^128.
        first: Tick that they start with.
        count: Number of ticks.
        coordinates: How many the plant has.

    Returns:
        Per tick: a standard normal for each coordinate, one for each velocity, and one uniform on (0, 1).
    """
    blocks = -(-(2 * coordinates + 1) // _WORDS)
    source = np.random.Philox(key=seed % 2**128)
    source.advance(first * blocks)
    raw = source.random_raw(count * blocks * _WORDS).reshape(count, blocks * _WORDS)
    uniform = ((raw[:, : 2 * coordinates + 1] >> np.uint64(11)) + 0.5) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(uniform[:, :coordinates]))
    angle = 2.0 * np.pi * uniform[:, coordinates:-1]
    return np.hstack([radius * np.cos(angle), radius * np.sin(angle), uniform[:, -1:]])
