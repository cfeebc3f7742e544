"""The velocity loop of a drive that brakes by itself: down a ramp to standstill, where it holds its position.

w' = w_r' + K (w_r - w) + K I (p_r - p),    p_r' = w_r
"""

PERIOD = 0.001  # [s] period of the loop
BANDWIDTH = 100.0  # K [1/s]: a tenth of what period and current loop allow
INTEGRAL = 25.0  # I [1/s]: a quarter of K, so that the loop has two equal poles
RAMP_TIME = 0.25  # [s] time of the ramp from the speed limit of the joint, where the drive is told no other


class Ramp:
    """The set-points of one stop.

    Args:
        position: Position of the motor at its beginning [rad].
        speed: Its speed [rad/s].
        deceleration: Deceleration [rad/s^2].
    """

    def __init__(self, position: float, speed: float, deceleration: float) -> None:
        self._position, self._speed, self._deceleration = position, speed, deceleration

    @property
    def over(self) -> bool:
        """Whether the set-point stands still."""
        return not abs(self._speed) > 0.0

    def acceleration(self, position: float, speed: float) -> float:
        """Acceleration for the next period [rad/s^2], at this position [rad] and speed [rad/s] of the motor."""
        before = self._speed
        self._speed = max(0.0, abs(before) - self._deceleration * PERIOD) * (1.0 if before > 0.0 else -1.0)
        self._position += (before + self._speed) / 2 * PERIOD
        error = self._speed - speed + INTEGRAL * (self._position - position)
        return (self._speed - before) / PERIOD + BANDWIDTH * error

    def wait(self, position: float, speed: float) -> None:
        """Keeps the set-point with a motor that cannot follow, so that it does not run ahead."""
        self._position = position
        self._speed = speed if self._speed * speed > 0.0 else 0.0
