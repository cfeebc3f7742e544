"""How all drives of a rig are switched off, whatever fails on the way.

Design: a failure of one drive, or of a bus, never keeps the other drives on, not even a SystemExit of a driver.
"""

from collections.abc import Callable, Sequence

from hil.drives.base import Drive
from hil.frame import Frame
from hil.loop import nanoseconds
from hil.rig.dispatch import Dispatch
from servoctl.errors import in_one_line

PAUSE = 1_000_000  # [ns] pause before a bus that raises is read again


class SwitchOff:
    """Switches drives off.

    Args:
        dispatch: Carries frames between buses and drives.
        drives: The drives.
        period: Period of the loop [s].
    """

    def __init__(self, dispatch: Dispatch, drives: Sequence[Drive], period: float) -> None:
        self._dispatch, self._drives, self._period = dispatch, drives, nanoseconds(period)
        self._rounds = 0
        self.failures: dict[str, str] = {}  # name of a drive ('' if unknown) -> exception raised meanwhile

    @property
    def confirmed(self) -> bool:
        """Whether every drive reports that it is off, after two rounds: the first answers may be older."""
        return self._rounds > 1 and all([drive.confirmed_off for drive in self._drives])

    def send(self) -> bool:
        """Sends all drives the frames that disable them; returns whether they have confirmed."""
        for drive in self._drives:
            self.send_to(drive, drive.disable_frames)
        self._rounds += 1
        return self.confirmed

    def send_to(self, drive: Drive, make: Callable[[], Sequence[Frame]]) -> None:
        """Sends the frames that stop one drive; if they cannot be made, those that disable it."""
        name, bus = drive.settings.name, drive.settings.bus
        frames: Sequence[Frame] = ()
        try:
            frames = make()
        except BaseException as error:
            self._failed(name, error)
            self.attempt(name, lambda: self._send_all(bus, name, drive.disable_frames()))
        self._send_all(bus, name, frames)

    def _send_all(self, bus: str, name: str, frames: Sequence[Frame]) -> None:
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
