"""Which watchdogs are tested before the loop, in which turn, and how far their axes may move meanwhile.

Design: a drive whose test must enable it opens the brake of its axis. Its torque holds the axis until the watchdog runs
out, and nothing until the brake is closed again. So only an axis that hardly moves meanwhile is tested that way.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hil.drives.base import Drive, DriveError

REACTION = 0.02  # [s] time by which a watchdog may run out later than its time, and a drive may react later


class WatchdogTest(NamedTuple):
    """The test of a drive's watchdog, and what its axis may do meanwhile."""

    drive: Drive
    torque: float  # that holds the start pose [actuator unit]
    acceleration: float  # of the axis without torque, while the brakes hold the others [joint unit/s^2]
    travel: float  # largest motion without torque up to which it is tested [joint unit]
    unit: str  # of its displacement

    @property
    def holding(self) -> float:
        """Torque until the watchdog runs out: what holds the pose where a brake opens; others may lie on a support."""
        settings = self.drive.settings
        return min(settings.torque_limit, max(-settings.torque_limit, self.torque)) if settings.brake else 0.0

    @property
    def fall(self) -> float:
        """Motion of the axis from the end of its torque until its brake is closed [joint unit]."""
        settings = self.drive.settings
        return self.acceleration * (settings.brake_time + REACTION) ** 2 / 2 if settings.brake else 0.0

    @property
    def left_out(self) -> str:
        """Why it is left out; empty if it is done, or if there is no watchdog."""
        if not (self.drive.watchdog and self.drive.test_enables and self.fall > self.travel):
            return ""
        return (
            f"its test would let the axis move by {self.fall:.2g} {self.unit} until the brake is closed, at most "
            f"{self.travel:g} {self.unit} is allowed"
        )

    def excess(self, first: float) -> str:
        """How the drive moves too far from a position, or too fast; empty if it does not."""
        sample, settings, unit = self.drive.sample, self.drive.settings, self.unit
        if sample is None:
            return ""
        lower, upper = settings.position_limits
        moved, allowed = sample.position - first, 4.0 * max(self.travel, self.drive.visible())
        if abs(moved) > allowed:
            beyond = f"at most {allowed:g} {unit} is allowed"
        elif abs(sample.velocity) > settings.speed_limit:
            beyond = f"speed_limit is {settings.speed_limit:g} {unit}/s"
        elif moved and not lower <= sample.position <= upper:
            beyond = f"to {sample.position:.4g} {unit}, position_limits are {lower:g} to {upper:g} {unit}"
        else:
            return ""
        return f"by {moved:+.3g} {unit}, now {sample.velocity:+.3g} {unit}/s; {beyond}"


def in_turn(tests: Sequence[WatchdogTest]) -> list[list[WatchdogTest]]:
    """The tests that are done, in groups; those of a group at the same time."""
    done = [test for test in tests if not test.left_out]
    alone = [test for test in done if test.drive.test_enables and test.drive.settings.brake]
    together = [test for test in done if test not in alone]
    return [*([together] if together else []), *([test] for test in alone)]


def motion_check(tests: Sequence[WatchdogTest]) -> Callable[[], None]:
    """A check of the motion of all axes from now on; it raises `DriveError` for one that moves too far or too fast."""
    first = {test.drive: test.drive.sample for test in tests}

    def check() -> None:
        for test in tests:
            before = first[test.drive]
            if before is None:
                first[test.drive] = test.drive.sample
            elif excess := test.excess(before.position):
                raise DriveError(
                    f"{test.drive.settings.name}: moves while watchdogs are tested: {excess} (check its brake, its "
                    "load and the sign of its torque)"
                )

    return check
