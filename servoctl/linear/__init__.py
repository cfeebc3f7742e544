"""A closed loop as a linear system: for python-control, which does the linear work, and for what it says of a run.

    x' = f(t, x, w),  w added to the inputs       A = df/dx, B = df/dw, C = dy/dx, y = (q, v, u, violation)
    on the passive constraints   dx = W dy,  A_r = W' A W,  W an orthonormal basis of the null space of their dE/dx

Design: derivatives are exact, of the compiled loop itself. Where passive constraints hold, motion that breaks them is
no mode of the machine, so they are left out: singular mass matrices and redundant rows need no choice of independent
coordinates. A state that moves is frozen: the eigenvalues decide where the motion is slow against them.
"""

from servoctl.linear.analyse import Analysis, analyse
from servoctl.linear.convert import linearize, to_control
from servoctl.linear.margins_at import LoopMargins, loop_margins

__all__ = ["Analysis", "LoopMargins", "analyse", "linearize", "loop_margins", "to_control"]
