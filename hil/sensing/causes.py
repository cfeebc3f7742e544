"""What a disturbance torque may be: torque that does not arrive, a joint that is blocked, or a load.

    lost      d = (k - 1) u:      the torque that arrives is a share k of the torque sent, whatever that is
    blocked   d = -u or d' = -u': no torque, or none that is added, moves anything, and the joint stands still
    load      d' = 0:             it stays while the torque changes

Design: these differ in how d follows the torque, not in its size, so the two halves of a window are compared. A motor
whose torque is lost is alone; a load is felt by several joints. With redundant motors d is their smallest torque, of
which one motor shows its share p alone: `d_j^2 / p_j = |d|^2` if motor j explains everything.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from servoctl.types import Array

ALONE = 0.8  # one drive explains a disturbance from this share of its square on
FOLLOWS = 0.03  # smallest change of a torque that tells causes apart, relative to its limit


NOTHING = 0.1  # a joint that stands still is blocked if less of its torque moves it


class Half(NamedTuple):
    """Means over half a window."""

    d: Array  # disturbance torques, shape (m,)
    u: Array  # torques sent, shape (m,)


class Cause(NamedTuple):
    """What explains a disturbance best."""

    drive: int  # index of the drive that shows it most
    words: str  # the cause for the operator
    load: bool = False  # whether it is a load, which a machine may carry on with


def cause_of(
    d: Array, first: Half, second: Half, shares: Array, limits: Array, still: Sequence[bool] = ()
) -> Cause:  # fmt: skip
    """The cause of a disturbance.

    Args:
        d: The disturbance that came, shape (m,).
        first, second: The two halves of the last window.
        shares: Share of each torque that the motion shows, shape (m,).
        limits: Torque limits, shape (m,).
        still: Which joints stand still; empty: none.
    """
    square = d**2 / np.maximum(shares, 1e-9)
    alone = int(np.argmax(np.where(shares > 1e-9, square, 0.0)))
    worst = int(np.argmax(np.abs(d) / limits))
    du, change = second.u - first.u, second.d - first.d
    for i in range(len(d)):
        follows = abs(du[i]) > FOLLOWS * limits[i] and 0.5 < -change[i] / du[i] < 1.5
        nothing = all(abs(half.d[i] + half.u[i]) < NOTHING * abs(half.u[i]) for half in (first, second))
        if still and still[i] and (follows or nothing):
            return Cause(
                i, "the joint is blocked: it stands still whatever torque is added (brake, end stop, or its encoder)"
            )
    if square[alone] > ALONE * float(d @ d) and abs(second.u[alone]) > FOLLOWS * limits[alone]:
        share = 1.0 + second.d[alone] / shares[alone] / second.u[alone]
        proportional = first.d[alone] * second.u[alone] / (first.u[alone] or np.inf)
        if abs(second.d[alone] - proportional) < 0.5 * abs(change[alone]) and abs(du[alone]) > FOLLOWS * limits[alone]:
            return Cause(
                alone,
                f"{100.0 * max(share, 0.0):.0f} % of its torque arrives: a coupling that slips, or a wrong constant",
            )
        return Cause(alone, "a load on this joint alone, or torque that does not arrive", load=True)
    return Cause(worst, "a load that the model does not have", load=True)
