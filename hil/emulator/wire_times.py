"""How long frames, errors and pauses take on an emulated bus."""

from hil.bus.frame_bits import frame_bits
from hil.bus.rates import BusRates
from hil.frame import Frame
from hil.loop.clock import SECOND

INTERFRAME = 3  # bits of the interframe space
END_OF_FRAME = 7  # bits at the end of a frame that an error flag replaces
ERROR_FRAME = 14  # bits of an error flag that all stations send at once, and of its delimiter
SUSPEND = 8  # bits that an error passive station waits after a frame
SEQUENCE = 11  # bits of a sequence of recessive bits that counts for the end of bus-off


class WireTimes:
    """Times on a bus [ns].

    Attributes:
        interframe: Interframe space.
        error: By how much an error flag makes a frame longer.
        suspend: Pause of an error passive station after a frame.
    """

    def __init__(self, rates: BusRates) -> None:
        """Those of a bus with these bit rates."""
        self._bitrate, self._data_bitrate = rates.nominal, rates.data
        self._kept: dict[tuple[int, bool, bool, bool], int] = {}
        self.interframe, self.suspend = self._duration(INTERFRAME), self._duration(SUSPEND)
        self.error = self._duration(ERROR_FRAME - END_OF_FRAME)

    def _duration(self, bits: int) -> int:
        return bits * SECOND // self._bitrate

    def sequences(self, number: int) -> int:
        """Duration of so many sequences of recessive bits."""
        return self._duration(SEQUENCE * number)

    def frame(self, frame: Frame) -> int:
        """Duration of a frame with the most stuff bits there can be and the interframe space."""
        kind = 0 if frame.remote else len(frame.data), frame.extended, frame.fd, frame.brs
        duration = self._kept.get(kind)
        if duration is None:
            bits = frame_bits(*kind)
            nominal, data = bits.nominal * SECOND // self._bitrate, bits.data * SECOND // self._data_bitrate
            duration = self._kept[kind] = nominal + data
        return duration
