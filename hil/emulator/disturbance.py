"""The interface of a disturbance on an emulated wire."""

from hil.emulator.station import Station
from hil.frame import Frame


class Disturbance:
    """A disturbance of frames on a wire, or in an adapter behind it; this one disturbs nothing."""

    def corrupts(self, frame: Frame, sender: Station) -> bool:
        """Whether every station sees an error in this frame."""
        return False

    def deliveries(self, frame: Frame, sender: Station, receiver: Station) -> list[tuple[int, Frame]]:
        """Frames that a receiver gets for a frame, each with its delay [ns]."""
        return [(0, frame)]
