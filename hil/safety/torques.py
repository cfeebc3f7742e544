"""The torques of a tick: those of a source, within the limits, in steps of the wire; in C (`hil/core/c/torques.c`).

Design: one function in C makes the torques of every tick, whether C or Python decides it. Python chooses the source,
and may change what is wanted before it is limited.

A machine is held at a pose, brought to rest, or guided by a hand by one law with three settings:

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from hil.core.compiled import Calls, Struct
from hil.core.constants import Torques
from hil.drives.settings import DriveSettings
from hil.loop import SECOND, Reading, nanoseconds
from hil.safety.proof import TorqueProof
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


class Source(NamedTuple):
    """Whose torques are sent, and for how long C may decide so."""

    torques: Torques
    end: float = inf  # time in the stage from which on Python decides [s]
    learns: bool = False  # whether the integral of the pose runs
    tests: bool = False  # whether the test of the drives goes on
    moves: bool = True  # whether torques move the machine: not while brakes open
    ramp_time: float = inf  # [s] time in which the torques of `BLEND` become those of the law
    firmer: float = 0.0  # what the damping of `CATCH` has more, as a share of the usual one


class TorqueSource:
    """Makes the torques of a tick, whose state the pose has, and is the last check of their size and rate.

    It clamps torques: one axis at a time while a law works, together while the machine comes to rest.

    Args:
        period: Period of the loop [s]. The rate limit allows at most the step of one period, also after a gap.
        carried: The torques in the frames that send these, shape (m,); None: torques are not in steps of the wire.
    """

    def __init__(
        self,
        pose: PoseHold,
        drives: Sequence[DriveSettings],
        period: float,
        carried: Callable[[Array], Array] | None = None,
    ) -> None:
        m = len(drives)
        self.struct = Struct("torque_source", {"m": m}, pose.struct.calls)  # what C computes with, and remembers
        self._pose, self._drives, self._in_steps = pose, list(drives), carried is not None
        c, self._x, (asked, carries) = self.struct.c, self.struct.arrays, np.zeros((2, m))
        c.m, c.period, c.pose = m, period, pose.struct.c
        if carried is not None:
            self.struct.connect(c.carry, BoundCall(lambda: np.copyto(carries, carried(asked)), [asked], [carries]))
        self._x["steepest"][:] = [drive.torque_rate_limit for drive in drives]
        self.confine([drive.torque_limit for drive in drives])
        self.wanted = self._x["wanted"]  # torques that were found last, shape (m,)

    def test(self, proof: TorqueProof) -> None:
        """Makes the torques of this test of the drives too."""
        self.struct.c.proof = proof.struct.c

    def confine(self, limits: Sequence[float]) -> None:
        """From now on torques stay within these limits, one per drive [actuator unit], and within torque_limit."""
        pairs = zip(self._drives, limits, strict=True)
        self._x["largest"][:] = [min(drive.torque_limit, limit) for drive, limit in pairs]

    def begin(self, torques: Sequence[float] | Array) -> None:
        """The next torques follow these, one per drive [actuator unit]."""
        self._x["previous"][:] = torques

    @property
    def previous(self) -> list[float]:
        """Last torque of each drive within the limits, at the joint [actuator unit]."""
        previous: list[float] = self._x["previous"].tolist()
        return previous

    @property
    def clamped(self) -> list[bool]:
        """Whether a limit has changed the last torque of each axis."""
        clamped: list[bool] = self._x["clamped"].astype(bool).tolist()
        return clamped

    def take(self, source: Source, steps: bool) -> None:
        """Takes the source of the next ticks; `steps`: whether the steps of the wire count, where they can."""
        c = self.struct.c
        c.kind, c.learns, c.tests = source.torques, source.learns, source.tests
        c.ramp_time, c.firmer, c.steps = source.ramp_time, source.firmer, steps and self._in_steps

    def find(self, source: Source, law: Array, elapsed: float, since: float = 0.0) -> Array:
        """The torques of a source at the state that the pose has: `wanted`, which may be changed before `limit`.

        `law`: its torques; `elapsed`: time since the last tick [s]; `since`: time in the stage [s].

        Raises PlantError if the model has no equations of motion there.
        """
        self.wanted[:] = law
        self.take(source, steps=True)
        decay = self._pose.decay(elapsed)
        self._pose.require(self.struct.functions.torques_find(self.struct.c, since, elapsed, decay))
        return self.wanted

    def limit(self, now: int, steps: bool = True) -> Array:
        """The torques to send now [ns], shape (m,): finite and within the limits; `steps` as in `take`.

        A torque that is not finite moves to 0 at the rate limit. In a stop the part that brakes is scaled as a whole.
        """
        c, functions = self.struct.c, self.struct.functions
        c.steps = steps and self._in_steps
        functions.torques_limit(c, now)
        self.struct.raise_failure()
        functions.torques_keep(c, now)
        torques: Array = self.struct.arrays["torques"].copy()
        return torques
