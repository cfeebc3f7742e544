"""Whether a moteus has the registers that are used, and knows its position."""

from collections.abc import Callable, Mapping

from hil.codecs import moteus as codec
from hil.codecs import moteus_registers as registers
from hil.drives.base import DriveError, HandshakeStep, Steps
from hil.frame import Frame

OLDEST_MAP = 5  # first version of the register map that has `ILIMIT_SCALE` and the home state

ASKED = (registers.MODEL, registers.FIRMWARE, registers.MAP_VERSION, registers.HOME_STATE)


class Identity:
    """The registers of one drive that tell what it is.

    Args:
        make_frame: Makes a frame to the drive of a payload.
        home: Least home state, one of `codec.HOME_STATES`.
    """

    def __init__(self, make_frame: Callable[[bytes], Frame], home: str) -> None:
        self._make_frame = make_frame
        self._least = codec.HOME_STATES.index(home)
        self._values: dict[int, float] = {}

    def take(self, values: Mapping[int, float]) -> None:
        """Takes registers that the drive has answered; NaN where it does not know one."""
        self._values |= values

    def check(self) -> Steps:
        """Asks the drive, and compares.

        Raises:
            DriveError: Its register map is too old, or it knows its position too little.
        """
        for register in ASKED:
            self._values.pop(register, None)
        answered = lambda: all(register in self._values for register in ASKED)  # noqa: E731
        frames = [self._make_frame(registers.padded(data)) for data in (codec.IDENTITY, codec.HOME)]
        yield HandshakeStep(frames, answered, 0.5, "its model, firmware and home state")
        self._refuse_map(self._values[registers.MAP_VERSION])
        self._refuse_home_state(self._values[registers.HOME_STATE])

    def _refuse_map(self, version: float) -> None:
        if not version >= OLDEST_MAP:
            what = f"has version {version:g} of the register map, version {OLDEST_MAP} or later is needed"
            raise DriveError(f"{what} (update its firmware: moteus_tool --flash)")

    def _refuse_home_state(self, home: float) -> None:
        if not home >= self._least:
            known = codec.HOME_STATES[int(home)] if home in (0, 1, 2) else f"{home:g}"
            what = f"its home state is {known}: its position may be wrong by turns of the rotor"
            exact = "bring the joint to a known pose and send `d exact`, or give it an encoder at the output"
            raise DriveError(f"{what} ({exact}; or check the start pose each time, and set home: {known})")
