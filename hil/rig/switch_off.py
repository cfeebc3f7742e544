"""How all drives of a rig are switched off, whatever fails on the way.

Design: a failure of one drive, or of a bus, never keeps the other drives on, not even a SystemExit of a driver.
"""

from collections.abc import Callable, Sequence

from hil.drives.base import Drive
from hil.frame import Frame
from hil.loop import nanoseconds
from hil.rig.dispatch import Dispatch
from servoctl.errors import in_one_line

PAUSE = 1_000_000
"""Pause before a bus that raises is read again [ns]."""


class SwitchOff:
    """Switches drives off.

    Args:
        dispatch: Carries frames between buses and drives.
        drives: The drives.
        period: Period of the loop [s].

    Attributes:
        failures: Name of a drive ('' if unknown) -> exception raised meanwhile.
    """

    def __init__(self, dispatch: Dispatch, drives: Sequence[Drive], period: float) -> None:
        self._dispatch, self._drives, self._period = dispatch, drives, nanoseconds(period)
        self._rounds = 0
        self.failures: dict[str, str] = {}

    @property
    def confirmed(self) -> bool:
        """Whether every drive reports that it is off, after two rounds: the first answers may be older."""
        return self._rounds > 1 and all([drive.confirmed_off for drive in self._drives])

    def send(self, brake: bool) -> bool:
        """Sends all drives the frames that stop them; returns whether they have confirmed.

        Args:
            brake: Whether drives that can brake by themselves do so; else they are disabled at once.
        """
        for drive in self._drives:
            self._send_off(drive, brake)
        self._rounds += 1
        return self.confirmed

    def _send_off(self, drive: Drive, brake: bool) -> None:
        """Sends the frames that stop one drive; if they cannot be made, those that disable it."""
        name, bus = drive.settings.name, drive.settings.bus
        frames: Sequence[Frame] = ()
        try:
            frames = drive.quick_stop_frames() if brake else drive.disable_frames()
        except BaseException as error:
            self._failed(name, error)
            if brake:
                self._send_off(drive, False)
        for frame in frames:
            try:
                self._dispatch.send(bus, frame)
            except BaseException as error:
                self._failed(name, error)

    def listen(self, until: int) -> None:
        """Receives the drives' answers and resets their watchdogs until a moment [ns]."""
        clock = self._dispatch.clock
        while (now := clock.now()) < until:
            due = until
            try:
                due = min(until, self._dispatch.service(self._period))
            except BaseException as error:
                self._failed("", error)
            try:
                self._dispatch.wait(due, lambda: next(iter(self._dispatch.buses)))
            except BaseException as error:
                self._failed("", error)
                if clock.now() == now:
                    self.attempt("", lambda: clock.sleep_until(min(until, now + PAUSE)))

    def attempt(self, name: str, action: Callable[[], None]) -> None:
        """Does something, and keeps what it raises under the name of a drive."""
        try:
            action()
        except BaseException as error:
            self._failed(name, error)

    def _failed(self, name: str, error: BaseException) -> None:
        """Keeps the first exception of each drive: the later ones follow from it."""
        self.failures.setdefault(name, in_one_line(error))
