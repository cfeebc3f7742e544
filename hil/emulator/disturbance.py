"""What goes wrong on an emulated wire."""

from hil.emulator.station import Station
from hil.frame import Frame


class Disturbance:
    """What goes wrong on a wire, or behind it; the default: nothing."""

    def corrupts(self, frame: Frame, sender: Station) -> bool:
        """Whether every station sees an error in this frame."""
        return False

    def deliveries(self, frame: Frame, sender: Station, receiver: Station) -> list[tuple[int, Frame]]:
        """What a receiver gets for a frame: delays [ns] and frames."""
        return [(0, frame)]
