"""How long frames, errors and pauses take on an emulated bus."""

from hil.bus.fd_bits import fd_bits
from hil.bus.frame_bits import frame_bits
from hil.bus.rates import BusRates
from hil.frame import Frame
from hil.loop.clock import SECOND

INTERFRAME = 3
"""Bits of the interframe space."""

END_OF_FRAME = 7
"""Bits at the end of a frame that an error flag replaces."""

ERROR_FRAME = 14
"""Bits of an error flag that all stations send at once, and of its delimiter."""

SUSPEND = 8
"""Bits that an error passive station waits after a frame."""

SEQUENCE = 11
"""Bits of a sequence of recessive bits that counts for the end of bus-off."""


SHORT = 4
"""Frames with at most so many bytes repeat: commands of torque, SYNC, heartbeats."""

MOST_KEPT = 16384
"""Durations of short frames that are kept."""


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
        self._kept: dict[tuple[int, bytes], int] = {}
        self.interframe, self.suspend = self._duration(INTERFRAME), self._duration(SUSPEND)
        self.error = self._duration(ERROR_FRAME - END_OF_FRAME)

    def _duration(self, bits: int) -> int:
        return bits * SECOND // self._bitrate

    def sequences(self, number: int) -> int:
        """Duration of so many sequences of recessive bits."""
        return self._duration(SEQUENCE * number)

    def frame(self, frame: Frame) -> int:
        """Duration of a frame with its stuff bits and the interframe space."""
        if frame.fd:
            bits = fd_bits(frame)
            return bits.nominal * SECOND // self._bitrate + bits.data * SECOND // self._data_bitrate
        data = frame.data
        if len(data) > SHORT or frame.extended or frame.remote:
            return frame_bits(frame) * SECOND // self._bitrate
        kept, key = self._kept, (frame.id, data)
        duration = kept.get(key)
        if duration is None:
            if len(kept) >= MOST_KEPT:
                kept.clear()
            duration = kept[key] = frame_bits(frame) * SECOND // self._bitrate
        return duration
