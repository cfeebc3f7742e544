"""The tick loop: a law on any rig, at absolute deadlines on an injected clock.

Design: one loop serves simulated and real machines. It reads, asks what to do, writes, and logs; what to do is decided
by whoever called it, so that a simulated run needs only the law, and a run on drives puts stages and safety between.
"""

import servoctl.compiled  # noqa: F401 - what follows may be found compiled
from hil.loop.clock import SECOND, Clock, VirtualClock, WallClock, nanoseconds
from hil.loop.controller import Controller
from hil.loop.rig import Finding, Reading, Rig
from hil.loop.simulated import SimulatedRig
from hil.loop.tick import Tick, TickLoop

__all__ = [
    "SECOND",
    "Clock",
    "Controller",
    "Finding",
    "Reading",
    "Rig",
    "SimulatedRig",
    "Tick",
    "TickLoop",
    "VirtualClock",
    "WallClock",
    "nanoseconds",
]
