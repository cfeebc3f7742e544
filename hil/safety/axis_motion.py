"""Whether an axis is driven by its own motor the wrong way, or too strongly, as soon as its brake opens.

No load makes a machine fall faster than without torque, so an axis that does is driven by its own motor. Torque that is
missing, or too large, shows there too. This is judged over a few ticks: the finer the speeds, the fewer are needed.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hil.safety.events import EventKind
from hil.sensing.gravity import Hold
from servoctl.types import Array

REVERSED, NOTHING, EXCESS = -0.15, 0.3, 1.6
"""While an axis moves, a response below the first is that of the wrong polarity, between the first two that of a motor
without torque, and above the last one that of a torque that is too large."""

WINDOWS = (2, 4)  # numbers of ticks over which an axis is judged at every tick
LONGER = (8, 16, 32, 64)  # the same in turn, one at each tick: a tick has little time
OPPOSITE = 2.0  # largest response of a drive with the wrong polarity: what is more has another cause
CERTAIN = 5.0  # a fall counts if it differs by so many times its noise
LINEAR = ("m",)  # units of displacements that do not change the pose of the others
ALONE = 0.8  # share of the squares of what is not explained that one drive must explain
ALIKE = 1.5  # how much more it must explain than any other where motors act together


class Driven(NamedTuple):
    """A drive whose torque does not act as it was sent."""

    drive: int
    kind: EventKind
    response: float  # torque that acts, as a share of that sent


class AxisMotion:
    """What was measured and sent since the drives began to be enabled; arrays have shape (m,).

    Args:
        hold: Torques and inertia at the pose at which they are enabled.
        positions: Displacements there.
        speed_step: Smallest steps of the speeds [joint unit/s].
        units: Units of the displacements.
        loaded: Whether each axis carries so much that a torque that is missing shows.
        period: Period of the loop [s].
    """

    def __init__(
        self,
        hold: Hold,
        positions: Sequence[float],
        speed_step: Array,
        units: Sequence[str],
        loaded: Array,
        period: float,
    ) -> None:
        self.W, self.P = hold.inertia, np.linalg.pinv(hold.inertia, rcond=1e-8, hermitian=True)
        self.projector = self.W @ self.P  # onto the torques that move the machine
        self.together = len(positions) - np.trace(self.projector) > 0.5  # whether motors are redundant
        self.noise = np.sqrt(self.W**2 @ speed_step**2 / 6.0)  # of a difference of two rounded speeds
        self.elapsed, self.y, self.v = [0.0], [np.array(positions)], [np.zeros(len(positions))]
        self.held, self.sent = [hold.u], [np.zeros(len(positions))]  # nothing is sent in the first tick
        self._speed_step, self._loaded, self._period = speed_step, loaded, period
        self._turns = np.array([0.0 if unit in LINEAR else 1.0 for unit in units])

    def add(self, elapsed: float, positions: Sequence[float], speeds: Sequence[float], gravity: Array) -> bool:
        """Adds the samples of a tick, and the torques that hold its pose; returns whether they are numbers."""
        self.elapsed.append(elapsed)
        self.y.append(np.array(positions))
        self.v.append(np.array(speeds))
        self.held.append(gravity)
        finite = bool(np.isfinite(self.y[-1]).all() and np.isfinite(self.v[-1]).all())
        if not finite:
            self.v[-1] = self.v[-2]
        return finite

    def add_sent(self, torques: Array) -> None:
        """Adds what a tick has sent, once."""
        if len(self.sent) < len(self.v):
            self.sent.append(torques)

    @property
    def travel(self) -> Array:
        """Motion since the beginning [joint unit]."""
        travel: Array = self.y[-1] - self.y[0]
        return travel

    def driven(self) -> Driven | None:
        """A motor that drives its axis the wrong way or too strongly, or makes no torque, while the axis moves."""
        for ticks in (*WINDOWS, LONGER[len(self.v) % len(LONGER)]):
            if len(self.v) <= ticks + 1:
                return None
            share, doubt, driven = self._shares(ticks)
            if not driven.any():
                continue
            lowest, highest = np.where(driven, share + doubt, 1.0), np.where(driven, share - doubt, 1.0)
            least, most = int(np.argmin(lowest)), int(np.argmax(highest))
            if share[least] > -OPPOSITE and lowest[least] < REVERSED:
                return Driven(least, EventKind.REVERSED, float(share[least]))
            if highest[most] > EXCESS:
                return Driven(most, EventKind.RESPONSE, float(share[most]))
            if ticks > WINDOWS[0] and self._loaded[least] and lowest[least] < NOTHING:
                return Driven(least, EventKind.TORQUELESS, float(share[least]))
        return None

    def _shares(self, ticks: int) -> tuple[Array, Array, Array]:
        """Torque that acts as a share of that sent in the last ticks, its doubt, and which axes the rest drives."""
        few = max(1, ticks // 4)  # means of several samples at both ends: coarse speeds are noisy
        v, torques = np.array(self.v[-ticks - 1 :]), np.array(self.sent[-ticks - 1 :])
        dt = np.array(self.elapsed[-ticks:])[:, None]
        impulse = np.vstack([0.0 * v[:1], np.cumsum(dt * (torques[1:] + torques[:-1]) / 2, axis=0)])
        sent = impulse[-few:].mean(axis=0) - impulse[:few].mean(axis=0)
        change = v[-few:].mean(axis=0) - v[:few].mean(axis=0)
        time = dt.sum() * (1.0 - (few - 1) / ticks)
        acting = self.W @ change + time * np.mean(self.held[-ticks:], axis=0)
        steps = self._speed_step
        one_way = (v * np.sign(v[-1]) >= -steps).all(axis=0)  # friction that has changed its sign drives nothing
        unexplained, own = acting - self.projector @ sent, np.diag(self.projector)
        moves = np.abs(v[-1]) > 3.0 * steps
        driven = (unexplained * v[-1] > 0.0) & one_way & moves & (sent != 0.0)
        # W is that of the first pose; a turn changes it by about its angle
        turned = np.abs(self.travel) @ self._turns
        wrong = turned * (np.abs(self.W) @ np.abs(change))
        doubt = CERTAIN * self.noise / few**0.5 + self._period * np.ptp(torques, axis=0) + 2.0 * wrong
        # one drive alone is blamed: an error of the model shows on several axes, and a closed brake on its own
        explained = ratio(unexplained**2, own)
        driven &= explained > ALONE * (unexplained**2)[moves].sum()
        if self.together:
            driven &= explained > ALIKE * np.sort(explained)[-2]
        size = own * np.abs(sent)
        return 1.0 + ratio(unexplained * np.sign(sent), size), ratio(doubt, size), driven


def ratio(a: Array, b: Array) -> Array:
    """a / b; 0 where b is 0."""
    quotient: Array = np.divide(a, b, out=np.zeros_like(a), where=b > 0.0)
    return quotient
