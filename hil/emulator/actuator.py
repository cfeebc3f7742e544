"""The torque that a motor makes of its command: current loop and limit.

Design: lag and friction are those of simulated runs, `servoctl.simulation.realism`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp
from typing import Any

from hil.loop.clock import SECOND
from servoctl.simulation.realism import remaining


@dataclass(frozen=True)
class ActuatorOptions:
    """Properties of an actuator."""

    lag: float = 0.001  # [s] time constant of the current loop
    coulomb: float = 0.0  # [actuator unit] dry friction at the joint
    viscous: float = 0.0  # [actuator unit per its speed] friction at the joint in proportion to its speed


class Actuator:
    """The torque of one motor: a first-order lag behind the command, integrated exactly.

    Design: its state is four numbers in an array of all motors, so that the compiled step of the machine can advance
    them too.
    """

    __slots__ = ("_asked", "_lag", "_state", "derating", "limit", "powered", "saturated")

    def __init__(self, options: ActuatorOptions, state: Any = None) -> None:
        """Starts at rest, without torque.

        Args:
            state: Storage of its state, zero at first: torque [N m], impulse since the start of a step [N m s],
                target [N m], time of these [ns]; None: a list of its own.
        """
        # limit: largest torque of the motor [N m]; infinite where only the drive limits it
        self._lag, self.limit = options.lag, float("inf")
        # powered: whether it makes torque at all; a fault sets it
        # derating: fraction of the limit that is available; a fault sets it
        self.derating, self.powered = 1.0, True
        self.saturated = False  # whether the last command was above the limit
        self._asked = 0.0
        self._state = [0.0, 0.0, 0.0, 0.0] if state is None else state

    def command(self, torque: float, now: int) -> None:
        """Commands a torque [N m] from now [ns] on; NaN commands 0."""
        if torque != torque:
            torque = 0.0
        self._asked = torque
        limit = self.limit * self.derating
        if -limit <= torque <= limit:
            self.saturated = False
        else:
            self.saturated = True
            torque = limit if torque > limit else -limit
        target, state = torque if self.powered else 0.0, self._state
        made, state[1] = after(state, now, self._lag, exp)
        state[0] = made if self._lag else target
        state[2], state[3] = target, now

    def refresh(self, now: int) -> None:
        """Applies a change of `limit`, `powered` or `derating`."""
        self.command(self._asked, now)

    def torque(self, now: int) -> float:
        """Torque now [N m]."""
        return float(after(self._state, now, self._lag, exp)[0])


def after(state: Any, now: Any, lag: Any, exp: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Torque [N m] and impulse [N m s] now, by `lag T' = target - T`; on numbers, arrays or symbols.

    Args:
        state: The four numbers of `Actuator`.
        now: Time [ns].
        lag: Time constant [s]; without a lag the torque in `state` equals the target.
        exp: For such values.
    """
    torque, impulse, target, since = state
    elapsed, above = (now - since) / SECOND, torque - target
    left = remaining(elapsed, lag, exp)
    return target + above * left, impulse + target * elapsed + above * lag * (1.0 - left)
