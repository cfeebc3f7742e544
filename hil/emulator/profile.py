"""What the CANopen communication of an emulated node asks of the device behind it."""

from abc import abstractmethod

from hil.emulator.node import EmulatedNode
from hil.emulator.objects import Key


class Profile(EmulatedNode):
    """The device behind the communication: a drive, or an encoder, which only measures."""

    @abstractmethod
    def measure(self, everything: bool) -> None:
        """Updates the measured objects: all, or only position and velocity."""

    def written(self, key: Key, value: int) -> int:
        """Called before an object is written.

        Returns:
            0 to accept it, or an abort code.
        """
        return 0

    def commanded(self) -> None:
        """Called after a PDO has written objects."""

    def disconnected(self, code: int) -> None:
        """Called at the loss of communication; `code` is 0 if an NMT command stopped it."""

    def synced(self) -> None:
        """Called on SYNC, before the node sends."""

    def reset(self, whole: bool) -> None:
        """Called on a reset of the node (`whole`), or of its communication alone."""
