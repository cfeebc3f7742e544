"""Which watchdogs are tested before the loop, one axis after another where brakes hold the others, and within which
motion.

Design: a drive whose test must enable it opens the brake of its axis. Its torque holds the axis until the watchdog runs
out, and nothing until the brake is closed again. So only an axis that hardly moves meanwhile is tested that way.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from hil.drives.base import Drive, DriveError

REACTION = 0.02  # [s] time by which a watchdog may run out later than its time, and a drive may react later


class LetGo(NamedTuple):
    """What a drive may do while its watchdog is tested."""

    # [joint unit/s^2] acceleration of the axis without torque, while the brakes hold the others
    acceleration: float = 0.0
    travel: float = inf  # [joint unit] largest motion without torque up to which it is tested
    unit: str = ""  # unit of its displacement


def fall(drive: Drive, let_go: LetGo) -> float:
    """Motion of an axis from the end of its torque until its brake is closed [joint unit]."""
    return let_go.acceleration * (drive.settings.brake_time + REACTION) ** 2 / 2 if drive.settings.brake else 0.0


def untested(drive: Drive, let_go: LetGo) -> str:
    """Why the watchdog of a drive is not tested; empty if it is, or if there is none."""
    distance = fall(drive, let_go)
    if not (drive.watchdog and drive.test_enables and distance > let_go.travel):
        return ""
    return (
        f"its test would let the axis move by {distance:.2g} {let_go.unit} until the brake is closed, at most "
        f"{let_go.travel:g} {let_go.unit} is allowed"
    )


def in_turn(drives: Sequence[Drive], let_go: Sequence[LetGo]) -> list[list[Drive]]:
    """The drives whose watchdogs are tested, in groups; those of a group at the same time."""
    tested = [drive for drive, each in zip(drives, let_go, strict=True) if not untested(drive, each)]
    alone = [drive for drive in tested if drive.test_enables and drive.settings.brake]
    together = [drive for drive in tested if drive not in alone]
    return [*([together] if together else []), *([drive] for drive in alone)]


def watch(drives: Sequence[Drive], let_go: Sequence[LetGo]) -> Callable[[], None]:
    """A check of the motion of all axes from now on; it raises `DriveError` for one that moves too far or too fast."""
    first = {drive: drive.sample for drive in drives}

    def check() -> None:
        for drive, each in zip(drives, let_go, strict=True):
            before, sample, settings = first[drive], drive.sample, drive.settings
            if sample is None or before is None:
                first[drive] = sample
                continue
            lower, upper = settings.position_limits
            moved, allowed = sample.position - before.position, 4.0 * max(each.travel, drive.visible())
            inside = lower <= sample.position <= upper or abs(moved) == 0.0
            if abs(moved) > allowed or abs(sample.velocity) > settings.speed_limit or not inside:
                raise DriveError(
                    f"{settings.name}: moves while watchdogs are tested: by {moved:+.3g} {each.unit}, now "
                    f"{sample.velocity:+.3g} {each.unit}/s (at most {allowed:g} {each.unit}; check its brake, its load "
                    "and the sign of its torque)"
                )

    return check
