"""How does the closed loop behave near a state? Poles, margins, modes, and a linear system for python-control.

    x' = f(t, x, w),  w added to the inputs       A = df/dx, B = df/dw, C = dy/dx, y = (q, v, u, violation)
    on the passive constraints   dx = W dy,  A_r = W' A W,  W an orthonormal basis of the null space of their dE/dx

Design: derivatives are exact derivatives of the compiled loop. Motion that breaks the passive constraints is not a mode
of the machine and is left out, so that singular mass matrices and redundant rows need no choice of independent
coordinates. A moving state is frozen: the eigenvalues are valid if the motion is slow compared with them.
"""

from servoctl.linear.analyse import Analysis, analyse
from servoctl.linear.convert import linearize, to_control

__all__ = ["Analysis", "analyse", "linearize", "to_control"]
