"""What becomes of a torque command before it acts: current loop, limit, quantisation, errors of the torque constant."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp
from typing import Any

from hil.loop.clock import SECOND


@dataclass(frozen=True)
class ActuatorOptions:
    """What an actuator is like.

    Attributes:
        lag: Time constant of the current loop [s].
        limit: Largest torque of the motor [N m]; None: no limit but that of the drive.
        quantum: Smallest step of torque of the motor [N m]; 0: none.
        coulomb: Dry friction at the joint [actuator unit].
        viscous: Friction at the joint in proportion to its speed [actuator unit per its speed].
        brake_delay: Until the brake has closed [s].
    """

    lag: float = 0.001
    limit: float | None = None
    quantum: float = 0.0
    coulomb: float = 0.0
    viscous: float = 0.0
    brake_delay: float = 0.03


class Actuator:
    """The torque of one motor, a first-order lag behind the command, integrated exactly.

    Design: what moves lies in four numbers, those of all motors side by side, so that the compiled step of the machine
    moves them too.

    Attributes:
        limit: Largest torque [N m].
        factor: True torque per torque asked for: 1, unless the torque constant is wrong; a fault sets it.
        derating: Share of the limit that is left; a fault sets it.
        saturated: Whether the last command was above the limit.
    """

    __slots__ = ("_asked", "_lag", "_quantum", "_state", "derating", "factor", "limit", "saturated")

    def __init__(self, options: ActuatorOptions, state: Any = None) -> None:
        """At rest, without torque.

        Args:
            options: What it is like.
            state: Where its numbers lie, zero at first: torque [N m], impulse since a step began [N m s], target
                [N m], and when that was [ns]; None: in a list of its own.
        """
        self._lag, self._quantum = options.lag, options.quantum
        self.limit = float("inf") if options.limit is None else options.limit
        self.factor = self.derating = 1.0
        self.saturated = False
        self._asked = 0.0
        self._state = [0.0, 0.0, 0.0, 0.0] if state is None else state

    def command(self, torque: float, now: int) -> None:
        """Asks for a torque [N m] from now [ns] on; one that is not a number asks for none."""
        self._asked = torque = torque if torque == torque else 0.0
        if self._quantum:
            torque = self._quantum * round(torque / self._quantum)
        limit = self.limit * self.derating
        self.saturated = not -limit <= torque <= limit
        if self.saturated:
            torque = limit if torque > limit else -limit
        target, state = self.factor * torque, self._state
        made, state[1] = after(state, now, self._lag, exp)
        state[0] = made if self._lag else target
        state[2], state[3] = target, now

    def refresh(self, now: int) -> None:
        """Takes a change of `limit`, `factor` or `derating` into account."""
        self.command(self._asked, now)

    def torque(self, now: int) -> float:
        """The torque now [N m]."""
        return float(after(self._state, now, self._lag, exp)[0])


def after(state: Any, now: Any, lag: Any, exp: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Torque [N m] and impulse [N m s] now, of `lag T' = target - T`; on numbers, arrays or symbols.

    Args:
        state: The four numbers of `Actuator`.
        now: [ns].
        lag: Time constant [s]; where it is 0 the torque equals its target.
        exp: Of such values.
    """
    torque, impulse, target, since = state
    elapsed, above = (now - since) / SECOND, torque - target
    left = exp(-elapsed / (lag + (lag == 0)))
    return target + above * left, impulse + target * elapsed + above * lag * (1.0 - left)
