"""How settings of a moteus are read: through the tunnel to its console, as text."""

from collections.abc import Callable, Generator

from hil.codecs import moteus as codec
from hil.codecs import moteus_registers as registers
from hil.drives.base import DriveError, HandshakeStep
from hil.drives.guard import after
from hil.drives.odrive_encoder import TURN
from hil.drives.settings import DriveSettings
from hil.frame import Frame

POLLS = 20  # how often the console is asked for the rest of an answer


class Console:
    """The console of one drive.

    Args:
        make_frame: Makes a frame to the drive of a payload.
    """

    def __init__(self, make_frame: Callable[[bytes], Frame]) -> None:
        self._make_frame = make_frame
        self._text, self._polls = "", 0

    def take(self, text: str) -> None:
        """Takes a part of an answer."""
        self._text += text
        self._polls += 1

    def setting(self, name: str) -> Generator[HandshakeStep, None, float]:
        """Reads a setting through the console; the caller checks it.

        Args:
            name: Its name in the drive.

        Raises:
            DriveError: The drive has no such setting, or does not answer with a number.
        """
        self._text = ""
        ask = [self._make_frame(codec.console_write(f"conf get {name}\n"))]
        poll = self._make_frame(registers.padded(codec.console_poll()))
        for _ in range(POLLS):
            polled = after(lambda: self._polls, 1)
            expected = f"an answer of its console to conf get {name}"
            yield HandshakeStep([*ask, poll], polled, 0.5, expected)
            ask = []
            if "\n" in self._text:
                break
        answer = self._text.strip()
        try:
            return float(answer)
        except ValueError:
            remedy = "update its firmware: moteus_tool --flash"
            raise DriveError(f"answers {answer!r} to conf get {name} ({remedy})") from None


def bounds(settings: DriveSettings) -> tuple[float, float]:
    """The position limits of the config at the shaft of the drive [rev], the lower one first."""
    first, last = sorted(settings.motor(limit) / TURN for limit in settings.position_limits)
    return first, last


def refuse_bounds(settings: DriveSettings, lower: float, upper: float) -> None:
    """Refuses limits of the drive [rev] inside those of the config: it would limit its torque there.

    Raises:
        DriveError: A limit is inside.
    """
    first, last = bounds(settings)
    if lower > first or upper < last:
        what = f"its servopos.position_min and position_max are {lower:g} and {upper:g} rev"
        wanted = f"position_limits of the config are {first:.4g} and {last:.4g} rev at its shaft"
        raise DriveError(f"{what}, {wanted} (widen the first: conf set, conf write; or narrow the second)")
