"""Nodes whose frames are stated as data: samples are read, and torques are sent, by their table."""

from collections.abc import Mapping, Sequence
from math import isfinite, nan

from hil.drives.base import Condition, Drive, Node, Sample
from hil.drives.guard import Feed, motor_torque
from hil.drives.settings import DriveSettings, Quantity
from hil.drives.wire import Encoding, FrameReads, step_of
from hil.frame import Frame


class TableNode(Node):
    """A node whose samples are read by its table."""

    motion: FrameReads  # the numbers in the frame of a sample

    def _take_sample(self, frame: Frame) -> bool:
        """Takes the sample in a frame; returns whether its motion is finite, else nothing changes."""
        return self._take_values(self.motion.values(frame.data), frame.time)

    def _take_values(self, values: Mapping[Quantity, float], time: int) -> bool:
        position, velocity = values[Quantity.POSITION], values[Quantity.VELOCITY]
        if not (isfinite(position) and isfinite(velocity)):
            return False
        self.sample = Sample(position, velocity, values.get(Quantity.TORQUE, self.next_torque), time)
        return True

    def quantum(self) -> tuple[float, float, float]:
        """Smallest steps on the wire, at the joint: of whole numbers, by their scales in the table."""
        steps = {reads.quantity: step_of(reads.chain) for reads in self.motion.reads}
        return steps[Quantity.POSITION], steps[Quantity.VELOCITY], nan


class TableDrive(TableNode, Drive):
    """A drive whose torques are sent by its table."""

    encoding: Encoding  # how a torque is sent; its frame is that of zero torque

    def __init__(self, settings: DriveSettings, period: float) -> None:
        super().__init__(settings, period)
        self._feed = Feed()

    def command(self, torque: float) -> Frame:
        self._feed.fed = True
        return self._torque_frame(torque, self.encoding)

    def _torque_frame(self, torque: float, encoding: Encoding) -> Frame:
        """The frame of a torque at the joint; raises as `command`."""
        motor_torque(self.settings, torque)  # refuses a torque beyond the limit
        return encoding.frame_of(torque)

    @property
    def begins(self) -> bool:
        return self._feed.seed is not None and not self.has_worked

    def carried(self, torque: float) -> float:
        return self.encoding.carried(torque)

    def torque_bytes(self, frame: Frame) -> bytes | None:
        return self.encoding.torque_bits(frame)

    def quantum(self) -> tuple[float, float, float]:
        position, velocity, _ = super().quantum()
        return position, velocity, 1.0 / step_of((*self.encoding.chain, *self.encoding.steps))

    def alive_frames(self) -> Sequence[Frame]:
        """Zero torque while the drive is not enabled, its first torque while it is being enabled."""
        return self._feed.frames(self.encoding.frame, self.condition is Condition.ENABLED)
