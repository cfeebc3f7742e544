"""What drives share whose numbers are linear over ranges: MIT frames, and RobStride's own."""

from collections.abc import Iterator

from hil.drives.mit_options import EXPECTED, RangeOptions
from hil.drives.settings import DriveSettings
from servoctl.config.document import Problem

UNREADABLE = (
    "the ranges of its frames cannot be read back: wrong ranges scale every torque, and only the motion shows it "
    "(compare motor or ranges with its data sheet)"
)
"""Note on a drive whose ranges are only in the config."""


def range_problems(settings: DriveSettings, options: RangeOptions, most: int) -> Iterator[Problem]:
    """Problems of the ranges with the torque limit.

    Args:
        settings: Settings of the drive.
        options: Its options.
        most: Largest number that a torque can have in a frame: 4095 for 12 bits.
    """
    if (options.motor is None) == (options.ranges is None):
        what = "both are given" if options.motor else "is missing, and so is `ranges`"
        yield Problem(("motor",), f"{what} (give either motor, or {EXPECTED})")
        return
    ranges = options.table
    torque, half_step = abs(settings.motor_torque(settings.torque_limit)), ranges.torque / most
    what = f"{settings.torque_limit} at the joint is {torque:.4g} N m at the motor"
    if torque > ranges.torque:
        yield Problem(("torque_limit",), f"{what}, its range ends at {ranges.torque:g} N m (lower it)")
    elif torque < half_step:
        yield Problem(("torque_limit",), f"{what}, the smallest on the wire is {half_step:.4g} N m (raise it)")


class Unwrapping:
    """Follows a position over the ends of its range, from `-most` to `most` [rad]."""

    def __init__(self, most: float) -> None:
        self._span = 2 * most
        self._last: float | None = None
        self._added = 0.0

    def __call__(self, position: float) -> float:
        """Motor angle without the jumps from one end of its range to the other [rad]."""
        if self._last is not None and abs(position - self._last) > self._span / 2:
            self._added += self._span if position < self._last else -self._span
        self._last = position
        return position + self._added
