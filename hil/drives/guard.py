"""What every driver checks before a torque goes out or a drive is enabled, and which command it repeats."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from numpy import fmax

from hil.drives.base import Drive, DriveError
from hil.drives.settings import DriveSettings
from hil.frame import Frame


class Feed:
    """Which command to repeat for a drive whose watchdog, or whose replies, depend on commands alone."""

    def __init__(self) -> None:
        # whether a frame that the drive answers was encoded since the last call of `frames`: a command, or a stop
        self.fed = False
        self.seed: Frame | None = None  # command to repeat while the drive is being enabled; None at all other times

    def frames(self, zero: Frame, enabled: bool) -> Sequence[Frame]:
        """The command that is missing in this tick, if one is; `zero` is that of zero torque.

        An enabled drive gets none: its watchdog must notice a loop that hangs. If it goes off, it is not enabled
        again.
        """
        fed, self.fed = self.fed, False
        if enabled:
            self.seed = None
        if fed or enabled:
            return ()
        return (zero,) if self.seed is None else (self.seed,)


BRAKED_TEST = 0.01
"""Time of the watchdog while it is tested on an axis with a brake, which opens for so long [s]: it must not fall."""


def tested_time(settings: DriveSettings) -> float:
    """Time of a watchdog that is tested by enabling the drive [s]."""
    return min(settings.watchdog, BRAKED_TEST) if settings.brake else settings.watchdog


def motor_torque(settings: DriveSettings, torque: float) -> float:
    """Torque of the motor [N m] for one at the joint; ValueError if it is not finite, or above the limit."""
    if not -settings.torque_limit <= torque <= settings.torque_limit:  # NaN fails both comparisons
        raise ValueError(f"{settings.name}: torque {torque} is not finite and within +-{settings.torque_limit}")
    return settings.motor_torque(torque)


def moving(drives: Iterable[Drive]) -> list[str]:
    """Names of the drives whose joints move visibly, by their last samples: a brake may still close."""
    names = []
    for drive in drives:
        least = fmax(3.0 * drive.quantum()[1], 0.01 * drive.settings.speed_limit)
        if drive.sample is not None and abs(drive.sample.velocity) > least:
            names.append(drive.settings.name)
    return names


def refuse_fault(drive: Drive) -> None:
    if drive.fault:
        raise DriveError(f"in fault: {drive.fault} (reset it first)")


def begin_enabling(drive: Drive) -> None:
    """Begins every handshake that enables a drive; DriveError if it is in fault."""
    refuse_fault(drive)
    drive.has_worked = False


@contextmanager
def silent(drive: Drive) -> Iterator[None]:
    """Sends a drive nothing that feeds its watchdog within the block."""
    drive.quiet = True
    try:
        yield
    finally:
        drive.quiet = False


def after(counter: Callable[[], int], more: int) -> Callable[[], bool]:
    """A condition: whether a counter has risen by `more` since this call."""
    start = counter()
    return lambda: counter() - start >= more


def passed(ticks: int) -> Callable[[], bool]:
    """A condition, asked once per tick: whether so many ticks have passed since it was first asked."""
    asked = count()
    return lambda: next(asked) >= ticks
