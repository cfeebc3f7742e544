"""The tick loop: reads a rig, asks for a command and writes it, at absolute deadlines on an injected clock.

Design: each tick reads the rig, asks the caller's `decide` for the command, writes it, and logs. The loop itself knows
neither the law nor the safety rules: a session on drives puts its stages and checks into `decide`.
"""

from hil.loop.clock import SECOND, Clock, VirtualClock, WallClock, nanoseconds
from hil.loop.tick import Ahead, Implausibility, Reading, Rig, Tick, run_ticks

__all__ = [
    "SECOND", "Ahead", "Clock", "Implausibility", "Reading", "Rig", "Tick", "VirtualClock", "WallClock", "nanoseconds",
    "run_ticks",
]  # fmt: skip
