"""What the tracking monitor gathers over a window, and the disturbance that it finds in it."""

from collections.abc import Sequence
from typing import NamedTuple

from servoctl.types import Array


class Window(NamedTuple):
    """The disturbance in a window."""

    d: Array  # disturbance torques, shape (m,)
    swing: float  # largest swing of a torque, relative to its limit
    used: float  # largest torque, relative to its limit


class Quick(NamedTuple):
    """What a window has gathered to judge which torques arrive."""

    elapsed: float  # [s] its length so far
    moved: Array  # sum of v - v-, shape (n,)
    sent: Array  # torque times time, shape (m,)


class WindowState(NamedTuple):
    """What a window has gathered so far."""

    elapsed: float  # [s] its length so far
    moved: Array  # sum of v - v-, shape (n,)
    sent: Array  # torque times time, shape (m,)
    made: Array  # the same of the torques that the drives report, shape (m,); NaN: it reports none
    # least, most: range of each torque, shape (m,)
    least: Array
    most: Array
    half: tuple[float, Array, Array] | None  # length, motion and torque at half its time; None before
    where: Array  # displacements of the joints at that time, shape (m,)
    beyond: int  # windows in a row before it with a disturbance that is too large
    lacking: int  # windows in a row before it in which a drive reported less than half of its torque
    # d and the allowed d of the last windows, where the law works with an estimate of the disturbance
    last: Sequence[tuple[Array, Array]]
    quick: Quick  # the short window
    # states of `hil.sensing.arrival` by short windows, and by long ones, shape (2, m)
    arrivals: tuple[list[int], list[int]]
    before: tuple[list[float], list[float]]  # u and d of the long window before, shape (2, m)
