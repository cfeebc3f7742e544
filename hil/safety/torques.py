"""The torques of a tick: those of a source, within the limits, in steps of the wire; in C (`hil/core/c/torques.c`).

Design: one function in C makes the torques of every tick, whether C or Python decides it. Python chooses the source,
and may change what is wanted before it is limited.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from hil.core.compiled import Struct
from hil.core.constants import Torques
from hil.drives.settings import DriveSettings
from hil.safety.pose_hold import PoseHold
from hil.safety.proof import TorqueProof
from servoctl.engine.ccode import BoundCall
from servoctl.types import Array


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
