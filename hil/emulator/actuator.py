"""What becomes of a torque command before it acts: current loop, limit, quantisation, errors of the torque constant."""

from dataclasses import dataclass
from math import exp

from servoctl.loop.clock import SECOND


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

    Attributes:
        limit: Largest torque [N m].
        factor: True torque per torque asked for: 1, unless the torque constant is wrong; a fault sets it.
        derating: Share of the limit that is left; a fault sets it.
        saturated: Whether the last command was above the limit.
    """

    __slots__ = ("_asked", "_impulse", "_lag", "_quantum", "_target", "_time", "_torque", "derating", "factor", "limit",
                 "saturated")  # fmt: skip

    def __init__(self, options: ActuatorOptions) -> None:
        """At rest, without torque."""
        self._lag, self._quantum = options.lag, options.quantum
        self.limit = float("inf") if options.limit is None else options.limit
        self.factor = self.derating = 1.0
        self.saturated = False
        self._asked = self._target = self._torque = self._impulse = 0.0
        self._time = 0

    def command(self, torque: float, now: int) -> None:
        """Asks for a torque [N m] from now [ns] on; one that is not a number asks for none."""
        self._torque, self._impulse = self._after(now)
        self._time = now
        self._asked = torque = torque if torque == torque else 0.0
        if self._quantum:
            torque = self._quantum * round(torque / self._quantum)
        limit = self.limit * self.derating
        self.saturated = not -limit <= torque <= limit
        if self.saturated:
            torque = limit if torque > limit else -limit
        self._target = self.factor * torque

    def refresh(self, now: int) -> None:
        """Takes a change of `limit`, `factor` or `derating` into account."""
        self.command(self._asked, now)

    def torque(self, now: int) -> float:
        """The torque now [N m]."""
        return self._after(now)[0]

    def mean(self, now: int, duration: float) -> float:
        """Mean torque [N m] since the last `take`, `duration` [s] ago."""
        return self._after(now)[1] / duration

    def take(self, now: int, duration: float) -> float:
        """The same, and a new mean begins."""
        torque, impulse = self._after(now)
        self._torque, self._impulse, self._time = torque, 0.0, now
        return impulse / duration

    def _after(self, now: int) -> tuple[float, float]:
        """Torque [N m] and impulse [N m s] now; to look changes nothing, not even by rounding."""
        elapsed, target = (now - self._time) / SECOND, self._target
        if self._lag > 0.0:
            left = exp(-elapsed / self._lag)
            above = self._torque - target
            return target + above * left, self._impulse + target * elapsed + above * self._lag * (1.0 - left)
        return target, self._impulse + target * elapsed
