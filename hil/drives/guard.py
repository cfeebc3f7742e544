"""What all drivers ask before a torque goes out, and before they enable."""

from collections.abc import Callable, Sequence

from hil.drives.base import Drive, DriveError
from hil.drives.settings import DriveSettings
from hil.frame import Frame


class Feed:
    """What keeps a drive fed, or talking, that hears nothing but commands.

    Attributes:
        fed: Whether a command was encoded since `frames` was called last.
        seed: Command that is repeated while the drive is being enabled; None at all other times.
    """

    def __init__(self) -> None:
        self.fed = False
        self.seed: Frame | None = None

    def frames(self, zero: Frame, enabled: bool) -> Sequence[Frame]:
        """The frame that is missing, if one is.

        None goes to a drive that is enabled: a loop that hangs must not be hidden from its watchdog.
        """
        fed, self.fed = self.fed, False
        if fed:
            return ()
        if self.seed is not None:
            return (self.seed,)
        return () if enabled else (zero,)


def motor_torque(settings: DriveSettings, torque: float) -> float:
    """Torque of the motor [N m] for one at the joint [actuator unit].

    Raises:
        ValueError: It is not finite, or above the limit.
    """
    if not -settings.torque_limit <= torque <= settings.torque_limit:  # NaN is not either
        raise ValueError(f"{settings.name}: torque {torque} is not finite and within +-{settings.torque_limit}")
    return settings.motor_torque(torque)


def refuse_fault(drive: Drive) -> None:
    """Nothing is enabled out of a fault.

    Raises:
        DriveError: The drive is in fault.
    """
    if drive.fault:
        raise DriveError(f"in fault: {drive.fault} (reset it first)")


def after(count: Callable[[], int], more: int) -> Callable[[], bool]:
    """Whether a counter has gone up by `more` from now on."""
    start = count()
    return lambda: count() - start >= more
