"""Holds a machine at a pose, brings it to rest, or lets a hand guide it: one law with three settings.

    stand:  u = u_g(q) + W (3 w^2 e - 3 w y' + w^3 int e dt)         e = y_held - y
    stop:   u = u_e(q, v) + W (3 w^2 (y_r - y) + 3 w (y_r' - y') - s y_r')       y_r'' = -s y_r'
    guide:  u = u_g(q) + u_b(q) + W (w_a^2 (y_a - y) + walls - s y')

y are the displacements of the motors, u_g(q) the torques that hold the pose by the model, and W = (B^T Phi B)^+ the
inertia that the motors see at this pose. All three poles of `stand` are at -w. u_e are the torques that cancel gravity
and the Coriolis forces, so every y' decays at the rate s: in a stop no joint speeds up while another slows down.
Friction is not cancelled: where the real one is smaller, that would drive the machine. y_r begins at the measured
state, and again after each tick in which a limit binds.

Design: by the model alone a pose is not held: the smallest error of a torque, such as its steps on the wire, makes the
machine drift; so a stop follows a path to rest and holds its end. While a hand guides, the spring slips (y_a follows y)
as soon as it would need more than `grip` in any drive. So it holds against torque steps and gives way to a hand. u_b is
what the stand needed beyond the model. It follows the gravity torque of each joint, as a wrong mass does, and never
exceeds its first value. The feedback is ours; the spring is the elasto-plastic friction model of Dahl (1968) with one
state per drive.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hil.drives.settings import DriveSettings
from hil.loop import Reading
from hil.sensing.gravity import Hold
from servoctl.types import Array

FASTEST_POLE = 20.0  # [1/s] fastest pole of the feedback, and fastest decay of a stop
POLE_SHARE = 0.06  # largest pole times the period: samples, torque and a period of delay then cost little phase
LARGEST_BIAS = 0.25  # [share of torque_limit] largest torque that the integral adds
WALL = 0.02  # [share of the range] width of the wall before each position limit, while a hand guides
BLIND_TIME = 0.01  # [s] time in which a motor is braked blindly, unless its limits make that longer
BLIND_SHARE = 0.9  # part of the torque limit for that: the torque in the frame has steps
ANCHOR = 2.0  # frequency w_a of the slipping spring, in damping rates s


KEPT = "anchor", "integral", "path", "path_speed", "followed"  # arrays in which a pose, or a stop, is remembered


@dataclass(frozen=True)
class Guiding:
    """How a machine feels in the hand."""

    damping: float  # [1/s] rate s at which its motion decays when it is let go
    limits: Sequence[float]  # [actuator unit] largest torque of each drive, below its torque_limit
    grip: Sequence[float]  # [actuator unit] torque of each drive at which the spring slips

    @property
    def stiffness(self) -> float:
        """Of the spring, over the inertia [1/s^2]."""
        return (ANCHOR * self.damping) ** 2


class PoseHold:
    """Torques that hold a pose or guide a machine.

    Args:
        hold: (q, v) -> torques that cancel the forces by the model, and W.
        stop_rate: Rate s at which speeds decay in a stop [1/s].
        guiding: How the machine feels in the hand; None: `guide` is not used.
    """

    def __init__(
        self,
        hold: Callable[[Array, Array], Hold],
        drives: Sequence[DriveSettings],
        period: float,
        stop_rate: float = FASTEST_POLE,
        guiding: Guiding | None = None,
    ) -> None:
        self._hold, self._period, self.guiding = hold, period, guiding
        self.stop_rate = stop_rate  # [1/s] rate s at which speeds decay in a stop
        self.pole = min(FASTEST_POLE, POLE_SHARE / period)
        self.largest = LARGEST_BIAS * np.array([drive.torque_limit for drive in drives])
        lower, upper = np.array([drive.position_limits for drive in drives]).T
        width = WALL * (upper - lower)
        self.lower, self.upper = lower + width, upper - width  # [joint unit] the walls
        self.weighs = 0.04 * self.largest  # [actuator unit] smallest gravity torque that `bias` follows
        # these arrays change in place
        self.anchor = np.full(len(drives), np.nan)  # [joint unit] positions that are held
        self._asked, self._answer = np.zeros(0), Hold(*[np.zeros(0)] * 3)
        # last pose at which every measurement was sound, shape (n,); None before the first
        self.sound: Array | None = None
        # path of a stop and its speeds [joint unit, joint unit/s], and which motors have followed it
        self.path, self.path_speed = np.zeros(len(drives)), np.zeros(len(drives))
        self.followed = np.zeros(len(drives), dtype=np.int64)
        self.integral = np.zeros(len(drives))  # of the error of the pose [joint unit s]
        # bias: what the stand needs beyond the model, at_release: its gravity torques [actuator units]
        self.bias = self.at_release = np.zeros(len(drives))
        self._limits = np.array([drive.torque_limit for drive in drives])
        # number of a motor whose measurement is not trusted any more -> its rate by the model, from its last trusted
        # one [joint unit/s]: `stop` brings it to rest blindly
        self.blind: dict[int, float] = {}

    def begin(self, positions: Sequence[float]) -> None:
        """Holds these positions of the joints from now on [joint unit]."""
        self.anchor[:] = positions
        self.integral[:] = 0.0

    @property
    def begun(self) -> bool:
        """Whether a pose is held."""
        return bool(np.isfinite(self.anchor).all())

    def gravity(self, q: Array) -> Hold:
        """Torques that hold a pose by the model, and W there; computed once where the same array comes again."""
        if q is not self._asked:
            self._asked, self._answer = q, self._hold(q, np.zeros(len(q)))
        return self._answer

    def see(self, reading: Reading, sound: Sequence[bool]) -> None:
        """Remembers the pose of a tick, if every measurement is sound."""
        if reading.valid and all(sound):
            self.sound = reading.q.copy()

    def stop(
        self,
        reading: Reading,
        sound: Sequence[bool],
        driven: Sequence[bool],
        sent: Sequence[float],
        elapsed: float,
        limited: bool,
    ) -> tuple[list[float], list[float]]:
        """Torques that hold the machine, and torques that bring it to rest.

        A drive without a sound measurement gets the torque that holds the last sound pose. The others brake with the
        inertia that they see while it moves freely.

        Args:
            sound: Whether the measurement of each drive, then of each encoder, may be used.
            driven: Whether each drive makes the torque that it is sent.
            sent: Torques of the last tick.
            elapsed: Time since the last tick [s].
            limited: Whether a limit has changed the torques of the last tick.
        """
        m, s, w = len(self.largest), self.stop_rate, self.pole
        y, rates = np.array(reading.positions), np.array(reading.speeds)
        usable = np.array(sound[:m]) & np.array(driven) & np.isfinite(y) & np.isfinite(rates)
        here = self._balance(reading, all(sound))
        if here is None:
            return [0.0] * m, [0.0] * m
        inertia = here.inertia
        if not usable.all():
            sees = np.linalg.pinv(inertia)[np.ix_(usable, usable)]
            inertia = np.zeros((m, m))
            inertia[np.ix_(usable, usable)] = np.linalg.pinv(sees)
        left = self.decay(elapsed)
        path, speeds = self.path + self.path_speed * (1 - left) / s, self.path_speed * left
        begins = limited | (self.followed == 0)
        self.path[:], self.path_speed[:] = np.where(begins, y, path), np.where(begins, rates, speeds)
        self.followed[:] = usable
        wanted = 3 * w**2 * (self.path - y) + 3 * w * (self.path_speed - rates) - s * self.path_speed
        held: list[float] = here.u.tolist()
        torques: list[float] = (here.u + _product(inertia.tolist(), np.where(usable, wanted, 0.0))).tolist()
        for number in self.blind:
            if driven[number]:
                w_here = float(here.inertia[number, number])
                torques[number] = self._blindly(number, held[number], w_here, sent[number], elapsed)
        return held, torques

    def decay(self, elapsed: float) -> float:
        """Part of a speed that a stop leaves after a time [s]."""
        return float(np.exp(-self.stop_rate * elapsed))

    def _blindly(self, number: int, held: float, inertia: float, sent: float, elapsed: float) -> float:
        """Torque that brings a motor to rest from its last trusted rate, by the model alone."""
        if not inertia > 0.0:
            return held
        self.blind[number] += elapsed * (sent - held) / inertia
        limit = BLIND_SHARE * self._limits[number]
        return float(min(limit, max(-limit, held - inertia * self.blind[number] / BLIND_TIME)))

    def _balance(self, reading: Reading, sound: bool) -> Hold | None:
        """What cancels gravity and Coriolis forces; at the last sound pose gravity alone; None if there is no such."""
        if reading.valid and sound:
            ahead, back = self._hold(reading.q, reading.v), self._hold(reading.q, -reading.v)
            here = ahead._replace(u=(ahead.u + back.u) / 2)  # the part that is even in v: friction is odd
            if np.isfinite(here.u).all() and np.isfinite(here.inertia).all():
                return here
        return None if self.sound is None else self.gravity(self.sound)

    def stand(self, reading: Reading, learn: bool = False, motion: tuple[Array, Array] | None = None) -> list[float]:
        """Torques that hold the pose.

        Args:
            learn: Whether the integral runs: not while brakes are still closed.
            motion: Displacements from the pose, and speeds, that other torques cause on purpose; None: none.
        """
        gravity = self.gravity(reading.q)
        if not (self.begun and reading.valid):
            torques: list[float] = gravity.u.tolist()
            return torques
        aim, speed = self.aim(motion)
        w, W, error = self.pole, gravity.inertia.tolist(), aim - reading.positions
        if learn:
            integral = self.integral + self._period * error
            if (np.abs(_product(W, w**3 * integral)) <= self.largest).all():
                self.integral[:] = integral
        self.bias, self.at_release = _product(W, w**3 * self.integral), gravity.u
        rates = np.array(reading.speeds) - speed
        torques = (gravity.u + self.bias + _product(W, 3 * w**2 * error - 3 * w * rates)).tolist()
        return torques

    def aim(self, motion: tuple[Array, Array] | None) -> tuple[Array, Array]:
        """Displacements that are held, and their speeds, with a motion that other torques cause; both of shape (m,)."""
        away, speed = (0.0, np.zeros(len(self.anchor))) if motion is None else motion
        return self.anchor + away, speed

    def guide(self, reading: Reading) -> list[float]:
        """Torques while a hand guides the machine; the drives' own limits come on top."""
        assert self.guiding is not None
        gravity, guiding = self.gravity(reading.q), self.guiding
        torques = gravity.u
        if self.begun and reading.valid:
            y, rates, stiffness = np.array(reading.positions), np.array(reading.speeds), guiding.stiffness
            W, stretch = gravity.inertia.tolist(), self.anchor - y
            most = np.max(np.abs(stiffness * _product(W, stretch)) / np.array(guiding.grip), initial=0.0)
            stretch = stretch / max(1.0, float(most))
            self.anchor[:] = y + stretch
            inside = np.clip(y, self.lower, self.upper) - y
            walls = (2 * self.pole) ** 2 * inside - 4 * self.pole * rates * (inside != 0.0)
            wanted = stiffness * stretch + walls - guiding.damping * rates
            torques = torques + self.bias * self._alike(gravity.u) + _product(W, wanted)
        limits = np.array(guiding.limits)
        limited: list[float] = np.clip(torques, -limits, limits).tolist()
        return limited

    def _alike(self, gravity: Array) -> Array:
        """Gravity torque of each joint now, as a share of that at the end of the stand, from -1 to 1."""
        before = self.at_release
        share = np.divide(gravity, before, out=np.zeros_like(before), where=np.abs(before) > self.weighs)
        alike: Array = np.clip(share, -1.0, 1.0)
        return alike


def _product(matrix: Sequence[Sequence[float]], vector: Array) -> Array:
    """A matrix times a vector, summed in the order of the columns, as in C."""
    values, sums = vector.tolist(), []
    for row in matrix:
        total = 0.0
        for factor, value in zip(row, values, strict=True):  # not by sum(), which compensates rounding
            total += factor * value
        sums.append(total)
    return np.array(sums)
