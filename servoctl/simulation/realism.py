"""The machine that is not ideal: measurement, delay and actuators, for simulated runs and for emulated drives.

    measured    x~ = r floor((x + sigma z) / r + 1/2)           r the resolution; x + sigma z at r = 0; z: `tick_noise`
    delayed     the command of tick k acts from t_k + delay + jitter U_k on, within the actuator's limits
    lagging     a' = (u - a) / lag, exactly, while u is held:    a(t + s) = u + (a(t) - u) exp(-s / lag)
    friction    u acts as u - coulomb tanh(s / speed) - viscous s,   s = B^T v

Design: the functions below are the model of one channel. A simulated run (`Realism`, `realistic`) applies them to all
channels at each tick; an emulated drive applies them to its own at the times at which frames arrive and leave. The
numbers are parameters, so that a sweep compiles once; how many commands are on their way, and whether anything lags, is
structure. `engine/c/realism.h` does the same in C. The model is our own; tanh for the sign of a speed is usual.

Design: Philox is a counter-based generator. The seed is its key and the tick its counter, and Box-Muller turns raw
words into normals here. So the numbers depend neither on the engine, nor on the number of workers, nor on NumPy's
method for normals.

Source: Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011); Box, Muller (1958).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.mechanics.timing import Timing
from servoctl.types import Array


def quantised(x: Any, step: Any, floor: Callable[[Any], Any] = np.floor) -> Any:
    """The nearest multiple of a step; halves are rounded up.

    Args:
        x: Value.
        step: Resolution, above 0.
        floor: For such values; `math.floor` is faster on plain numbers.
    """
    return step * floor(x / step + 0.5)


def remaining(elapsed: Any, lag: Any, exp: Callable[[Any], Any] = np.exp) -> Any:
    """Share of a step in the command that a first-order actuator has not followed yet; 0 without a lag.

    Args:
        elapsed: Time since the step [s].
        lag: Time constant [s]; 0: none.
        exp: For such values; on symbols `casadi.exp`.
    """
    # lag + (lag == 0) keeps the division finite without a lag
    return (lag > 0) * exp(-elapsed / (lag + (lag == 0)))


@dataclass(frozen=True)
class Realism:
    """Measurement and timing of a sampled run with n coordinates and m actuators."""

    noise: tuple[float, ...]  # standard deviation of the measurements: of q, then of v, shape (2n,)
    resolution: tuple[float, ...]  # resolution of the measurements, in the same order; 0: exact
    timing: Timing  # of the loop
    random: bool  # whether anything is random

    @property
    def parameters(self) -> Array:
        """All numbers, in the order of the enum in `engine/c/realism.h`."""
        of = self.timing
        return np.array([*self.noise, *self.resolution, *of.lag, *of.lower, *of.upper, of.delay, of.jitter, of.h])

    @property
    def carried(self) -> int:
        """Size of the state that a run has besides q, v and memory: lagging torques, then commands on their way."""
        m = len(self.timing.actuators)
        return m * self.timing.lagging + self.timing.latest * (m + 1)

    @property
    def width(self) -> int:
        """Random numbers per tick: one per coordinate, one per velocity, one for the jitter; 0 if nothing is random."""
        return (len(self.noise) + 1) * self.random

    def measured(self, x: Array, w: Array) -> Array:
        """Measurement of q and v, shape (2n,), or (rows, 2n); w is a row of `tick_noise`, or as many."""
        noisy = x + np.array(self.noise) * w[..., :-1] if self.random else x
        step = np.array(self.resolution)
        exact = step <= 0.0
        return np.where(exact, noisy, quantised(noisy, np.where(exact, 1.0, step)))

    def sent(self, carried: Array, u: Array, w: Array) -> Array:
        """Commands that act in this period, the newest first, each followed by its delay, shape (latest + 1, m + 1).

        Args:
            carried: Lagging torques and earlier commands, shape (carried,).
            u: Command of this tick, shape (m,).
            w: Random numbers of this tick.
        """
        timing, m = self.timing, len(self.timing.actuators)
        late = timing.delay + (timing.jitter * w[-1] if self.random else 0.0)
        newest = np.append(timing.limited(u), late)
        return np.vstack([newest, carried[m * timing.lagging :].reshape(timing.latest, m + 1)])

    def stretches(self, sent: Array, h: float) -> list[tuple[float, float, Array]]:
        """Parts of a period of length h with one command each: begin, end [s], command (m,)."""
        ages = range(self.timing.latest, self.timing.earliest - 1, -1)
        begins = [0.0] + [min(max(float(sent[age, -1]) - age * self.timing.h, 0.0), h) for age in ages[1:]]
        return [(begin, end, sent[age, :-1]) for age, begin, end in zip(ages, begins, [*begins[1:], h], strict=True)]

    def lagging(self, torque: Array, u: Array, elapsed: float) -> Array:
        """Torque after a time [s] under the command u, from `torque`."""
        later: Array = u + (torque - u) * remaining(elapsed, np.array(self.timing.lag))
        return later

    def mean(self, torque: Array, u: Array, elapsed: float) -> Array:
        """Mean torque over a time [s] under the command u, from `torque`."""
        lag = np.array(self.timing.lag)
        mean: Array = u + (torque - u) * lag / elapsed * (1.0 - remaining(elapsed, lag))
        return mean


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
