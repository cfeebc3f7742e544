"""What drives and encoder nodes on CANopen share: communication, and the objects of position and velocity."""

from collections.abc import Mapping
from math import isfinite, tau

from hil.emulator.canopen import CanOpen
from hil.emulator.objects import Key, ObjectEntry
from hil.emulator.profile import Profile
from hil.emulator.timers import Timer
from hil.frame import Frame

POSITION, VELOCITY = (0x6064, 0), (0x606C, 0)

HALF, FULL = 1 << 31, (1 << 32) - 1  # (n + HALF & FULL) - HALF is n in a signed integer of 32 bits, which wraps around
HEARTBEATS = 0x700, 0x780  # ids of heartbeats: a value, and the mask of its bits


class CanOpenNode(Profile):
    """A node on CANopen.

    Options: `counts_per_turn` [increments] (65536), `velocity_unit` [rad/s] (one increment per second).
    """

    canopen: CanOpen  # its communication

    def connect(self, entries: Mapping[Key, ObjectEntry], wait_for_sync: bool) -> None:
        """Prepares communication and units; arguments as of `CanOpen`."""
        self.canopen = CanOpen(self, entries, wait_for_sync)
        self._counts = self.number("counts_per_turn", 65536) / tau  # increments per radian of the motor
        self._velocity_unit = self.number("velocity_unit", 1.0 / self._counts)

    def heartbeat_ids(self) -> tuple[int, int]:
        return HEARTBEATS

    def listens(self) -> frozenset[int]:
        return self.canopen.listens()

    def timers(self) -> list[Timer]:
        return self.canopen.timers

    def receive(self, frame: Frame) -> None:
        self.canopen.receive(frame)

    def boot(self) -> None:
        self.station.receive = self.canopen.receive
        self.canopen.boot()

    def halt(self) -> None:
        self.canopen.halt()

    def measure(self, everything: bool) -> None:
        """Updates position and velocity; CANopen has no NaN, so an invalid measurement leaves them as they are."""
        position, velocity = self.encoder.read(self.world.now)
        if isfinite(position + velocity):
            values = self.canopen.values
            values[POSITION] = (round(position * self._counts) + HALF & FULL) - HALF
            values[VELOCITY] = (round(velocity / self._velocity_unit) + HALF & FULL) - HALF
