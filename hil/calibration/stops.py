"""The zero of an encoder from mechanical stops at known displacements, against which a hand pushes the joint.

    displacement = sign * motor + zero,   zero = stop - sign * motor at the stop

Design: that a joint was at its stop must be proven: by both of its stops, which must be as far apart as the config
says, or by one stop that it touched twice at the same place. Ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from servoctl.types import Array

NEAR = 0.01  # a joint is near its stop within this share of its range; farther than twice that, it has left it
AGREE = 1e-3  # touches agree within this share of the joint's range: a stop gives way a little under a hand
STEPS = 3.0  # touches within so many steps of the encoder always agree


@dataclass(frozen=True)
class StopZero:
    """What the stops of a joint say about its zero."""

    zero: float  # [joint unit] displacement where the motor coordinate is 0
    residual: float  # [joint unit] largest difference of a touch from that
    problem: str = ""  # why it is refused; empty if it is not


def zero_by_stops(
    motor: Array,  # motor angle divided by the gear, over the whole motion, shape (samples,) [joint unit]
    sign: float,  # 1 or -1
    # displacement at the lower and at the upper stop [joint unit]; infinite: that one is not known
    stops: tuple[float, float],
    span: float,  # range of the joint [joint unit]
    step: float,  # smallest visible step of the encoder [joint unit]
    # largest difference between touches [joint unit]; None: `AGREE` of the range, or `STEPS` steps
    tolerance: float | None = None,
) -> StopZero:
    """The zero that fits all touches best."""
    lower, upper = stops
    y, touched = sign * motor, []
    if isfinite(upper):
        touched.append([upper - touch for touch in touches(y, NEAR * span)])
    if isfinite(lower):
        touched.append([lower + touch for touch in touches(-y, NEAR * span)])
    zeros = [zero for each in touched for zero in each]
    zero, spread = (max(zeros) + min(zeros)) / 2, max(zeros) - min(zeros)
    found = StopZero(zero, spread / 2)
    if len(zeros) < 2:
        where = lower if isfinite(lower) else upper
        return StopZero(
            zero, 0.0, f"touched its stop at {where:.4g} only once (push it there twice, and move it away in between)"
        )
    if spread <= (max(AGREE * span, STEPS * step) if tolerance is None else tolerance):
        return found
    if len(touched) == 2:
        apart = float(np.ptp(y))
        return StopZero(
            zero, found.residual,
            f"moved over {apart:.5g} from end to end, but its stops are {upper - lower:.5g} apart (push it against "
            "both stops; are gear and stops right?)",
        )  # fmt: skip
    return StopZero(
        zero, found.residual,
        f"its ends near the stop differ by {spread:.3g} (push it firmly against the stop each time)",
    )  # fmt: skip


def touches(y: Array, near: float) -> Sequence[float]:
    """The largest value of each visit to the upper end of a motion."""
    end = float(y.max())
    found: list[float] = []
    away = True
    # only samples near the end or well away from it matter
    for value in y[(y > end - near) | (y < end - 2 * near)].tolist():
        if value < end - 2 * near:
            away = True
        elif away:
            found.append(value)
            away = False
        else:
            found[-1] = max(found[-1], value)
    return found
