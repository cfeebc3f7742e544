"""What stands between a law and the machine that it drives: measurement, delay, actuators.

    measured    x~ = r floor((x + sigma z) / r + 1/2)           r the resolution; x + sigma z at r = 0; z: `tick_noise`
    delayed     what tick k commands acts from t_k + delay + jitter U_k on, within the actuator's limits
    lagging     a' = (u - a) / lag, exactly, while u stands:     a(t + s) = u + (a(t) - u) exp(-s / lag)
    friction    u acts as u - coulomb tanh(s / speed) - viscous s,   s = B^T v

Design: a realistic run carries, after q, v and the law's memory, the actuators' torque (where it lags) and the commands
that are on their way, each with its delay. Numbers are parameters, so that a sweep compiles once; how many commands
can be on their way, and whether anything lags, is structure. This module is the meaning; `engine/c/realism.h` says the
same in C. The model is our own; tanh for the sign of a speed is usual.
"""

from dataclasses import dataclass

import numpy as np

from servoctl.types import Array


@dataclass(frozen=True)
class Friction:
    """Resistance at the actuators.

    Attributes:
        coulomb: Dry friction, per actuator [actuator units].
        viscous: Per speed, per actuator.
        speed: At which dry friction is tanh(1) there, per actuator.
    """

    coulomb: tuple[float, ...]
    viscous: tuple[float, ...]
    speed: tuple[float, ...]

    def resistance(self, s: Array) -> Array:
        """What the actuators lose at the speeds s = B^T v, shape (m,)."""
        lost: Array = np.array(self.coulomb) * np.tanh(s / np.array(self.speed)) + np.array(self.viscous) * s
        return lost


@dataclass(frozen=True)
class Realism:
    """Measurement, delay and actuators of a sampled run with n coordinates and m actuators.

    Attributes:
        noise: Standard deviation of what is measured: q, then v, shape (2n,).
        resolution: Of what is measured, likewise; 0: exact.
        lag: Time constant per actuator [s]; 0: none.
        lower: Smallest torque per actuator, or -inf.
        upper: Largest torque per actuator, or inf.
        delay: From measurement to torque [s].
        jitter: What chance adds to it at most [s]; not longer than the period, so that commands keep their order.
        period: Of the law [s].
        earliest: Whole periods after which a command may begin to act: it does so within the period after them.
        latest: Whole periods after which it surely acts.
        lagged: Whether any actuator lags.
        random: Whether anything is left to chance.
    """

    noise: tuple[float, ...]
    resolution: tuple[float, ...]
    lag: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    delay: float
    jitter: float
    period: float
    earliest: int
    latest: int
    lagged: bool
    random: bool

    @property
    def carried(self) -> int:
        """Numbers that a run carries after q, v and memory: torques that lag, then commands, each with its delay."""
        m = len(self.lag)
        return m * self.lagged + self.latest * (m + 1)

    @property
    def width(self) -> int:
        """Random numbers per tick: one per coordinate, one per velocity, one for the jitter; 0 where nothing is."""
        return (len(self.noise) + 1) * self.random

    def measured(self, x: Array, w: Array) -> Array:
        """What is measured of q and v, shape (2n,); w as in `tick_noise`."""
        seen = x + np.array(self.noise) * w[:-1] if self.random else x
        step = np.array(self.resolution)
        fine = step <= 0.0
        rounded: Array = step * np.floor(seen / np.where(fine, 1.0, step) + 0.5)
        return np.where(fine, seen, rounded)

    def sent(self, carried: Array, u: Array, w: Array) -> Array:
        """The commands that matter in this period, the newest first, each with its delay, shape (latest + 1, m + 1).

        Args:
            carried: As `carried` counts, shape (carried,).
            u: What is commanded now, shape (m,).
            w: Random numbers of this tick.
        """
        m = len(self.lag)
        late = self.delay + (self.jitter * w[-1] if self.random else 0.0)
        newest = np.append(np.clip(u, self.lower, self.upper), late)
        return np.vstack([newest, carried[m * self.lagged :].reshape(self.latest, m + 1)])

    def stretches(self, sent: Array, h: float) -> list[tuple[float, float, Array]]:
        """The stretches of a period of length h in which one command stands: begin, end [s], command (m,)."""
        ages = range(self.latest, self.earliest - 1, -1)
        begins = [0.0] + [min(max(float(sent[age, -1]) - age * self.period, 0.0), h) for age in ages[1:]]
        return [(begin, end, sent[age, :-1]) for age, begin, end in zip(ages, begins, [*begins[1:], h], strict=True)]

    def lagging(self, torque: Array, u: Array, elapsed: float) -> Array:
        """The torque some time [s] after it was `torque`, the command u standing."""
        lag = np.array(self.lag)
        decay = np.where(lag > 0.0, np.exp(-elapsed / np.where(lag > 0.0, lag, 1.0)), 0.0)
        later: Array = u + (torque - u) * decay
        return later
