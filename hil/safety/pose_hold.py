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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hil.core.compiled import Calls, Struct
from hil.drives.settings import DriveSettings
from hil.loop import SECOND, Reading, nanoseconds
from hil.sensing.motion import GravityCompensation, Hold
from servoctl.engine.ccode import BoundCall
from servoctl.types import Array

FASTEST_POLE = 20.0  # [1/s] fastest pole of the feedback, and fastest decay of a stop
POLE_SHARE = 0.06  # largest pole times the period: samples, torque and a period of delay then cost little phase
LARGEST_BIAS = 0.25  # [share of torque_limit] largest torque that the integral adds
WALL = 0.02  # [share of the range] width of the wall before each position limit, while a hand guides
BLIND_TIME = 0.01  # [s] time in which a motor is braked blindly, unless its limits make that longer
BLIND_SHARE = 0.9  # part of the torque limit for that: the torque in the frame has steps
ANCHOR = 2.0  # frequency w_a of the slipping spring, in damping rates s


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
    """What is computed with, and remembered, in C (`hil/core/c/hold.c`).

    Args:
        hold: Torques that cancel the forces by the model, and W.
        stop_rate: Rate s at which speeds decay in a stop [1/s].
        guiding: How the machine feels in the hand; None: no hand guides it.
        t: Time at which the model is evaluated [s].
    """

    def __init__(
        self,
        hold: GravityCompensation,
        drives: Sequence[DriveSettings],
        period: float,
        stop_rate: float = FASTEST_POLE,
        guiding: Guiding | None = None,
        t: float = 0.0,
    ) -> None:
        self._hold, m = hold, len(drives)
        call, w = hold.bound(), min(FASTEST_POLE, POLE_SHARE / period)
        sizes = {"n": len(call.arguments[1]), "m": m, "m m": m * m}
        self.struct = struct = Struct("pose", sizes, Calls())  # what C computes with, and remembers
        struct.connect(struct.c.hold, call)
        struct.connect(struct.c.others, BoundCall(self._free_others, [], [struct.arrays["inertia"]]))
        self._acceleration = call.results[1]
        c, x = struct.c, struct.arrays
        c.n, c.m, c.t, c.period, c.stop_rate = sizes["n"], m, t, period, stop_rate
        c.stiffness, c.damping, c.integral_gain = 3 * w**2, 3 * w, w**3
        c.blind_time, c.blind_share, c.stop_decay = BLIND_TIME, BLIND_SHARE, self.decay(nanoseconds(period) / SECOND)
        x["torque_limits"][:] = [drive.torque_limit for drive in drives]
        x["largest"][:] = LARGEST_BIAS * x["torque_limits"]
        x["weighs"][:] = 0.04 * x["largest"]  # [actuator unit] smallest gravity torque that the bias follows
        lower, upper = np.array([drive.position_limits for drive in drives]).T
        x["lower"][:], x["upper"][:] = lower + WALL * (upper - lower), upper - WALL * (upper - lower)
        if guiding is not None:
            c.spring, c.slowing, c.wall, c.wall_damping = guiding.stiffness, guiding.damping, (2 * w) ** 2, 4 * w
            x["grip"][:], x["guide_limits"][:] = guiding.grip, guiding.limits
        # positions that are held [joint unit]; torques that hold the machine by the model, in the last tick
        self.anchor, self.held = x["anchor"], x["held"]
        self.anchor[:] = np.nan

    def begin(self, positions: Sequence[float]) -> None:
        """Holds these positions of the joints from now on [joint unit]."""
        self.anchor[:] = positions
        self.struct.arrays["integral"][:] = 0.0

    @property
    def begun(self) -> bool:
        """Whether a pose is held."""
        return bool(np.isfinite(self.anchor).all())

    def decay(self, elapsed: float) -> float:
        """Part of a speed that a stop leaves after a time [s]."""
        return float(np.exp(-self.struct.c.stop_rate * elapsed))

    def gravity(self, q: Array) -> Hold:
        """Torques that hold a pose by the model, and W there; PlantError if it has no equations of motion there."""
        self.struct.arrays["q"][:] = q
        self.require(self.struct.functions.pose_weigh(self.struct.c))
        return Hold(self.struct.arrays["held"].copy(), self._acceleration.copy(), self._inertia.copy())

    @property
    def _inertia(self) -> Array:
        m = self.struct.c.m
        inertia: Array = self.struct.arrays["inertia"].reshape(m, m, order="F")
        return inertia

    def see(self, reading: Reading, sound: Sequence[bool], trusted: Sequence[bool]) -> None:
        """Remembers the pose of a tick, if every measurement is sound, and the rates of the motors that are trusted."""
        x = self.struct.arrays
        if reading.valid and all(sound):
            x["sound_pose"][:], self.struct.c.is_sound = reading.q, True
        np.copyto(x["sound_rates"], reading.speeds, where=trusted)

    def distrust(self, number: int) -> None:
        """The measurement of a motor is not trusted any more: a stop begins at its last trusted rate."""
        x = self.struct.arrays
        x["blind"][number] = True
        x["blind_rate"][number] = x["next_blind"][number] = x["sound_rates"][number]

    @property
    def blind_rates(self) -> Mapping[int, float]:
        """Number of each motor whose measurement is not trusted -> its rate by the model [joint unit/s]."""
        rates = self.struct.arrays["next_blind"].tolist()
        return {int(number): rates[number] for number in np.flatnonzero(self.struct.arrays["blind"])}

    def take(self, reading: Reading, sound: Sequence[bool], driven: Sequence[bool]) -> None:
        """Takes the state of a tick.

        `sound`: whether the measurement of each drive, then of each encoder, may be used. `driven`: whether each drive
        makes the torque that it is sent.
        """
        c, x = self.struct.c, self.struct.arrays
        x["q"][:], x["v"][:], x["y"][:], x["rates"][:] = reading.q, reading.v, reading.positions, reading.speeds
        x["driven"][:] = driven
        x["usable"][:] = sound[: c.m] & x["driven"] & np.isfinite(x["y"]) & np.isfinite(x["rates"])
        c.known, c.sound = self.begun and reading.valid, reading.valid and all(sound)

    def _free_others(self) -> None:
        """Gives the usable motors the inertia that they see while the others move freely."""
        usable, inertia = self.struct.arrays["usable"].astype(bool), self._inertia
        free = inertia.copy()
        inertia[:] = 0.0
        if usable.any():
            places = np.ix_(usable, usable)
            inertia[places] = np.linalg.pinv(np.linalg.pinv(free)[places])

    def require(self, answer: int) -> None:
        """Raises what the model raised, or that it has no equations of motion at the pose of this tick."""
        self.struct.raise_failure()
        if answer:
            raise self._hold.failure(self.struct.arrays["q"])
