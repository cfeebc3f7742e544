"""A machine that another simulator moves: what a run needs to know of it.

Design: a machine is a pure function of its state, so that a run can be repeated from any row. What it carries besides q
and v of our plant (loads that lie about, contacts, currents of its motors) is `rest`, a part of the run's state.
"""

from typing import Protocol

from servoctl.types import Array


class Machine(Protocol):
    """A machine with the plant's coordinates and actuators."""

    size: int  # length of its state besides q and v

    def start(self, t: float, x: Array) -> Array:
        """State besides q and v at a start, shape (size,).

        Args:
            t: Time [s].
            x: q and v, shape (2n,).
        """
        ...

    def after(self, t: float, x: Array, rest: Array, u: Array, h: float) -> tuple[Array, Array]:
        """q and v, and the rest, after h [s] under a held input; not finite where the machine's program gives up.

        Args:
            t: Time at the start [s].
            x: q and v there, shape (2n,).
            rest: State besides, shape (size,).
            u: Input, shape (m,) [actuator units].
            h: Length of the hold [s].
        """
        ...
