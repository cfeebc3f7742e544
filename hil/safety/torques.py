"""The torques of a tick: those of a source, within the limits, in steps of the wire; in C (`hil/core/c/torques.c`).

Design: one function in C makes the torques of every tick, whether C or Python decides it. Python chooses the source,
and may change what is wanted before it is limited.
"""

from collections.abc import Callable
from math import inf
from typing import NamedTuple

import numpy as np

from hil.core.constants import Torques
from hil.core.structs import Struct
from hil.safety.limits import Limits
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
    """Makes the torques of a tick.

    Args:
        pose: Has the state of the tick.
        limits: Last limits before a torque is sent.
        proof: Test of the drives; None: they are not tested.
        carried: The torques in the frames that send these, shape (m,); None: torques are not in steps of the wire.
    """

    def __init__(
        self,
        pose: PoseHold,
        limits: Limits,
        proof: TorqueProof | None = None,
        carried: Callable[[Array], Array] | None = None,
    ) -> None:
        m = pose.struct.c.m
        self.struct = Struct("torque_source", {"m": m}, pose.struct.calls)  # what C computes with, and remembers
        self._pose, self._limits, self._in_steps = pose, limits, carried is not None
        c, (asked, carries) = self.struct.c, np.zeros((2, m))
        c.m, c.pose, c.limits = m, pose.struct.c, limits.struct.c
        if proof is not None:
            c.proof = proof.struct.c
        if carried is not None:
            self.struct.connect(c.carry, BoundCall(lambda: np.copyto(carries, carried(asked)), [asked], [carries]))

    def take(self, source: Source, steps: bool) -> None:
        """Takes the source of the next ticks; `steps`: whether the steps of the wire count, where they can."""
        c = self.struct.c
        c.kind, c.learns, c.tests = source.torques, source.learns, source.tests
        c.ramp_time, c.firmer, c.steps = source.ramp_time, source.firmer, steps and self._in_steps

    def find(self, source: Source, law: Array, elapsed: float, since: float = 0.0) -> Array:
        """The torques of a source at the state that the pose has: `wanted`, which may be changed before `limit`.

        Args:
            law: Torques of the law.
            elapsed: Time since the last tick [s].
            since: Time in the stage [s].

        Raises:
            PlantError: The model has no equations of motion there.
        """
        self.wanted[:] = law
        self.take(source, steps=True)
        decay = self._pose.decay(elapsed)
        self._pose.require(self.struct.functions.torques_find(self.struct.c, since, elapsed, decay))
        return self.wanted

    def limit(self, steps: bool = True) -> Array:
        """The torques to send, shape (m,): finite and within the limits; `steps` as in `take`.

        A torque that is not finite moves to 0 at the rate limit. In a stop the part that brakes is scaled as a whole.
        """
        c, functions, now = self.struct.c, self.struct.functions, self._limits.now
        c.steps = steps and self._in_steps
        functions.torques_limit(c, now)
        self.struct.raise_failure()
        functions.torques_keep(c, now)
        torques: Array = self.struct.arrays["torques"].copy()
        return torques

    @property
    def wanted(self) -> Array:
        """The torques that were found last, shape (m,)."""
        return self._limits.struct.arrays["wanted"]
