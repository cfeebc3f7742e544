"""Plant and law as one function of time, state, memory and parameters, with one meaning and two executors.

    control   (t, x)      -> command
    motion    (t, x, u)   -> x', what the run logs
    rates     (t, x)      -> both in one, for a law that acts continuously

Design: the stages below are written once and run on numbers or on symbols. `CompiledLoop` traces them into CasADi
functions; `OpaqueLoop` does so with a plant that stays in NumPy; `NumpyLoop` is the oracle, and serves tasks too large
to unroll. A row is one vector, laid out by `Layout`.
"""

from servoctl.closed_loop.loop import Layout, Loop
from servoctl.closed_loop.make import UNROLLED_ROWS, make_loop
from servoctl.closed_loop.numpy_loop import NumpyLoop
from servoctl.closed_loop.system import PassiveStabilisation, System
from servoctl.closed_loop.tangent import TangentLoop
from servoctl.closed_loop.tick import ControlTick
from servoctl.closed_loop.traced import CompiledLoop, OpaqueLoop, TracedLoop, rk4

__all__ = [
    "UNROLLED_ROWS",
    "CompiledLoop",
    "ControlTick",
    "Layout",
    "Loop",
    "NumpyLoop",
    "OpaqueLoop",
    "PassiveStabilisation",
    "System",
    "TangentLoop",
    "TracedLoop",
    "make_loop",
    "rk4",
]
